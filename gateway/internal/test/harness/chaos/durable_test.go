//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/chaos/message"
	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/harness/seat"
)

// A leg is a connection with the game server, as it is judged: the client's messages first to last arrived.
type leg struct {
	resumed           string
	from, first, last uint64
	reason            string // of its Close; "": there was none
}

func (l leg) seat(p *player, dial int) *gameSeat {
	s := &gameSeat{id: p.id, dial: dial, kind: 'd', resumed: l.resumed, upFrom: l.from, over: make(chan struct{}), code: -1}
	if s.check = (message.Check{Taken: l.last, First: l.first}); l.first > 0 {
		s.check.Came = l.last - l.first + 1
	}
	if l.reason != "" {
		s.code, s.reason = 1001, l.reason
	}
	close(s.over)
	return s
}

// What breaks the promise of sessions with several connections is reported, and nothing else is.
func TestPromiseOfSessionsWithSeveralConnectionsIsJudged(t *testing.T) {
	begun := leg{first: 1, last: 10}
	closed := leg{first: 1, last: 10, reason: "moved"}
	for name, c := range map[string]struct {
		legs []leg
		made uint64
		with func(p *player)
		want string // "": nothing
	}{
		"messages come again after a crash":          {[]leg{begun, {"failover", 8, 8, 20, "played enough"}}, 20, nil, ""},
		"messages come again after a hand-off":       {[]leg{closed, {"handoff", 8, 8, 20, "played enough"}}, 20, nil, "connection 1 (handoff) of the game server begins with message 8"},
		"acked messages died in a socket":            {[]leg{begun, {"failover", 13, 13, 20, "played enough"}}, 20, nil, ""},
		"messages lost after a Close":                {[]leg{closed, {"failover", 13, 13, 20, "played enough"}}, 20, nil, "messages 11 to 12 were lost between"},
		"a connection whose hello was not taken":     {[]leg{begun, {"failover", 1, 0, 0, "moved"}, {"failover", 11, 11, 20, "played enough"}}, 20, nil, ""},
		"acked messages died before such a one":      {[]leg{begun, {"failover", 1, 0, 0, "moved"}, {"failover", 13, 13, 20, "played enough"}}, 20, nil, ""},
		"a hand-off among what comes again":          {[]leg{begun, {"failover", 4, 4, 6, "moved"}, {"handoff", 7, 7, 20, "played enough"}}, 20, nil, ""},
		"another message than the one named":         {[]leg{begun, {"failover", 8, 9, 20, "played enough"}}, 20, nil, "began with message 9, and Reseat-Up-From was 8"},
		"a word of the owner that was asleep":        {[]leg{{first: 1, last: 10, reason: "grace period over"}, {"failover", 11, 11, 20, "played enough"}}, 20, nil, `closed with 1001 "grace period over", and the session went on`},
		"nothing came of the last ones":              {[]leg{begun, {"failover", 11, 11, 18, "played enough"}}, 20, nil, "messages 19 to 20 were lost at the end"},
		"the session is lost, and its end with it":   {[]leg{closed, {"failover", 11, 11, 18, "moved"}}, 20, func(p *player) { p.fell = true }, ""},
		"nothing is missing of a hand-off":           {[]leg{closed, {"handoff", 11, 11, 20, "played enough"}}, 20, downOf(5, 5), ""},
		"the game server's last words are missing":   {[]leg{closed, {"handoff", 11, 11, 20, "played enough"}}, 20, downOf(4, 5), "which was handed over, 4 messages came and 5 were sent"},
		"a hand-off after a hard disconnect":         {[]leg{{first: 1, last: 10, reason: "disconnected"}, {"handoff", 11, 11, 20, "played enough"}}, 20, downOf(4, 5), ""},
		"hellos of two owners, the older one second": {[]leg{{first: 1, last: 20, reason: "played enough"}}, 20, hellos("b", 1, "a", 0), "hello of a in epoch 0, after one of epoch 1"},
		"hellos of two owners in one epoch":          {[]leg{{first: 1, last: 20, reason: "played enough"}}, 20, hellos("b", 1, "c", 1), "the epoch's owner is \"b\""},
		"a hard session goes on":                     {[]leg{begun, {"hard", 0, 11, 20, "played enough"}}, 20, hardly, ""},
		"a hard session's messages come again":       {[]leg{begun, {"hard", 0, 8, 20, "played enough"}}, 20, hardly, "connection 1 (hard) of the game server begins with message 8"},
		"a hard session's messages are lost":         {[]leg{closed, {"hard", 0, 13, 20, "played enough"}}, 20, hardly, "messages 11 to 12 were lost between"},
		"a hard session's connection without any":    {[]leg{closed, {"hard", 0, 0, 0, "disconnected"}, {"hard", 0, 11, 20, "played enough"}}, 20, hardly, ""},
		"hellos of two owners":                       {[]leg{{first: 1, last: 20, reason: "played enough"}}, 20, hellos("a", 0, "b", 1), ""},
	} {
		r := &run{game: &game{seats: map[seatKey][]*gameSeat{}}}
		p := newPlayer(r, 7, durable)
		p.made = c.made
		for i, l := range c.legs {
			r.game.seats[seatKey{7, 0}] = append(r.game.seats[seatKey{7, 0}], l.seat(p, i))
		}
		if c.with != nil {
			c.with(p)
		}
		p.judgeConnections()
		if got := strings.Join(p.faults, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// hardly makes the session one of --disconnect hard, which is not durable.
func hardly(p *player) { p.end = hard }

// downOf has had messages of the first connection's arrive, of those sent, and then some of the second's.
func downOf(had, sent uint64) func(p *player) {
	return func(p *player) {
		for try, n := range []uint64{had, 1} {
			down := message.Stream{Seed: p.down.Seed, Session: p.id, Try: stage(0, try)}
			for i := range n {
				text, b := down.Message(i + 1)
				p.down.Take(text, b)
			}
		}
		p.seats()[0].sent.Store(sent)
	}
}

// hellos has the client take two, one after the other.
func hellos(first string, epoch uint64, second string, next uint64) func(p *player) {
	return func(p *player) {
		p.greetings = []greeting{{epoch, first}, {next, second}}
	}
}

// A durable session is lost only if its seat was never written, or the NATS servers have lost it.
func TestRefusalOfDurableSessionIsJudged(t *testing.T) {
	gone := &seat.Closing{Code: 4404}
	for name, c := range map[string]struct {
		k       *seat.Closing
		covered bool
		emptied bool
		fault   bool

		overGrace bool
	}{
		"its node is not known to be lost": {k: &seat.Closing{Code: 4504, Retry: true}, covered: true},
		"gone":                             {k: gone, covered: true, fault: true},
		"gone, and never covered":          {k: gone},
		"gone, and NATS was emptied":       {k: gone, covered: true, emptied: true},
		"gone, and away for too long":      {k: gone, covered: true, overGrace: true},
		"another code":                     {k: &seat.Closing{Code: 4408}, fault: true},
	} {
		r := &run{cfg: Config{Grace: time.Hour}}
		r.cluster = &cluster{r: r, counts: map[string]int{}}
		if c.emptied {
			r.cluster.emptied.Store(now())
		}
		p := newPlayer(r, 7, durable)
		p.covered, p.hellos, p.made = c.covered, 3, 10
		if p.parted = 1; c.overGrace { // a nanosecond after the start
			r.cfg.Grace = 1
		}
		r.cluster.judgeDurableRefusal(p, c.k)
		if bad := len(p.faults) > 0; bad != c.fault {
			t.Errorf("%s: %q", name, p.faults)
		}
		if p.fell != (c.k == gone && !c.fault) {
			t.Errorf("%s: lost %v", name, p.fell)
		}
	}
}

// The counting game must have applied what the client sent, once and in order.
func TestReportOfTheCountingGameIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		report process.Report
		with   func(p *player)
		want   string // "": nothing
	}{
		"all":                       {process.Report{Received: 3, Applied: []int64{1, 2, 3}, Repeats: 2}, nil, ""},
		"one twice":                 {process.Report{Received: 3, Applied: []int64{1, 2, 2}}, nil, "the game applied 2 as number 3"},
		"in another order":          {process.Report{Received: 3, Applied: []int64{2, 1, 3}}, nil, "the game applied 2 as number 1"},
		"the last one missing":      {process.Report{Received: 2, Applied: []int64{1, 2}}, nil, "the game has 2 messages of 3"},
		"one given up":              {process.Report{Received: 3, Applied: []int64{1, 2}, Lost: 1}, nil, "lost 1"},
		"its own no longer kept":    {process.Report{Received: 3, Applied: []int64{1, 2, 3}, Resyncs: 1}, nil, "resyncs 1"},
		"the session lost with all": {process.Report{Received: 2, Applied: []int64{1, 2}}, func(p *player) { p.fell, p.verdict, p.code = true, "refused", 4404 }, ""},
		"refused, and not lost":     {process.Report{Received: 3, Applied: []int64{1, 2, 3}}, func(p *player) { p.verdict, p.code = "refused", 4404 }, "the client got refused 4404"},
		"it goes on":                {process.Report{Received: 3, Applied: []int64{1, 2, 3}}, func(p *player) { p.done = false }, "did not end"},
	} {
		p := newPlayer(new(run), 7, countingGame)
		p.made, p.hellos, p.done, p.verdict, p.code = 3, 2, true, "bye", 4000
		if c.with != nil {
			c.with(p)
		}
		p.judgeCounting(c.report)
		if got := strings.Join(p.faults, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
