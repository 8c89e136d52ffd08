package owner

import (
	"context"
	"errors"
	"fmt"

	"reseat/gateway/cluster"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/watch"
	"reseat/gateway/wire"
)

// This file claims a durable session whose node is lost. Only the client makes a node do so, by
// coming back: for clients that do not, nothing happens.

// skipEpochs is added to Reseat-Epoch by a claim: the node before may have dialled while it could
// not write its seat.
const skipEpochs = 1000

// claim takes a session in whose node is lost. again asks the caller to read the seat once more: another
// node, or another connection of the client at this one, was faster. A refusal changes nothing.
func (o *Owner) claim(ctx context.Context, s *search, seat cluster.Seat) (refusal *session.Refusal, again bool) {
	if o.arriving.begin(seat.Session) == nil {
		o.awaitArrival(ctx, s.r.Visit, seat.Session)
		return nil, o.Registry.Find(seat.Session) == nil
	}
	defer o.arriving.end(seat.Session)
	if o.Registry.Find(seat.Session) != nil { // it was claimed since the search began
		return nil, false
	}
	if o.Draining() { // another node does not drain
		return unreachable(), false
	}
	c, refusal := o.mayClaim(s, seat)
	if refusal != nil {
		if refusal.Superseded { // ResumeRefused reports it where the session is here
			o.Watch.TokenReplayed(registry.Snapshot{ID: c.state.ID, Player: c.state.Player, Group: c.state.Terms.Group, Path: c.state.Path})
		}
		return refusal, false
	}
	before := seat.Owner
	seat.Owner, seat.Epoch, seat.Handoff = o.Cluster.ID(), seat.Epoch+1, false
	var err error
	s.r.Visit.Away(func() { seat.Revision, err = o.Seats.Put(ctx, seat) })
	switch {
	case errors.Is(err, cluster.ErrSeatTaken):
		o.Watch.Metrics.Claims.WithLabelValues("lost").Inc()
		return nil, true
	case err != nil:
		o.Watch.Metrics.Claims.WithLabelValues("engine").Inc()
		s.v.Evidence = fmt.Sprintf("%s; its seat cannot be written: %v", s.v.Evidence, err)
		return unreachable(), false
	}
	o.Watch.Metrics.Claims.WithLabelValues("won").Inc()
	if before != seat.Owner {
		o.Seats.Fence(before, seat.Session, seat.Epoch)
	}
	o.Log.Info("session.claimed", "session", seat.Session, "player", c.state.Player, "path", c.state.Path, "from", before,
		"evidence", s.v.Evidence, "epoch", seat.Epoch, "received", s.r.Offer.Received, "settled", c.settled)
	if err := o.takeClaimed(seat, c, s.r.Offer); err != nil {
		o.Log.Error("session.not_claimed", "session", seat.Session, "err", err)
		return session.Refuse(wire.CodeInternalError, ""), false
	}
	return nil, false
}

// awaitArrival waits while this node takes a session in.
func (o *Owner) awaitArrival(ctx context.Context, v *gate.Visit, id string) {
	if taken := o.arriving.get(id); taken != nil {
		v.Away(func() {
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
	rt      *front.Route
	settled uint64 // see session.Claim
}

// mayClaim checks a client that has come back, before its session is claimed, in the order of protocol
// section 2.
func (o *Owner) mayClaim(s *search, seat cluster.Seat) (c claimable, refusal *session.Refusal) {
	var err error
	if c.body, err = registry.ReadSeatBody(seat.Body); err == nil {
		c.state, err = registry.ReadState(c.body.Record)
	}
	if err == nil {
		if c.rt = o.Table.Route(c.state.Route); c.rt == nil {
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
	if subject != s.claims.Subject {
		return c, session.Refuse(wire.CodeBadToken, watch.OtherPlayer)
	}
	offer := &s.r.Offer
	seated := session.Seated{Epoch: seat.Epoch, Confirmed: c.body.Confirmed, Acked: c.body.Acked}
	refusal = seated.Check(session.Resume{Gen: s.claims.Gen, Received: offer.Received, Malformed: !offer.ReceivedOK}, offer.Settled.Sent, offer.SettledOK)
	c.settled = SettledOf(c.rt.Policy.Redeliver, *offer)
	return c, refusal
}

// takeClaimed makes a session of a seat that this node has just claimed. Its client resumes it, and its
// game server is dialled then.
func (o *Owner) takeClaimed(seat cluster.Seat, c claimable, offer wire.Offer) error {
	c.state.Durable = true
	c.state.Seat = registry.Seat{Epoch: seat.Epoch, Revision: seat.Revision, Covered: true, Moved: wire.MovedFailover, Unsure: true}
	e, err := c.rt.Restore(o.Registry, c.state, c.state.Terms.Apply(c.rt.Terms), o.Store)
	if err != nil {
		return err
	}
	e.SkipEpochs(skipEpochs)
	now := o.Clock.Now()
	core, err := session.Claimed(e.Core(o.Store), now, session.Claim{
		Epoch: seat.Epoch, Confirmed: c.body.Confirmed, Received: offer.Received, Settled: c.settled, Started: c.body.Started, Expires: now.Add(o.TokenTTL),
	})
	if err != nil {
		o.Registry.Remove(e)
		e.ReleaseMemory(o.Store)
		return err
	}
	o.adopt(e, core)
	return nil
}

// adopt begins to serve a session that has come from another node, without its connections.
func (o *Owner) adopt(e *registry.Record, core *session.Session) {
	e.Adopt(o.Driver.Adopt(core, transport.End{FD: -1}, transport.End{FD: -1}, o.Observe(e)))
	if _, one := o.playerOf(e); one {
		o.Running.Go(func() {
			if !o.HoldPlayer(o.Ctx, nil, e) {
				e.Supersede()
			}
		})
	}
}

// SeatOver is called for a session whose node was lost, and whose client has not come back in time to
// another one.
func (o *Owner) SeatOver(seat cluster.Seat) {
	var s *registry.State
	if body, err := registry.ReadSeatBody(seat.Body); err == nil {
		s, _ = registry.ReadState(body.Record)
	}
	o.Watch.LostElsewhere(seat.Session, s)
}

// Fenced is called when somebody says that another node has taken a session of this one, in that epoch. The seat
// shows whether that is so.
func (o *Owner) Fenced(id string, epoch uint64) {
	if e := o.Registry.Find(id); e != nil && e.Durable && e.Seat().Epoch < epoch {
		o.seats.look(e)
	}
}

// SettledOf is the newest of a client's messages that is not to be written again, after the loss of a
// node.
func SettledOf(redeliver bool, o wire.Offer) uint64 {
	if redeliver {
		return o.Settled.Acked
	}
	return o.Settled.Sent
}
