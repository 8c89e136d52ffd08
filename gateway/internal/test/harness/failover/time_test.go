//go:build linux

package failover

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

var sessions = flag.Int("sessions", 200, "how many lose their gateway at once, to be timed")

// All sessions of a gateway that is killed, or drained, go on at the two others. How long that takes is
// logged.
func TestFailoverTime(t *testing.T) {
	for name, end := range map[string]func(n *node){
		"killed":  func(n *node) { n.Kill() },
		"drained": func(n *node) { n.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) { timed(t, end) })
	}
}

func timed(t *testing.T, end func(n *node)) {
	s := open(t, 1, 2000)
	var others []string
	co, err := s.join(t.Context(), *sessions, 1, 2*time.Second, func(c *client) {
		c.beside = false
		others, c.fronts = c.fronts[1:], c.fronts[:1]
		c.pings, c.acks, c.patience = 2*time.Second, time.Second, 20*time.Second // many clients share two cores with all else
	})
	if err != nil {
		t.Fatal(err)
	}
	co.each(func(c *client) { c.fronts = others })
	sleep(t.Context(), 2*time.Second)
	if what := awaits(t.Context(), 30*time.Second, func() string {
		if n := s.nodes[0].metrics()[`reseat_durable_sessions{state="covered"}`]; n < float64(*sessions) {
			return fmt.Sprintf("%v of %d sessions have their seat", n, *sessions)
		}
		return ""
	}); what != "" {
		t.Fatal(what)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	began := time.Now()
	end(s.nodes[0])
	used := s.cpu()
	what := awaits(t.Context(), 30*time.Second+time.Duration(*sessions)*10*time.Millisecond, func() string {
		if n := len(co.moved(began)); n < *sessions {
			return fmt.Sprintf("%d of %d sessions have moved", n, *sessions)
		}
		return ""
	})
	if what != "" {
		over := map[string]int{}
		co.each(func(c *client) { over[c.over]++ })
		t.Fatalf("%s; clients by what has ended their session: %v; claims: %v", what, over, s.claims())
	}
	for party, now := range s.cpu() {
		used[party] = now - used[party]
	}
	times := co.moved(began)
	at := func(q float64) time.Duration { return times[int(q*float64(len(times)-1))].Round(time.Millisecond) }
	codes, waited := map[int]int{}, 0
	co.each(func(c *client) {
		for k, n := range c.refused {
			codes[k] += n
		}
		if c.refused[4504] > 0 {
			waited++
		}
	})
	t.Logf("%d sessions, from the signal to hello: p50 %v, p90 %v, p99 %v, max %v; refused on the way: %v, 4504 to %d clients; claims: %v; CPU meanwhile: %v; load: %.14s",
		len(times), at(0.5), at(0.9), at(0.99), at(1), codes, waited, s.claims(), used, load)
	co.wants(t, append(co.settle(t.Context(), 30*time.Second), co.judge()...)...)
}

// claims adds up the claims of all gateways, by result.
func (s *stage) claims() map[string]float64 {
	all := map[string]float64{}
	for _, n := range s.nodes {
		for name, v := range n.metrics() {
			if result, ok := strings.CutPrefix(name, `reseat_claims_total{result="`); ok && v > 0 {
				all[strings.TrimSuffix(result, `"}`)] += v
			}
		}
	}
	return all
}
