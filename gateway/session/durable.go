package session

import (
	"errors"
	"math"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/wire"
	"reseat/tokens/generation"
)

// This file implements --durable: a session continues at another node of a cluster, after its own
// was lost (a claim) or has handed it off (a hand-off). Which node has it is decided outside; here is
// what follows for counts, generations and connections. What must hold:
//
//   - Numbers that a client has accepted are never used again for other messages. A claim continues from
//     what the client states, and so does a later resume while nobody has accepted a number of this
//     node's: see renumber.
//   - hello.received names only what was written to a game server, since the rest dies with the node.
//   - A node that may have been replaced does not speak for the player: see mayAct.

// durable is the part of the state that only durable sessions have.
type durable struct {
	moved  string // how the session came to this node: wire.MovedFailover or wire.MovedHandoff; "": it began here
	epoch  uint64 // of the seat, at that time
	base   uint64 // messages numbered before that; after a claim, a client may state more
	upFrom uint64 // Reseat-Up-From of the next upstream's request: see Counts; zero: none
	stale  bool   // no dial has begun since a hand-off failed, and another node may have the session, or since goOnFrom

	owned Time // until then the node is known to have the session
	asked Time // since when the answer to AskOwner is awaited; zero: it is not
	endBy Time // the session ends, silently if there is no answer until then; zero: its time is not over

	leaving Time // since when the session is being handed off; zero: it is not
	closing bool // the upstream has been sent its Close frame
	left    bool // the upstream will send nothing more: the session can be handed off
}

const (
	// ownedFor limits acting for a player without being certain again to have the session.
	ownedFor = time.Second
	// askWait limits the wait for that certainty. After it the session ends silently: see endSilently.
	askWait = 2 * time.Second
	// leaveTime limits the wait for the upstream to close before a hand-off.
	leaveTime = 5 * time.Second
	// elsewhereRetry delays the next resume of a client whose session another node takes.
	elsewhereRetry = 500 * time.Millisecond
)

// movedText is the reason of a Close frame to the upstream of a session that continues elsewhere.
const movedText = "moved"

// A Claim is what a node knows of a session whose node was lost: from the session's seat, and from
// its client.
type Claim struct {
	Epoch     uint64 // of the seat, with the claim; from 1
	Confirmed uint64 // newest generation that is known to be confirmed
	Received  uint64 // the client's N
	Settled   uint64 // newest message of the client that is not to be written again
	Started   bool
	Expires   Time // of its newest token, as far as known
}

// Claimed makes a detached session of a claim. It has no upstream: see NeedsUpstream. The claim
// confirms no generation, since its client may never get a hello.
func Claimed(cfg Config, now Time, c Claim) (*Session, error) {
	b, err := replay.Restore(cfg.Store, replay.State{Base: replay.Mark{N: c.Received}, Last: replay.Mark{N: c.Received}}, nil)
	if err != nil {
		return nil, err
	}
	s := &Session{
		cfg: cfg, ring: *b, first: Upstream{mode: Shut, released: true, heard: now}, created: now, data: now,
		started: c.Started, epoch: 1, expires: c.Expires,
		reserved: true, // somebody holds a token, whatever was confirmed: the claim is made with it
	}
	s.up = &s.first
	if !s.gen.Restore(generation.FirstOf(c.Epoch)-1, c.Confirmed) || c.Epoch == 0 {
		return nil, errors.New("claim: its generations are of a later epoch")
	}
	at := tally{n: c.Settled}
	s.received, s.written, s.ackSent = at, at, at
	s.acked, s.sentN = c.Received, c.Received
	s.outage.heard = heard{lost: cfg.Redial > 0, unsure: cfg.Redial > 0, after: math.MaxUint64} // by the lost node, as far as is known
	s.durable = &durable{moved: wire.MovedFailover, epoch: c.Epoch, base: c.Received}
	s.startPacer(now)
	s.enterDetached(now)
	return s, nil
}

// MovedHere returns how the session came to this node, for a hello, until a client was heard here.
func (s *Session) MovedHere() string {
	if s.durable == nil || s.durable.moved == "" || generation.Epoch(s.gen.Confirmed()) >= s.durable.epoch {
		return ""
	}
	return s.durable.moved
}

// Moved returns how the session came to this node, "" if it began here.
func (s *Session) Moved() string {
	if s.durable == nil {
		return ""
	}
	return s.durable.moved
}

// unaccepted reports whether r comes from a client that has accepted no number of this node's, though
// some may have been used: the session was claimed, nobody has confirmed a generation of that claim,
// and the token of r is older. Meanwhile its older node may have gone on.
func (s *Session) unaccepted(r Resume) bool {
	return s.MovedHere() == wire.MovedFailover && generation.Epoch(r.Gen) < s.durable.epoch
}

// gotFurther reports whether such a client has got further than the claim says. Its numbers count then,
// and those that were used here do not.
func (s *Session) gotFurther(r Resume) bool {
	return s.unaccepted(r) && (r.Received > s.durable.base || r.Settled > s.received.n)
}

// goOnFrom continues from what r states, as if the session had been claimed with it. If that differs from
// what the dial of the upstream stated, the upstream must be replaced, and what it has sent is worth nothing: a game
// server that counts sends it to the next one again, and any other starts over there. goOnFrom then
// reports true: see NeedsUpstream. An upstream that has closed is the last one; its messages get later numbers.
func (s *Session) goOnFrom(now Time, r Resume) (replaced bool) {
	if !s.gotFurther(r) {
		return false
	}
	if s.up.over {
		s.renumber(r, true)
		return false
	}
	if s.att != nil { // its hello was not taken
		name := wire.Name(wire.CodeSuperseded)
		s.detach(now, name, Linger, s.closing(wire.Closing{Code: wire.CodeSuperseded, Reason: name}))
	}
	s.giveUpstream()
	s.renumber(r, false)
	s.durable.stale = true
	return true
}

// renumber moves the numbers to what r states. Messages from upstreams are kept with later ones, or forgotten
// if they would get other ones. Nothing was received from the client, since that would have confirmed a generation.
func (s *Session) renumber(r Resume, keep bool) {
	if by := r.Received - min(r.Received, s.durable.base); by > 0 {
		if keep {
			s.ring.Renumber(by)
			s.states.renumber(by)
		} else {
			s.ring.Restart(r.Received)
			s.dropIndex()
			s.states = nil
			s.setReplacing()
		}
		s.durable.base, s.acked = r.Received, r.Received
		s.outage.heard.after = math.MaxUint64 // its messages are from elsewhere: they prove nothing of what was sent here
		s.sentN, s.sentOff = s.ring.Base().N, s.ring.Base().Off
	}
	if at := (tally{n: r.Settled}); at.n > s.received.n {
		s.received, s.written, s.ackSent = at, at, at
	}
}

// giveUpstream takes the upstream, if there is one, off a session that continues. It gets Close 1001.
func (s *Session) giveUpstream() {
	s.outage = outage{heard: s.outage.heard}
	s.stopKeepalives()
	if !s.up.released && !s.up.over {
		s.releaseUpstream(s.movedFrame())
	}
}

// movedFrame returns the Close frame for an upstream of a session that continues elsewhere, if it has not been
// sent one.
func (s *Session) movedFrame() []byte {
	if s.up.closed {
		return []byte{}
	}
	return s.masked(frame.Close, frame.ClosePayload(wire.CodeGoingAway, movedText))
}

// Counts returns what Reseat-Up-From and Reseat-Down-From say to the next upstream: the numbers of
// the first message of the client's that it gets, and of the first that it sends. r is what the client
// states that waits for it, if one does. Each dial needs a call of its own, after the seat was written for it.
func (s *Session) Counts(r Resume) (up, down uint64) {
	if s.NeedsUpstream() && s.gotFurther(r) {
		s.renumber(r, false)
	}
	if d := s.durable; d != nil {
		d.upFrom, d.stale = s.written.n+1, d.stale && s.isLeaving()
	}
	return s.written.n + 1, s.ring.Last().N + 1
}

// recount replaces an upstream whose Reseat-Up-From does not hold: while it was dialled, an older one
// took messages whose write was in flight.
func (s *Session) recount(now Time) {
	d := s.durable
	switch {
	case d == nil || d.upFrom == 0 || s.writer != nil || s.up.released:
		return
	case d.upFrom == s.written.n+1:
		d.upFrom = 0
		return
	}
	d.upFrom = 0
	if s.up.over || s.state == Ended { // it would take what waits for other messages
		s.shutUpstream(s.up)
		return
	}
	why := "Reseat-Up-From does not hold"
	if s.replaces(now, noCode) {
		s.replaceUpstream(now, why, frame.ClosePayload(wire.CodeGoingAway, movedText))
		return
	}
	s.giveUpstream()
	if s.att != nil {
		s.drop(now, why, Linger, frame.Append(nil, frame.Close, frame.ClosePayload(wire.CodeServiceRestart, "")))
	}
}

// receivedInHello returns hello.received for a. The client sends later messages again, and those of them that
// wait in the queue are then dropped: see repeated.
func (s *Session) receivedInHello(a *Attachment) uint64 {
	if s.durable == nil {
		return s.received.n
	}
	a.repeats = s.received.n - s.written.n
	return s.written.n
}

// repeated reports whether the attached client's next message is one that waits in the queue, or is
// being written, since before its connection.
func (s *Session) repeated() bool {
	if s.durable == nil || s.att == nil || s.att.repeats == 0 {
		return false
	}
	s.att.repeats--
	return true
}

// certain reports whether this node is known to have the session: another one may have taken it, and this one
// not have noticed.
func (s *Session) certain(now Time) bool { return s.durable == nil || now < s.durable.owned }

// mayAct reports whether the node may speak to the game server for a player who is not there. If it is not
// certain, AskOwner asks for Owned or Fence.
func (s *Session) mayAct(now Time) bool {
	if s.certain(now) {
		return true
	}
	// Without an answer it asks again: the engine may be back.
	if d := s.durable; d.asked == 0 || now >= d.asked.Add(askWait) {
		s.ask(now)
	}
	return false
}

func (s *Session) ask(now Time) {
	s.durable.asked = now
	s.emit(Event{Kind: AskOwner})
}

// mayEnd reports whether a session whose time is over may end with a Close frame. One whose client is attached may. If it
// is not certain, it waits for the answer until endBy.
func (s *Session) mayEnd(now Time) bool {
	if s.state != Detached || s.certain(now) {
		return true
	}
	if d := s.durable; d.endBy == 0 {
		d.endBy = now.Add(askWait)
		s.ask(now)
	}
	return false
}

// waitNoMore records that the session need not end: its client is back, or its time was extended.
func (s *Session) waitNoMore() {
	if s.durable != nil {
		s.durable.endBy = 0
	}
}

// Owned answers AskOwner: the node has the session. An end that waited for that comes now.
func (s *Session) Owned(now Time) {
	d := s.durable
	if d == nil || s.state == Ended {
		return
	}
	waits := d.endBy > 0
	d.owned, d.asked, d.endBy = now.Add(ownedFor), 0, 0
	if waits {
		s.endInTime(now)
	}
}
