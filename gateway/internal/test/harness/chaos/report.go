//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/chaos/history"
	"reseat/gateway/internal/test/harness/chaos/message"
)

// A Report is the result of a run.
type Report struct {
	*run
	Took                             time.Duration
	Up, Down                         message.Verdicts
	MessagesUp, MessagesDown         uint64
	Bytes, Again                     uint64
	Histories, Operations, NotLinear int
	silent, fell                     int // sessions whose client was never heard, or that were lost with their gateway
	ended                            map[ending]int
	Failures                         []failure
}

// newReport returns one of a run that is under way.
func newReport(r *run) *Report { return &Report{run: r, ended: map[ending]int{}} }

// A failure is something that went wrong, such as in a session, with its story.
type failure struct {
	what  string
	lines []string
	first bool // report before the others: a message is wrong, or a history is impossible
}

// Bad reports whether anything went wrong.
func (rep *Report) Bad() bool { return len(rep.Failures) > 0 }

// fault notes what is wrong with the run as a whole.
func (r *run) fault(format string, args ...any) {
	r.faulty.Lock()
	defer r.faulty.Unlock()
	if len(r.faults) < 50 {
		r.faults = append(r.faults, fmt.Sprintf("%8.3f ", float64(now())/1e9)+fmt.Sprintf(format, args...))
	}
}

// finish adds what belongs to no single session.
func (rep *Report) finish() *Report {
	rep.Took = time.Since(rep.began)
	rep.game.mu.Lock()
	rep.faults = append(rep.faults, rep.game.extra...)
	rep.game.mu.Unlock()
	for _, f := range rep.faults {
		rep.Failures = append(rep.Failures, failure{what: f})
	}
	// Causes come first: a run that stops early leaves every session without its end.
	slices.SortStableFunc(rep.Failures, func(a, b failure) int {
		switch {
		case a.first == b.first:
			return 0
		case a.first:
			return -1
		}
		return 1
	})
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

// patience is how long one history may be checked.
const patience = 20 * time.Second

// add judges a session that is over, and adds its figures and its failure if any.
func (rep *Report) add(p *player) {
	if p.end == countingGame {
		p.judgeCounting(rep.counting.report(p.sessionID(), 0))
	} else if p.judge(); p.end.redials() && (p.end.isDurable() || !p.fellWith()) {
		p.judgeConnections()
	}
	if !p.end.isPlain() && !p.end.isDurable() {
		rep.check(fmt.Sprintf("session %d (%s, %s)", p.id, p.session, p.end), &p.hist)
	}
	seats := p.seats()
	p.mu.Lock()
	defer p.mu.Unlock()
	rep.mu.Lock()
	defer rep.mu.Unlock()
	rep.MessagesDown += p.down.Came
	if p.end == countingGame {
		rep.MessagesUp += p.made
	}
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
	rep.ended[p.end]++
	if p.unheard {
		rep.silent++
	}
	if p.fell {
		rep.fell++
	}
	if len(faults) > 0 {
		what := fmt.Sprintf("session %d (%s, %s): %s", p.id, p.session, p.end, strings.Join(faults, "; "))
		rep.Failures = append(rep.Failures, failure{what, p.story, bad})
	}
}

// check has porcupine check a history.
func (rep *Report) check(name string, h *history.History) {
	verdict, story := h.Check(patience)
	rep.mu.Lock()
	defer rep.mu.Unlock()
	rep.Histories++
	rep.Operations += h.Len()
	switch verdict {
	case history.Impossible:
		rep.NotLinear++
		rep.Failures = append(rep.Failures, failure{what: name + ": no order of what its clients saw is allowed", lines: story, first: true})
	case history.Undecided:
		rep.Failures = append(rep.Failures, failure{what: name + ": porcupine did not decide in " + patience.String()})
	}
}

// rows are those of the table. Counts that are all zero have none.
func (rep *Report) rows() (rows [][2]string) {
	row := func(name, format string, args ...any) {
		rows = append(rows, [2]string{name, fmt.Sprintf(format, args...)})
	}
	some := func(name, format string, counts ...any) {
		if slices.ContainsFunc(counts, func(n any) bool { return fmt.Sprint(n) != "0" }) {
			row(name, format, counts...)
		}
	}
	n, g := &rep.count, rep.game
	row("seed", "%d", rep.cfg.Seed)
	row("driver", "%s, TLS %v", rep.cfg.Driver, rep.cfg.TLS)
	some("moves between event loops", "%d", n.loopMoves.Load())
	row("took", "%s", rep.Took.Round(time.Second))
	for e := range rules {
		some("sessions: "+ending(e).String(), "%d", rep.ended[ending(e)])
	}
	some("sessions with rivals", "%d, %d rivals each", rep.cfg.Rivalries, rivals)
	row("messages to the game servers, to the clients", "%d and %d, %d MiB", rep.MessagesUp, rep.MessagesDown, rep.Bytes>>20)
	row("cuts", "%d", rep.totalCuts())
	for k := range fault.Kinds {
		some("  "+k.String(), "%d", n.cuts[k].Load())
	}
	row("silent cuts", "%d", rep.silentCuts())
	row("  noticed by the gateway", "%s", &rep.silences)
	some("resumes on suspicion", "%d, %d of them dropped since the connection spoke; %d messages came on both and were thrown away once",
		n.suspicions.Load(), n.falseAlarms.Load(), n.again.Load())
	some("faults of the link to the gateway", "%d", n.flaps.Load())
	row("resumes", "%d, %d messages replayed", n.resumes.Load(), n.replayed.Load())
	some("connections left open by their client", "%d; %d ends by 4409", n.abandoned.Load(), n.takenOver.Load())
	some("first connections lost before hello", "%d sessions that no client could resume", n.ghosts.Load())
	some("first connections broken before any client message arrived", "%d sessions over before it knew, and refused with 4404 (protocol section 6)", rep.silent)
	some("upgrades", "%d, %d refused while another was under way", n.upgrades.Load(), n.refusedUpgrades.Load())
	some("signing keys changed", "%d times, %d tokens renewed", n.rotations.Load(), n.tokens.Load())
	some("dials for a resume", "%d, %d of them refused; %d messages went down with a game server's connection", g.redials, g.refused, n.gone.Load())
	some("plain clients back by their cookie", "%d times; %d messages came again, as they may", n.cookies.Load(), rep.Again)
	some("dropped by drop-oldest", "%d messages, all of them named by hello.lost", n.told.Load())
	some("inside large messages", "%d resumes downward, %d upward", n.insideDown.Load(), n.insideUp.Load())
	some("replaced by newer ones", "%d messages, each a state of which a newer one came", n.skipped.Load())
	row("connections with compression", "%d", n.compressed.Load())
	if c := rep.cluster; c != nil {
		row("gateways, started again", "%d, %d", clusterSize, len(c.all)-clusterSize)
		row("troubles of the cluster", "%d", c.troubles)
		for _, what := range slices.Sorted(maps.Keys(c.counts)) { // troubles, and close codes
			row("  "+what, "%d", c.counts[what])
		}
		row("resumes through another node than the owner", "%d", n.forwarded.Load())
		row("durable sessions gone on elsewhere", "%d times; %d messages came to the game servers again; %d dials of gateways that were asleep; %d hellos not taken; %d connections to nodes that had lost a session",
			n.moved.Load(), n.repeats.Load(), g.late, n.misfits.Load(), n.fences.Load())
		row("sessions lost with their gateway", "%d", rep.fell)
		for _, what := range slices.Sorted(maps.Keys(c.slowest)) {
			row(what, "within %v", c.slowest[what].Round(time.Millisecond))
		}
	}
	row("histories", "%d of %d operations, %d not linearizable", rep.Histories, rep.Operations, rep.NotLinear)
	row("LOST", "%d up, %d down", rep.Up.Lost, rep.Down.Lost)
	row("TWICE", "%d up, %d down", rep.Up.Twice, rep.Down.Twice)
	row("OUT OF ORDER", "%d up, %d down", rep.Up.Disorder, rep.Down.Disorder)
	row("ALTERED", "%d up, %d down", rep.Up.Wrong, rep.Down.Wrong)
	row("everything else that was wrong", "%d", len(rep.Failures))
	return rows
}

const maxFailures = 10 // reported with their stories

// Print writes the table, and the story of each failure.
func (rep *Report) Print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rep.rows() {
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
	if c := rep.cluster; c != nil && rep.Bad() {
		fmt.Fprintf(w, "\nwhat has happened to the cluster, with seed %d:\n    %s\n", rep.cfg.Seed, strings.Join(c.trace, "\n    "))
	}
}
