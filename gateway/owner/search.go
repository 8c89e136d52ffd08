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

// This file answers where a session is: for a resume, and for a call of the control API. Both ask, in this
// order: this node; the node that the token names, or else the one where the session began; the nodes to which
// that one has handed it off; and the session's seat, which names its owner. If the owner is lost, a resume
// claims the session (claim.go); a call never does.

const (
	// maxMoves bounds the nodes that are asked, each the one that the last has named.
	maxMoves = 3
	// findTries bounds how often a seat is read for one search: it may change between the read and
	// what follows. While a node takes a session in, the seat names it a moment before it has the session.
	findTries = 4
	// findPause is between two tries, and findTime for all of them together.
	findPause = 100 * time.Millisecond
	findTime  = 12 * time.Second
)

// An Answer is what a node says that is asked for a session.
type Answer uint8

const (
	NotThere    Answer = iota // it does not have the session
	Served                    // it has it, and has served the request
	Lost                      // it does not answer: the session may be elsewhere
	Unreachable               // it does not answer, and has the session as far as is known
)

// A Query is a request on its way to its session.
type Query struct {
	Session string
	Visit   *gate.Visit
	// Ask asks a node. next is the node that has the session now, "" if that one does not know.
	Ask func(node string) (a Answer, next string)
	// Claim takes the session in, whose owner is lost or is this node, and reports whether the search is over:
	// another node may have been faster. Nil: the session is not claimed.
	Claim func(ctx context.Context, seat cluster.Seat) (over bool)
}

// A Trace is how far a search has come.
type Trace struct {
	Answer Answer       // of the last node
	Seat   cluster.Seat // the newest; zero: none was read
	Err    error        // why not: cluster.ErrNoSeat if there is none
}

// Search asks the nodes that may have a session, first this one, "" for none.
func (o *Owner) Search(ctx context.Context, q *Query, node string) (t Trace) {
	for n := 0; node != "" && n < maxMoves; n++ {
		if t.Answer, node = q.Ask(node); t.Answer == Served || t.Answer == Unreachable {
			return t
		}
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	var denied cluster.Seat // whose owner says that it does not have the session
	for range findTries {
		if t.Seat, t.Err = o.readSeat(ctx, q); t.Err != nil {
			return t
		}
		own := q.Claim != nil && t.Seat.Owner == o.Cluster.ID()
		switch t.Answer = NotThere; {
		case q.Claim != nil && t.Seat.Ended != 0:
			return t
		case !own:
			t.Answer, _ = q.Ask(t.Seat.Owner)
		}
		switch {
		case t.Answer == Served, t.Answer == Unreachable, q.Claim == nil && (t.Answer == Lost || t.Seat.Ended != 0):
			return t
		case q.Claim == nil:
		case own, t.Answer == Lost, denied.Owner == t.Seat.Owner && denied.Revision == t.Seat.Revision: // nobody has taken it since
			if q.Claim(ctx, t.Seat) {
				return t
			}
		default: // it was just claimed there, handed off, or let go
			denied = t.Seat
		}
		pause(ctx, q.Visit, findPause)
	}
	return t
}

// readSeat reads the seat of a session that may have one.
func (o *Owner) readSeat(ctx context.Context, q *Query) (cluster.Seat, error) {
	if !o.HasSeat(q.Session) {
		return cluster.Seat{}, cluster.ErrNoSeat
	}
	return o.seats.get(ctx, q.Visit, q.Session)
}

// A Found says where the session of a resume is. One of the first three is set.
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

	claimed bool
	refused *session.Refusal // by claim
}

func (s *search) refuse(refusal *session.Refusal) Found {
	return Found{Refusal: refusal, Session: s.claims.Session, Evidence: s.v.Evidence}
}

func (s *search) lost() bool { return s.v.Verdict == cluster.Gone || s.v.Verdict == cluster.Silent }

// Find serves a resume of another node's session, or says that this node must serve or refuse it.
// It claims a durable session whose node is lost.
func (o *Owner) Find(w http.ResponseWriter, r *front.Request) Found {
	if o.Cluster == nil {
		return here
	}
	claims, err := o.Keys.VerifyForOwner(r.Offer.Token, o.Registry.Memo)
	if err != nil || o.isHere(claims) {
		return here
	}
	node := o.ownerOf(r, claims)
	if node == "" && (r.From != nil || !o.HasSeat(claims.Session)) {
		return here
	}
	s := &search{w: w, r: r, claims: claims}
	t := o.Search(r.Context(), &Query{
		Session: claims.Session, Visit: r.Visit,
		Ask: func(node string) (Answer, string) { return o.passOn(s, node) },
		Claim: func(ctx context.Context, seat cluster.Seat) bool {
			var again bool
			s.refused, again = o.claim(ctx, s, seat)
			s.claimed = s.refused == nil && !again
			return !again
		},
	}, node)
	switch {
	case t.Answer == Served:
		return served
	case s.claimed:
		return here
	case s.refused != nil:
		return s.refuse(s.refused)
	case t.Err != nil:
		return o.withoutSeat(s, t.Err)
	case t.Seat.Ended != 0:
		return s.refuse(&session.Refusal{Code: t.Seat.Ended, Text: t.Seat.Reason})
	case t.Answer == Unreachable && t.Seat.Owner != "" && s.v.Verdict == cluster.Alive:
		o.Watch.Metrics.Claims.WithLabelValues("owner_alive").Inc()
	}
	return s.refuse(unreachable())
}

// FindPlain is Find for a plain client, by the token of its cookie. A session that is nowhere is
// Here: the client gets a new one.
func (o *Owner) FindPlain(w http.ResponseWriter, r *front.Request, token string) Found {
	if o.Cluster == nil {
		return here
	}
	claims, err := o.Keys.VerifyForOwner(token, o.Registry.Memo)
	if err != nil {
		return here
	}
	s := &search{w: w, r: r, claims: claims}
	node := o.ownerOf(r, claims)
	if node == "" {
		return here
	}
	switch answer, _ := o.passOn(s, node); {
	case answer == Served:
		return served
	case answer == NotThere, o.sessionIsGone(r.Route, s.v):
		return here
	}
	return s.refuse(unreachable())
}

// isHere reports whether this node has a session. It releases one that, by the token, another
// node has had since.
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
		claims, err := o.Keys.VerifyForOwner(r.Offer.Token, o.Registry.Memo)
		if err != nil || !o.HasSeat(claims.Session) {
			return false
		}
		o.awaitArrival(r.Context(), r.Visit, claims.Session)
		if o.isHere(claims) {
			return false
		}
		if to := o.recipients.node(claims.Session); to != "" {
			w.Header().Set(MovedHeader, to)
		}
	}
	http.Error(w, "this node cannot resume the session", http.StatusMisdirectedRequest) // see notHere
	return true
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

// pause waits, unless ctx is done. A freeze of the sessions goes on meanwhile.
func pause(ctx context.Context, v *gate.Visit, d time.Duration) {
	v.Away(func() {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	})
}
