package owner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/tokens/generation"
)

// This file answers where a session is. A resume asks, in this order: this node; the node that the
// token names, or else the one where the session began; the node to which that one has handed it
// over; and the session's seat, which names its owner.

const (
	// findTries bounds how often a seat is read for one resume: it may change between the read and
	// what follows.
	findTries = 4
	// findPause is between two tries, and findTime for all of them together.
	findPause = 100 * time.Millisecond
	findTime  = 12 * time.Second
)

// Found is where a resume has found its session.
type Found struct {
	Here    bool // at this node, if anywhere
	Served  bool // at another one, which has served the client
	Refusal *session.Refusal

	Session  string
	Evidence string // for the log: why it was refused
}

var (
	here   = Found{Here: true}
	served = Found{Served: true}
)

// A search is a resume on its way to its session.
type search struct {
	w      http.ResponseWriter
	r      *front.Request
	claims tokens.Claims
	v      cluster.Judgement // of the node that was asked last
}

func (s *search) refuse(refusal *session.Refusal) Found {
	return Found{Refusal: refusal, Session: s.claims.Session, Evidence: s.v.Evidence}
}

func (s *search) lost() bool { return s.v.Verdict == cluster.Gone || s.v.Verdict == cluster.Silent }

// Find serves a resume of another node's session, or says that it is to be served here, or refused.
// It claims a durable session whose node is lost.
func (o *Owner) Find(w http.ResponseWriter, r *front.Request) Found {
	if o.Cluster == nil {
		return here
	}
	claims, err := o.Keys.VerifyForOwner(r.Offer.Token)
	if err != nil || o.isHere(claims) {
		return here
	}
	s := &search{w: w, r: r, claims: claims}
	node := o.ownerOf(r, claims)
	if node == "" {
		if r.From != nil || !o.HasSeat(claims.Session) {
			return here
		}
		return o.findBySeat(s)
	}
	answer, other := o.passOn(s, node)
	if answer == passNotThere && other != "" {
		answer, _ = o.passOn(s, other)
	}
	switch {
	case answer == passServed:
		return served
	case o.HasSeat(claims.Session) && (answer == passNotThere || s.lost()):
		return o.findBySeat(s)
	case answer == passGone, answer == passNotThere:
		return s.refuse(session.Refuse(wire.CodeNoSession, "its node was lost"))
	}
	return s.refuse(unreachable())
}

// FindPlain is Find for a plain client, by the token of its cookie. A session that is nowhere is
// Here: the client gets a new one.
func (o *Owner) FindPlain(w http.ResponseWriter, r *front.Request, token string) Found {
	if o.Cluster == nil {
		return here
	}
	claims, err := o.Keys.VerifyForOwner(token)
	if err != nil {
		return here
	}
	s := &search{w: w, r: r, claims: claims}
	node := o.ownerOf(r, claims)
	if node == "" {
		return here
	}
	switch answer, _ := o.passOn(s, node); answer {
	case passServed:
		return served
	case passGone, passNotThere:
		return here
	}
	return s.refuse(unreachable())
}

// isHere reports whether this node has a session. It lets go of one that the token shows to have gone to
// another node since.
func (o *Owner) isHere(c tokens.Claims) bool {
	e := o.Registry.Find(c.Session)
	if e == nil {
		return o.Late(c.Session) // a predecessor has it
	}
	if e.Durable && generation.Epoch(c.Gen) > e.Seat().Epoch {
		o.seats.fence(e, "a token of a later epoch")
		return false
	}
	return true
}

// AnswerNode answers a node that has passed a client on whose session is not here. It reports false if
// this node is to answer the client.
func (o *Owner) AnswerNode(w http.ResponseWriter, r *front.Request) bool {
	if r.From == nil {
		return false
	}
	if r.Offer.Resume {
		claims, err := o.Keys.VerifyForOwner(r.Offer.Token)
		if err != nil || !o.HasSeat(claims.Session) {
			return false
		}
		o.waitForClaim(r.Context(), r.Visit, claims.Session)
		if o.isHere(claims) {
			return false
		}
		if to := o.moves.node(claims.Session); to != "" {
			w.Header().Set(MovedHeader, to)
		}
	}
	http.Error(w, "this node cannot resume the session", http.StatusMisdirectedRequest) // see notHere
	return true
}

// findBySeat finds a session that is at none of the nodes that its token leads to.
func (o *Owner) findBySeat(s *search) Found {
	ctx, cancel := context.WithTimeout(s.r.Context(), findTime)
	defer cancel()
	var denied cluster.Seat // whose owner says that it does not have the session
	for range findTries {
		seat, err := o.seats.get(ctx, s.r.Visit, s.claims.Session)
		switch {
		case err != nil:
			return o.withoutSeat(s, err)
		case seat.Ended != 0:
			return s.refuse(&session.Refusal{Code: seat.Ended, Text: seat.Reason})
		}
		claimable := seat.Owner == o.seats.self()
		if !claimable {
			switch answer, _ := o.passOn(s, seat.Owner); {
			case answer == passServed:
				return served
			case answer == passNotThere: // it was just claimed there, handed over, or let go
				claimable = denied.Owner == seat.Owner && denied.Revision == seat.Revision // and nobody has taken it
				denied = seat
			case s.lost():
				claimable = true
			default:
				if s.v.Verdict == cluster.Alive {
					o.Watch.Metrics.Claims.WithLabelValues("owner_alive").Inc()
				}
				return s.refuse(unreachable())
			}
		}
		if claimable {
			switch refusal, again := o.claim(ctx, s, seat); {
			case refusal != nil:
				return s.refuse(refusal)
			case !again:
				return here
			}
		}
		pause(ctx, s.r.Visit, findPause)
	}
	return s.refuse(unreachable())
}

// withoutSeat refuses a resume whose session has no seat, or none that can be read.
func (o *Owner) withoutSeat(s *search, err error) Found {
	gone := session.Refuse(wire.CodeNoSession, "")
	if s.lost() {
		gone = session.Refuse(wire.CodeNoSession, "its node was lost")
	}
	switch none := errors.Is(err, cluster.ErrNoSeat); {
	case none && s.v.Verdict == cluster.Silent && !o.sessionIsGone(s.r.Route, s.v): // that node may have it
		return s.refuse(unreachable())
	case none:
		return s.refuse(gone)
	}
	s.v.Evidence = fmt.Sprintf("%s; its seat cannot be read: %v", s.v.Evidence, err)
	if s.v.Verdict == cluster.Gone && s.r.Route != nil && !s.r.Route.Policy.Durable {
		return s.refuse(gone)
	}
	o.Watch.Metrics.Claims.WithLabelValues("engine").Inc()
	return s.refuse(unreachable())
}

func pause(ctx context.Context, v *gate.Visit, d time.Duration) {
	v.Away(func() {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	})
}
