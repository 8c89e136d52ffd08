package session

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"reseat/gateway/newest"
	"reseat/gateway/replay"
	"reseat/gateway/tlv"
)

// This file is the one serialised form of a session: what another process needs to go on
// with it as if nothing had happened. The walks below name every field, with its number;
// a test holds that no field is left out without a reason.

// Formats are the formats that Freeze can write and Restore can read, newest first. A
// release that adds one keeps the previous one, so that an upgrade can be rolled back. Format 2 knows
// messages that are sent in parts, format 3 replaced ones, and a client's unfinished message.
var Formats = []int{3, 2, 1}

// ErrBusy is returned by Freeze while the session cannot be frozen: a write is in flight,
// events have not been taken, or the session has ended.
var ErrBusy = errors.New("session busy")

// ErrLater is returned by Freeze where waiting a moment does not help: the session has ended, an earlier
// connection is still being closed, or the client must first connect anew.
var ErrLater = errors.New("session closing")

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
	case !slices.Contains(Formats, format):
		return Frozen{}, fmt.Errorf("no format %d", format)
	case format == 1 && s.att != nil && s.att.parts != nil: // an older process would go on with it as it lies in the buffer
		return Frozen{}, ErrBusy
	case format < 3 && s.skippedAfter(s.acked) > 0: // an older process would take a run for a message,
		return Frozen{}, ErrLater
	case format < 3 && s.att != nil && s.att.partial: // and refuses what its client may say
		return Frozen{}, ErrLater
	case s.state == Ended, len(s.events) > 0, s.writer != nil, s.up.flight.active, s.att != nil && s.att.flight.active, !s.ring.Idle():
		return Frozen{}, ErrBusy
	}
	s.compact(s.unsent())
	// Borrowed input lies in the driver's buffer, which is not part of the state.
	s.Retain()
	state := tlv.Write(func(c *tlv.Codec) { s.walk(c) })
	return Frozen{State: state, Content: s.ring.Content()}, nil
}

// Restore makes a session from what Freeze returned. store and key are those of Config:
// they cannot be serialised.
func Restore(format int, state, content []byte, store *replay.Store, key func() [4]byte) (*Session, error) {
	if !slices.Contains(Formats, format) {
		return nil, fmt.Errorf("no format %d", format)
	}
	s := &Session{cfg: Config{Store: store, Key: key}}
	s.up = &s.first
	var ring replay.State
	if err := tlv.Read(state, func(c *tlv.Codec) { ring = s.walk(c) }); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	b, err := replay.Restore(store, ring, content)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.ring = *b
	if format == 1 { // it may hold large messages
		s.large = s.ring.Last().Off
	}
	if err := s.sound(); err != nil {
		s.ring.Release()
		return nil, fmt.Errorf("session: %w", err)
	}
	s.recharge()
	s.setReplacing()
	return s, nil
}

// Discard returns the memory of a session that continues elsewhere. The session must not
// be used afterwards, except to flush its released connections.
func (s *Session) Discard() {
	s.ring.Release()
	s.cfg.Store.Charge(-s.charged)
	s.charged = 0
	s.dropIndex()
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
	a, beats := s.att, len(s.cfg.Keepalives)
	if s.noticed().Every > 0 {
		beats++
	}
	switch {
	case s.keepalives != nil && len(s.keepalives.due) > beats, s.cfg.Keepalive > KeepaliveAuto:
		return errors.New("keepalives")
	case s.state > Detached, (s.state == Attached) != (a != nil):
		return errors.New("state")
	case s.acked > base.N, s.written.n > s.received.n:
		return errors.New("counts")
	case queued != held, s.q.held > len(s.q.units), s.q.part > 0 && s.q.part >= queued:
		return errors.New("queue")
	case a != nil && (a.cur < base.Off || a.cur > last.Off && a.cur > a.mid || a.in.whole > len(a.in.buf)),
		a != nil && a.parts != nil && (a.cur > last.Off || a.mid > last.Off || len(a.parts.rest) > 0 != (a.mid > a.cur)):
		return errors.New("attachment")
	case s.incoming != nil && (len(s.incoming.buf) < head || s.incoming.have() >= s.incoming.bytes || s.incoming.bytes > s.cfg.MaxMessage+1):
		return errors.New("incoming message")
	}
	return nil
}

// Attachment returns the attached client's connection, nil if none is attached.
func (s *Session) Attachment() *Attachment { return s.att }

// walk visits every field of the session. The numbers are the format: see tlv.Codec.
func (s *Session) walk(c *tlv.Codec) (ring replay.State) {
	ring = s.ring.State()
	c.Sub(1, s.cfg.walk)
	tlv.Num(c, 2, &s.state)
	c.Bool(3, &s.starved)
	c.Bool(4, &s.reserved)
	c.Bool(5, &s.started)
	tlv.Num(c, 6, &s.data)
	tlv.Num(c, 7, &s.trip.smoothed)
	c.Bool(8, &s.trip.pinged)
	tlv.Num(c, 9, &s.renewAt)
	c.Sub(10, s.stats.walk)

	tlv.Num(c, 11, &s.acked)
	tlv.Num(c, 12, &s.sentN)
	tlv.Num(c, 13, &s.sentOff)
	c.Sub(14, func(c *tlv.Codec) { walkRing(&ring, c) })
	c.Sub(15, s.scan.walk)

	c.Sub(16, s.up.walk)
	c.Sub(17, func(c *tlv.Codec) { s.q.walk(c, s.up) })
	c.Sub(18, s.received.walk)
	c.Sub(19, s.written.walk)
	c.Sub(20, s.ackSent.walk)
	c.Sub(21, s.pace.walk)
	kept := keepalives{}
	if s.keepalives != nil {
		kept = *s.keepalives
	}
	tlv.List(c, 22, &kept.due, func(c *tlv.Codec, t *Time) { tlv.Num(c, 1, t) })

	tlv.Num(c, 23, &s.epoch)
	// 24 and 25 were what an ended session keeps, which is never restored.
	tlv.Num(c, 26, &s.created)
	tlv.Num(c, 27, &s.heard)
	tlv.Num(c, 28, &s.detached)
	tlv.Num(c, 29, &s.awaiting)
	tlv.Num(c, 30, &s.paused)
	tlv.Num(c, 31, &s.graceEnd)
	issued, confirmed := s.gen.Issued(), s.gen.Confirmed()
	tlv.Num(c, 32, &issued)
	tlv.Num(c, 33, &confirmed)
	if !s.gen.Restore(issued, confirmed) {
		c.Fail(errors.New("generations"))
	}
	tlv.Num(c, 34, &s.expires)
	f := faults{}
	if s.faults != nil {
		f = *s.faults
	}
	tlv.List(c, 35, &f.taken, func(c *tlv.Codec, t *Time) { tlv.Num(c, 1, t) })
	tlv.Num(c, 36, &f.futile.n)
	tlv.Num(c, 37, &f.futile.since)
	tlv.Pointer(c, 38, &s.att, (*Attachment).walk)
	c.Sub(40, s.outage.walk)
	tlv.Pointer(c, 41, &s.durable, (*durable).walk)
	c.Sub(43, kept.walk)
	if !c.Writing() && (len(kept.due) > 0 || kept.noticed.Every > 0) {
		s.keepalives = &kept
	}
	tlv.Num(c, 45, &s.trip.silent)
	tlv.Num(c, 46, &s.large)
	c.Bool(47, &s.pageLeft)
	c.Bool(48, &s.takesSkips)
	tlv.Pointer(c, 49, &s.states, (*states).walk)
	tlv.Pointer(c, 55, &s.incoming, (*incoming).walk)
	tlv.Num(c, 57, &s.trip.partWindow)
	tlv.Num(c, 58, &f.futile.had)
	if !c.Writing() && (len(f.taken) > 0 || f.futile != (futility{})) {
		s.faults = &f
	}
	return ring
}

// walk visits what is not made anew from the replay buffer.
func (x *states) walk(c *tlv.Codec) {
	tlv.List(c, 1, &x.spans, func(c *tlv.Codec, m *span) {
		tlv.Num(c, 1, &m.from)
		tlv.Num(c, 2, &m.to)
	})
	tlv.Num(c, 2, &x.later)
	tlv.Num(c, 3, &x.stated.gen)
	tlv.Num(c, 4, &x.stated.lost)
	tlv.Num(c, 5, &x.stated.to)
}

// walk visits all but due, which is older.
func (k *keepalives) walk(c *tlv.Codec) {
	k.noticed.walk(c)
	tlv.Num(c, 4, &k.hash)
	tlv.Num(c, 5, &k.last)
}

func (k *Keepalive) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &k.Every)
	c.String(2, &k.Text)
	tlv.Num(c, 3, &k.Kind)
	if k.Kind > KeepalivePing {
		c.Fail(errors.New("keepalive"))
	}
}

// walkRing visits the state of the replay buffer, without its content.
func walkRing(r *replay.State, c *tlv.Codec) {
	tlv.Num(c, 1, &r.Base.Off)
	tlv.Num(c, 2, &r.Base.N)
	tlv.Num(c, 3, &r.Last.Off)
	tlv.Num(c, 4, &r.Last.N)
	tlv.Num(c, 5, &r.End)
	tlv.Num(c, 6, &r.Held)
	tlv.Num(c, 7, &r.Raw)
	c.Bool(8, &r.Burst)
	tlv.Num(c, 9, &r.Free)
	tlv.Num(c, 10, &r.Replaced)
	tlv.Num(c, 11, &r.Runs)
}

// walk visits the settings that a session was made with. It keeps them across an upgrade,
// even if the new process is configured differently.
func (g *Config) walk(c *tlv.Codec) {
	c.String(1, &g.ID)
	c.String(2, &g.Protocol)
	c.String(3, &g.Notices.Detach)
	c.String(4, &g.Notices.Resume)
	c.String(5, &g.Notices.Expire)
	tlv.List(c, 6, &g.KeepaliveReplies, func(c *tlv.Codec, r *KeepaliveReply) {
		c.String(1, &r.In)
		c.String(2, &r.Out)
	})
	tlv.List(c, 7, &g.Keepalives, func(c *tlv.Codec, b *Keepalive) { b.walk(c) })
	c.Float(8, &g.Rate.Messages)
	c.Float(9, &g.Rate.Bytes)
	c.Bool(10, &g.Rate.End)
	c.Bool(11, &g.Resumable)
	c.Bool(12, &g.PlainResume)
	c.Bool(13, &g.Hard)
	c.Bool(14, &g.MessageLog.On)
	tlv.Num(c, 15, &g.MessageLog.Prefix)
	tlv.Num(c, 16, &g.Terms.Grace)
	tlv.Num(c, 17, &g.Terms.GraceBeforeStart)
	tlv.Num(c, 18, &g.Terms.Overflow)
	tlv.Num(c, 19, &g.Idle)
	tlv.Num(c, 20, &g.Heartbeat)
	tlv.Num(c, 21, &g.Answer)
	tlv.Num(c, 22, &g.UpstreamHeartbeat)
	tlv.Num(c, 23, &g.BufferBytes)
	tlv.Num(c, 24, &g.BufferMessages)
	tlv.Num(c, 25, &g.MaxMessage)
	tlv.Num(c, 26, &g.Redial)
	c.Bool(27, &g.Durable)
	tlv.Num(c, 28, &g.Keepalive)
	tlv.Num(c, 29, &g.GraceUnconfirmed)
	if !c.Writing() && g.GraceUnconfirmed == 0 { // an older process writes none, and kept them for so long
		g.GraceUnconfirmed = 2 * g.Heartbeat
	}
	WalkRules(c, 30, &g.Newest)
}

// WalkRules visits rules of --newest.
func WalkRules(c *tlv.Codec, id uint64, r **newest.Rules) {
	values := (*r).Values()
	tlv.List(c, id, &values, func(c *tlv.Codec, v *string) { c.String(1, v) })
	if !c.Writing() {
		var err error
		if *r, err = newest.Parse(values); err != nil {
			c.Fail(err)
		}
	}
}

func (o *outage) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &o.since)
	tlv.Num(c, 2, &o.until)
	tlv.Num(c, 3, &o.back)
	c.Bool(4, &o.heard.lost)
	c.Bool(5, &o.heard.unsure)
	c.Bool(6, &o.heard.said)
	tlv.Num(c, 7, &o.heard.after)
	tlv.Num(c, 8, &o.heard.ping)
}

func (d *durable) walk(c *tlv.Codec) {
	c.String(1, &d.moved)
	tlv.Num(c, 2, &d.epoch)
	tlv.Num(c, 3, &d.base)
	tlv.Num(c, 4, &d.owned)
	tlv.Num(c, 5, &d.asked)
	tlv.Num(c, 6, &d.leaving)
	c.Bool(7, &d.closing)
	c.Bool(8, &d.left)
	tlv.Num(c, 9, &d.upFrom)
	tlv.Num(c, 10, &d.endBy)
	c.Bool(11, &d.stale)
}

func (t *Stats) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &t.ToClient)
	tlv.Num(c, 2, &t.ToUpstream)
	tlv.Num(c, 3, &t.ToClientBytes)
	tlv.Num(c, 4, &t.ToUpstreamBytes)
	tlv.Num(c, 5, &t.Replayed)
	tlv.Num(c, 6, &t.Dropped)
	tlv.Num(c, 7, &t.Skipped)
}

func (t *tally) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &t.n)
	tlv.Num(c, 2, &t.bytes)
}

// walk visits the scanner: an upgrade may come inside a message of the upstream.
func (s *scanner) walk(c *tlv.Codec) {
	c.Bool(1, &s.open)
	c.Bool(2, &s.text)
	c.Bool(3, &s.fin)
	tlv.Num(c, 4, &s.rem)
	tlv.Num(c, 5, &s.size)
	tlv.Num(c, 6, &s.stored)
	tlv.Num(c, 7, &s.frames)
	c.Bool(8, &s.full)
	c.Bool(9, &s.overflowed)
	tlv.Num(c, 10, &s.progress)
}

// walk visits the upstream leg. Nothing of it is in flight: see Freeze.
func (u *Upstream) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &u.mode)
	c.Bool(2, &u.unwritable)
	c.Bool(3, &u.released)
	c.Bool(4, &u.pinged)
	c.Bool(5, &u.pingDue)
	c.Bool(6, &u.over)
	c.Bool(7, &u.lost)
	tlv.Num(c, 8, &u.heard)
	c.Bytes(9, &u.rest)
	c.Bool(10, &u.closed)
	tlv.Num(c, 11, &u.took)
	tlv.Num(c, 12, &u.answerBy)
	u.pongs.walk(c, 13)
	tlv.Num(c, 14, &u.code)
	c.String(15, &u.reason)
}

func (p *pongs) walk(c *tlv.Codec, id uint64) {
	tlv.List(c, id, &p.due, func(c *tlv.Codec, b *[]byte) { c.Bytes(1, b) })
}

// walk visits a queue with nothing borrowed or in flight; up is the current upstream.
func (q *upqueue) walk(c *tlv.Codec, up *Upstream) {
	all := bytes.Join(q.pieces, nil)
	c.Bytes(1, &all)
	tlv.List(c, 2, &q.units, func(c *tlv.Codec, u *unit) {
		tlv.Num(c, 1, &u.size)
		tlv.Num(c, 2, &u.payload)
		tlv.Num(c, 3, &u.at)
		own := u.to != nil
		if c.Bool(4, &own); own {
			u.to = up
		}
	})
	tlv.Num(c, 3, &q.part)
	tlv.Num(c, 4, &q.held)
	tlv.Num(c, 5, &q.heldBytes)
	if !c.Writing() && len(all) > 0 {
		q.pieces, q.borrowed, q.charge = [][]byte{all}, 1, len(all)
	}
}

// walk visits the rate limit, so that an upgrade grants no client a new burst.
func (p *pacer) walk(c *tlv.Codec) {
	c.Float(1, &p.messages.level)
	tlv.Num(c, 2, &p.messages.at)
	c.Float(3, &p.bytes.level)
	tlv.Num(c, 4, &p.bytes.at)
	tlv.Num(c, 5, &p.until)
}

func (p *probe) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &p.id)
	tlv.Num(c, 2, &p.n)
	tlv.Num(c, 3, &p.at)
}

// walk visits an unfinished message of the client, which continues in the new process.
func (in *inbound) walk(c *tlv.Codec) {
	c.Bytes(1, &in.buf)
	tlv.Num(c, 2, &in.whole)
	c.Bool(3, &in.open)
	c.Bool(4, &in.text)
	tlv.Num(c, 5, &in.size)
	tlv.Num(c, 6, &in.frames)
	tlv.Num(c, 7, &in.first)
	tlv.Num(c, 8, &in.began)
	tlv.Num(c, 9, &in.progress)
}

// walk visits a message that comes in parts.
func (m *incoming) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &m.bytes)
	c.Bool(2, &m.text)
	c.Bool(3, &m.open)
	c.Bool(4, &m.due)
	c.Bytes(5, &m.buf)
	tlv.Num(c, 6, &m.reported)
	tlv.Num(c, 7, &m.since)
	tlv.Num(c, 8, &m.began)
	tlv.Num(c, 9, &m.grown)
}

// walk visits a message that goes in parts.
func (p *parts) walk(c *tlv.Codec) {
	c.Bytes(1, &p.rest)
	tlv.Num(c, 2, &p.bytes)
	tlv.Num(c, 3, &p.sent)
	tlv.Num(c, 4, &p.answered)
	c.Bool(5, &p.resumes)
	tlv.Num(c, 6, &p.full)
	tlv.Num(c, 7, &p.fullAt)
	tlv.Num(c, 8, &p.before)
}

// walk visits what is known of the socket, which the new process inherits.
func (w *socketWatch) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &w.looked)
	c.Bool(2, &w.known)
	tlv.Num(c, 3, &w.acked)
	tlv.Num(c, 4, &w.mark)
	tlv.Num(c, 5, &w.pingEnd)
	tlv.Num(c, 6, &w.drained)
	tlv.Num(c, 7, &w.rtt)
}

// walk visits the client leg. Nothing of it is in flight: see Freeze.
func (a *Attachment) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &a.mode)
	c.Bool(2, &a.last)
	c.Bool(3, &a.behind)
	c.Bool(4, &a.spoke)
	c.Bool(5, &a.ackNow)
	c.Bool(6, &a.pongDue)
	c.Bool(7, &a.replaying)
	tlv.Num(c, 8, &a.cur)
	tlv.Num(c, 9, &a.mid)
	tlv.Num(c, 10, &a.mark.Off)
	tlv.Num(c, 11, &a.mark.N)
	c.Bytes(12, &a.ctl)
	tlv.Num(c, 13, &a.sent)
	tlv.Num(c, 14, &a.heard)
	tlv.Num(c, 15, &a.owed)
	tlv.Num(c, 16, &a.ackSince)
	tlv.Num(c, 17, &a.askSince)
	tlv.Num(c, 18, &a.closed)
	c.Sub(19, a.overdue.walk)
	c.Sub(20, a.in.walk)
	tlv.List(c, 21, &a.pings, func(c *tlv.Codec, p *probe) { p.walk(c) })
	tlv.Num(c, 22, &a.pinged)
	tlv.Num(c, 23, &a.probed)
	tlv.Num(c, 24, &a.excused)
	c.Sub(25, a.socket.walk)
	c.Bool(26, &a.greeted)
	tlv.Pointer(c, 27, &a.closing, func(r *relayedClose, c *tlv.Codec) {
		tlv.Num(c, 1, &r.code)
		c.String(2, &r.reason)
		tlv.Num(c, 3, &r.deadline)
	})
	tlv.Num(c, 29, &a.catchUp)
	tlv.Num(c, 30, &a.start)
	c.String(31, &a.pong)
	a.wsPongs.walk(c, 32)
	tlv.Num(c, 33, &a.acked)
	tlv.Num(c, 34, &a.ackedAt)
	tlv.Num(c, 35, &a.acks)
	tlv.Num(c, 36, &a.pingID)
	tlv.Num(c, 37, &a.asked)
	tlv.Num(c, 38, &a.epoch)
	tlv.Num(c, 39, &a.gen)
	c.String(40, &a.peer)
	tlv.Num(c, 41, &a.since)
	tlv.Num(c, 42, &a.arrived)
	c.Bool(43, &a.resumed)
	tlv.List(c, 44, &a.news, func(c *tlv.Codec, n *news) {
		tlv.Num(c, 1, &n.at)
		c.Bool(2, &n.back)
	})
	a.hasNews = len(a.news) > 0
	tlv.Num(c, 45, &a.repeats)
	tlv.Num(c, 46, &a.looked)
	tlv.Pointer(c, 47, &a.parts, (*parts).walk)
	tlv.Num(c, 49, &a.clogged)
	c.Bool(50, &a.takesParts)
	c.Bool(51, &a.pageLeaves)
	c.Bool(56, &a.partial)
}
