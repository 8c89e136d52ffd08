package session

import (
	"bytes"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/wire"
)

// An Attachment is one client connection's tenure with a session. Once it is
// not the session's attachment any more it only says what its connection is
// still to be sent. What every message needs comes first, as in a Session.
type Attachment struct {
	mode      CloseMode
	last      bool // ctl ends with the Close frame that ends the session: nothing follows
	behind    bool // its socket did not take all at the last write
	spoke     bool // a message has come after hello
	ackNow    bool
	pongDue   bool
	replaying bool // a resume has not caught up

	// Outward. What goes out next is: the rest of the message in whose midst
	// cur lies, then ctl, then the whole messages behind.
	cur    uint64      // stream offset behind what has been written
	mid    uint64      // end of the message in whose midst cur lies, or anything up to cur
	mark   replay.Mark // a message's end at or before cur
	ctl    []byte      // frames of the gateway's own
	flight flight      // what Out returned and Wrote has not reported
	sent   Time        // when bytes were last accepted

	heard    Time  // the last sign of life; see liveness.go
	owed     Time  // since when a message that was written is not acked; zero: none is
	ackSince Time  // when the oldest message not acked was written; zero: none
	askSince Time  // when the oldest message was written that no Pong has covered; zero: none
	closed   Time  // when the Close frame was written, or all before a break that is yet to be told
	overdue  probe // n: a message that a ping was sent after; at: when the pong came
	in       inbound

	// Liveness.
	pings   []probe // not answered yet, oldest first
	pinged  Time    // when the newest ping was sent; zero: none was
	probed  Time    // when the first ping was sent since anything was heard, if that is later than heard
	excused Time    // the silence before was the gateway's own
	socket  socketWatch
	greeted bool // the first ack has come

	// What not every message needs.
	rest    [][]byte      // once released: what must still go out before ctl
	closing *relayedClose // a plain client's Close that was passed on; nothing is asked of it any more
	catchUp uint64        // offset at which a resume has been replayed
	start   uint64        // cur at the attach

	pong    string // the answer to the newest ping that is due: older ones need none
	wsPongs pongs  // those to Pings

	acked   uint64 // of the client's messages, told on this connection
	ackedAt uint64 // the session's acked at the attach
	acks    Time   // when the client last acked something new
	pingID  uint64 // of the newest ping
	asked   uint64 // the count that the newest Ping to a plain client carried

	epoch   uint64
	gen     uint64 // the generation that its hello carried
	peer    string // the client's address, for anyone who watches
	since   Time
	arrived Time // when its handshake came
	resumed bool
}

// A flight is what has been handed out and not been reported as written.
type flight struct {
	active    bool
	waits     bool // for the socket: see Session.Waits
	head, ctl int  // bytes of the message cut short, of ctl,
	body      int  // and of the messages behind
	restBytes int  // or, once released, of rest
}

// pongs are the payloads of Pings that are not answered yet, oldest first.
type pongs struct{ due [][]byte }

const (
	maxPongs     = 32      // beyond it only the newest Ping is answered, as RFC 6455 section 5.5.3 allows
	maxPongBytes = 4 << 10 // of our own frames may wait before Pongs wait for them
)

func (p *pongs) add(payload []byte) {
	if len(p.due) == maxPongs {
		p.due = p.due[:0]
	}
	p.due = append(p.due, bytes.Clone(payload))
}

func (p *pongs) take() [][]byte {
	due := p.due
	p.due = nil
	return due
}

// A probe is a ping under way, and the newest message that was written before it.
type probe struct {
	id uint64
	n  uint64
	at Time
}

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

// Epoch tells which attach of the session this was, from 1.
func (a *Attachment) Epoch() uint64 { return a.epoch }

func (a *Attachment) hasOutput(s *Session, now Time) bool {
	switch {
	case a.flight.active || a.mode >= Shut:
		return false
	case len(a.ctl) > 0 || len(a.rest) > 0:
		return true
	case a != s.att:
		return false
	}
	return a.mid > a.cur || !a.last && (s.ring.Last().Off > a.cur || a.pongDue || a.ackDue(now) || len(a.wsPongs.due) > 0)
}

func (a *Attachment) out(s *Session, now Time, dst [][]byte) [][]byte {
	n := len(dst)
	if a != s.att {
		dst = a.restOut(dst)
	} else {
		s.compose(now, a)
		dst = s.liveOut(a, dst)
	}
	a.flight.active = len(dst) > n
	return dst
}

// handed is the offset up to which bytes have been handed out.
func (a *Attachment) handed() uint64 {
	return a.cur + uint64(a.flight.head+a.flight.body)
}

func (s *Session) liveOut(a *Attachment, dst [][]byte) [][]byte {
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
	if to := min(s.ring.Last().Off, from+maxWrite); to > from && !a.last {
		dst = s.ring.Slices(dst, from, to)
		a.flight.body = int(to - from)
	}
	return dst
}

func (a *Attachment) restOut(dst [][]byte) [][]byte {
	for _, p := range a.rest {
		a.flight.restBytes += len(p)
		dst = append(dst, p)
	}
	if len(a.ctl) > 0 {
		dst = append(dst, a.ctl)
		a.flight.ctl = len(a.ctl)
	}
	return dst
}

func (a *Attachment) wrote(s *Session, now Time, n int, full bool) (look bool) {
	out := a.flight
	a.flight = flight{}
	if n > 0 {
		a.sent = now
		if a.behind {
			a.hear(now) // protocol section 5: bytes taken by a full socket count as heard
		}
	}
	if full && !a.behind {
		a.socket.looked = now
	}
	a.behind = full
	if a != s.att {
		a.restWrote(n)
		return false
	}
	head := min(n, out.head)
	ctl := min(n-head, out.ctl)
	a.cur += uint64(n - ctl)
	a.dropCtl(ctl)
	if len(a.ctl) == 0 && a.socket.mark == queued {
		a.socket.mark, look = written, true
	}
	if base := s.ring.Base(); a.cur < base.Off {
		s.ring.Unpin()
		a.cur, a.mid, a.mark = base.Off, base.Off, base // what it acked is gone,
		s.violation(now, wire.CodeProtocolViolation, "ack %d before it was sent", base.N)
		a.mode, a.rest, a.ctl = Shut, nil, nil // and with it the rest of a message
		return false
	}
	if n > ctl {
		a.mark, a.mid = s.ring.Around(a.mark, a.cur)
		if a.owed == 0 && s.cfg.Resumable && a.mark.N > s.acked && a.mark.Off > a.start { // not of what was lost
			a.owed = now
		}
	}
	s.ring.Unpin()
	s.sentOff = max(s.sentOff, a.cur)
	s.afterWrite(now, a)
	return look && a == s.att
}

func (a *Attachment) waits(_ *Session, now Time) {
	a.flight.waits = true
	if !a.behind {
		a.socket.looked = now
	}
}

// afterWrite does what waits for bytes to have gone out.
func (s *Session) afterWrite(now Time, a *Attachment) {
	if a.replaying && a.cur >= a.catchUp && len(a.ctl) == 0 {
		a.replaying = false
		s.emit(Event{Kind: Replayed, Took: now.Sub(a.arrived)})
	}
	switch {
	case s.cfg.Resumable:
	case s.cfg.Kept && a.closing == nil:
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

// ackWritten forgets what was written to a plain client: that is all that can be
// known of one that is asked nothing.
func (s *Session) ackWritten(now Time, a *Attachment) {
	s.ring.Ack(a.mark.N, a.mark.Off)
	s.acked = max(s.acked, a.mark.N)
	s.unblock(now)
}

// restWrote takes what was written off the rest of a released attachment.
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

// release takes a off the session: its connection finishes the message that it is in
// the middle of, is sent final, and is closed as f says. What is in flight stays in
// flight. With flush it is sent all that is numbered, too.
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

// finish turns what a must still be sent, before anything final, into rest and
// ctl. First comes what is in flight, in its order.
func (s *Session) finish(a *Attachment, flush bool) {
	head, ctl := max(a.cur, a.mid), len(a.ctl)
	if a.flight.active {
		head, ctl = a.cur+uint64(a.flight.head), a.flight.ctl
	}
	end := head + uint64(a.flight.body)
	_, to := s.ring.Around(a.mark, end) // a write is cut at any byte
	if flush {
		to = s.ring.Last().Off
	}
	a.rest = s.ring.Slices(a.rest, a.cur, head)
	if ctl > 0 {
		a.rest = append(a.rest, a.ctl[:ctl:ctl])
	}
	a.rest = s.ring.Slices(a.rest, head, to)
	a.ctl = append([]byte(nil), a.ctl[ctl:]...)
	a.flight = flight{active: a.flight.active, restBytes: a.flight.head + a.flight.ctl + a.flight.body}
	s.sentOff = max(s.sentOff, to) // the client may take it in and say so
}

// ackDue reports whether the client must be acked now, or may as well be since
// another message of ours goes out.
func (a *Attachment) ackDue(now Time) bool {
	return a.ackSince > 0 && (a.ackNow || a.pongDue || now.Sub(a.ackSince) >= ackWanted)
}

// compose puts the frames that are due into ctl.
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
	if a.pongDue {
		a.ctl = wire.Append(a.ctl, wire.VerbPong, a.pong)
		a.pongDue = false
	}
}
