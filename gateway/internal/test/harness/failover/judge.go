//go:build linux

package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A company is the clients of a stage.
type company struct {
	s       *stage
	clients []*client
	stop    context.CancelFunc
	done    chan struct{}
}

// join has n clients play, and waits until all have their hello.
func (s *stage) join(ctx context.Context, n int, seed uint64, pace time.Duration, with ...func(c *client)) (*company, error) {
	ctx, stop := context.WithCancel(ctx)
	co := &company{s: s, stop: stop, done: make(chan struct{})}
	ended := make(chan struct{}, n)
	for i := range n {
		c := newClient(i, seed, s.fronts(), pace)
		c.beside = i%2 == 1
		for _, f := range with {
			f(c)
		}
		co.clients = append(co.clients, c)
		go func() {
			c.play(ctx)
			ended <- struct{}{}
		}()
		if i%32 == 31 {
			sleep(ctx, 20*time.Millisecond)
		}
	}
	go func() {
		for range n {
			<-ended
		}
		close(co.done)
	}()
	return co, co.back(ctx, time.Minute, time.Time{})
}

// back waits until all have a connection that was heard since.
func (co *company) back(ctx context.Context, limit time.Duration, since time.Time) error {
	what := awaits(ctx, limit, func() (what string) {
		missing := 0
		for _, c := range co.clients {
			c.locked(func() {
				if !c.stay && c.over == "" && (c.current == nil || c.current.isOver() || !c.current.heard.After(since)) {
					missing++
					what = fmt.Sprintf("client %d (%s) is not back", c.id, c.session)
				}
			})
		}
		if missing > 1 {
			what += fmt.Sprintf(", and %d others", missing-1)
		}
		return what
	})
	if what != "" {
		return fmt.Errorf("%s after %v", what, limit)
	}
	return nil
}

// owners counts the sessions, by the place whose gateway has them according to the newest hello's epoch and the logs.
func (co *company) each(f func(c *client)) {
	for _, c := range co.clients {
		c.locked(func() { f(c) })
	}
}

// settle stops new messages, and waits until the game has all and the clients have all but the ticks.
func (co *company) settle(ctx context.Context, limit time.Duration) (faults []string) {
	co.each(func(c *client) { c.quiet = true })
	what := awaits(ctx, limit, func() string {
		all := co.s.reports()
		for _, c := range co.clients {
			var what string
			c.locked(func() {
				if r := all[c.session]; c.over == "" && (r.Received != c.made || c.acked != c.made || c.received+2 < r.Sent) {
					what = fmt.Sprintf("client %d (%s): the game has %d of %d messages, %d acked; the client %d of %d", c.id, c.session, r.Received, c.made, c.acked, c.received, r.Sent)
				}
			})
			if what != "" {
				return what
			}
		}
		return ""
	})
	if what != "" {
		faults = append(faults, what)
	}
	return faults
}

// part has all clients say bye, and checks that each session has ended once, in all logs.
func (co *company) part(ctx context.Context) (faults []string) {
	co.each(func(c *client) { c.leave = true })
	what := awaits(ctx, 30*time.Second, func() (what string) {
		for _, c := range co.clients {
			c.locked(func() {
				if c.over == "" {
					what = fmt.Sprintf("client %d (%s) has said bye, and gets no answer", c.id, c.session)
				}
			})
		}
		return what
	})
	if what == "" {
		what = awaits(ctx, 30*time.Second, co.ended)
	}
	if what != "" {
		faults = append(faults, what)
	}
	co.each(func(c *client) {
		if c.over != "" && c.over != "bye" {
			faults = append(faults, fmt.Sprintf("client %d (%s): %s", c.id, c.session, c.over))
		}
	})
	return faults
}

// ended returns which session has not ended once, "" if all have.
func (co *company) ended() (what string) {
	reasons := map[string][]string{}
	for _, l := range co.s.said("session.ended") {
		reasons[l.Session] = append(reasons[l.Session], fmt.Sprint(co.s.nodes[l.node].name, " ", l.Reason))
	}
	for _, c := range co.clients {
		if list := reasons[c.session]; len(list) != 1 {
			what = fmt.Sprintf("client %d (%s): the session has ended %d times: %q", c.id, c.session, len(list), list)
		}
	}
	for _, n := range co.s.nodes {
		if living := sum(n.metrics(), "reseat_sessions"); living > 0 {
			what = fmt.Sprintf("%v sessions live at %s", living, n.name)
		}
	}
	return what
}

// sum adds up the series of a metric.
func sum(m map[string]float64, name string) (n float64) {
	for k, v := range m {
		if k == name || strings.HasPrefix(k, name+"{") {
			n += v
		}
	}
	return n
}

// judgeMetrics compares the metrics of the gateways with what their logs say.
func (s *stage) judgeMetrics() (faults []string) {
	for _, n := range s.nodes {
		m := n.metrics()
		for _, x := range []struct{ msg, metric string }{
			{"session.created", "reseat_sessions_created_total"},
			{"session.ended", "reseat_sessions_ended_total"},
			{"session.claimed", `reseat_claims_total{result="won"}`},
			{"session.fenced", "reseat_sessions_fenced_total"},
		} {
			lines := 0
			for _, l := range s.said(x.msg) {
				if l.node == n.number && l.life == n.lives {
					lines++
				}
			}
			if counted := sum(m, x.metric); counted != float64(lines) {
				faults = append(faults, fmt.Sprintf("%s: %s is %v, and its log has %d lines of %s", n.name, x.metric, counted, lines, x.msg))
			}
		}
	}
	return faults
}

// judge checks that every message was applied once and in order, in both directions.
func (co *company) judge() (faults []string) {
	all := co.s.reports()
	add := func(c *client, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("client %d (%s): ", c.id, c.session)+fmt.Sprintf(format, args...))
	}
	for _, c := range co.clients {
		c.mu.Lock()
		for _, f := range c.faults {
			add(c, "%s", f)
		}
		r := all[c.session]
		if c.over != "" && c.over != "bye" {
			add(c, "it is over: %s", c.over)
		}
		if r.Lost > 0 || r.Resyncs > 0 {
			add(c, "lost %d, resyncs %d", r.Lost, r.Resyncs)
		}
		if r.Received > c.made {
			add(c, "the game has %d messages, %d were made", r.Received, c.made)
		}
		for i, x := range r.Applied {
			if x != int64(i+1) {
				add(c, "applied %d as number %d", x, i+1)
				break
			}
		}
		var last uint64
		for i, d := range co.s.tap.of(c.session) {
			if d.epoch <= last || (i == 0) != (d.resumed == "") || i > 0 && (d.up == "" || d.down == "") {
				add(c, "dial %d: %v, after epoch %d", i, d, last)
			}
			last = max(last, d.epoch)
		}
		c.mu.Unlock()
	}
	return faults
}

// moved returns how long after a moment the clients took the hello of a session that had moved, shortest
// first.
func (co *company) moved(since time.Time) (list []time.Duration) {
	co.each(func(c *client) {
		i := slices.IndexFunc(c.hellos, func(h hello) bool { return h.at.After(since) && h.Moved != "" })
		if i >= 0 {
			list = append(list, c.hellos[i].at.Sub(since))
		}
	})
	slices.Sort(list)
	return list
}
