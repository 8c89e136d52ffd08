//go:build linux

package failover

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/process"
)

var (
	binFlag    = flag.String("bin", "", "the gateway's program; built with the race detector where there is none")
	natsFlag   = flag.String("nats", "", "the NATS server's program; built where there is none")
	gameFlag   = flag.String("game", "", "the counting game's program; built where there is none")
	dirFlag    = flag.String("dir", "", "directory that keeps the logs")
	lateFlag   = flag.Duration("late", 8*time.Second, "what a busy machine may add")
	driverFlag = flag.String("driver", "both", "the gateways' driver; both: now one and now the other")
	lastFlag   = flag.Duration("last", 20*time.Second, "how long troubles come")
	seedFlag   = flag.Uint64("seed", 1, "of what is random")
	clients    = flag.Int("clients", 20, "how many sessions")
	sessions   = flag.Int("sessions", 60, "how many lose their gateway at once, to be timed")
)

// open starts a stage, which ends with the test. tick is in ms.
func open(t *testing.T, servers, tick int) *stage {
	t.Helper()
	var programs []string
	for _, p := range []struct{ given, name string }{{*binFlag, "reseat-race"}, {*natsFlag, "nats-server"}, {*gameFlag, "counting"}} {
		bin, err := process.Program(p.given, p.name)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, bin)
	}
	s := &stage{bin: programs[0], dir: t.TempDir(), driver: *driverFlag}
	if *dirFlag != "" {
		s.dir = filepath.Join(*dirFlag, t.Name())
		os.RemoveAll(s.dir)
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(s.close)
	if err := s.open(t.Context(), programs[1], programs[2], servers, tick); err != nil {
		t.Fatal(err)
	}
	return s
}

// Gateways are killed, stopped, drained and started again, NATS servers too, and clients come and go. No
// session is lost, and the game applies every message of the clients once and in order, as they do its
// own.
func TestDurableSessionsOutliveTheirGateways(t *testing.T) {
	t.Parallel()
	s := open(t, 3, 500)
	co := s.join(t, *clients, *seedFlag, 50*time.Millisecond, func(*client) {})
	seed := *seedFlag
	for until := time.Now().Add(*lastFlag); time.Now().Before(until) && !t.Failed(); seed += 1000 {
		s.ravage(t.Context(), co, seed, min(20*time.Second, time.Until(until)), t.Logf)
		since := time.Now().Add(500 * time.Millisecond)
		co.awaits(15*time.Second, func(c *client) string { return c.isBack(since) })
		co.settle()
		if what := process.Await(t.Context(), 30*time.Second+*lateFlag, s.joined); what != "" {
			t.Error(what)
		}
	}
	co.part()
	co.settle()
	co.wants(s.faulty()...)
	t.Log(co.told())
	if claims := len(s.said("session.claimed")); claims < *clients/2 {
		t.Errorf("too little has happened to mean anything: %d claims, with -seed %d", claims, *seedFlag)
	}
}

// All sessions of a gateway that is killed, or drained, go on at the two others. How long that takes is
// logged.
func TestFailoverTime(t *testing.T) {
	for name, end := range map[string]func(n *node){
		"killed":  func(n *node) { n.Kill() },
		"drained": func(n *node) { n.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, 1, 2000)
			var others []string
			co := s.join(t, *sessions, 1, 2*time.Second, func(c *client) {
				c.beside = false
				others, c.fronts = c.fronts[1:], c.fronts[:1]
				c.pings, c.acks, c.patience = 2*time.Second, time.Second, 20*time.Second // many clients share two cores with all else
			})
			co.each(func(c *client) { c.fronts = others })
			co.awaits(30*time.Second, func(c *client) string {
				if c.made == 0 {
					return "has sent no message"
				}
				return ""
			})
			if what := process.Await(t.Context(), 30*time.Second, func() string {
				if n := s.nodes[0].Metrics()[`reseat_durable_sessions{state="covered"}`]; n < float64(*sessions) {
					return fmt.Sprintf("%v of %d sessions have their seat", n, *sessions)
				}
				return ""
			}); what != "" {
				t.Fatal(what)
			}
			began := time.Now()
			end(s.nodes[0])
			co.awaits(30*time.Second+time.Duration(*sessions)*10*time.Millisecond, func(c *client) string {
				if c.movedAt.IsZero() {
					return fmt.Sprint("has not moved; over: ", c.over)
				}
				return ""
			})
			var times []time.Duration
			co.each(func(c *client) { times = append(times, c.movedAt.Sub(began)) })
			slices.Sort(times)
			at := func(percent int) time.Duration { return times[percent*(len(times)-1)/100].Round(time.Millisecond) }
			t.Logf("%d sessions, from the signal to hello: p50 %v, p90 %v, p99 %v, max %v; %s", len(times), at(50), at(90), at(99), at(100), co.told())
			co.settle()
		})
	}
}
