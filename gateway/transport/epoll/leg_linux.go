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
	att *session.Attachment // of a client's
	ups *session.Upstream   // of an upstream's: one of the two is there
	fd  int                 // negative: closed

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

func (g *leg) fate() session.CloseMode {
	if g.att == nil {
		return g.ups.CloseMode()
	}
	return g.att.CloseMode()
}

// heard notes what the loop heard of g.
func (g *leg) heard(events uint32) {
	g.readable = g.readable || events&mayRead != 0
	g.ending = g.ending || events&hasEnded != 0
	g.full = g.full && events&mayWrite == 0
}

// wanted reports whether g may be read now.
func (g *leg) wanted() bool {
	core := g.s.core
	switch {
	case g.fd < 0:
		return false
	case g.fate() != session.Open:
		return true // to its end
	case g.att == nil:
		return core.WantsUpstream(g.ups)
	default:
		return core.WantsClient(g.att)
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
	switch {
	case g.fate() != session.Open:
		if _, err := g.receive(s.loop.buf); err != nil {
			s.gone(g, err)
		}
		s.follow(g)
	case g.att == nil:
		s.readUpstream(g)
	case s.core.WantsClient(g.att):
		s.readClient(g)
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

// readUpstream reads the upstream straight into the replay buffer.
func (s *Session) readUpstream(g *leg) {
	room := s.core.UpstreamRoom(g.ups)
	if room == nil {
		return // the core wants to be called when there may be some
	}
	n, err := g.receive(room)
	s.core.UpstreamRead(s.loop.now, g.ups, n)
	if err != nil {
		s.gone(g, err)
	}
}

func (s *Session) readClient(g *leg) {
	n, err := g.receive(s.loop.buf)
	if n > 0 {
		s.clientRead(g, s.loop.buf[:n])
	}
	if err != nil {
		s.gone(g, err)
	}
}

// clientRead hands what was read to the core. p is free again when it returns.
func (s *Session) clientRead(g *leg, p []byte) {
	s.core.ClientRead(s.loop.now, g.att, p)
	s.write(s.up)
	s.core.Retain()
}

// gone: g's connection has ended.
func (s *Session) gone(g *leg, err error) {
	if g.att == nil {
		s.core.UpstreamGone(s.loop.now, g.ups, err.Error())
	} else {
		s.core.ClientGone(s.loop.now, g.att, err.Error())
	}
	s.flush(g)
	g.close(session.Shut)
}

// flush writes what the core has for g, as far as the socket takes it, and then
// does to g what the core says.
func (s *Session) flush(g *leg) {
	for s.write(g) {
	}
}

// write writes once, or, where there is nothing to be written or no room for it,
// does to g what the core says. It reports whether it wrote: then there may be
// more, for either leg.
func (s *Session) write(g *leg) bool {
	if g.full || g.fd < 0 {
		s.part(g)
		return false
	}
	out := s.out(g)
	if len(out) == 0 {
		s.part(g)
		return false
	}
	n, full, err := s.loop.sender.Send(g.fd, out)
	clear(out)
	g.full = full
	s.wrote(g, n)
	if err != nil {
		s.failed(g, err)
	}
	return true
}

func (s *Session) out(g *leg) [][]byte {
	l := s.loop
	if g.att == nil {
		l.out = s.core.UpstreamOut(g.ups, l.out[:0])
	} else {
		l.out = s.core.ClientOut(l.now, g.att, l.out[:0])
	}
	return l.out
}

func (s *Session) wrote(g *leg, n int) {
	if g.att == nil {
		s.core.UpstreamWrote(s.loop.now, g.ups, n)
	} else if s.core.ClientWrote(s.loop.now, g.att, n, g.full) {
		s.look(g)
	}
}

// look tells the core the state of a client's socket.
func (s *Session) look(g *leg) {
	if st, err := rawconn.StateOf(g.fd); err == nil {
		s.core.ClientSocket(s.loop.now, g.att, session.SocketState(st))
	}
}

// failed: the socket takes nothing more. What an upstream has sent may still be
// read, but a client that takes nothing is gone at once.
func (s *Session) failed(g *leg, err error) {
	if g.att == nil {
		s.core.UpstreamDeaf(g.ups)
		return
	}
	s.core.ClientGone(s.loop.now, g.att, err.Error())
	g.close(session.Shut)
}

// part does to g what the core says is its fate, once all is written that was
// to be.
func (s *Session) part(g *leg) {
	fate := g.fate()
	switch {
	case fate == session.Open || g.fd < 0:
		return
	case fate >= session.Shut:
		g.close(fate)
		return
	case g.deadline == 0:
		flush := session.ClientFlush
		if g.att == nil {
			flush = session.UpstreamFlush
		}
		g.deadline = s.loop.now.Add(flush)
	}
	if !g.full && !g.lingering {
		g.lingering = true
		g.deadline = s.loop.now.Add(session.LingerTime)
		if g.att != nil {
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
	s.parted = slices.DeleteFunc(s.parted, func(p *leg) bool { return p == g })
}
