// Package events hands on what happens to sessions: to the event stream of the
// control API, and to whoever else wants to know. Whoever publishes never
// waits for whoever reads.
package events

import (
	"sync"
	"time"
)

// The events of docs/control-api.md.
const (
	Created    = "session.created"
	Started    = "session.started"
	Detached   = "session.detached"
	Resumed    = "session.resumed"
	Superseded = "session.superseded" // on a resume the newer connection has taken over
	Ended      = "session.ended"
	Replayed   = "token.replayed"
	Overflowed = "buffer.overflowed"

	// Gap stands for those that a Reader was too late for, or that were before
	// this process.
	Gap = "gap"
)

// Names lists the types that an Event may have.
func Names() []string {
	return []string{Created, Started, Detached, Resumed, Superseded, Ended, Replayed, Overflowed, Gap}
}

// An Event is one thing that happened to a session. In JSON it is the data of
// the event stream.
type Event struct {
	// ID is greater than those of all earlier events, of earlier processes too:
	// it is taken from the clock, in microseconds since 1970.
	ID      uint64    `json:"-"`
	Type    string    `json:"type"`
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Player  string    `json:"player"`
	Group   string    `json:"group"`
	Reason  string    `json:"reason"`
	// Detail says, where a session ended, what was said with it: an operator's words, the
	// game server's, the client's. Other events have none.
	Detail string `json:"detail,omitempty"`
	// SilentMS says, where a client was lost, for how long nothing had been heard of
	// it; nil at other events.
	SilentMS *int64 `json:"silent_ms"`
	// AwayMS says, where a client came back, how long ago its last sign of life on an
	// older connection was; nil at other events.
	AwayMS *int64 `json:"away_ms"`
}

// Kept is how many past events a Hub remembers.
const Kept = 4096

// A Hub remembers the newest events in a ring, and wakes its Readers. Each
// Reader has only a position in the ring: one that is too slow is told of a
// gap, and costs nobody anything.
type Hub struct {
	now func() time.Time

	mu      sync.Mutex
	ring    []Event // the event that came n-th from the start is at n mod Kept
	count   uint64  // events published
	last    uint64  // the newest one's ID, or when the Hub was made
	gone    uint64  // the newest ID that is not in the ring any more, or never was
	missed  uint64  // events that Readers were too late for, each counted for each of them
	readers map[*Reader]struct{}
	closed  bool
}

// New makes a Hub whose clock is now.
func New(now func() time.Time) *Hub {
	h := &Hub{now: now, readers: make(map[*Reader]struct{})}
	h.last = h.stamp(now())
	h.gone = h.last
	return h
}

func (h *Hub) stamp(t time.Time) uint64 { return max(h.last+1, uint64(max(t.UnixMicro(), 0))) }

// Publish gives e its ID and its time, and hands it on. It never waits for a
// Reader.
func (h *Hub) Publish(e Event) {
	t := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = h.stamp(t)
	e.ID, e.Time = h.last, t.UTC()
	if len(h.ring) < Kept {
		h.ring = append(h.ring, e)
	} else {
		old := &h.ring[h.count%Kept]
		h.gone = old.ID
		*old = e
	}
	h.count++
	for r := range h.readers {
		r.rouse()
	}
}

// Live reads what happens from now on.
func (h *Hub) Live() *Reader { return h.Newest(0) }

// Newest reads the newest n events that are held, and what happens from now on.
func (h *Hub) Newest(n int) *Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := min(uint64(max(n, 0)), uint64(len(h.ring)))
	first := h.count - held
	at := h.last
	if held > 0 {
		at = h.ring[first%Kept].ID - 1
	}
	return h.readLocked(at, first)
}

// After reads what has happened since the event with that ID. A Gap comes first
// where something since then is not known any more; so it is where the ID
// was never given.
func (h *Hub) After(id uint64) *Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id > h.last {
		id = 0
	}
	n := h.count - uint64(len(h.ring)) // the oldest that is held
	for n < h.count && h.ring[n%Kept].ID <= id {
		n++
	}
	return h.readLocked(id, n)
}

func (h *Hub) readLocked(id, n uint64) *Reader {
	r := &Reader{hub: h, at: id, next: n, wake: make(chan struct{}, 1)}
	h.readers[r] = struct{}{}
	r.rouse()
	return r
}

// Missed is how many events Readers were too late for; one that began behind
// what is remembered was not late for that.
func (h *Hub) Missed() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.missed
}

// Close ends what the Readers read. What is published afterwards is not read.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for r := range h.readers {
		r.rouse()
	}
}

// A Reader is one who reads a Hub's events, in order. It is for one goroutine.
type Reader struct {
	hub  *Hub
	at   uint64 // ID of the newest event read
	next uint64 // count of the next one
	late uint64 // events that were gone before they could be read
	wake chan struct{}
}

// Wake yields when there may be something to read: at least once after each
// event that Next has not given yet, and when the Hub was closed.
func (r *Reader) Wake() <-chan struct{} { return r.wake }

func (r *Reader) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Next appends what there is to list, as far as its capacity goes, and reports
// whether more may come: where the Hub was closed, all has been read. A list
// without room for two is no use.
func (r *Reader) Next(list []Event) (_ []Event, open bool) {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.at < h.gone {
		list = append(list, Event{ID: h.gone, Type: Gap, Time: h.now().UTC()})
		oldest := max(r.next, h.count-uint64(len(h.ring)))
		r.late += oldest - r.next
		h.missed += oldest - r.next
		r.at, r.next = h.gone, oldest
	}
	for r.next < h.count && len(list) < cap(list) {
		list = append(list, h.ring[r.next%Kept])
		r.at = list[len(list)-1].ID
		r.next++
	}
	if r.next < h.count {
		r.rouse()
		return list, true
	}
	return list, !h.closed
}

// Missed is how many events of this process r was too late for since it was last
// asked.
func (r *Reader) Missed() uint64 {
	n := r.late
	r.late = 0
	return n
}

// Close takes r off the Hub.
func (r *Reader) Close() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	delete(r.hub.readers, r)
}
