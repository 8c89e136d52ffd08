//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/mutants/mutant"
)

// program returns a program that is built once for all tests.
func program(t *testing.T, name string) string {
	t.Helper()
	bin, err := process.Program("", name)
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

func chaos(t *testing.T, cfg Config) (*Report, string) {
	t.Helper()
	cfg.Dir = t.ArtifactDir() // with the logs: go test -artifacts keeps it
	// Tests run on any machine, next to others: what takes a moment may take seconds.
	cfg.Late, cfg.Expiry, cfg.Drain, cfg.Limit = 20*time.Second, 25*time.Second, max(cfg.Drain, 6*time.Second), 8*time.Minute
	rep, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	rep.Print(&b)
	return rep, b.String()
}

// The short form of make chaos: with both drivers; with event loops sessions move between four of them at each
// turn, and upgrades replace the process. No game server sees a second connection of a session.
func TestChaosLosesNoMessage(t *testing.T) {
	t.Parallel()
	for seed, c := range []struct {
		driver  string
		tls     bool
		upgrade time.Duration
		moves   bool
	}{{"net", true, 0, false}, {"poll", false, 3 * time.Second, true}} {
		t.Run(c.driver, func(t *testing.T) {
			t.Parallel()
			cfg := short()
			cfg.Sessions, cfg.Rivalries = cfg.Sessions/2, cfg.Rivalries/2
			cfg.Seed, cfg.Driver, cfg.TLS, cfg.Upgrade, cfg.Bin = uint64(seed+1), c.driver, c.tls, c.upgrade, program(t, "reseat-race")
			if cfg.Moves = c.moves; c.moves {
				cfg.Bin = program(t, "reseat-moves")
			}
			rep, text := chaos(t, cfg)
			if rep.Bad() {
				t.Error(text)
			}
			n := &rep.count
			if n.told.Load() == 0 || n.skipped.Load() == 0 || rep.game.redials == 0 || n.cookies.Load() == 0 || n.compressed.Load() == 0 || (n.upgrades.Load() < 2) != (c.upgrade == 0) {
				t.Errorf("one of the modes was not:\n%s", text)
			}
			if rep.silentCuts() < 30 || n.suspicions.Load() < 5 {
				t.Errorf("too few lines fell silent, or too few were suspected:\n%s", text)
			}
			if rep.totalCuts() < 100 || rep.MessagesUp < 5000 || rep.MessagesDown < 5000 || rep.Operations < 300 {
				t.Errorf("too little has happened to mean anything:\n%s", text)
			}
		})
	}
}

// Large messages go on where they were cut, both ways and in the next process.
func TestChaosGoesOnInsideLargeMessages(t *testing.T) {
	t.Parallel()
	for seed, driver := range []string{"net", "poll"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cfg := short()
			cfg.Sessions, cfg.Rivalries, cfg.Only = 8, 0, inParts.String()
			cfg.Seed, cfg.Driver, cfg.Upgrade, cfg.Bin = uint64(seed+1), driver, 3*time.Second, program(t, "reseat-race")
			rep, text := chaos(t, cfg)
			n := &rep.count
			if rep.Bad() {
				t.Error(text)
			}
			if n.insideDown.Load() < 5 || n.insideUp.Load() < 3 || n.upgrades.Load() < 2 || rep.MessagesUp < 2000 || rep.MessagesDown < 2000 {
				t.Errorf("too little has happened to mean anything: %d resumes inside messages down, %d up\n%s", n.insideDown.Load(), n.insideUp.Load(), text)
			}
		})
	}
}

// The short form of make chaos-cluster.
func TestClusterLosesNoMessage(t *testing.T) {
	t.Parallel()
	cfg := together(30 * time.Second)
	cfg.Seed, cfg.Driver, cfg.Bin, cfg.NATS = 1, "poll", program(t, "reseat-race"), program(t, "nats-server")
	cfg.Sessions, cfg.Round, cfg.Drain = 24, 15*time.Second, 15*time.Second
	rep, text := chaos(t, cfg)
	if rep.Bad() {
		t.Error(text)
	}
	if rep.totalCuts() < 50 || rep.MessagesUp < 3000 || rep.MessagesDown < 3000 || rep.Operations < 200 || rep.count.moved.Load() == 0 {
		t.Errorf("too little has happened to mean anything:\n%s", text)
	}
}

// A gateway with a bug is detected, and the report names the message.
func TestChaosDetectsABrokenGateway(t *testing.T) {
	t.Parallel()
	root, err := process.Root()
	if err != nil {
		t.Fatal(err)
	}
	list, err := mutant.Load(filepath.Join(root, "testdata/mutants"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, says string
		only       ending // of the sessions that must detect it; byeAtRest: all have their own
	}{
		{"session/replay-after-takeover", "hello.lost is", byeAtRest},
		{"session/cut-message-counts", "were lost", byeAtRest},
		{"session/lost-not-told", "were lost", dropOldest},
		{"session/newest-run-in-part-is-lost", "hello.lost is", newestFirst},
		{"session/parts-from-omitted", " expected, ", inParts},
		{"session/parts-offset-of-cut", "a part of", inParts},
		{"session/kept-written-is-read", "were lost", cookie},
		{"session/answer-never", "silent lines were noticed by the gateway", byeAtRest},
		{"tokens/spent-token-good", "no order of what its clients saw is allowed", byeAtRest},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(list, func(m mutant.Mutant) bool { return m.Name == c.name })
			if i < 0 {
				t.Fatal("there is no such mutant")
			}
			files, err := list[i].Apply(root)
			if err != nil {
				t.Fatal(err)
			}
			overlay, err := mutant.Overlay(root, t.TempDir(), files)
			if err != nil {
				t.Fatal(err)
			}
			cfg := short()
			cfg.Seed, cfg.Driver, cfg.Bin = 5, "net", filepath.Join(t.TempDir(), "reseat")
			if err := process.Build(cfg.Bin, "-overlay", overlay, "."); err != nil {
				t.Fatal(err)
			}
			cfg.Sessions, cfg.Messages, cfg.Spread, cfg.StallEvery = 26, 200, 5*time.Second, 30
			if c.only != byeAtRest {
				cfg.Only, cfg.Rivalries = c.only.String(), 0
			}
			cfg.FailFast = true              // a broken gateway may never finish
			cfg.Heartbeat = 15 * time.Second // only answer_ms notices a silent line
			rep, text := chaos(t, cfg)
			if !slices.ContainsFunc(rep.Failures, func(f failure) bool { return strings.Contains(f.what, c.says) }) {
				t.Errorf("%s: want a report that says %q, got\n%s", list[i].Why, c.says, text)
			}
		})
	}
}

// Silent lines of which the gateway notices hardly any, or one too late, fail the run.
func TestUnnoticedSilenceFailsTheRun(t *testing.T) {
	inTime := slices.Repeat([]time.Duration{5 * time.Second}, 19)
	for _, c := range []struct {
		cuts    int64
		noticed []time.Duration
		want    string // "": no fault
	}{
		{19, nil, ""},
		{40, nil, "only 0 of 40"},
		{40, inTime, ""},
		{40, append(inTime[:19:19], time.Minute), "100 of 100 silent lines were noticed by the gateway within 1m0s, at most 40s"},
		{40, append(inTime[:16:16], 12*time.Second, 12*time.Second, 12*time.Second), "90 of 100 silent lines were noticed by the gateway within 12s, at most 11s"},
	} {
		r := &run{cfg: Config{Answer: 5 * time.Second, Late: time.Second, Heartbeat: 15 * time.Second}}
		r.count.cuts[fault.Silence].Store(c.cuts)
		r.silences.list = c.noticed
		r.judgeSilences()
		if got := strings.Join(r.faults, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%d silent lines, noticed after %v: %q, want %q", c.cuts, c.noticed, got, c.want)
		}
	}
}

// A run that stops at the first wrong message leaves every session with a failure, and
// only some are reported.
func TestWrongMessagesAreReportedFirst(t *testing.T) {
	rep := Report{run: &run{game: new(game)}}
	for i := range 2 * maxFailures {
		rep.Failures = append(rep.Failures, failure{what: fmt.Sprintf("session %d: not ended", i)})
	}
	rep.Failures = append(rep.Failures, failure{what: "session 20: messages 2 to 3 were lost", first: true})
	var b strings.Builder
	rep.finish().Print(&b)
	if _, failed, _ := strings.Cut(b.String(), "FAILED"); !strings.HasPrefix(failed, " session 20: messages 2 to 3 were lost") {
		t.Errorf("reported:\n%s", b.String())
	}
}

// A fault that gateway and checker have in common would be no difference.
func TestCheckerSharesNothingWithTheGateway(t *testing.T) {
	for _, dir := range []string{".", "fault", "history", "message", "../seat", "../process"} {
		out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, "./"+dir).Output()
		if err != nil {
			t.Fatal(dir, err)
		}
		for _, name := range strings.Fields(string(out)) {
			if strings.HasPrefix(name, "reseat/") && !strings.HasPrefix(name, "reseat/gateway/internal/test/") {
				t.Errorf("%s imports %s, want nothing of the gateway's", dir, name)
			}
		}
	}
}

// The short form of make chaos-durable.
func TestCountingGameAppliesEachMessageOnce(t *testing.T) {
	t.Parallel()
	cfg := together(20 * time.Second)
	cfg.Seed, cfg.Driver, cfg.Bin, cfg.NATS, cfg.Counting = 1, "net", program(t, "reseat-race"), program(t, "nats-server"), program(t, "counting")
	cfg.Sessions, cfg.Messages, cfg.Spread, cfg.Round, cfg.Drain, cfg.Only = 20, 400, 14*time.Second, 15*time.Second, 15*time.Second, countingGame.String()
	rep, text := chaos(t, cfg)
	if rep.Bad() {
		t.Error(text)
	}
	if rep.totalCuts() < 20 || rep.MessagesUp < 2000 || rep.MessagesDown < 2000 || rep.count.moved.Load() < fewMoves {
		t.Errorf("too little has happened to mean anything:\n%s", text)
	}
}

// The short form of make failover.
func TestAllSessionsOfAGatewayGoOnElsewhere(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]bool{"killed": false, "drained": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := together(time.Hour)
			cfg.Driver, cfg.Bin, cfg.NATS, cfg.Counting = "poll", program(t, "reseat-race"), program(t, "nats-server"), program(t, "counting")
			cfg.Only, cfg.Dir, cfg.Round, cfg.Servers, cfg.Tick, cfg.Drain, cfg.Late = countingGame.String(), t.TempDir(), 0, 1, 2000, time.Minute, 20*time.Second
			if err := failovers(t.Context(), cfg, 60, drain, t.Output()); err != nil {
				t.Error(err)
			}
		})
	}
}
