//go:build linux

package main

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// The client's side of answer_ms, protocol section 5: when it considers a connection
// dead, when it sends a ping, and when it suspects the connection.

const (
	leastWait    = 5 * time.Second // for an answer, while the round trip is unknown
	suspectEvery = 4 * time.Second // min interval between resumes on suspicion
	stoodStill   = 500 * time.Millisecond
)

// tempers are after how many usual gaps of silence a client suspects its connection; 0: never.
var tempers = []int{0, 6, 2}

// A watch is what is known about the activity of one connection.
type watch struct {
	mu      sync.Mutex
	heard   int64         // when bytes arrived
	spoken  int64         // when a message arrived that counts as activity
	gap     time.Duration // the usual gap between two of them
	excused int64         // until when the client itself was suspended
	pinged  int64         // the newest ping was sent
	probed  int64         // and the first since any activity
	pingID  uint64
	pings   []sentAt // not answered, oldest first
	sends   []sentAt // messages that are not acked, oldest first
}

// A sentAt is a ping or a message of the client's, and when it was sent.
type sentAt struct {
	n  uint64
	at int64
}

func newWatch() *watch {
	t := now()
	return &watch{heard: t, spoken: t, excused: t}
}

// hear records bytes.
func (w *watch) hear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = now()
}

// speaks records a message that counts as activity.
func (w *watch) speaks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := time.Duration(now() - w.spoken); w.gap == 0 {
		w.gap = d
	} else {
		w.gap += (d - w.gap) / 8
	}
	w.spoken = now()
}

// sent records a message of the client's.
func (w *watch) sent(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends = append(w.sends, sentAt{n, now()})
}

// acked records an ack up to n.
func (w *watch) acked(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends = slices.DeleteFunc(w.sends, func(s sentAt) bool { return s.n <= n })
}

// ping returns the argument of a ping that is sent now.
func (w *watch) ping() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pingID++
	w.pings = append(w.pings, sentAt{w.pingID, now()})
	w.pinged = now()
	if w.probed <= w.lively() {
		w.probed = w.pinged
	}
	return strconv.FormatUint(w.pingID, 10)
}

// pong processes the answer to a ping; rtt is the round trip, zero if it answers none.
func (w *watch) pong(arg string) (rtt time.Duration) {
	n, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pings) > 0 && w.pings[0].n <= n {
		rtt = time.Duration(now() - w.pings[0].at)
		w.pings = w.pings[1:]
	}
	return rtt
}

// standStill records that the client itself was suspended until now.
func (w *watch) standStill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excused = now()
}

func (w *watch) lively() int64 { return max(w.heard, w.excused) }

// since returns since when an answer is owed and nothing arrives; zero: none is owed.
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

// judge returns whether a ping must be sent now, and whether the connection is dead.
func (w *watch) judge(answer, heartbeat, rtt time.Duration) (ping, dead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, lively := now(), w.lively()
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

func (w *watch) heardAt() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}

// suspicious reports whether the connection has been silent for several usual gaps, and at least for as many times
// 50 ms.
func (w *watch) suspicious(gaps int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	silent := time.Duration(now() - max(w.spoken, w.excused))
	return w.gap > 0 && silent > time.Duration(gaps)*max(w.gap, 50*time.Millisecond)
}
