package gateway

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"reseat/gateway/registry"
)

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

// T43: a client cannot fill the log.
func TestLogValuesAreBounded(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("\u20ac", 100), strings.Repeat("x", 1<<20)} {
		got := clip(s)
		if len(got) > 200 || !strings.HasPrefix(s, got) || !utf8.ValidString(got) || len(s) <= 200 && got != s {
			t.Errorf("%d bytes become %d", len(s), len(got))
		}
	}
}

type tally int

func (n *tally) Inc() { *n++ }

// The number of omitted lines is logged once.
func TestOmittedLinesAreCountedOnce(t *testing.T) {
	var said bytes.Buffer
	var total tally
	l := &limitedLog{log: slog.New(slog.NewTextHandler(&said, nil)), limit: rate.NewLimiter(0, 1), total: &total}
	for range 4 {
		l.info("refused")
	}
	l.limit = rate.NewLimiter(rate.Inf, 1)
	l.info("refused")
	l.warn("refused")
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 3 || total != 3 || strings.Contains(lines[0]+lines[2], "left_out_before") || !strings.Contains(lines[1], "left_out_before=3") {
		t.Errorf("total %d, %q", total, lines)
	}
}

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

// A mass reconnect queues thousands of dials, of one address behind a proxy or of as many addresses. Each grant
// must look at few of them.
func TestGrantLooksAtFewOfThoseThatWait(t *testing.T) {
	const waiting = 5000
	for name, who := range map[string]func(i int) caller{
		"one address, one path":   func(int) caller { return caller{} },
		"one address, many paths": func(i int) caller { return caller{path: fmt.Sprint(i)} },
		"many addresses": func(i int) caller {
			return caller{from: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)}
		},
		"many addresses, few paths": func(i int) caller {
			return caller{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32), fmt.Sprint(i % 3)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := &dialQueue{addrs: make(map[netip.Prefix]*dialAddr)}
			callers, turns := make([]caller, waiting), make([]*dialTurn, waiting)
			for i := range turns {
				callers[i] = who(i)
				turns[i] = q.add(callers[i])
			}
			for ended := 0; ended < waiting; {
				q.grant()
				looks := 0
				if q.waiting.Len() > 0 {
					a := fewest(&q.waiting, func(a *dialAddr) int { looks++; return a.dialling })
					fewest(&a.waiting, func(p *dialPath) int { looks++; return p.dialling / 4 })
				}
				if looks > 4*dialsAtOnce { // fewest asks twice for each
					t.Fatalf("a grant looks at %d of those that wait", looks)
				}
				before := ended
				for i, turn := range turns {
					if turn != nil && turn.elem == nil { // it was granted, and ends
						q.end(turn)
						q.forget(callers[i], turn)
						turns[i] = nil
						ended++
					}
				}
				if ended == before {
					t.Fatalf("after %d dials none is granted, with %d in flight", ended, q.dialling)
				}
			}
			if len(q.addrs) > 0 || q.dialling != 0 {
				t.Errorf("%d addresses and %d dials are left", len(q.addrs), q.dialling)
			}
		})
	}
}
