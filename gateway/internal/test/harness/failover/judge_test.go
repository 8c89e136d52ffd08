//go:build linux

package failover

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/process"
)

// A company is the clients of a stage.
type company struct {
	t       *testing.T
	s       *stage
	clients []*client
}

// join has n clients play until the end of the test, and waits until all have their hello.
func (s *stage) join(t *testing.T, n int, seed uint64, pace time.Duration, with func(c *client)) *company {
	co := &company{t: t, s: s}
	var fronts []string
	for _, o := range s.nodes {
		fronts = append(fronts, o.listen)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	for i := range n {
		c := newClient(i, seed, fronts, pace)
		c.beside = i%2 == 1
		with(c)
		co.clients = append(co.clients, c)
		all.Go(func() { c.play(t.Context()) })
		if i%32 == 31 {
			process.Sleep(t.Context(), 20*time.Millisecond)
		}
	}
	co.awaits(time.Minute, func(c *client) string { return c.isBack(time.Time{}) })
	return co
}

func (co *company) each(f func(c *client)) {
	for _, c := range co.clients {
		c.locked(func() { f(c) })
	}
}

// awaits waits until no client misses anything, and ends the test if one still does after the limit. f is called
// with the client's lock.
func (co *company) awaits(limit time.Duration, missing func(c *client) string) {
	co.t.Helper()
	if what := process.Await(co.t.Context(), limit+*lateFlag, func() string { return strings.Join(co.wrong(missing), "; ") }); what != "" {
		co.wants(what)
		co.t.FailNow()
	}
}

// wrong returns what is wrong with the clients, according to f.
func (co *company) wrong(f func(c *client) string) (faults []string) {
	co.each(func(c *client) {
		if what := f(c); what != "" {
			faults = append(faults, fmt.Sprintf("client %d (%s): %s", c.id, c.hello.Session, what))
		}
	})
	return faults
}

// wants reports faults, with the story of the first client that has one.
func (co *company) wants(faults ...string) {
	co.t.Helper()
	for i, f := range faults {
		if co.t.Errorf("%.3000s", f); i == 20 {
			break
		}
	}
	all := strings.Join(faults, "\n")
	for _, c := range co.clients {
		if strings.Contains(all, fmt.Sprintf("client %d ", c.id)) {
			c.locked(func() {
				co.t.Logf("client %d:\n  %s\n  the game: %.600v", c.id, strings.Join(c.story, "\n  "), co.s.game.Reports()[c.hello.Session])
			})
			return
		}
	}
}

// isBack says whether a client that is not away has a connection which was heard since.
func (c *client) isBack(since time.Time) string {
	if !c.stay && c.over == "" && (c.current == nil || c.current.isOver() || !c.current.heard.After(since)) {
		return "is not back"
	}
	return ""
}

// settle stops new messages, waits until the game has all and the clients have all but the ticks, and judges
// what has arrived: every message was applied once and in order, in both directions.
func (co *company) settle() {
	co.t.Helper()
	co.each(func(c *client) { c.quiet = true })
	var all map[string]process.Report
	co.awaits(20*time.Second, func(c *client) string {
		if c.id == 0 {
			all = co.s.game.Reports()
		}
		if r := all[c.hello.Session]; c.over == "" && (r.Received != c.made || c.acked != c.made || c.received+2 < r.Sent) {
			return fmt.Sprintf("the game has %d of %d messages, %d acked; the client %d of %d", r.Received, c.made, c.acked, c.received, r.Sent)
		}
		return ""
	})
	co.wants(co.wrong(func(c *client) string {
		r := all[c.hello.Session]
		for i, x := range r.Applied {
			if x != int64(i+1) {
				return fmt.Sprintf("the game applied %d as number %d", x, i+1)
			}
		}
		switch {
		case len(c.faults) > 0:
			return strings.Join(c.faults, "; ")
		case c.over != "" && c.over != "bye":
			return "it is over: " + c.over
		case r.Lost > 0 || r.Resyncs > 0 || r.Received > c.made:
			return fmt.Sprintf("the game has %d messages of %d, lost %d, resyncs %d", r.Received, c.made, r.Lost, r.Resyncs)
		}
		return ""
	})...)
	co.each(func(c *client) { c.quiet = false })
}

// part has all clients say bye, and checks that each session has ended once, in all logs and metrics.
func (co *company) part() {
	co.t.Helper()
	co.each(func(c *client) { c.leave = true })
	co.awaits(30*time.Second, func(c *client) string {
		if c.over == "" {
			return "has said bye, and gets no answer"
		}
		return ""
	})
	co.wants(co.wrong(func(c *client) string {
		if c.over != "bye" {
			return "it is over: " + c.over
		}
		return ""
	})...)
	if what := process.Await(co.t.Context(), 30*time.Second+*lateFlag, func() string { return strings.Join(co.s.unended(co), "; ") }); what != "" {
		co.wants(what)
	}
}

// unended returns which sessions have not ended once, and which gateways' metrics differ from what their logs say.
func (s *stage) unended(co *company) (faults []string) {
	reasons := map[string][]string{}
	for _, l := range s.said("session.ended") {
		reasons[l.Session] = append(reasons[l.Session], fmt.Sprint(l.node.name, " ", l.Reason))
	}
	faults = co.wrong(func(c *client) string {
		if list := reasons[c.hello.Session]; len(list) != 1 {
			return fmt.Sprintf("the session has ended %d times: %q", len(list), list)
		}
		return ""
	})
	for _, n := range s.nodes {
		if living := process.Sum(n.Metrics(), "reseat_sessions"); living > 0 {
			faults = append(faults, fmt.Sprintf("%v sessions live at %s", living, n.name))
		}
		if what := n.Differs(0); what != "" {
			faults = append(faults, what)
		}
	}
	return faults
}

// faulty returns what was wrong with the processes themselves.
func (s *stage) faulty() (list []string) {
	s.mu.Lock()
	list = append(list, s.faults...)
	s.mu.Unlock()
	for _, n := range s.nodes {
		for _, line := range append(n.bad, n.Faults()...) {
			if !strings.Contains(line, `"msg":"engine.lost"`) && !strings.Contains(line, `"msg":"cluster.not_joined"`) {
				list = append(list, "log of "+n.name+": "+line)
			}
		}
	}
	return list
}

// told sums up what has happened.
func (co *company) told() string {
	codes, made, repeats := map[int]int{}, uint64(0), 0
	co.each(func(c *client) {
		made += c.made
		for k, n := range c.refused {
			codes[k] += n
		}
	})
	for _, r := range co.s.game.Reports() {
		repeats += r.Repeats
	}
	lines := map[string]int{}
	co.s.mu.Lock()
	defer co.s.mu.Unlock()
	for _, l := range co.s.lines {
		lines[l.Msg]++
	}
	return fmt.Sprintf("%d messages, %d of them repeated to the game; refused resumes by code: %v; log lines: %v", made, repeats, codes, lines)
}
