//go:build linux

package main

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/mutants/mutant"
)

// build builds the gateway's program with the race detector.
func build(t *testing.T, flags ...string) string {
	t.Helper()
	bin, err := program(t.Context(), "", t.TempDir(), append([]string{"-race"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

func chaos(t *testing.T, cfg Config) (*Report, string) {
	t.Helper()
	cfg.Dir = t.TempDir()
	// Tests run on any machine, next to others: what takes a moment may take seconds.
	cfg.Late, cfg.Grace, cfg.Drain = 8*time.Second, max(cfg.Grace, 25*time.Second), max(cfg.Drain, 6*time.Second)
	if !cfg.FailFast {
		cfg.Limit = max(cfg.Limit, 5*time.Minute)
	}
	rep, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	rep.Print(&b)
	return rep, b.String()
}

// The short form of make chaos, with both drivers.
func TestChaosLosesNoMessage(t *testing.T) {
	t.Parallel()
	bin := build(t)
	for i, driver := range []string{"net", "poll"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cfg := short()
			cfg.Sessions, cfg.Rivalries = cfg.Sessions/2, cfg.Rivalries/2
			cfg.Seed, cfg.Driver, cfg.Bin = uint64(i+1), driver, bin
			cfg.TLS = driver == "net" // which poll hands over to net
			rep, text := chaos(t, cfg)
			if rep.Bad() {
				t.Error(text)
			}
			if rep.Told == 0 || rep.Redials == 0 || rep.Cookies == 0 || rep.Compressed == 0 {
				t.Errorf("one of the modes was not:\n%s", text)
			}
			if rep.Silences < 30 || rep.Noticed[0] < 5 || rep.Noticed[1] < 5 || rep.Suspicions < 5 {
				t.Errorf("too few lines fell silent, or too few were noticed:\n%s", text)
			}
			if rep.Cuts < 100 || rep.MessagesUp < 5000 || rep.MessagesDown < 5000 || rep.Operations < 300 {
				t.Errorf("too little has happened to mean anything:\n%s", text)
			}
		})
	}
}

// An upgrade replaces the process every two seconds, under all faults: nothing is lost, and no
// game server sees a second connection of a session.
func TestUpgradesLoseNoMessage(t *testing.T) {
	t.Parallel()
	cfg := short()
	cfg.Sessions, cfg.Rivalries = cfg.Sessions/2, cfg.Rivalries/2
	cfg.Seed, cfg.Driver, cfg.Bin, cfg.Upgrade = 3, "poll", build(t), 2*time.Second
	rep, text := chaos(t, cfg)
	if rep.Bad() {
		t.Error(text)
	}
	if rep.Upgrades < 3 || rep.Cuts < 50 || rep.MessagesUp < 3000 {
		t.Errorf("too little has happened to mean anything:\n%s", text)
	}
}

// The short form of make chaos-cluster.
func TestClusterLosesNoMessage(t *testing.T) {
	bin := build(t)
	nats, err := process.BuildNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for d := 40 * time.Second; ; d *= 2 { // on a slow machine less happens in the same time
		cfg := together(d)
		cfg.Seed, cfg.Driver, cfg.Bin, cfg.NATS = 1, "poll", bin, nats
		cfg.Sessions, cfg.Round, cfg.Drain = 24, 15*time.Second, 15*time.Second
		rep, text := chaos(t, cfg)
		switch enough := rep.Troubles >= 5 && rep.Cuts >= 50 && rep.MessagesUp >= 3000 && rep.MessagesDown >= 3000 && rep.Operations >= 200 && rep.Moved > 0; {
		case rep.Bad():
			t.Error(text)
			return
		case enough:
			return
		case d > 2*time.Minute:
			t.Errorf("too little has happened to mean anything:\n%s", text)
			return
		}
		t.Logf("too little has happened in %s to mean anything", d)
	}
}

// A gateway with a bug is detected, and the report names the message.
func TestChaosDetectsABrokenGateway(t *testing.T) {
	t.Parallel()
	list, err := mutant.Load("../../../../../testdata/mutants")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, says string
		only       string // the ending of the sessions that must detect it
	}{
		{"session/replay-after-takeover", "hello.lost is", ""},
		{"session/cut-message-counts", "were lost", ""},
		{"session/cut-message-counts", "were lost", hard.String()},
		{"session/lost-not-told", "were lost", dropOldest.String()},
		{"session/kept-written-is-read", "were lost", cookie.String()},
		{"session/answer-never", "silent lines were noticed by the gateway", ""},
		{"tokens/spent-token-good", "no order of what its clients saw is allowed", ""},
	} {
		found := false
		for _, m := range list {
			if m.Name == c.name {
				found = true
				t.Run(c.name+" "+c.only, func(t *testing.T) {
					t.Parallel()
					catches(t, m, root, c.says, c.only)
				})
			}
		}
		if !found {
			t.Errorf("no mutant %s", c.name)
		}
	}
}

// A gateway that doesn't notice most silent lines fails the run.
func TestUnnoticedSilenceFailsTheRun(t *testing.T) {
	r := new(run)
	for n, want := range map[int64]int{19: 0, 40: 1} {
		r.faults = nil
		r.count.cuts[fault.Silence].Store(n)
		if r.judgeDelays("the gateway", &delays{}); len(r.faults) != want {
			t.Errorf("%d silent lines: %q", n, r.faults)
		}
	}
}

// The silence of a resume that was never attached must not be charged to the connection that
// it would have replaced.
func TestSilenceOfAnotherConnectionIsNotCounted(t *testing.T) {
	for heard, want := range map[string]int{"0s": 0, "1h": 1, "": 1} {
		r := &run{cfg: Config{Answer: time.Nanosecond, Hold: time.Microsecond}}
		p := &player{run: r, lastUp: silent{at: 1, far: true}}
		r.bySession.Store("s", p)
		if r.logged(process.Line{Session: "s", Msg: "session.detached", Reason: "EOF", Silent: heard}); len(r.byGateway.list) != want {
			t.Errorf("last heard %q ago: %d delays are counted, want %d", heard, len(r.byGateway.list), want)
		}
	}
}

func catches(t *testing.T, m mutant.Mutant, root, says, only string) {
	files, err := m.Apply(root)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := mutant.Overlay(root, t.TempDir(), files)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := program(t.Context(), "", t.TempDir(), "-overlay", overlay)
	if err != nil {
		t.Fatal(err)
	}
	cfg := short()
	cfg.Seed, cfg.Driver, cfg.Bin = 5, "net", bin
	cfg.Sessions, cfg.Messages, cfg.Spread, cfg.Rivalries, cfg.StallEvery = 26, 200, 5*time.Second, 6, 30
	if cfg.Only = only; only != "" {
		cfg.Rivalries = 0
	}
	cfg.Limit, cfg.FailFast = 40*time.Second, true // a broken gateway may never finish
	cfg.Heartbeat = 15 * time.Second               // only answer_ms notices a silent line
	rep, text := chaos(t, cfg)
	if !slices.ContainsFunc(rep.Failures, func(f failure) bool { return strings.Contains(f.what, says) }) {
		t.Errorf("%s: want a report that says %q, got\n%s", m.Why, says, text)
	}
}

// A run that stops at the first wrong message leaves every session with a failure, and
// only some are reported.
func TestWrongMessagesAreReportedFirst(t *testing.T) {
	var rep Report
	for i := range 2 * maxFailures {
		rep.Failures = append(rep.Failures, failure{what: fmt.Sprintf("session %d: not ended", i)})
	}
	rep.Failures = append(rep.Failures, failure{what: "session 20: messages 2 to 3 were lost", first: true})
	rep.order()
	var b strings.Builder
	rep.Print(&b)
	if !strings.HasPrefix(strings.TrimSpace(b.String()), "FAILED session 20: messages 2 to 3 were lost") {
		t.Errorf("reported:\n%s", b.String())
	}
}

// Silent lines that were noticed too late, or never, fail the run; others don't.
func TestSilenceNoticedTooLateFailsTheRun(t *testing.T) {
	const answer = 5 * time.Second
	inTime := delay{whole: 5 * time.Second, owed: 5 * time.Second, limit: answer, traffic: true}
	tooLate := delay{whole: 10 * time.Second, owed: 10 * time.Second, limit: answer, traffic: true}
	slow := delay{whole: 10 * time.Second, owed: 10 * time.Second, limit: 10 * time.Second, traffic: true}
	idle := delay{whole: 20 * time.Second, owed: 20 * time.Second}
	never := delay{whole: time.Minute, owed: time.Minute}
	for _, c := range []struct {
		list []delay
		want string // "": no fault
	}{
		{slices.Repeat([]delay{inTime, idle}, 20), ""},
		{append(slices.Repeat([]delay{inTime}, 50), tooLate), ""},
		{slices.Repeat([]delay{slow}, 20), ""},
		{append(slices.Repeat([]delay{inTime}, 20), tooLate, tooLate, tooLate), "3 of 23 lines"},
		{[]delay{inTime, never}, "after 1m0s"},
	} {
		r := &run{cfg: Config{Answer: answer, Late: time.Second, Heartbeat: 15 * time.Second}}
		r.judgeDelays("the gateway", &delays{list: c.list})
		if got := strings.Join(r.faults, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%d delays: %q, want %q", len(c.list), got, c.want)
		}
	}
}

// The counting code shares nothing with the gateway.
func TestCheckerSharesNothingWithTheGateway(t *testing.T) {
	err := filepath.WalkDir(".", func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			if strings.HasPrefix(p, "reseat/") && !strings.HasPrefix(p, "reseat/gateway/internal/test/") {
				t.Errorf("%s imports %s", name, p)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
