package session

import (
	"bytes"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/wire"
)

// This file is the output to a client: which bytes go out next, and what follows from their
// having been written. Replay and live traffic are one loop, which differ only in where
// cur is: a resume sets cur to the oldest message that the client lacks, and the loop
// catches up with the end of the buffer.
//
// Out and Wrote form a pair. Between them the returned slices belong to the driver, and
// may already be in the peer's hands: they must not change, whatever happens to the session
// meanwhile. That is what flight, handed and finish are for.

// An Attachment is one client connection of a session. Once the session has replaced
// or detached it, it only says what its connection must still be sent; its input is
// ignored, protocol section 8. The fields that every message needs come first, as in
// a Session.
type Attachment struct {
	mode      CloseMode
	last      bool // ctl ends with the Close frame that ends the session: nothing follows
	behind    bool // the last write did not fit into its socket
	spoke     bool // a message has arrived after hello
	ackNow    bool // an ack is due without further delay
	pongDue   bool
	replaying bool // a resume that has not caught up
	hasNews   bool // there is news

	// Output is sent in this order: the rest of the message that cur lies inside, then
	// ctl, then the whole messages that follow. A control message thus never splits a
	// data message.
	cur    uint64      // stream offset up to which bytes were written
	mid    uint64      // end of the message, or of the part of one, that cur lies inside, or any offset up to cur
	mark   replay.Mark // the end of a message at or before cur
	ctl    []byte      // control messages and frames of the gateway
	flight flight      // returned by Out, not yet reported by Wrote
	sent   Time        // when the socket last accepted bytes

	heard    Time  // last sign of life: see liveness.go
	owed     Time  // since when a written message is unacked; zero: none is
	ackSince Time  // when the oldest message that we owe an ack for was written; zero: none
	askSince Time  // plain: when the oldest message that no Pong covers was written; zero: none
	closed   Time  // when our Close frame was written, or all that preceded a broken upstream
	overdue  probe // n: a message sent before an answered ping; at: when its pong arrived
	in       inbound

	// Liveness, protocol section 5.4.
	pings   []probe // unanswered, oldest first
	pinged  Time    // when the newest ping was sent; zero: none
	probed  Time    // when the first ping after the last sign of life was sent
	excused Time    // silence before this moment was the gateway's own doing
	socket  socketWatch
	clogged Time // when something was last seen to hold up a pong, or what it answers: see sampled
	looked  Time // when it was last checked whether the session is crowded

	greeted    bool // the first ack, the answer to hello, has arrived
	resumed    bool
	takesParts bool // large messages are sent in parts: see parts.go
	partial    bool // and are gone on with where they were cut, in both directions
	pageLeaves bool // the client has said `leaving`

	// Fields that not every message needs.
	parts   *parts        // the message that cur lies inside, or before; nil: it is not sent in parts
	rest    [][]byte      // once released: what goes out before ctl
	closing *relayedClose // a plain client's Close that was passed on: the client is asked nothing more
	catchUp uint64        // offset at which the replay of a resume is complete
	start   uint64        // cur at the attach

	news []news // of outages of the upstream, oldest first: see outage.go

	pong    string // argument of the newest ping, which alone needs an answer: protocol section 5.4
	wsPongs pongs  // answers to WebSocket Pings

	repeats uint64 // of the client's next messages, how many were received before: see durable.go
	acked   uint64 // newest client message acked on this connection
	ackedAt uint64 // Session.acked at the attach
	acks    Time   // when the client last acked something new
	pingID  uint64 // id of the newest ping
	asked   uint64 // plain: count in the newest Ping, protocol section 9

	epoch   uint64
	gen     uint64 // the generation of the token in its hello
	peer    string // the client's address, for events
	since   Time
	arrived Time // when its handshake arrived
}

// A flight is output that is in flight: returned by Out, not yet reported by Wrote.
type flight struct {
	active    bool
	waits     bool // the write blocks until the socket takes everything: see Session.WriteBlocks
	parts     bool // what follows ctl are parts of a message
	part      int  // bytes of the part of a message that cur lies inside,
	head, ctl int  // or of the message; of ctl,
	body      int  // of the messages that follow, or the bytes of the stream that parts stand for
}

// pongs holds the payloads of unanswered WebSocket Pings, oldest first.
type pongs struct{ due [][]byte }

const (
	maxPongs     = 32      // more are answered by the newest alone: protocol section 11, RFC 6455 section 5.5.3
	maxPongBytes = 4 << 10 // of ctl; above it Pongs wait, so that a client that reads nothing costs no memory
)

// add records a Ping to be answered. It copies the payload, which lies in the driver's
// read buffer.
func (p *pongs) add(payload []byte) {
	if len(p.due) == maxPongs {
		p.due = p.due[:0]
	}
	p.due = append(p.due, bytes.Clone(payload))
}

// take returns the payloads to be answered, and forgets them.
func (p *pongs) take() [][]byte {
	due := p.due
	p.due = nil
	return due
}

// A probe is an unanswered ping, and the newest message that was written before it.
type probe struct {
	id uint64
	n  uint64
	at Time
}

// newAttachment returns a connection whose output starts at the oldest message that the
// client has not acked: at a resume, that is the replay.
func (s *Session) newAttachment(now Time, p Pass) *Attachment {
	base := s.ring.Base()
	return &Attachment{
		peer: p.Peer, since: now, sent: now, heard: now, arrived: p.Arrived, ackedAt: s.acked,
		cur: base.Off, start: base.Off, mark: base,
	}
}

// CloseMode implements Leg.
func (a *Attachment) CloseMode() CloseMode { return a.mode }

// FlushTime implements Leg.
func (*Attachment) FlushTime() time.Duration { return clientFlush }

// HalfClose implements Leg.
func (*Attachment) HalfClose() bool { return true }

// Direct implements Leg: clients mostly are idle, and need no memory of their own.
func (*Attachment) Direct() bool { return false }

// Epoch returns which attach of the session this was, counted from 1.
func (a *Attachment) Epoch() uint64 { return a.epoch }

// hasOutput must be cheap: drivers ask for output after every read. It allows what out would
// return, so a new kind of output must be named here, too.
func (a *Attachment) hasOutput(s *Session, now Time) bool {
	switch {
	case a.flight.active || a.mode >= Shut:
		return false
	case len(a.ctl) > 0 || len(a.rest) > 0:
		return true
	case a != s.att:
		return false
	}
	return a.mid > a.cur || a.newsDue() || !a.last && (s.ring.Last().Off > a.cur && !s.windowFull(a) || s.partDue(a) || a.pongDue || a.ackDue(now) || len(a.wsPongs.due) > 0)
}

// out composes control messages only now, when the socket takes output: an ack or pong then
// carries the newest numbers, and several due ones become one.
func (a *Attachment) out(s *Session, now Time, dst [][]byte) [][]byte {
	n := len(dst)
	if a != s.att {
		dst = a.restOut(dst)
	} else {
		if s.replacing && s.ring.Compactable() { // no replaced message goes out
			s.compact(s.unsent())
		}
		s.compose(now, a)
		dst = s.liveOut(a, dst)
	}
	a.flight.active = len(dst) > n
	return dst
}

// handed returns the stream offset up to which bytes were returned by Out. The client
// may ack that far: the driver may have written them before it reports so.
func (a *Attachment) handed() uint64 {
	from := a.cur + uint64(a.flight.head)
	if a.flight.part > 0 { // cur stays before a part until all of it was written
		from = a.mid
	}
	return from + uint64(a.flight.body)
}

// begun returns the end of the newest message, or part of one, of which the client may have been sent the beginning.
func (a *Attachment) begun() uint64 { return max(a.handed(), a.mid) }

// liveOut returns the output of the attached client. Ring slices point into the replay
// buffer, which pins them until Wrote.
func (s *Session) liveOut(a *Attachment, dst [][]byte) [][]byte {
	if s.large > a.cur && a.takesParts {
		return s.partsOut(a, dst)
	}
	from := a.cur
	if a.mid > from {
		dst = s.ring.Slices(dst, from, a.mid)
		a.flight.head = int(a.mid - from)
		from = a.mid
	}
	if len(a.ctl) > 0 {
		dst = append(dst, a.ctl)
		a.flight.ctl = len(a.ctl)
	}
	to := min(s.ring.Last().Off, from+maxWrite)
	if a.hasNews {
		to = min(to, a.news[0].at)
	}
	// Nothing follows the Close frame: protocol section 6.
	if to > from && !a.last {
		dst = s.ring.Slices(dst, from, to)
		a.flight.body = int(to - from)
	}
	return dst
}

// restOut returns the output of a released attachment.
func (a *Attachment) restOut(dst [][]byte) [][]byte {
	dst = append(dst, a.rest...)
	if len(a.ctl) > 0 {
		dst = append(dst, a.ctl)
		a.flight.ctl = len(a.ctl)
	}
	return dst
}

// wrote takes the written bytes off the output. Since a client acks only whole messages, the
// marks must tell exactly which messages are whole.
func (a *Attachment) wrote(s *Session, now Time, n int, full bool) (look bool) {
	out := a.flight
	a.flight = flight{}
	if n > 0 {
		a.sent = now
		if a.behind {
			a.hear(now) // protocol section 5.4: bytes that a full socket accepts count as heard
		}
	}
	if full && !a.behind {
		a.socket.looked = now
	}
	if full || a.behind {
		a.clogged = now
	}
	a.behind = full
	if a != s.att {
		a.restWrote(n)
		return false
	}
	// Bytes count in the order in which Out returned them: the rest of the message first,
	// then ctl, then the messages that follow. Only the stream's bytes move cur.
	var ctl int
	inParts := out.parts || out.part > 0
	if inParts {
		ctl = s.wroteParts(now, a, out, n)
	} else {
		head := min(n, out.head)
		ctl = min(n-head, out.ctl)
		a.cur += uint64(n - ctl)
	}
	a.dropCtl(ctl)
	if len(a.ctl) == 0 && a.socket.mark == queued {
		a.socket.mark, look = written, true
	}
	// An ack may overtake the report of the write that it confirms. If the write then stops
	// short, the client has acked bytes that it never got, and they are already freed.
	if base := s.ring.Base(); a.cur < base.Off {
		s.ring.Unpin()
		a.cur, a.mid, a.mark = base.Off, base.Off, base // what it acked is no longer in the buffer,
		s.violation(now, wire.CodeProtocolViolation, "ack %d before it was sent", base.N)
		a.mode, a.rest, a.ctl, a.parts = Shut, nil, nil, nil // so the rest of that message cannot be sent
		return false
	}
	if n > ctl {
		// A write may stop inside a message. Until the rest of it has been written, nothing else
		// may be.
		mid := a.mid
		if a.mark, a.mid = s.ring.Around(a.mark, a.cur); inParts {
			s.betweenParts(a, mid)
		}
		if a.owed == 0 && s.owes(a) {
			a.owed = now
		}
	}
	s.ring.Unpin()
	s.sentOff = max(s.sentOff, a.cur)
	s.afterWrite(now, a)
	return look && a == s.att
}

// owes reports whether the client of a owes an ack or a `part` for what was written to it. It owes none for
// messages that were reported as lost.
func (s *Session) owes(a *Attachment) bool {
	return s.cfg.Resumable && a.mark.N > s.acked && a.mark.Off > a.start || a.parts != nil && a.parts.unanswered() > 0
}

// waits starts the clock for a look at the socket: until the write returns, only the
// socket's state shows whether it is full.
func (a *Attachment) waits(_ *Session, now Time) {
	a.flight.waits = true
	if !a.behind {
		a.socket.looked = now
	}
}

// afterWrite does what depends on bytes having been written.
func (s *Session) afterWrite(now Time, a *Attachment) {
	if a.replaying && a.cur >= a.catchUp && len(a.ctl) == 0 {
		a.replaying = false
		s.emit(Event{Kind: Replayed, Elapsed: now.Sub(a.arrived)})
	}
	switch {
	case s.cfg.Resumable:
	case s.cfg.PlainResume && a.closing == nil:
		s.askPong(now, a)
	default:
		s.ackWritten(now, a)
	}
	if a.last && len(a.ctl) == 0 && a.closed == 0 {
		a.closed = now
	}
	s.deliverEnd(now)
	s.askAck(now, a)
}

// ackWritten counts what was written to a plain client as received, and frees it.
// Nothing better is known of a client without a cookie: it is never asked.
func (s *Session) ackWritten(now Time, a *Attachment) {
	s.ring.Ack(a.mark.N, a.mark.Off)
	s.acked = max(s.acked, a.mark.N)
	s.unblock(now)
}

// restWrote removes n written bytes from the output of a released attachment.
func (a *Attachment) restWrote(n int) {
	for n > 0 && len(a.rest) > 0 {
		k := min(n, len(a.rest[0]))
		a.rest[0] = a.rest[0][k:]
		n -= k
		if len(a.rest[0]) == 0 {
			a.rest = a.rest[1:]
		}
	}
	a.dropCtl(n)
}

// dropCtl removes n written bytes from ctl. It keeps a small array for reuse and frees
// a large one: most connections never need one again.
func (a *Attachment) dropCtl(n int) {
	switch {
	case n < len(a.ctl):
		a.ctl = a.ctl[n:]
	case cap(a.ctl) <= 128:
		a.ctl = a.ctl[:0]
	default:
		a.ctl = nil
	}
}

// release takes a off the session. Its connection completes the message that it is
// sending, sends final, and is closed by f. Output in flight stays in flight. With
// flush it first sends everything that is numbered.
func (s *Session) release(a *Attachment, f CloseMode, final []byte, flush bool) {
	a.mode, s.heard = f, max(s.heard, a.heard)
	s.sentOff = max(s.sentOff, a.handed())
	if f < Shut {
		s.finish(a, flush)
		if !a.last {
			a.ctl = append(a.ctl, final...)
		}
	} else {
		a.ctl = nil
	}
	s.ring.Abandon()
	s.forgetInbound(a)
	s.renewAt = 0
}

// finish moves what a must still send before its final frames into rest and ctl, which
// no longer refer to the session. Output in flight comes first, in its order.
func (s *Session) finish(a *Attachment, flush bool) {
	f, ctl := a.flight, len(a.ctl)
	if f.active {
		ctl = f.ctl
	}
	from, to, end := s.toFinish(a)
	if flush {
		end = s.ring.Last().Off
	}
	if a.parts != nil && len(a.parts.rest) > 0 {
		a.rest = append(a.rest, a.parts.rest)
	} else {
		a.rest = s.ring.Slices(a.rest, a.cur, from)
	}
	if ctl > 0 {
		a.rest = append(a.rest, a.ctl[:ctl:ctl])
	}
	if f.parts {
		a.rest = append(a.rest, a.parts.next)
	} else {
		a.rest = s.ring.Slices(a.rest, from, to)
	}
	a.rest = s.appendUntil(a, a.rest, to, end)
	// A copy: the first part of ctl may be in flight, and final is appended to the rest.
	a.ctl = append([]byte(nil), a.ctl[ctl:]...)
	a.flight = flight{active: f.active}
	s.sentOff = max(s.sentOff, end) // the client may receive it and count it in its N
}

// toFinish returns offsets on the stream: where the message, or the part of one, ends that cur lies inside; where
// output in flight ends, which is fixed; and where the last message or part ends that a has begun to send.
func (s *Session) toFinish(a *Attachment) (from, to, end uint64) {
	f := a.flight
	from = max(a.cur, a.mid)
	if f.active && f.part == 0 {
		from = a.cur + uint64(f.head)
	}
	to = from + uint64(f.body)
	return from, to, s.unbroken(a, to) // a write may stop at any byte
}

// unfinished returns how many bytes a must still send before its connection can be closed
// with a Close frame.
func (s *Session) unfinished(a *Attachment) uint64 {
	_, _, end := s.toFinish(a)
	return end - a.cur
}

// ackDue reports whether the client must be acked now (protocol section 5.2), or can
// be at no cost since another frame goes out anyway.
func (a *Attachment) ackDue(now Time) bool {
	return a.ackSince > 0 && (a.ackNow || a.pongDue || now.Sub(a.ackSince) >= ackWanted)
}

// compose appends the frames that are due to ctl. The ack comes before the pong:
// protocol section 5.2.
func (s *Session) compose(now Time, a *Attachment) {
	if a.last {
		return
	}
	if len(a.ctl) < maxPongBytes {
		for _, p := range a.wsPongs.take() {
			a.ctl = frame.Append(a.ctl, frame.Pong, p)
		}
	}
	if a.ackDue(now) {
		a.ctl = wire.AppendAck(a.ctl, s.written.n)
		a.acked, a.ackSince, a.ackNow = s.written.n, 0, false
		s.ackSent = s.written
	}
	if s.partDue(a) {
		s.tellPart(a)
	}
	if a.pongDue {
		a.ctl = wire.Append(a.ctl, wire.VerbPong, a.pong)
		a.pongDue = false
	}
	if a.newsDue() {
		s.tellNews(a)
	}
}
