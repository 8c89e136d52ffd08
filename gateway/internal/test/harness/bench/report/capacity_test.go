package report

import (
	"strings"
	"testing"
)

func TestMillionPlayersAreComputedFromTheFigures(t *testing.T) {
	r := New("", "", nil)
	r.Subjects = []Subject{{Name: "reseat@poll"}}
	r.Add("W2", "reseat@poll", 0, map[string]float64{"cpu_us": 10})
	r.Add("W6", "reseat@poll", 0, map[string]float64{"used_kib": 4, "opened_kib": 4})
	r.Add("W6det", "reseat@poll", 0, map[string]float64{"detached_kib": 36})
	r.Add("W7", "reseat@poll", 0, map[string]float64{"resume_us": 100})
	p := r.million("poll")
	if p.Cores != "250" || p.Processes != "63" || p.Each != "16,000" || p.SessionsGiB != "3.81" || p.BuffersGiB != "0.358" || p.CutCPU != "1.59" {
		t.Errorf("%+v", p)
	}
	want := "| poll driver | 260,000 | 26,000 |  | 100,000 |  | 10,000 |"
	if got := r.capacityTable().String(); !strings.Contains(got, want) {
		t.Errorf("%s\nwithout %s", got, want)
	}
}

func TestLargeNumbersAreShownToTwoDigits(t *testing.T) {
	for v, want := range map[float64]string{7: "7", 63: "63", 99.4: "99", 128: "130", 1234: "1,200", 987654: "990,000", 12500000: "13,000,000"} {
		if got := thousands(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

// On a machine on which nginx takes twice as long, so may the gateway.
func TestBarsInTimeScaleWithTheMachine(t *testing.T) {
	r := New("", "", nil)
	r.Subjects = []Subject{{Name: "nginx"}, {Name: "hs256@poll"}, {Name: "reseat@poll"}}
	r.Add("W8", "nginx", 0, map[string]float64{"connection_us": 84})
	for measured, want := range map[float64]string{259: "met", 261: "**missed**"} {
		r.Samples = r.Samples[:1]
		r.Add("W8", "hs256@poll", 0, map[string]float64{"connection_us": measured})
		if got := r.barTable().String(); !strings.Contains(got, "≤ 130 × 2.0 = 260") || !strings.Contains(got, want) {
			t.Errorf("%v µs: %s, want %s", measured, got, want)
		}
	}
}
