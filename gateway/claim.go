package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/events"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/tokens/generation"
)

// This file finds a durable session by its seat, and claims it if its node is lost. Only the client
// makes a node do so, by coming back: for clients that do not, nothing happens.

const (
	// findTries bounds how often a seat is read for one resume: it may change between the read and
	// what follows.
	findTries = 4
	// findPause is between two tries, and findTime for all of them together.
	findPause = 100 * time.Millisecond
	findTime  = 12 * time.Second
	// skipEpochs is added to Reseat-Epoch by a claim: the node before may have dialled while it could
	// not write its seat.
	skipEpochs = 1000
	// maxAhead bounds how many messages can have been sent since a seat was written: 10,000 a second for
	// three years. Beyond it a client's numbers are wrong, and would be the session's from then on.
	maxAhead = 1 << 40
)

// A search is a resume on its way to its session.
type search struct {
	w      http.ResponseWriter
	r      *http.Request
	rt     *route
	offer  wire.Offer
	claims tokens.Claims
	v      cluster.Judgement // of the node that was asked last
}

// resumeElsewhere serves a resume of another node's session. It reports false if the session
// is not another node's, or is here since now.
func (g *Gateway) resumeElsewhere(w http.ResponseWriter, r *http.Request, rt *route, offer wire.Offer) bool {
	if g.cfg.Cluster == nil {
		return false
	}
	claims, err := g.keys.VerifyForOwner(offer.Token)
	if err != nil || g.isHere(claims) {
		return false
	}
	s := &search{w: w, r: r, rt: rt, offer: offer, claims: claims}
	node := g.ownerOf(r, claims)
	if node == "" {
		if _, ok := passed(r); ok || !g.hasSeats(claims.Session) {
			return false
		}
		return !g.resumeBySeat(s)
	}
	answer, v, other := g.passOn(w, r, rt, node, claims.Session)
	if s.v = v; answer == passNotThere && other != "" {
		answer, s.v, _ = g.passOn(w, r, rt, other, claims.Session)
	}
	switch {
	case answer == passServed:
	case g.hasSeats(claims.Session) && (answer == passNotThere || s.v.Verdict == cluster.Gone || s.v.Verdict == cluster.Silent):
		return !g.resumeBySeat(s)
	case answer == passGone, answer == passNotThere:
		g.refuseSearch(s, session.Refuse(wire.CodeNoSession, "its node was lost"))
	default:
		g.refuseSearch(s, unreachable())
	}
	return true
}

// isHere reports whether this node has a session. It lets go of one that the token shows to have gone to
// another node since.
func (g *Gateway) isHere(c tokens.Claims) bool {
	e := g.reg.Find(c.Session)
	if e == nil {
		return g.late.next(c.Session) != nil // a predecessor has it
	}
	if e.Durable && generation.Epoch(c.Gen) > e.Seat().Epoch {
		g.seats.fence(e, "a token of a later epoch")
		return false
	}
	return true
}

// notHereAnswer answers a node that has passed a client on whose session is not here. It reports false if
// this node is to answer the client.
func (g *Gateway) notHereAnswer(w http.ResponseWriter, r *http.Request, offer wire.Offer) bool {
	if _, ok := passed(r); !ok {
		return false
	}
	if offer.Resume {
		claims, err := g.keys.VerifyForOwner(offer.Token)
		if err != nil || !g.hasSeats(claims.Session) {
			return false
		}
		g.waitForClaim(r.Context(), claims.Session)
		if g.isHere(claims) {
			return false
		}
		if to := g.moves.node(claims.Session); to != "" {
			w.Header().Set(MovedHeader, to)
		}
	}
	http.Error(w, "this node cannot resume the session", http.StatusMisdirectedRequest) // see notHere
	return true
}

// resumeBySeat serves a resume whose session is at none of the nodes that its token leads to. here
// reports that this node has the session after all, perhaps since now.
func (g *Gateway) resumeBySeat(s *search) (here bool) {
	ctx, cancel := context.WithTimeout(s.r.Context(), findTime)
	defer cancel()
	var denied cluster.Seat // whose owner says that it does not have the session
	for range findTries {
		seat, err := g.seats.get(ctx, s.claims.Session)
		switch {
		case errors.Is(err, cluster.ErrNoSeat) && s.v.Verdict == cluster.Silent && !g.sessionIsGone(s.rt, s.v): // that node may have it
			g.refuseSearch(s, unreachable())
			return false
		case errors.Is(err, cluster.ErrNoSeat):
			g.refuseSearch(s, session.Refuse(wire.CodeNoSession, "%s", lostText(s.v)))
			return false
		case err != nil:
			s.v.Evidence = fmt.Sprintf("%s; its seat cannot be read: %v", s.v.Evidence, err)
			if s.v.Verdict == cluster.Gone && s.rt != nil && !s.rt.Policy.Durable {
				g.refuseSearch(s, session.Refuse(wire.CodeNoSession, "%s", lostText(s.v)))
				return false
			}
			g.metrics.claims.WithLabelValues("engine").Inc()
			g.refuseSearch(s, unreachable())
			return false
		case seat.Ended != 0:
			g.refuseSearch(s, &session.Refusal{Code: seat.Ended, Text: seat.Reason})
			return false
		}
		claimable := seat.Owner == g.seats.self()
		if !claimable {
			var answer passAnswer
			if answer, claimable = g.passToOwner(s, seat.Owner); answer == passServed {
				return false
			}
			if again := denied.Owner == seat.Owner && denied.Revision == seat.Revision; answer == passNotThere {
				denied, claimable = seat, again // it has let the session go, and nobody has taken it
			}
		}
		if claimable {
			refusal, again := g.claim(ctx, s, seat)
			switch {
			case refusal != nil:
				g.refuseSearch(s, refusal)
				return false
			case !again:
				return true
			}
		}
		away(s.r.Context(), func() {
			select {
			case <-time.After(findPause):
			case <-ctx.Done():
			}
		})
	}
	g.refuseSearch(s, unreachable())
	return false
}

// lostText says of a session without a seat why it is lost.
func lostText(v cluster.Judgement) string {
	if v.Verdict == cluster.Gone || v.Verdict == cluster.Silent {
		return "its node was lost"
	}
	return ""
}

func (g *Gateway) refuseSearch(s *search, refusal *session.Refusal) {
	if !g.forwardMoved(s.w, s.r) {
		g.refuseElsewhere(s.w, s.r, refusal, s.claims.Session, s.v)
	}
}

// passToOwner passes a resume on to the node that a seat names: passServed also if the client is refused, and
// passNotThere if the session has just been claimed there, handed over, or let go. claimable reports that
// this node is lost, so that another one may take the session.
func (g *Gateway) passToOwner(s *search, owner string) (answer passAnswer, claimable bool) {
	answer, s.v, _ = g.passOn(s.w, s.r, s.rt, owner, s.claims.Session)
	switch {
	case answer == passServed, answer == passNotThere:
		return answer, false
	case s.v.Verdict == cluster.Gone || s.v.Verdict == cluster.Silent:
		return answer, true
	}
	if s.v.Verdict == cluster.Alive {
		g.metrics.claims.WithLabelValues("owner_alive").Inc()
	}
	g.refuseSearch(s, unreachable())
	return passServed, false
}

// claim takes a session in whose node is lost. again asks the caller to read the seat once more: another
// node, or another connection of the client at this one, was faster. A refusal changes nothing.
func (g *Gateway) claim(ctx context.Context, s *search, seat cluster.Seat) (refusal *session.Refusal, again bool) {
	end, ok := g.claims.begin(seat.Session)
	if !ok {
		g.waitForClaim(ctx, seat.Session)
		return nil, g.reg.Find(seat.Session) == nil
	}
	defer end()
	if g.reg.Find(seat.Session) != nil { // it was claimed since the search began
		return nil, false
	}
	if g.draining.Load() { // another node does not drain
		return unreachable(), false
	}
	c, refusal := g.mayClaim(s, seat)
	if refusal != nil {
		if refusal.Superseded { // logRefusal reports it where the session is here
			g.noteReplayed(registry.Snapshot{ID: c.state.ID, Player: c.state.Player, Group: c.state.Terms.Group, Path: c.state.Path})
		}
		return refusal, false
	}
	before := seat.Owner
	seat.Owner, seat.Epoch, seat.Handoff = g.seats.self(), seat.Epoch+1, false
	var err error
	away(ctx, func() { seat.Revision, err = g.seats.store.Put(ctx, seat) })
	switch {
	case errors.Is(err, cluster.ErrSeatTaken):
		g.metrics.claims.WithLabelValues("lost").Inc()
		return nil, true
	case err != nil:
		g.metrics.claims.WithLabelValues("engine").Inc()
		s.v.Evidence = fmt.Sprintf("%s; its seat cannot be written: %v", s.v.Evidence, err)
		return unreachable(), false
	}
	g.metrics.claims.WithLabelValues("won").Inc()
	if before != seat.Owner {
		g.seats.store.Fence(before, seat.Session, seat.Epoch)
	}
	g.log.Info("session.claimed", "session", seat.Session, "player", c.state.Player, "path", c.state.Path, "from", before,
		"evidence", s.v.Evidence, "epoch", seat.Epoch, "received", s.offer.Received, "settled", c.settled)
	if err := g.takeClaimed(seat, c, s.offer); err != nil {
		g.log.Error("session.not_claimed", "session", seat.Session, "err", err)
		return session.Refuse(wire.CodeInternalError, ""), false
	}
	return nil, false
}

// waitForClaim waits while this node takes a session in.
func (g *Gateway) waitForClaim(ctx context.Context, id string) {
	if taken := g.claims.underWay(id); taken != nil {
		away(ctx, func() {
			select {
			case <-taken:
			case <-ctx.Done():
			}
		})
	}
}

// A claimable session is what its seat says.
type claimable struct {
	body    registry.SeatBody
	state   *registry.State
	rt      *route
	settled uint64 // see session.Claim
}

// mayClaim checks a client that has come back, before its session is claimed, in the order of protocol
// section 2.
func (g *Gateway) mayClaim(s *search, seat cluster.Seat) (c claimable, refusal *session.Refusal) {
	var err error
	if c.body, err = registry.ReadSeatBody(seat.Body); err == nil {
		c.state, err = registry.ReadState(c.body.Record)
	}
	if err == nil {
		if c.rt = g.table.byPattern[c.state.Route]; c.rt == nil {
			err = fmt.Errorf("no route %q here", c.state.Route)
		}
	}
	if err != nil { // of another version, or other settings: another node may know better
		s.v.Evidence = fmt.Sprintf("%s; its seat: %v", s.v.Evidence, err)
		return c, unreachable()
	}
	subject := c.state.Player
	if subject == "" {
		subject = c.state.ID
	}
	gen := s.claims.Gen
	switch {
	case subject != s.claims.Subject:
		return c, session.Refuse(wire.CodeBadToken, otherPlayer)
	case gen < c.body.Confirmed || generation.Epoch(gen) > seat.Epoch:
		ref := session.Refuse(wire.CodeBadToken, "generation %d is superseded or unknown", gen)
		ref.Superseded = true
		return c, ref
	case !s.offer.ReceivedOK:
		return c, session.Refuse(wire.CodeProtocolViolation, "received missing, malformed or given twice")
	case !s.offer.SettledOK:
		return c, session.Refuse(wire.CodeProtocolViolation, "settled missing, malformed or given twice")
	case s.offer.Received > c.body.Acked+maxAhead || s.offer.Settled.Sent > maxAhead:
		return c, session.Refuse(wire.CodeProtocolViolation, "received or settled names messages that cannot have been sent")
	case s.offer.Received < c.body.Acked:
		return c, session.Refuse(wire.CodeWindowExceeded, "received %d, but %d were acked", s.offer.Received, c.body.Acked)
	}
	c.settled = settledOf(c.rt.Policy.Redeliver, s.offer)
	return c, nil
}

// takeClaimed makes a session of a seat that this node has just claimed. Its client resumes it, and its
// game server is dialled then.
func (g *Gateway) takeClaimed(seat cluster.Seat, c claimable, o wire.Offer) error {
	c.state.Durable = true
	c.state.Seat = registry.Seat{Epoch: seat.Epoch, Revision: seat.Revision, Covered: true, Moved: wire.MovedFailover, Unsure: true}
	e, err := g.restoreRecord(c.state, c.rt, c.state.Terms.Apply(c.rt.terms))
	if err != nil {
		return err
	}
	e.SkipEpochs(skipEpochs)
	now := g.clock.Now()
	core, err := session.Claimed(e.Core(g.store), now, session.Claim{
		Epoch: seat.Epoch, Confirmed: c.body.Confirmed, Received: o.Received, Settled: c.settled, Started: c.body.Started, Expires: now.Add(g.cfg.TokenTTL),
	})
	if err != nil {
		g.reg.Remove(e)
		e.ReleaseMemory(g.store)
		return err
	}
	g.adopt(e, core)
	return nil
}

// adopt begins to serve a session that has come from another node, without its connections.
func (g *Gateway) adopt(e *registry.Record, core *session.Session) {
	e.Adopt(g.driver.Adopt(core, -1, -1, true, observer{g, e}))
	if _, one := g.playerOf(e); one {
		g.running.Go(func() {
			if !g.holdPlayer(g.ctx, e) {
				e.Supersede()
			}
		})
	}
}

// SeatOver is called for a session whose node was lost, and whose client has not come back in time to
// another one.
func (g *Gateway) SeatOver(seat cluster.Seat) {
	ev := events.Event{Type: events.Ended, Session: seat.Session, Reason: session.ReasonNodeLost}
	if body, err := registry.ReadSeatBody(seat.Body); err == nil {
		if s, err := registry.ReadState(body.Record); err == nil {
			ev.Player, ev.Group, ev.Path = s.Player, s.Terms.Group, s.Path
		}
	}
	g.metrics.ended.WithLabelValues(session.ReasonNodeLost).Inc()
	g.publishEvent(ev)
	g.log.Info("session.ended", "session", seat.Session, "player", ev.Player, "path", ev.Path, "reason", session.ReasonNodeLost)
}

// RenewSeats writes the seats of all durable sessions again: the engine is back, and may have lost them.
func (g *Gateway) RenewSeats() {
	if g.seats.store != nil {
		g.seats.renew(g.reg.All(), false)
	}
}

// Fenced is called when somebody says that another node has taken a session of this one, in that epoch. The seat
// shows whether that is so.
func (g *Gateway) Fenced(id string, epoch uint64) {
	if e := g.reg.Find(id); e != nil && e.Durable && e.Seat().Epoch < epoch {
		g.seats.look(e)
	}
}
