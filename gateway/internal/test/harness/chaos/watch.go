//go:build linux

package main

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// The client's half of answer_ms, protocol section 5: when a connection is dead to it,
// when it sends a ping, and when it begins to doubt.

const (
	leastWait    = 5 * time.Second // for an answer, while no round trip is known
	suspectEvery = 4 * time.Second // at most one resume on suspicion
	stoodStill   = 500 * time.Millisecond
)

// A temper is how soon a client suspects its connection.
type temper int

const (
	trusting temper = iota // never
	calm                   // after six times its usual gap
	nervous                // after twice that
	tempers
)

// suspects is after how many usual gaps it does, and how long a silence has to be at
// least.
func (t temper) suspects() (gaps int, least time.Duration) {
	if t == nervous {
		return 2, 50 * time.Millisecond
	}
	return 6, 300 * time.Millisecond
}

// A watch is what is known of one connection's life.
type watch struct {
	now     func() int64 // nanoseconds, after zero
	mu      sync.Mutex
	heard   int64         // bytes came
	spoken  int64         // a message came that is a sign of life
	gap     time.Duration // between two of them, as a rule
	excused int64         // the client itself stood still until then
	pinged  int64         // the newest ping was sent
	probed  int64         // and the first since anything was heard
	pingID  uint64
	pings   []sentAt // not answered, oldest first
	sends   []sentAt // messages that are not acked, oldest first
}

// A sentAt is a ping or a message of the client's, and when it was sent.
type sentAt struct {
	n  uint64
	at int64
}

func newWatch(clock func() int64) *watch {
	t := clock()
	return &watch{now: clock, heard: t, spoken: t, excused: t}
}

// hear notes bytes.
func (w *watch) hear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = w.now()
}

// speaks notes a message that is a sign of life.
func (w *watch) speaks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := time.Duration(w.now() - w.spoken); w.gap == 0 {
		w.gap = d
	} else {
		w.gap += (d - w.gap) / 8
	}
	w.spoken = w.now()
}

// sent notes a message of the client's.
func (w *watch) sent(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends = append(w.sends, sentAt{n, w.now()})
}

// acked notes that the gateway has acked up to n.
func (w *watch) acked(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends = slices.DeleteFunc(w.sends, func(s sentAt) bool { return s.n <= n })
}

// ping is the argument of a ping that is sent now.
func (w *watch) ping() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pingID++
	w.pings = append(w.pings, sentAt{w.pingID, w.now()})
	w.pinged = w.now()
	if w.probed <= w.lively() {
		w.probed = w.pinged
	}
	return strconv.FormatUint(w.pingID, 10)
}

// pong takes in the answer to a ping; rtt is the round trip, zero where it answers none.
func (w *watch) pong(arg string) (rtt time.Duration) {
	n, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pings) > 0 && w.pings[0].n <= n {
		rtt = time.Duration(w.now() - w.pings[0].at)
		w.pings = w.pings[1:]
	}
	return rtt
}

// standStill: the client itself stood still until now.
func (w *watch) standStill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excused = w.now()
}

func (w *watch) lively() int64 { return max(w.heard, w.excused) }

// since is since when an answer is owed and nothing is heard; zero: none is owed.
func (w *watch) since() int64 {
	first := int64(0)
	for _, list := range [][]sentAt{w.sends, w.pings} {
		if len(list) > 0 && (first == 0 || list[0].at < first) {
			first = list[0].at
		}
	}
	if first == 0 {
		return 0
	}
	return max(first, w.lively())
}

// judge says whether a ping is to be sent now, and whether the connection is dead.
func (w *watch) judge(answer, heartbeat, rtt time.Duration) (ping, dead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, lively := w.now(), w.lively()
	if t-lively > int64(2*heartbeat) {
		return false, true
	}
	since := w.since()
	switch {
	case answer == 0:
		return t-max(lively, w.pinged) > int64(heartbeat), false
	case since == 0:
		return t-max(lively, w.pinged) > int64(heartbeat+answer/2), false
	}
	limit := answer
	if rtt == 0 {
		limit = max(limit, leastWait)
	}
	dead = w.probed > lively && t-since > int64(limit) && t-w.probed > int64(4*rtt)
	return t-max(since, w.pinged) > int64(answer/2), dead
}

// owedSince is since when an answer is owed and nothing is heard; zero: none is owed.
func (w *watch) owedSince() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since()
}

func (w *watch) heardAt() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}

// doubtful reports whether the connection has been silent for several times its usual
// gap, and for least at any rate.
func (w *watch) doubtful(gaps int, least time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	silent := time.Duration(w.now() - max(w.spoken, w.excused))
	return w.gap > 0 && silent > max(time.Duration(gaps)*w.gap, least)
}
