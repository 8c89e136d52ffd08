package epoll

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A leg is one socket of a session. Its socket is told of by edges: what an edge
// has said is remembered until a call has found that it holds no more.
type leg struct {
	s   *Session
	leg session.Leg // what the core knows it by
	fd  int         // negative: closed

	readable bool // there may be something to read
	ending   bool // and behind it the end
	queued   bool // the loop reads it again of its own accord
	full     bool // it did not take all it was given

	lingering bool         // all is written, the end is waited for
	deadline  session.Time // when it is closed whatever comes; zero: never
}

// Why a connection has ended, where that is not for the network to say.
var (
	errNone = errors.New("no descriptor for the connection")
	errLate = errors.New("not closed in time")
)

// begin has the loop watch g, which may close it.
func (s *Session) begin(g *leg) {
	if g.fd < 0 {
		s.gone(g, errNone)
		return
	}
	s.open++
	if err := s.loop.adopt(g); err != nil {
		s.gone(g, err)
	}
}

// heard notes what the loop heard of g.
func (g *leg) heard(events uint32) {
	g.readable = g.readable || events&mayRead != 0
	g.ending = g.ending || events&hasEnded != 0
	g.full = g.full && events&mayWrite == 0
}

// wanted reports whether g may be read now.
func (g *leg) wanted() bool {
	switch {
	case g.fd < 0:
		return false
	case g.leg.CloseMode() != session.Open:
		return true // to its end
	case g.s.untold.Load() > maxUntold:
		return false
	default:
		return g.s.core.Wants(g.leg)
	}
}

// follow has g read in the loop's next round where there is something that is
// wanted now.
func (s *Session) follow(g *leg) {
	if g.readable && !g.queued && g.wanted() {
		g.queued = true
		s.loop.again = append(s.loop.again, g)
	}
}

// read reads g once, if that is wanted.
func (s *Session) read(g *leg) {
	if g.leg.CloseMode() != session.Open {
		if _, err := g.receive(s.loop.buf); err != nil {
			s.gone(g, err)
		}
		s.follow(g)
		return
	}
	if !g.wanted() {
		return
	}
	room := s.core.Room(g.leg, s.loop.lend)
	if room == nil {
		return // the core wants to be called when there may be some
	}
	n, err := g.receive(room)
	s.took(g, room[:n])
	if err != nil {
		s.gone(g, err)
	}
}

// receive reads once. It keeps account of whether there may be more: a read that
// found less than it had room for has emptied the socket.
func (g *leg) receive(b []byte) (int, error) {
	n, err := rawconn.Receive(g.fd, b)
	switch {
	case n == 0:
		g.readable, g.ending = false, false
	case n < len(b) && !g.ending:
		g.readable = false
	}
	return n, err
}

// took passes to the core what was read. p is free again when it returns.
func (s *Session) took(g *leg, p []byte) {
	s.core.Read(s.loop.now, g.leg, p)
	if g != s.up { // a client's message goes on from p, without a copy
		s.write(s.up)
		s.core.Retain()
	}
}

// gone: g's connection has ended.
func (s *Session) gone(g *leg, err error) {
	s.core.Gone(s.loop.now, g.leg, err.Error())
	s.flush(g)
	g.close(session.Shut)
}

// flush writes what the core has for g, as far as the socket takes it, and then
// closes g if the core says so.
func (s *Session) flush(g *leg) {
	for s.write(g) {
	}
}

// write writes once, or, where there is nothing to be written or no room for it,
// closes g if the core says so. It reports whether it wrote: then there may be
// more, for either leg.
func (s *Session) write(g *leg) bool {
	l := s.loop
	if g.full || g.fd < 0 || !s.core.HasOutput(l.now, g.leg) {
		s.finish(g)
		return false
	}
	l.out = s.core.Out(l.now, g.leg, l.out[:0])
	if len(l.out) == 0 {
		s.finish(g)
		return false
	}
	n, full, err := l.sender.Send(g.fd, l.out)
	clear(l.out)
	g.full = full
	if s.core.Wrote(l.now, g.leg, n, full) {
		s.look(g)
	}
	if err != nil {
		s.core.WriteFailed(l.now, g.leg, err.Error())
	}
	return true
}

// look tells the core the state of g's socket.
func (s *Session) look(g *leg) {
	if st, err := rawconn.StateOf(g.fd); err == nil {
		s.core.Socket(s.loop.now, g.leg, session.SocketState(st))
	}
}

// finish closes g as the core says, once all is written.
func (s *Session) finish(g *leg) {
	mode := g.leg.CloseMode()
	switch {
	case mode == session.Open || g.fd < 0:
		return
	case mode >= session.Shut:
		g.close(mode)
		return
	case g.deadline == 0:
		g.deadline = s.loop.now.Add(g.leg.FlushTime())
	}
	if !g.full && !g.lingering {
		g.lingering = true
		g.deadline = s.loop.now.Add(session.LingerTime)
		if g.leg.HalfClose() {
			unix.Shutdown(g.fd, unix.SHUT_WR)
		}
	}
	s.follow(g)
}

// expire closes g if it has had its time.
func (s *Session) expire(g *leg) {
	if g.deadline > 0 && s.loop.now >= g.deadline {
		s.gone(g, errLate)
	}
}

// close closes the socket. It may be called twice.
func (g *leg) close(f session.CloseMode) {
	if g.fd < 0 {
		return
	}
	if f == session.Reset {
		unix.SetsockoptLinger(g.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	s := g.s
	s.loop.legs[g.fd] = nil
	unix.Close(g.fd) // which the epoll set notices by itself
	g.fd, g.readable, g.deadline = -1, false, 0
	s.open--
	if g == s.down {
		s.down = nil
	}
	s.older = slices.DeleteFunc(s.older, func(p *leg) bool { return p == g })
}
