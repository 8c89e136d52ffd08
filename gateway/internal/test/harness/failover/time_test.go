//go:build linux

package failover

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var sessions = flag.Int("sessions", 200, "how many lose their gateway at once, to be timed")

// All sessions of a gateway that is killed go on at the two others. How long that takes is
// logged; it must be less than the clients' grace period by far.
func TestFailoverTime(t *testing.T) {
	s := open(t, 1)
	var others []string
	co, err := s.join(t.Context(), *sessions, 1, 2*time.Second, func(c *client) {
		c.beside = false
		others, c.fronts = c.fronts[1:], c.fronts[:1]
		c.pings, c.patience = 2*time.Second, 20*time.Second
	})
	if err != nil {
		t.Fatal(err)
	}
	co.each(func(c *client) { c.fronts = others })
	time.Sleep(2 * time.Second)
	load, _ := os.ReadFile("/proc/loadavg")
	began := time.Now()
	s.nodes[0].Kill()
	used := s.cpu()
	if err := co.back(t.Context(), 30*time.Second, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	times := co.moved(began)
	if len(times) != *sessions {
		t.Errorf("%d sessions moved, want %d", len(times), *sessions)
	}
	for party, now := range s.cpu() {
		used[party] = now - used[party]
	}
	at := func(q float64) time.Duration { return times[int(q*float64(len(times)-1))].Round(time.Millisecond) }
	codes := map[int]int{}
	co.each(func(c *client) {
		for k, n := range c.refused {
			codes[k] += n
		}
	})
	t.Logf("%d sessions, from SIGKILL to hello: p50 %v, p90 %v, p99 %v, max %v; refused on the way: %v; load %s; CPU until a second later %v", len(times), at(0.5), at(0.9), at(0.99), slices.Max(times), codes, strings.TrimSpace(string(load)), used)
	co.wants(t, append(co.settle(t.Context(), 30*time.Second), co.judge()...)...)
}
