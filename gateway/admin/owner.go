package admin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/owner"
	"reseat/gateway/registry"
)

// This file finds the node that has a session. The session's id begins with that of the node which
// has made it. If that node was lost, or has handed it over, the session goes on at another one.

const (
	// maxMoves bounds the nodes that a call goes to, each time to the one that the last has named.
	maxMoves = 3
	// seatTries bounds how often the seat of a session is read for a call. While a node takes a session
	// in, the seat names it a moment before it has the session.
	seatTries = 3
	seatPause = 100 * time.Millisecond
	// seatTimeout limits a read.
	seatTimeout = 2 * time.Second
)

// owned passes a call for one session to the node that has it. It answers 404 only if no node
// can have it.
func (a *api) owned(here http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		of := id(r)
		_, known := a.g.Control().Settled(visitOf(r.Context()), of)
		if !known && callerOf(r).node != "" {
			w.Header()[owner.MovedHeader] = []string{a.g.Owner().MovedTo(of)}
		}
		switch {
		case known || a.alone(r) || !hexDigits(of):
			here(w, r)
		case len(of) == cluster.IDLen+registry.SessionIDLen:
			a.passToOwner(w, r, here)
		case len(of) == registry.SessionIDLen:
			a.passToHolder(w, r)
		default:
			here(w, r)
		}
	}
}

// passToOwner passes a call to the node that has the session: the one that has made it, one to which
// it was handed over, or the one that its seat names.
func (a *api) passToOwner(w http.ResponseWriter, r *http.Request, here http.HandlerFunc) {
	body, err := readBody(w, r, passedBody(r))
	if err != nil {
		refuse(w, err)
		return
	}
	s := &search{a: a, w: w, r: r, body: body, here: here}
	at := a.g.Owner().NodeOf(id(r))
	for n := 0; at != "" && n < maxMoves; n++ {
		var done bool
		if done, at = s.try(at); done {
			return
		}
	}
	s.bySeat()
}

// A search is a call on its way to the node that has its session.
type search struct {
	a    *api
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	here http.HandlerFunc // at this node

	silent *Node // the last node if it did not answer; nil if it does not have the session
}

// try passes the call to a node, and reports whether it was answered. If not, next is where the node has
// handed the session to, "" if it does not know.
func (s *search) try(node string) (done bool, next string) {
	s.silent = nil
	self := s.a.cluster.Self().ID
	if _, known := s.a.g.Control().Settled(visitOf(s.r.Context()), id(s.r)); node == self && known {
		s.r.Body = bodyRead{bytes.NewReader(s.body)}
		s.here(s.w, s.r)
		return true, ""
	}
	if node == self {
		return false, s.a.g.Owner().MovedTo(id(s.r))
	}
	to, ok := s.a.byID(node)
	if !ok {
		s.silent = &Node{ID: node}
		return false, ""
	}
	answer, next := s.a.forward(s.w, s.r, s.body, to, pathIn(s.r))
	if answer == passFailed {
		s.silent = &to
	}
	return answer == passDone, next
}

// bySeat passes the call to the node that the seat names, or says why it cannot.
func (s *search) bySeat() {
	ctx, cancel := context.WithTimeout(s.r.Context(), passTimeout+seatTimeout)
	defer cancel()
	asked := s.silent
	for range seatTries {
		seat, err := s.readSeat(ctx)
		switch {
		case err != nil:
			s.fail(fmt.Sprintf("NATS cannot say which node has the session: %.200v", err), asked)
			return
		case seat.Owner == "" && asked != nil:
			s.afterLoss(*asked)
			return
		case seat.Owner == "":
			problem(s.w, http.StatusNotFound, noSession)
			return
		}
		done, next := s.try(seat.Owner)
		switch {
		case done:
			return
		case seat.Ended != 0:
			problem(s.w, http.StatusNotFound, noSession)
			return
		case s.silent != nil && s.a.cluster.Gone(ctx, seat.Owner):
			s.fail("its node was lost, and no other node has it until its client comes back", s.silent)
			return
		case s.silent != nil:
			s.a.unreachable(s.w, s.r, *s.silent)
			return
		}
		if next == "" {
			visitOf(s.r.Context()).Away(func() { pause(ctx, seatPause) })
		}
	}
	s.fail("no node has it now: it is on its way to another one, or its client has not come back yet", nil)
}

// afterLoss answers a call for a session without a seat, whose node does not answer. If that node was
// lost, another one may remember how the session has ended there.
func (s *search) afterLoss(node Node) {
	if s.a.cluster.Gone(s.r.Context(), node.ID) {
		if at, _ := s.a.findHolder(s.r); at.ID != "" {
			if done, _ := s.try(at.ID); done {
				return
			}
		}
	}
	s.a.unreachable(s.w, s.r, node)
}

// readSeat returns the session's seat. Without one its Owner is "".
func (s *search) readSeat(ctx context.Context) (seat cluster.Seat, err error) {
	ctx, cancel := context.WithTimeout(ctx, seatTimeout)
	defer cancel()
	visitOf(ctx).Away(func() { seat, err = s.a.cluster.Seat(ctx, id(s.r)) })
	if errors.Is(err, cluster.ErrNoSeat) {
		return cluster.Seat{}, nil
	}
	return seat, err
}

// fail answers that the session may live, and cannot be reached now.
func (s *search) fail(detail string, missing *Node) {
	d := details{Status: http.StatusBadGateway, Detail: detail}
	if missing != nil {
		d.Missing = []string{cmp.Or(missing.Name, missing.ID)}
	}
	d.write(s.w)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
