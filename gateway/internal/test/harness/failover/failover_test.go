//go:build linux

package failover

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/chaos/process"
)

var (
	binFlag    = flag.String("bin", "", "the gateway's program; built with the race detector where there is none")
	natsFlag   = flag.String("nats", "", "the NATS server's program; built where there is none")
	gameFlag   = flag.String("game", "", "the counting game's program; built where there is none")
	dirFlag    = flag.String("dir", "", "directory that keeps the logs")
	lateFlag   = flag.Duration("late", 8*time.Second, "what a busy machine may add")
	driverFlag = flag.String("driver", "both", "the gateways' driver; both: now one and now the other")
	lastFlag   = flag.Duration("last", 35*time.Second, "how long troubles come")
	seedFlag   = flag.Uint64("seed", 1, "of what is random")
	clients    = flag.Int("clients", 20, "how many sessions")
)

// programs builds what is missing, once.
var programs = sync.OnceValues(func() (p [3]string, err error) {
	p = [3]string{*binFlag, *natsFlag, *gameFlag}
	dir, err := os.MkdirTemp("", "reseat-failover-")
	if err != nil {
		return p, err
	}
	ctx := context.Background()
	if p[0] == "" {
		if p[0], err = process.Build(ctx, dir, "-race"); err != nil {
			return p, err
		}
	}
	if p[1] == "" {
		if p[1], err = process.BuildNATS(ctx, dir); err != nil {
			return p, err
		}
	}
	if p[2] == "" {
		p[2], err = process.BuildGame(ctx, dir)
	}
	return p, err
})

// open starts a stage, which ends with the test. tick is in ms.
func open(t *testing.T, servers, tick int, more ...string) *stage {
	t.Helper()
	p, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config{bin: p[0], nats: p[1], game: p[2], dir: t.TempDir(), driver: *driverFlag, nodes: 3, servers: servers, tick: tick, flags: more}
	if *dirFlag != "" {
		cfg.dir = filepath.Join(*dirFlag, t.Name())
		os.RemoveAll(cfg.dir)
		if err := os.MkdirAll(cfg.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newStage(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

const mostFaults = 20

// wants reports faults, with the story of the first client that has one.
func (co *company) wants(t *testing.T, faults ...string) {
	t.Helper()
	for _, f := range faults[:min(len(faults), mostFaults)] {
		t.Errorf("%.3000s", f)
	}
	for _, c := range co.clients {
		if slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, fmt.Sprintf("client %d ", c.id)) }) {
			t.Logf("client %d:\n  %s\n  the game: %v, %.600v", c.id, strings.Join(c.story, "\n  "), co.s.tap.of(c.session), co.s.reports()[c.session])
			return
		}
	}
}

// isBack ends the test unless all clients are back.
func (co *company) isBack(t *testing.T, limit time.Duration) {
	t.Helper()
	if err := co.back(t.Context(), limit+*lateFlag, time.Now().Add(500*time.Millisecond)); err != nil {
		co.wants(t, err.Error())
		t.FailNow()
	}
}

// Gateways are killed, stopped, drained and started again, NATS servers too, and clients come and go. No
// session is lost, and the game applies every message of the clients once and in order, as they do its
// own.
func TestDurableSessionsOutliveTheirGateways(t *testing.T) {
	s := open(t, 3, 500)
	co, err := s.join(t.Context(), *clients, *seedFlag, 50*time.Millisecond)
	if err != nil {
		co.wants(t, err.Error())
		t.FailNow()
	}
	all := map[string]int{}
	seed := *seedFlag
	for until := time.Now().Add(*lastFlag); time.Now().Before(until) && !t.Failed(); seed += 1000 {
		s.ravage(t.Context(), co, seed, min(20*time.Second, time.Until(until)), all, t.Logf)
		co.isBack(t, 15*time.Second)
		co.wants(t, append(co.settle(t.Context(), 20*time.Second+*lateFlag), co.judge()...)...)
		co.each(func(c *client) { c.quiet = false })
		if what := awaits(t.Context(), 30*time.Second+*lateFlag, s.joined); what != "" {
			t.Error(what)
		}
	}
	co.wants(t, co.settle(t.Context(), 20*time.Second+*lateFlag)...)
	co.wants(t, co.judge()...)
	co.wants(t, co.judgeOwners()...)
	co.wants(t, co.part(t.Context())...)
	co.wants(t, s.judgeMetrics()...)
	co.wants(t, s.faulty()...)
	t.Log(co.told(), all)
	if claims := len(s.said("session.claimed")); claims < *clients/2 {
		t.Errorf("too little has happened to mean anything: %d claims", claims)
	}
}

// told sums up what has happened.
func (co *company) told() string {
	codes, made, unused, repeats := map[int]int{}, uint64(0), 0, 0
	co.each(func(c *client) {
		made += c.made
		unused += c.unused
		for k, n := range c.refused {
			codes[k] += n
		}
	})
	for _, r := range co.s.reports() {
		repeats += r.Repeats
	}
	text := fmt.Sprintf("%d messages, %d of them repeated to the game; refused resumes by code: %v, hellos not taken: %d;", made, repeats, codes, unused)
	for _, msg := range []string{"session.claimed", "session.moved", "session.fenced", "handoff.failed", "handoff.refused", "handoff.unclear", "session.exposed", "session.covered", "session.not_claimed", "seat.not_ended"} {
		text += fmt.Sprintf(" %s %d,", msg, len(co.s.said(msg)))
	}
	return text
}
