package gateway

import (
	"testing"
	"time"

	"reseat/gateway/registry"
)

// A token is replaced after half of its lifetime, or earlier if it would not outlive twice
// the heartbeat plus the grace period: protocol section 7.
func TestRenewalTime(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	for _, c := range []struct {
		name                         string
		life, heartbeat, grace, want time.Duration
	}{
		{"half its life", h, 15 * s, 30 * s, 30 * m},
		{"three quarters of what is spare", 10 * m, 15 * s, 5 * m, 202500 * time.Millisecond},
		{"the grace period is half its life", 10 * m, 0, 5 * m, 225 * s},
		{"spare is two thirds: both are the same", 9 * m, 0, 3 * m, 4*m + 30*s},
		{"hardly anything is spare", 10 * m, 15 * s, 9*m + 29900*time.Millisecond, minRenewInterval},
		{"nothing is spare", 10 * m, 15 * s, 9*m + 30*s, 5 * m},
		{"less than nothing", 10 * m, h, h, 5 * m},
		{"a life shorter than the least pause", 600 * time.Millisecond, 0, 0, 300 * time.Millisecond},
	} {
		if got := renewal(c.life, c.heartbeat, c.grace); got != c.want {
			t.Errorf("%s: life %v, heartbeat %v, grace %v: renewed after %v, want %v", c.name, c.life, c.heartbeat, c.grace, got, c.want)
		}
	}
	for life := time.Second; life < 48*h; life = life*3/2 + 7 {
		for grace := time.Duration(0); grace < 24*h; grace = grace*2 + 11*s {
			at := renewal(life, 15*s, grace)
			if spare := life - 30*s - grace; spare > time.Second && life-at < 30*s+grace {
				t.Errorf("life %v, grace %v: renewed after %v, too late for a drop just before", life, grace, at)
			}
			if at <= 0 || at > life/2 {
				t.Errorf("life %v, grace %v: renewed after %v", life, grace, at)
			}
		}
	}
}
func TestDurationIsFormattedAsFlagsParseIt(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Millisecond: "1ms", 1500 * time.Millisecond: "1.5s", 45 * time.Second: "45s", time.Minute: "1m", 90 * time.Second: "1m30s",
		10 * time.Minute: "10m", time.Hour: "1h", time.Hour + time.Second: "1h0m1s", time.Hour + 10*time.Minute: "1h10m", 100*time.Hour + 5*time.Minute: "100h5m",
	} {
		got := registry.FormatDuration(d)
		if back, err := time.ParseDuration(got); got != want || back != d || err != nil {
			t.Errorf("%v is written %q, which reads %v, %v; want %q", d, got, back, err, want)
		}
	}
}
