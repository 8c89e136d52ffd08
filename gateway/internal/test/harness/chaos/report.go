//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/chaos/history"
	"reseat/gateway/internal/test/harness/chaos/message"
)

// A Report is the result of a run.
type Report struct {
	Config
	Took           time.Duration
	Up, Down       message.Verdicts
	MessagesUp     uint64
	MessagesDown   uint64
	Bytes          uint64
	Again          uint64 // to plain clients with a cookie
	Told           uint64 // reported lost, and lost
	Redials        int
	Compressed     int64
	Cookies        int64
	Upgrades       int64
	Cuts, Stalls   int64
	Silences       int64
	Noticed        [2]int // of them by the gateway, and by clients
	Suspicions     int64
	rows           [][2]string
	Failures       []failure
	Histories      int
	Operations     int
	NotLinear      int
	UndecidedLimit int
	Troubles       int      // of a cluster,
	Moved          int64    // and hellos of its durable sessions that had gone on at another node
	trace          []string // what has happened to it
	unheard, fell  int      // sessions
}

// A failure is a session in which something went wrong, with its story.
type failure struct {
	what  string
	lines []string
	first bool // report before the others: a message is wrong, or a history is impossible
}

// Bad reports whether anything went wrong.
func (r *Report) Bad() bool { return len(r.Failures) > 0 }

func (r *run) report() *Report {
	rep := &Report{Config: r.cfg, Took: time.Since(r.began)}
	for _, p := range r.players {
		p.judge()
		if p.end == hard {
			p.judgeHard()
		}
		rep.add(r, p)
	}
	rep.checkHistories(r)
	r.judgeRun()
	r.judgeDelays("the gateway", &r.byGateway)
	r.judgeDelays("a client", &r.byClients)
	for _, f := range r.faults {
		rep.Failures = append(rep.Failures, failure{what: f})
	}
	for _, v := range r.rivals {
		for _, f := range v.faults {
			rep.Failures = append(rep.Failures, failure{what: f})
		}
	}
	rep.Cuts = r.totalCuts()
	rep.Upgrades = r.count.upgrades.Load()
	rep.Told, rep.Cookies, rep.Compressed = r.count.told.Load(), r.count.cookies.Load(), r.count.compressed.Load()
	rep.Redials = r.game.redials
	rep.Silences, rep.Suspicions = r.silentCuts(), r.count.suspicions.Load()
	rep.Noticed = [2]int{len(r.byGateway.list), len(r.byClients.list)}
	rep.Stalls = r.count.cuts[fault.Stall].Load()
	rep.order()
	rep.tell(r)
	return rep
}

func (r *run) totalCuts() (n int64) {
	for k := range fault.Kinds {
		if k.Cut() {
			n += r.count.cuts[k].Load()
		}
	}
	return n
}

// order puts causes first: a run that stops early leaves every session without its end.
func (rep *Report) order() {
	slices.SortStableFunc(rep.Failures, func(a, b failure) int {
		switch {
		case a.first == b.first:
			return 0
		case a.first:
			return -1
		}
		return 1
	})
}

// add adds a session's figures, and its failure if any.
func (rep *Report) add(r *run, p *player) {
	seats := p.seats()
	p.mu.Lock()
	defer p.mu.Unlock()
	rep.MessagesDown += p.down.Came
	rep.Again += p.down.Again
	rep.Bytes += p.down.Bytes
	rep.Down.Add(p.down.Verdicts)
	faults := append(p.faults, p.down.Faults...)
	bad := p.down.Verdicts.Bad()
	for _, g := range seats {
		g.mu.Lock()
		rep.MessagesUp += g.check.Came
		rep.Bytes += g.check.Bytes
		rep.Up.Add(g.check.Verdicts)
		faults = append(faults, g.check.Faults...)
		bad = bad || g.check.Verdicts.Bad()
		g.mu.Unlock()
	}
	if len(faults) > 0 {
		what := fmt.Sprintf("session %d (%s, %s): %s", p.id, p.session, p.end, strings.Join(faults, "; "))
		rep.Failures = append(rep.Failures, failure{what, p.story, bad})
	}
}

// judgeRun checks what belongs to no single session.
func (r *run) judgeRun() {
	for _, line := range r.gateway.Faults() {
		r.faults = append(r.faults, "the gateway's log: "+line)
	}
	if r.exit != nil {
		r.faults = append(r.faults, fmt.Sprintf("the gateway after SIGTERM: %v", r.exit))
	}
	r.game.mu.Lock()
	r.faults = append(r.faults, r.game.extra...)
	r.game.mu.Unlock()
	for _, g := range r.game.all() {
		if g.id < len(r.players) && g.try != r.players[g.id].try {
			r.judgeGhost(g)
		}
	}
}

// judgeGhost checks a session whose first hello was lost: no client has ever sent
// anything in it, and it has ended.
func (r *run) judgeGhost(g *gameSeat) {
	r.count.ghosts.Add(1)
	if n := g.taken(); n > 0 {
		r.faults = append(r.faults, fmt.Sprintf("session %d, try %d: no client has its token, but the game server got %d messages", g.id, g.try, n))
	}
	if !isOver(g) {
		r.faults = append(r.faults, fmt.Sprintf("session %d, try %d: no client has its token, and it never ended", g.id, g.try))
	}
}

const patience = 20 * time.Second // for one history

// checkHistories has porcupine check every session's history.
func (rep *Report) checkHistories(r *run) {
	list := map[string]*history.History{}
	for _, p := range r.players {
		if !p.end.isPlain() {
			list[fmt.Sprintf("session %d (%s)", p.id, p.end)] = &p.hist
		}
	}
	for _, v := range r.rivals {
		list[fmt.Sprintf("rivals of session %d", v.id)] = &v.hist
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, 2)
	for name, h := range list {
		rep.Histories++
		rep.Operations += h.Len()
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			verdict, story := h.Check(patience)
			mu.Lock()
			defer mu.Unlock()
			rep.judged(name, verdict, story)
		})
	}
	all.Wait()
}

func (rep *Report) judged(name string, verdict history.Verdict, story []string) {
	switch verdict {
	case history.Impossible:
		rep.NotLinear++
		rep.Failures = append(rep.Failures, failure{what: name + ": no order of what its clients saw is allowed", lines: story, first: true})
	case history.Undecided:
		rep.UndecidedLimit++
		rep.Failures = append(rep.Failures, failure{what: name + ": porcupine did not decide in " + patience.String()})
	}
}

// tell makes the rows of the table.
func (rep *Report) tell(r *run) {
	row := func(name, format string, args ...any) {
		rep.rows = append(rep.rows, [2]string{name, fmt.Sprintf(format, args...)})
	}
	row("seed", "%d", rep.Seed)
	row("driver", "%s", rep.Driver)
	row("took", "%s", rep.Took.Round(time.Second))
	row("sessions", "%d, and %d with %d rivals each", rep.Sessions, rep.Rivalries, rivals)
	row("messages to the game servers", "%d", rep.MessagesUp)
	row("messages to the clients", "%d", rep.MessagesDown)
	row("payload", "%d MiB", rep.Bytes>>20)
	row("cuts", "%d", rep.Cuts)
	for k := range fault.Kinds {
		if n := r.count.cuts[k].Load(); k.Cut() && n > 0 {
			row("  "+k.String(), "%d", n)
		}
	}
	row("silent cuts", "%d", r.silentCuts())
	row("  noticed by the gateway", "%s", &r.byGateway)
	row("  noticed by clients", "%s", &r.byClients)
	row("  replaced on suspicion", "%s", &r.bySuspicion)
	row("resumes on suspicion", "%d, %d of them dropped since the connection spoke; %d messages came on both and were thrown away once",
		r.count.suspicions.Load(), r.count.falseAlarms.Load(), r.count.again.Load())
	row("stalls of a line", "%d", rep.Stalls)
	if r.links != nil {
		for f := range linkFaults {
			row("link to the gateway "+linkFaultNames[f], "%d times", r.count.flaps[f].Load())
		}
	}
	row("resumes", "%d, %d messages replayed", r.count.resumes.Load(), r.count.replayed.Load())
	row("connections left open by their client", "%d; %d ends by 4409", r.count.abandoned.Load(), r.count.takenOver.Load())
	row("first connections lost before hello", "%d sessions that no client could resume", r.count.ghosts.Load())
	if r.cfg.Upgrade > 0 {
		row("upgrades", "%d, %d refused while another was under way", rep.Upgrades, r.count.refusedUpgrades.Load())
	}
	row("signing keys changed", "%d times, %d tokens renewed", r.count.rotations.Load(), r.count.tokens.Load())
	row("first connections broken before any client message arrived", "%d sessions over before it knew, and refused with 4404 (protocol section 6)", r.unheard())
	rep.tellEnds(r, row)
	row("hard disconnects", "%d dials for a resume, %d of them refused; %d messages went down with a game server's connection", rep.Redials, r.game.refused, r.count.gone.Load())
	row("plain clients back by their cookie", "%d times; %d messages came again, as they may", rep.Cookies, rep.Again)
	row("dropped by drop-oldest", "%d messages, all of them named by hello.lost", rep.Told)
	row("connections with compression", "%d", rep.Compressed)
	row("TLS on the client address", "%v", rep.TLS)
	row("histories", "%d of %d operations, %d not linearizable", rep.Histories, rep.Operations, rep.NotLinear)
	row("LOST", "%d up, %d down", rep.Up.Lost, rep.Down.Lost)
	row("TWICE", "%d up, %d down", rep.Up.Twice, rep.Down.Twice)
	row("OUT OF ORDER", "%d up, %d down", rep.Up.Disorder, rep.Down.Disorder)
	row("ALTERED", "%d up, %d down", rep.Up.Wrong, rep.Down.Wrong)
	row("everything else that was wrong", "%d", len(rep.Failures))
}

func (r *run) unheard() (n int) {
	for _, p := range r.players {
		if p.unheard {
			n++
		}
	}
	return n
}

func (rep *Report) tellEnds(r *run, row func(name, format string, args ...any)) {
	var n [endings]int
	for _, p := range r.players {
		n[p.end]++
	}
	for e, n := range n {
		row("  end: "+ending(e).String(), "%d", n)
	}
}

const maxFailures = 10 // reported with their stories

// Print writes the table, and the story of each failure.
func (rep *Report) Print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rep.rows {
		fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
	}
	t.Flush()
	for i, f := range rep.Failures {
		if i == maxFailures {
			fmt.Fprintf(w, "\nand %d more\n", len(rep.Failures)-i)
			break
		}
		fmt.Fprintf(w, "\nFAILED %s\n", f.what)
		for _, line := range f.lines {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
	if rep.Bad() && len(rep.trace) > 0 {
		fmt.Fprintf(w, "\nwhat has happened to the cluster, with seed %d:\n    %s\n", rep.Seed, strings.Join(rep.trace, "\n    "))
	}
}
