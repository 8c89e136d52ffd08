package watch

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
)

func TestRoundTripsOmitUnmeasuredClients(t *testing.T) {
	var infos []session.Info
	if median, high := roundTrips(infos); median != 0 || high != 0 {
		t.Errorf("of none: %v, %v", median, high)
	}
	for i := range 100 {
		infos = append(infos, session.Info{},
			session.Info{State: session.Attached, RTT: time.Duration(100-i) * time.Millisecond},
			session.Info{State: session.Detached, RTT: time.Hour})
	}
	if median, high := roundTrips(infos); median != 51 || high != 96 {
		t.Errorf("of 1 to 100 ms: %v, %v", median, high)
	}
}

// The number of omitted lines is logged once.
func TestOmittedLinesAreCountedOnce(t *testing.T) {
	var said bytes.Buffer
	total := newMetrics().Unlogged
	l := NewLimitedLog(slog.New(slog.NewTextHandler(&said, nil)), 0, 1, total)
	for range 4 {
		l.Info("refused")
	}
	l.limit = rate.NewLimiter(rate.Inf, 1)
	l.Info("refused")
	l.Warn("refused")
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 3 || Value(total) != 3 || strings.Contains(lines[0]+lines[2], "left_out_before") || !strings.Contains(lines[1], "left_out_before=3") {
		t.Errorf("total %v, %q", Value(total), lines)
	}
}

// A counter with two labels continues like any other.
func TestCountersContinueInASuccessor(t *testing.T) {
	older, newer := newMetrics(), newMetrics()
	older.Forwards.WithLabelValues("out", "gone").Add(3)
	older.Resumes.WithLabelValues(ResumeOK).Add(2)
	older.Created.Inc()
	newer.Created.Inc() // while it started
	newer.Add(append(older.Counts(), Counter{"reseat_unknown_total", "", 1}, Counter{"reseat_claims_total", "", 1}))
	wstest.Equal(t, "forwards, resumes and sessions", [3]float64{
		Value(newer.Forwards.WithLabelValues("out", "gone")), Value(newer.Resumes.WithLabelValues(ResumeOK)), Value(newer.Created),
	}, [3]float64{3, 2, 2})
}

// An upgrade neither loses nor repeats a refusal: the newest are listed in order, and all are counted.
func TestRefusalsContinueInASuccessor(t *testing.T) {
	for _, n := range []int{0, 1, maxRefusals, maxRefusals + 1, 2*maxRefusals + 50} {
		var older, newer Watch
		for i := range n {
			older.ring.add(1, Refusal{Status: i})
		}
		newer.ring.add(1, Refusal{Status: -1}) // while it started
		newer.ContinueRefusals(older.RefusalsSoFar())
		if _, got := newer.ring.kept(); got != n+1 {
			t.Errorf("%d refusals count as %d in a successor that had one", n, got)
		}
		list := newer.Refusals()
		for i, f := range list[:min(n, len(list))] {
			if f.Status != n-1-i {
				t.Fatalf("of %d refusals the one before %d newer is number %d, want %d", n, i, f.Status, n-1-i)
			}
		}
		if len(list) != min(n+1, maxRefusals) {
			t.Errorf("%d refusals are listed after %d", len(list), n)
		}
	}
}
