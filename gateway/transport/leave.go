package transport

import (
	"net"
	"os"

	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
)

// leave takes the session off its loop, for good.
func (s *Session) leave(p *epoll.Session) {
	p.Leave(func(core *session.Session, legs []epoll.Leg, over bool) (then func()) {
		n := takeOver(s.driver, core, legs, over, s.watch)
		s.net.Store(n)
		return n.tellRest
	})
}

// takeOver drives a core that a loop has driven up to now. The Observer is told
// nothing until tellRest.
func takeOver(d *Driver, core *session.Session, legs []epoll.Leg, over bool, watch session.Observer) *netSession {
	s := idle(d, core, watch)
	s.enter()
	s.over, s.telling = over, true
	var all []*leg
	for _, g := range legs {
		all = append(all, s.adopt(g))
	}
	for _, l := range all {
		s.flush(l)
	}
	s.settle()
	return s
}

// adopt reads on from a leg of a loop's. Called with mu held.
func (s *netSession) adopt(g epoll.Leg) *leg {
	l := &leg{s: s, closed: true}
	if g.FD >= 0 {
		l = newLeg(s, connOf(g.FD))
	}
	l.att, l.ups = g.Att, g.Ups
	switch {
	case g.Ups != nil:
		s.up = l
	default:
		s.down = l
	}
	if !l.closed {
		s.read(l, nil)
	}
	return l
}

// tellRest tells what has happened since takeOver.
func (s *netSession) tellRest() {
	for s.tellNext() {
	}
}

// connOf makes a connection of a descriptor, which is closed in any case.
func connOf(fd int) net.Conn {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil { // no descriptor left for a moment: as if the network had cut it
		conn, _ = net.Pipe()
		conn.Close()
	}
	return conn
}
