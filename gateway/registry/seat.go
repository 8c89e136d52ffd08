package registry

import (
	"slices"

	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/tlv"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// This file encodes what the engine of a cluster keeps of a durable session, from which another node can
// continue it.

// A Seat is what this node knows of the record of one of its sessions.
type Seat struct {
	Epoch    uint64 // counts claims and hand-offs of the session; 0: it has only been here
	Revision uint64 // of the newest record that this node has written; 0: none
	Covered  bool   // the record says all that another node needs
	Moved    string // how the session came here: as in hello.moved; "": it began here
	Unsure   bool   // claimed, and not yet read again: another node's claim may have come later
}

// The values of Snapshot.Durable.
const (
	Covered    = "covered"
	Exposed    = "exposed"
	NotDurable = "no"
)

// Durability says what a lost node means for e, in that state: Covered, Exposed or NotDurable.
func (e *Record) Durability(state session.State) string {
	seat := e.Seat()
	switch {
	case !e.Durable:
		return NotDurable
	case seat.Covered:
		return Covered
	case state == session.Connecting && seat.Revision == 0: // its first seat is written before its hello
		return NotDurable
	}
	return Exposed
}

// Handoff reports whether the session came here by a hand-off.
func (s *Seat) Handoff() bool { return s.Moved == wire.MovedHandoff }

func (s *Seat) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &s.Epoch)
	tlv.Num(c, 2, &s.Revision)
	c.Bool(3, &s.Covered)
	c.String(4, &s.Moved)
	c.Bool(5, &s.Unsure)
}

// Seat returns what is known of e's record.
func (e *Record) Seat() Seat {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seat
}

// UpdateSeat changes what is known of e's record.
func (e *Record) UpdateSeat(f func(*Seat)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.seat)
}

// Hold keeps a durable session from being written to the engine, changed by a call, and handed off to another
// node, until release is called: what that node is given names the record that it replaces, and must not
// change on the way. It may wait as long as a hand-off takes, so a driver's loop must not call it.
func (e *Record) Hold() (release func()) {
	if !e.Durable {
		return func() {}
	}
	e.mu.Lock()
	if e.held == nil {
		e.held = make(chan struct{}, 1)
	}
	held := e.held
	e.mu.Unlock()
	held <- struct{}{}
	return func() { <-held }
}

// SkipEpochs raises the number of the next request to the upstream by n: the node before may have sent
// some that this one does not know of.
func (e *Record) SkipEpochs(n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epoch += n
}

// A SeatBody is what a seat says of a session, besides its owner.
type SeatBody struct {
	Record    []byte // a State
	Confirmed uint64 // newest generation confirmed
	Acked     uint64 // newest message that the client has acked
	Started   bool
}

// Encode returns b for the engine.
func (b *SeatBody) Encode() []byte { return tlv.Write(b.walk) }

// ReadSeatBody reads what Encode has written.
func ReadSeatBody(p []byte) (SeatBody, error) {
	var b SeatBody
	err := tlv.Read(p, b.walk)
	return b, err
}

func (b *SeatBody) walk(c *tlv.Codec) {
	c.Bytes(1, &b.Record)
	tlv.Num(c, 2, &b.Confirmed)
	tlv.Num(c, 3, &b.Acked)
	c.Bool(4, &b.Started)
}

// keptMoments limits the newest entries of a history that a seat keeps, besides the first.
const keptMoments = 8

// AppendShort is AppendState with the beginning and the end of the history alone.
func (e *Record) AppendShort(b []byte, ofRoute upstream.Target) []byte {
	s := e.state(ofRoute)
	if drop := len(s.past.list) - 1 - keptMoments; drop > 0 {
		s.past.list = slices.Delete(s.past.list, 1, 1+drop)
		s.past.left += drop
	}
	return tlv.Append(b, s.walk)
}

// Core is the configuration of the core of a restored session that has no driver yet.
func (e *Record) Core(store *replay.Store) session.Config {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.config(e.protocol, store)
}

// MovedOn removes a session that continues at another node. It has not ended, so nothing is remembered.
func (r *Registry) MovedOn(e *Record, info session.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeLocked(e, info)
}

// Ended reports whether a session is remembered that has ended here. One that has ended silently may be another
// node's: its seat says so.
func (r *Registry) Ended(id string) bool {
	r.mu.RLock()
	t := r.ended.byID[id]
	r.mu.RUnlock()
	return t != nil && t.outcome().ending.Code != wire.CodeNodeUnreachable
}
