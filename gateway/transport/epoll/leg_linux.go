package epoll

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A leg is one socket of a session. epoll reports edges, so an edge is remembered until
// a system call finds that it no longer holds.
type leg struct {
	s     *Session    // nil: it is a relay's
	relay *relay      // nil: it is a session's
	leg   session.Leg // what the core calls it
	fd    int         // negative: closed
	layer *layer      // nil: the bytes are those of the socket

	forwarded bool // fd is an end of a socket pair: see Forwarded

	readable bool // there may be something to read
	ending   bool // the end follows what is still to be read
	queued   bool // it is in the loop's queue
	full     bool // the last write was short

	lingering bool         // all output is written, waiting for the peer to close
	deadline  session.Time // when it is closed in any case; zero: never
}

// Errors for connections that the gateway itself closes.
var (
	errNone = errors.New("no descriptor for the connection")
	errLate = errors.New("not closed in time")
)

// begin starts watching g, which the loop may watch already. It may close g.
func (s *Session) begin(g *leg, watched bool) {
	if g.fd < 0 {
		s.disconnected(g, errNone)
		return
	}
	s.open++
	if err := s.loop.adopt(g, watched); err != nil {
		s.disconnected(g, err)
	}
}

// noteEvents records the events of g's socket.
func (g *leg) noteEvents(events uint32) {
	g.readable = g.readable || events&mayRead != 0
	g.ending = g.ending || events&hasEnded != 0
	g.full = g.full && events&mayWrite == 0
	if g.layer != nil && events&mayRead != 0 {
		g.layer.socket.Arrived(events&hasEnded != 0)
	}
}

// wanted reports whether g may be read now.
func (g *leg) wanted() bool {
	switch {
	case g.fd < 0, g.layer != nil && len(g.layer.socket.Pending) > maxOwn:
		return false
	case g.leg.CloseMode() != session.Open:
		return true // discard what is left
	case g.s.pending.Load() > maxPending:
		return false
	default:
		return g.s.core.WantsRead(g.leg)
	}
}

// follow queues g for a read in the loop's next turn if it may have data that is wanted
// now.
func (s *Session) follow(g *leg) {
	if g.readable && g.wanted() {
		s.loop.enqueue(g)
	}
}

// spent counts n bytes of g that were read or written.
func (g *leg) spent(l *Loop, n int) {
	if g.layer != nil {
		n *= layerFactor
	}
	l.effort += n
}

// maxRecords is the max number of reads from a layer in one turn.
const maxRecords = 16

// readSome reads g once, or repeatedly if it has a layer: epoll reports no event for what a layer has buffered.
func (s *Session) readSome(g *leg) {
	limit := s.loop.effort + sessionEffort
	for range maxRecords {
		if s.loop.effort >= limit {
			return // follow queues g
		}
		if !s.read(g) || g.layer == nil || !g.readable || g.fd < 0 {
			return
		}
	}
}

// read reads g once, if that is wanted, and reports whether it did, and that was not the end.
func (s *Session) read(g *leg) bool {
	if g.leg.CloseMode() != session.Open {
		if _, err := g.receive(s.loop.buf); err != nil {
			s.disconnected(g, err)
		}
		s.follow(g)
		return false
	}
	if !g.wanted() {
		return false
	}
	room := s.loop.buf
	if g.layer != nil {
		room = room[:layerRead]
	}
	if g.leg.Direct() {
		if room = s.core.Room(g.leg); room == nil {
			return false // the core will ask once it has room
		}
	}
	n, err := g.receive(room)
	g.spent(s.loop, n)
	s.received(g, room[:n])
	if err != nil {
		s.disconnected(g, err)
	}
	return err == nil
}

// receive reads once. A read that returned less than it had room for has emptied the
// socket, so g is not readable until the next edge.
func (g *leg) receive(b []byte) (int, error) {
	if g.layer != nil {
		return g.receiveLayer(b)
	}
	n, err := rawconn.Receive(g.fd, b)
	g.took(n, len(b))
	return n, err
}

// took records that a read with room for so many bytes has returned n.
func (g *leg) took(n, room int) {
	switch {
	case n == 0:
		g.readable, g.ending = false, false
	case n < room && !g.ending:
		g.readable = false
	}
}

// received passes the bytes read to the core. The caller may reuse p afterwards.
func (s *Session) received(g *leg, p []byte) {
	s.core.Read(s.loop.now, g.leg, p)
	if g != s.up { // a client's message is forwarded from p without a copy
		s.write(s.up)
		s.core.Retain()
	}
}

// disconnected closes g after its connection has ended.
func (s *Session) disconnected(g *leg, err error) {
	s.core.Disconnected(s.loop.now, g.leg, err.Error())
	s.flush(g)
	g.close(session.Shut)
}

// flush writes the core's output for g until the socket is full, and then closes g if
// the core asks for it.
func (s *Session) flush(g *leg) {
	for s.write(g) {
	}
}

// write writes once. If there is no output, or the socket is full, it closes g when the
// core asks for it. It reports whether it wrote: then either leg may have more output.
func (s *Session) write(g *leg) bool {
	l := s.loop
	if g.full || g.fd < 0 {
		s.finish(g)
		return false
	}
	if g.layer != nil && !s.flushLayer(g) {
		s.finish(g)
		return false
	}
	l.out = s.core.Out(l.now, g.leg, l.out[:0])
	if len(l.out) == 0 {
		s.finish(g)
		return false
	}
	n, full, err := g.send(l, l.out)
	clear(l.out)
	s.wrote(g, n, full, err)
	return true
}

// send writes as much of bufs as the socket accepts, or less, and reports whether that is full.
func (g *leg) send(l *Loop, bufs [][]byte) (n int, full bool, err error) {
	if g.layer != nil {
		return g.sendLayer(l, bufs)
	}
	return l.sender.Send(g.fd, bufs)
}

// wrote records what a write has returned.
func (s *Session) wrote(g *leg, n int, full bool, err error) {
	g.full = full
	g.spent(s.loop, n)
	if s.core.Wrote(s.loop.now, g.leg, n, full) {
		s.reportSocketState(g)
	}
	if err != nil {
		s.core.WriteFailed(s.loop.now, g.leg, err.Error())
	}
}

// reportSocketState gives the core the state of g's socket.
func (s *Session) reportSocketState(g *leg) {
	if st, err := rawconn.StateOf(g.fd); err == nil {
		s.core.Socket(s.loop.now, g.leg, session.SocketState(st))
	}
}

// finish closes g as the core asks, once all output is written.
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
	if !g.full && !g.lingering && (g.layer == nil || !g.leg.HalfClose() || s.endLayer(g)) {
		g.lingering = true
		g.deadline = s.loop.now.Add(session.LingerTime)
		if g.leg.HalfClose() {
			unix.Shutdown(g.fd, unix.SHUT_WR)
		}
	}
	s.follow(g)
}

// expire closes g if its deadline has passed.
func (s *Session) expire(g *leg) {
	if g.deadline > 0 && s.loop.now >= g.deadline {
		s.disconnected(g, errLate)
	}
}

// close closes the socket. It is idempotent.
func (g *leg) close(f session.CloseMode) {
	if g.fd < 0 {
		return
	}
	s := g.s
	g.closeSocket(s.loop, f)
	s.open--
	if g == s.down {
		s.down = nil
	}
	s.older = slices.DeleteFunc(s.older, func(p *leg) bool { return p == g })
}

// closeSocket closes the socket of a leg of l.
func (g *leg) closeSocket(l *Loop, f session.CloseMode) {
	if f == session.Reset {
		unix.SetsockoptLinger(g.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if g.layer != nil {
		g.closeLayer(f)
	}
	l.legs[g.fd] = nil
	unix.Close(g.fd) // this also removes it from the epoll set
	g.fd, g.readable, g.deadline = -1, false, 0
}
