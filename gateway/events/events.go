// Package events distributes what happens to sessions: to the event stream of the
// control API, and to other readers such as webhooks. A slow reader never delays the
// publisher.
package events

import (
	"slices"
	"sync"
	"time"
)

// The events of docs/control-api.md.
const (
	Created    = "session.created"
	Started    = "session.started"
	Detached   = "session.detached"
	Resumed    = "session.resumed"
	Superseded = "session.superseded" // a resume replaced a live connection
	Ended      = "session.ended"
	Replayed   = "token.replayed"
	Overflowed = "buffer.overflowed"

	UpstreamLost = "session.upstream_lost" // with --upstream-lost redial: the session continues
	UpstreamBack = "session.upstream_back"

	UpstreamClosed = "session.upstream_closed" // while detached: the session ends once the client has been notified

	Moved = "session.moved" // to this node, from one that was lost or that has handed it off

	// Gap stands for events that a Reader missed, or that an earlier process
	// published.
	Gap = "gap"
)

// Names lists the types that an Event may have.
func Names() []string {
	return []string{Created, Started, Detached, Resumed, Superseded, Ended, Replayed, Overflowed, UpstreamLost, UpstreamBack, UpstreamClosed, Moved, Gap}
}

// An Event is one thing that happened to a session. In JSON it is the data of
// the event stream.
type Event struct {
	// ID is greater than those of all earlier events of its Hub, of earlier processes too:
	// it is taken from the clock, in microseconds since 1970. In a NewShared Hub it is the same
	// at all nodes: PlaceOf.
	ID      uint64    `json:"-"`
	Type    string    `json:"type"`
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Player  string    `json:"player"`
	Group   string    `json:"group"`
	Path    string    `json:"path"` // of the session's first request, percent-encoded, without the query; at most 200 bytes
	Reason  string    `json:"reason"`
	// Detail is the reason that came with the end of a session: the operator's, the
	// upstream's or the client's text; or, where the upstream's connection ended while the client
	// was away, the flag for the keepalive that it may have missed. Empty for other events.
	Detail string `json:"detail,omitempty"`
	// By names who ended the session by the control API, as in the audit log. Empty for
	// other events.
	By string `json:"by,omitempty"`
	// SilentMS is, for session.detached, and for the end of the upstream's connection while the client is
	// away, how long ago the client's last bytes came; nil for other events.
	SilentMS *int64 `json:"silent_ms"`
	// AwayMS is, for a resume, how long ago the client's last bytes on an older
	// connection came; nil for other events.
	AwayMS *int64 `json:"away_ms"`
	// Node is the name of the node that published it, in the events of a cluster.
	Node string `json:"node,omitempty"`
}

// A Hub keeps the newest Kept events.
const Kept = 4096

// A Hub keeps the newest events in a ring and notifies its Readers. A Reader is only
// a position in the ring: one that is too slow gets a Gap and delays no other. All
// methods may be called from any goroutine.
type Hub struct {
	now    func() time.Time
	shared bool // its events are those of a Log

	mu      sync.Mutex
	ring    []Event // event n, counted from 0, is at n mod Kept
	count   uint64  // events published
	last    uint64  // the newest one's ID, or when the Hub was made
	evicted uint64  // the newest ID that is no longer in the ring, or never was
	missed  uint64  // events that Readers missed, summed over all Readers
	readers map[*Reader]struct{}
	closed  bool
}

// New makes a Hub whose clock is now.
func New(now func() time.Time) *Hub {
	h := &Hub{now: now, readers: make(map[*Reader]struct{})}
	h.last = h.stamp(now())
	h.evicted = h.last
	return h
}

// NewShared makes a Hub of the events in a Log that come after the one with an ID. Place adds them. A
// Reader may begin earlier: see Behind.
func NewShared(after uint64) *Hub {
	return &Hub{now: time.Now, shared: true, readers: make(map[*Reader]struct{}), last: after, evicted: after}
}

// Place adds an event of the Log, whose ID is greater than all before.
func (h *Hub) Place(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = e.ID
	h.addLocked(e)
}

// Last returns the newest ID.
func (h *Hub) Last() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

func (h *Hub) stamp(t time.Time) uint64 { return max(h.last+1, uint64(max(t.UnixMicro(), 0))) }

// Publish sets e's ID and Time, and notifies the Readers. It never waits for them.
func (h *Hub) Publish(e Event) {
	t := h.now()
	e.Time = t.UTC()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = h.stamp(t)
	e.ID = h.last
	h.addLocked(e)
}

func (h *Hub) addLocked(e Event) {
	if len(h.ring) < Kept {
		h.ring = append(h.ring, e)
	} else {
		old := &h.ring[h.count%Kept]
		h.evicted = old.ID
		*old = e
	}
	h.count++
	for r := range h.readers {
		r.notify()
	}
}

// Recent returns the events that are kept, oldest first, without those up to the ID after,
// and the newest ID that is not kept.
func (h *Hub) Recent(after uint64) (list []Event, evicted uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n := h.count - uint64(len(h.ring)); n < h.count; n++ {
		if e := h.ring[n%Kept]; e.ID > after {
			list = append(list, e)
		}
	}
	return list, h.evicted
}

// Continue puts the Recent events of an earlier process before those of h, which has
// published none. Its Readers begin after them.
func (h *Hub) Continue(list []Event, evicted uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list = list[max(len(list)-Kept, 0):]
	h.ring, h.count, h.evicted = slices.Clone(list), uint64(len(list)), evicted
	if len(list) > 0 {
		h.last = list[len(list)-1].ID
	}
	for r := range h.readers {
		r.at, r.next = h.last, h.count
	}
}

// Live returns a Reader of all later events.
func (h *Hub) Live() *Reader { return h.Newest(0) }

// Newest returns a Reader of the newest n events that are kept, and all later ones.
func (h *Hub) Newest(n int) *Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := min(uint64(max(n, 0)), uint64(len(h.ring)))
	first := h.count - held
	at := h.last
	if held > 0 {
		at = max(h.ring[first%Kept].ID-1, h.evicted)
	}
	return h.readLocked(at, first)
}

// After returns a Reader of the events after the one with that ID. A Gap comes first
// if some of them are no longer kept, or if the ID is unknown.
func (h *Hub) After(id uint64) *Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id > h.last {
		id = 0
	}
	n := h.count - uint64(len(h.ring)) // the oldest that is kept
	for n < h.count && h.ring[n%Kept].ID <= id {
		n++
	}
	return h.readLocked(id, n)
}

func (h *Hub) readLocked(id, n uint64) *Reader {
	r := &Reader{hub: h, at: id, next: n, wake: make(chan struct{}, 1)}
	h.readers[r] = struct{}{}
	r.notify()
	return r
}

// Missed returns how many events Readers missed, summed over all Readers. Events that
// were evicted before a Reader began do not count.
func (h *Hub) Missed() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.missed
}

// Close ends the stream of every Reader. Later events are not delivered.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for r := range h.readers {
		r.notify()
	}
}

// A Reader reads a Hub's events in order. It is for one goroutine.
type Reader struct {
	hub  *Hub
	at   uint64 // ID of the newest event read
	next uint64 // count of the next one
	late uint64 // events evicted before they were read, since the last Missed
	wake chan struct{}
}

// Behind reports whether the next events for r are no longer in its Hub, but may be in the Log: those
// after an ID, until another one. Unless they are read there, and Skip called for them, Next returns a Gap.
func (r *Reader) Behind() (after, until uint64, behind bool) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return r.at, r.hub.evicted, r.hub.shared && r.at < r.hub.evicted
}

// Skip continues after the event with an ID, which was read from the Log.
func (r *Reader) Skip(id uint64) {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r.at = max(r.at, id)
	r.next = max(r.next, h.count-uint64(len(h.ring)))
	for r.next < h.count && h.ring[r.next%Kept].ID <= r.at {
		r.next++
	}
	r.notify()
}

// Wake returns a channel that receives when Next may have something: at least once
// after each event that Next has not returned, and when the Hub was closed.
func (r *Reader) Wake() <-chan struct{} { return r.wake }

func (r *Reader) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Next appends the pending events to list, up to its capacity, which must leave room
// for two. It never blocks. open is false once the Hub is closed and all was read.
func (r *Reader) Next(list []Event) (_ []Event, open bool) {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.at < h.evicted {
		r.at = h.evicted
		list = append(list, Event{ID: r.at, Type: Gap, Time: h.now().UTC()})
		oldest := max(r.next, h.count-uint64(len(h.ring)))
		r.late += oldest - r.next
		h.missed += oldest - r.next
		r.next = oldest
	}
	for r.next < h.count && len(list) < cap(list) {
		e := h.ring[r.next%Kept]
		r.at = max(r.at, e.ID)
		r.next++
		if e.Type == Gap && e.Node == "" && len(list) > 0 && list[len(list)-1].Type == Gap {
			continue // the reader has been notified
		}
		list = append(list, e)
	}
	if r.next < h.count {
		r.notify()
		return list, true
	}
	return list, !h.closed
}

// Missed returns how many events of this process r has missed since the last call.
func (r *Reader) Missed() uint64 {
	n := r.late
	r.late = 0
	return n
}

// Close removes r from the Hub.
func (r *Reader) Close() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	delete(r.hub.readers, r)
}
