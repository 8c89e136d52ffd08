package admin

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"reseat/gateway/cluster"
	"reseat/gateway/owner"
	"reseat/gateway/registry"
)

// This file passes a call for one session to the node that has it: owner.Search.

// owned passes a call for one session to the node that has it. It answers 404 only if no node
// can have it.
func (a *api) owned(here http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		of := id(r)
		_, known := a.g.Control().Settled(callOf(r).visit, of)
		if !known && callOf(r).node != "" {
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
// it was handed off, or the one that its seat names.
func (a *api) passToOwner(w http.ResponseWriter, r *http.Request, here http.HandlerFunc) {
	body, err := readBody(w, r, passedBody(r))
	if err != nil {
		refuse(w, err)
		return
	}
	s := &search{a: a, w: w, r: r, body: body, here: here}
	o, v := a.g.Owner(), callOf(r).visit
	switch t := o.Search(r.Context(), &owner.Query{Session: id(r), Visit: v, Ask: s.ask}, o.NodeOf(id(r))); {
	case t.Answer == owner.Served:
	case errors.Is(t.Err, cluster.ErrNoSeat) && s.silent != nil:
		s.afterLoss(*s.silent)
	case t.Err != nil && !errors.Is(t.Err, cluster.ErrNoSeat):
		s.fail(fmt.Sprintf("NATS cannot say which node has the session: %.200v", t.Err), s.silent)
	case t.Err != nil, t.Seat.Ended != 0:
		problem(w, http.StatusNotFound, noSession)
	case s.silent == nil:
		s.fail("no node has it now: it is on its way to another one, or its client has not come back yet", nil)
	case a.Cluster.Gone(r.Context(), t.Seat.Owner):
		s.fail("its node was lost, and no other node has it until its client comes back", s.silent)
	default:
		a.unreachable(w, r, *s.silent)
	}
}

// A search is a call on its way to the node that has its session.
type search struct {
	a    *api
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	here http.HandlerFunc // at this node

	silent *cluster.Node // the last node if it did not answer; nil if it does not have the session
}

// ask passes the call to a node. If it is not answered, next is the node that the session was handed off to, ""
// if it does not know.
func (s *search) ask(node string) (_ owner.Answer, next string) {
	s.silent = nil
	if node == s.a.self().ID {
		if _, known := s.a.g.Control().Settled(callOf(s.r).visit, id(s.r)); !known {
			return owner.NotThere, s.a.g.Owner().MovedTo(id(s.r))
		}
		s.r.Body = bodyRead{bytes.NewReader(s.body)}
		s.here(s.w, s.r)
		return owner.Served, ""
	}
	to, ok := s.a.byID(node)
	if !ok {
		s.silent = &cluster.Node{ID: node}
		return owner.Lost, ""
	}
	answer, next := s.a.forward(s.w, s.r, s.body, to, pathIn(s.r))
	if answer == owner.Lost {
		s.silent = &to
	}
	return answer, next
}

// afterLoss answers a call for a session without a seat, whose node does not answer. If that node was
// lost, another one may remember how the session has ended there.
func (s *search) afterLoss(node cluster.Node) {
	if s.a.Cluster.Gone(s.r.Context(), node.ID) {
		if at, _ := s.a.findHolder(s.r); at.ID != "" {
			if answer, _ := s.ask(at.ID); answer == owner.Served {
				return
			}
		}
	}
	s.a.unreachable(s.w, s.r, node)
}

// fail answers that the session may live, and cannot be reached now.
func (s *search) fail(detail string, missing *cluster.Node) {
	d := details{Status: http.StatusBadGateway, Detail: detail}
	if missing != nil {
		d.Missing = []string{cmp.Or(missing.Name, missing.ID)}
	}
	d.write(s.w)
}
