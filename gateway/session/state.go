package session

import (
	"bytes"
	"errors"
	"fmt"

	"reseat/gateway/replay"
)

// This file is the one serialised form of a session: what another process needs to go on
// with it as if nothing had happened. The walks below name every field, with its number;
// a test holds that no field is left out without a reason.

// Formats are the formats that Freeze can write and Restore can read, newest first. A
// release that adds one keeps the previous one, so that an upgrade can be rolled back.
var Formats = []int{1}

// ErrBusy is returned by Freeze while the session cannot be frozen: a write is in flight,
// events have not been taken, or the session has ended.
var ErrBusy = errors.New("session busy")

// A Frozen is a session that stands still, without its sockets.
type Frozen struct {
	State   []byte
	Content [][]byte // of the replay buffer, not copied
}

// Freeze returns the whole state of the session except its sockets. The session must not be
// used until Content has been copied or sent; then it may go on as if nothing had
// happened, or be discarded. Times are those of the driver's clock.
func (s *Session) Freeze(format int) (Frozen, error) {
	switch {
	case format != Formats[0]:
		return Frozen{}, fmt.Errorf("no format %d", format)
	case s.state == Ended, len(s.events) > 0, s.writer != nil, s.up.flight.active, s.att != nil && s.att.flight.active, !s.ring.Idle():
		return Frozen{}, ErrBusy
	}
	// Borrowed input lies in the driver's buffer, which is not part of the state.
	s.Retain()
	c := codec{writing: true}
	s.walk(&c)
	return Frozen{State: c.b, Content: s.ring.Content()}, nil
}

// Restore makes a session from what Freeze returned. store and key are those of Config:
// they cannot be serialised.
func Restore(format int, state, content []byte, store *replay.Store, key func() [4]byte) (*Session, error) {
	if format != Formats[0] {
		return nil, fmt.Errorf("no format %d", format)
	}
	s := &Session{cfg: Config{Store: store, Key: key}}
	s.up = &s.first
	c := codec{b: state}
	ring := s.walk(&c)
	if c.err != nil {
		return nil, fmt.Errorf("session: %w", c.err)
	}
	b, err := replay.Restore(store, ring, content)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.ring = *b
	if err := s.sound(); err != nil {
		s.ring.Release()
		return nil, fmt.Errorf("session: %w", err)
	}
	s.recharge()
	return s, nil
}

// Discard returns the memory of a session that continues elsewhere. The session must not
// be used afterwards, except to flush its released connections.
func (s *Session) Discard() {
	s.ring.Release()
	s.cfg.Store.Charge(-s.charged)
	s.charged = 0
}

// sound checks the relations between fields that a walk cannot: state from another
// process must not make later code panic.
func (s *Session) sound() error {
	base, last := s.ring.Base(), s.ring.Last()
	queued := 0
	for _, u := range s.q.units {
		queued += u.size
	}
	held := 0
	for _, p := range s.q.pieces {
		held += len(p)
	}
	a := s.att
	switch {
	case s.state > Detached, (s.state == Attached) != (a != nil):
		return errors.New("state")
	case s.acked > base.N, s.written.n > s.received.n:
		return errors.New("counts")
	case queued != held, s.q.held > len(s.q.units), s.q.part > 0 && s.q.part >= queued:
		return errors.New("queue")
	case a != nil && (a.cur < base.Off || a.cur > last.Off && a.cur > a.mid || a.in.whole > len(a.in.buf)):
		return errors.New("attachment")
	}
	return nil
}

// Attachment returns the attached client's connection, nil if none is attached.
func (s *Session) Attachment() *Attachment { return s.att }

// walk visits every field of the session. The numbers are the format: see codec.
func (s *Session) walk(c *codec) (ring replay.State) {
	ring = s.ring.State()
	c.sub(1, s.cfg.walk)
	num(c, 2, &s.state)
	c.bool(3, &s.starved)
	c.bool(4, &s.reserved)
	c.bool(5, &s.started)
	num(c, 6, &s.data)
	num(c, 7, &s.trip.smoothed)
	c.bool(8, &s.trip.pinged)
	num(c, 9, &s.renewAt)
	c.sub(10, s.stats.walk)

	num(c, 11, &s.acked)
	num(c, 12, &s.sentN)
	num(c, 13, &s.sentOff)
	c.sub(14, func(c *codec) { walkRing(&ring, c) })
	c.sub(15, s.scan.walk)

	c.sub(16, s.up.walk)
	c.sub(17, func(c *codec) { s.q.walk(c, s.up) })
	c.sub(18, s.received.walk)
	c.sub(19, s.written.walk)
	c.sub(20, s.ackSent.walk)
	c.sub(21, s.pace.walk)
	list(c, 22, &s.beats, func(c *codec, t *Time) { num(c, 1, t) })

	num(c, 23, &s.epoch)
	c.sub(24, s.ending.walk)
	c.bytes(25, &s.closeFrames)
	num(c, 26, &s.created)
	num(c, 27, &s.heard)
	num(c, 28, &s.detached)
	num(c, 29, &s.awaiting)
	num(c, 30, &s.paused)
	num(c, 31, &s.graceEnd)
	issued, confirmed := s.gen.Issued(), s.gen.Confirmed()
	num(c, 32, &issued)
	num(c, 33, &confirmed)
	if !s.gen.Restore(issued, confirmed) && c.err == nil {
		c.err = errors.New("generations")
	}
	num(c, 34, &s.expires)
	list(c, 35, &s.takeovers, func(c *codec, t *Time) { num(c, 1, t) })
	num(c, 36, &s.futile.n)
	num(c, 37, &s.futile.since)
	pointer(c, 38, &s.att, (*Attachment).walk)
	return ring
}

// walkRing visits the state of the replay buffer, without its content.
func walkRing(r *replay.State, c *codec) {
	num(c, 1, &r.Base.Off)
	num(c, 2, &r.Base.N)
	num(c, 3, &r.Last.Off)
	num(c, 4, &r.Last.N)
	num(c, 5, &r.End)
	num(c, 6, &r.Held)
	num(c, 7, &r.Raw)
	c.bool(8, &r.Burst)
	num(c, 9, &r.Free)
}

// walk visits the settings that a session was made with. It keeps them across an upgrade,
// even if the new process is configured differently.
func (g *Config) walk(c *codec) {
	c.string(1, &g.ID)
	c.string(2, &g.Protocol)
	c.string(3, &g.Words.Detach)
	c.string(4, &g.Words.Resume)
	c.string(5, &g.Words.Expire)
	list(c, 6, &g.Replies, func(c *codec, r *Reply) {
		c.string(1, &r.In)
		c.string(2, &r.Out)
	})
	list(c, 7, &g.Beats, func(c *codec, b *Beat) {
		num(c, 1, &b.Every)
		c.string(2, &b.Text)
	})
	c.float(8, &g.Rate.Messages)
	c.float(9, &g.Rate.Bytes)
	c.bool(10, &g.Rate.End)
	c.bool(11, &g.Resumable)
	c.bool(12, &g.Kept)
	c.bool(13, &g.Hard)
	c.bool(14, &g.MessageLog.On)
	num(c, 15, &g.MessageLog.Prefix)
	num(c, 16, &g.Terms.Grace)
	num(c, 17, &g.Terms.GraceBeforeStart)
	num(c, 18, &g.Terms.Overflow)
	num(c, 19, &g.Idle)
	num(c, 20, &g.Heartbeat)
	num(c, 21, &g.Answer)
	num(c, 22, &g.UpstreamHeartbeat)
	num(c, 23, &g.BufferBytes)
	num(c, 24, &g.BufferMessages)
	num(c, 25, &g.MaxMessage)
}

func (t *Stats) walk(c *codec) {
	num(c, 1, &t.ToClient)
	num(c, 2, &t.ToUpstream)
	num(c, 3, &t.ToClientBytes)
	num(c, 4, &t.ToUpstreamBytes)
	num(c, 5, &t.Replayed)
	num(c, 6, &t.Dropped)
}

func (t *tally) walk(c *codec) {
	num(c, 1, &t.n)
	num(c, 2, &t.bytes)
}

// walk visits the scanner: an upgrade may come inside a message of the upstream.
func (s *scanner) walk(c *codec) {
	c.bool(1, &s.open)
	c.bool(2, &s.text)
	c.bool(3, &s.fin)
	num(c, 4, &s.rem)
	num(c, 5, &s.size)
	num(c, 6, &s.stored)
	num(c, 7, &s.frames)
	c.bool(8, &s.full)
	c.bool(9, &s.overflowed)
	num(c, 10, &s.progress)
}

// walk visits the upstream leg. Nothing of it is in flight: see Freeze.
func (u *Upstream) walk(c *codec) {
	num(c, 1, &u.mode)
	c.bool(2, &u.unwritable)
	c.bool(3, &u.released)
	c.bool(4, &u.pinged)
	c.bool(5, &u.pingDue)
	c.bool(6, &u.over)
	c.bool(7, &u.lost)
	num(c, 8, &u.heard)
	c.bytes(9, &u.rest)
	c.bool(10, &u.closed)
	num(c, 11, &u.took)
	num(c, 12, &u.answerBy)
	u.pongs.walk(c, 13)
	num(c, 14, &u.code)
	c.string(15, &u.reason)
}

func (p *pongs) walk(c *codec, id uint64) {
	list(c, id, &p.due, func(c *codec, b *[]byte) { c.bytes(1, b) })
}

// walk visits a queue with nothing borrowed or in flight; up is the current upstream.
func (q *upqueue) walk(c *codec, up *Upstream) {
	all := bytes.Join(q.pieces, nil)
	c.bytes(1, &all)
	list(c, 2, &q.units, func(c *codec, u *unit) {
		num(c, 1, &u.size)
		num(c, 2, &u.payload)
		num(c, 3, &u.at)
		own := u.to != nil
		if c.bool(4, &own); own {
			u.to = up
		}
	})
	num(c, 3, &q.part)
	num(c, 4, &q.held)
	num(c, 5, &q.heldBytes)
	if !c.writing && len(all) > 0 {
		q.pieces, q.borrowed, q.charge = [][]byte{all}, 1, len(all)
	}
}

// walk visits the rate limit, so that an upgrade grants no client a new burst.
func (p *pacer) walk(c *codec) {
	c.float(1, &p.messages.level)
	num(c, 2, &p.messages.at)
	c.float(3, &p.bytes.level)
	num(c, 4, &p.bytes.at)
	num(c, 5, &p.until)
}

func (e *Ending) walk(c *codec) {
	c.string(1, &e.Reason)
	num(c, 2, &e.Code)
	c.string(3, &e.Text)
	c.string(4, &e.Detail)
	num(c, 5, &e.At)
}

func (p *probe) walk(c *codec) {
	num(c, 1, &p.id)
	num(c, 2, &p.n)
	num(c, 3, &p.at)
}

// walk visits an unfinished message of the client, which continues in the new process.
func (in *inbound) walk(c *codec) {
	c.bytes(1, &in.buf)
	num(c, 2, &in.whole)
	c.bool(3, &in.open)
	c.bool(4, &in.text)
	num(c, 5, &in.size)
	num(c, 6, &in.frames)
	num(c, 7, &in.first)
	num(c, 8, &in.began)
	num(c, 9, &in.progress)
}

// walk visits what is known of the socket, which the new process inherits.
func (w *socketWatch) walk(c *codec) {
	num(c, 1, &w.looked)
	c.bool(2, &w.known)
	num(c, 3, &w.acked)
	num(c, 4, &w.mark)
	num(c, 5, &w.pingEnd)
	num(c, 6, &w.drained)
}

// walk visits the client leg. Nothing of it is in flight: see Freeze.
func (a *Attachment) walk(c *codec) {
	num(c, 1, &a.mode)
	c.bool(2, &a.last)
	c.bool(3, &a.behind)
	c.bool(4, &a.spoke)
	c.bool(5, &a.ackNow)
	c.bool(6, &a.pongDue)
	c.bool(7, &a.replaying)
	num(c, 8, &a.cur)
	num(c, 9, &a.mid)
	num(c, 10, &a.mark.Off)
	num(c, 11, &a.mark.N)
	c.bytes(12, &a.ctl)
	num(c, 13, &a.sent)
	num(c, 14, &a.heard)
	num(c, 15, &a.owed)
	num(c, 16, &a.ackSince)
	num(c, 17, &a.askSince)
	num(c, 18, &a.closed)
	c.sub(19, a.overdue.walk)
	c.sub(20, a.in.walk)
	list(c, 21, &a.pings, func(c *codec, p *probe) { p.walk(c) })
	num(c, 22, &a.pinged)
	num(c, 23, &a.probed)
	num(c, 24, &a.excused)
	c.sub(25, a.socket.walk)
	c.bool(26, &a.greeted)
	pointer(c, 27, &a.closing, func(r *relayedClose, c *codec) {
		num(c, 1, &r.code)
		c.string(2, &r.reason)
		num(c, 3, &r.deadline)
	})
	num(c, 29, &a.catchUp)
	num(c, 30, &a.start)
	c.string(31, &a.pong)
	a.wsPongs.walk(c, 32)
	num(c, 33, &a.acked)
	num(c, 34, &a.ackedAt)
	num(c, 35, &a.acks)
	num(c, 36, &a.pingID)
	num(c, 37, &a.asked)
	num(c, 38, &a.epoch)
	num(c, 39, &a.gen)
	c.string(40, &a.peer)
	num(c, 41, &a.since)
	num(c, 42, &a.arrived)
	c.bool(43, &a.resumed)
}
