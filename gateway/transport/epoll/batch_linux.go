package epoll

import (
	"io"

	"golang.org/x/sys/unix"

	"reseat/gateway/session"
	"reseat/gateway/transport/uring"
)

// This file makes the reads of a turn together, and then the writes that follow from them: with
// a uring.Ring three system calls serve all sockets that are ready, in place of one for each
// read and each write. Each session takes part with one read and one write; whatever else it
// has to do follows by system calls of its own, and in the same order.

// The ring makes at least minBatch calls together. For fewer it costs more than the
// system calls that it saves.
const minBatch = 4

// pieceSize is for a read from a client. One that fills it is followed by larger ones.
const pieceSize = 4 << 10

// A batch is the reads and writes of up to uring.Batch sessions.
type batch struct {
	ring  *uring.Ring
	room  []byte // for reads from clients, pieceSize each
	reads [uring.Batch]read
	n     int      // of reads
	out   [][]byte // of all sessions
}

// A read is one of a session's, and the write that follows.
type read struct {
	g     *leg
	room  []byte // where it reads into
	call  int    // of the ring
	from  []byte // what a client has sent, until the upstream has taken it
	wrote *leg   // has output in this batch
	out   [2]int // which of the batch's, and
	write int    // of the ring
}

// TryBatch returns why loops cannot make reads and writes together here, nil if they can.
func TryBatch() error {
	ring, err := uring.New()
	if err == nil {
		ring.Close()
	}
	return err
}

// newBatch returns nil if TryBatch has an error.
func newBatch() *batch {
	ring, err := uring.New()
	if err != nil {
		return nil
	}
	return &batch{ring: ring, room: make([]byte, uring.Batch*pieceSize)}
}

// serve handles events of sockets, no more than uring.Batch.
func (l *Loop) serve(events []unix.EpollEvent) (rung bool) {
	if l.batch != nil && len(events) >= minBatch {
		l.readAll(events)
	}
	for _, e := range events {
		if int(e.Fd) == l.wakeFD {
			rung = true
		} else if g := l.legOf(e.Fd); g != nil {
			g.s.ready(g, e.Events)
		} else {
			l.noteConn(int(e.Fd), e.Events)
		}
	}
	if l.batch != nil && l.batch.n > 0 {
		l.writeAll()
	}
	return rung
}

// readAll reads the sockets that are ready and that their sessions want to read, one of each
// session.
func (l *Loop) readAll(events []unix.EpollEvent) {
	for _, e := range events {
		if g := l.legOf(e.Fd); g != nil && g.s.inBatch == 0 {
			g.s.joinBatch(g, e.Events)
		}
	}
	l.batch.submit()
}

// submit makes the collected calls together, unless they are too few: then each is made when
// its turn comes.
func (b *batch) submit() {
	if b.ring.Len() >= minBatch {
		b.ring.Submit()
	}
}

// joinBatch adds a read of g to this turn's batch if g is readable and s wants to read it.
func (s *Session) joinBatch(g *leg, events uint32) {
	defer s.rescue()
	if g.fd < 0 || g.large || g.layer != nil {
		return
	}
	g.noteEvents(events)
	if !g.readable || g.leg.CloseMode() != session.Open || !g.wanted() {
		return
	}
	b := s.loop.batch
	room := b.room[b.n*pieceSize:][:pieceSize:pieceSize]
	if g.leg.Direct() {
		if room = s.core.Room(g.leg); room == nil {
			return
		}
	}
	b.reads[b.n] = read{g: g, room: room, call: b.ring.Receive(g.fd, room)}
	b.n++
	s.inBatch = uint8(b.n)
}

// readBatch takes the result of g's read in the batch. It reports false if g is not in it.
func (s *Session) readBatch(g *leg) bool {
	if s.inBatch == 0 {
		return false
	}
	b := s.loop.batch
	r := &b.reads[s.inBatch-1]
	if r.g != g || r.room == nil {
		return false
	}
	room := r.room
	r.room = nil
	n, made, err := b.received(r.call)
	if made {
		g.took(n, len(room))
	} else {
		n, err = g.receive(room)
	}
	s.core.Read(s.loop.now, g.leg, room[:n])
	if g != s.up {
		g.large = n == len(room)
		r.from = room[:n]
	}
	if err != nil {
		s.leaveBatch()
		s.disconnected(g, err)
	}
	return true
}

// received returns what a Receive of the ring has returned, as rawconn.Receive does. made is
// false if it was not made.
func (b *batch) received(call int) (n int, made bool, err error) {
	n, errno := b.ring.Result(call)
	switch {
	case errno == unix.EINTR:
		return 0, false, nil
	case errno == unix.EAGAIN:
		return 0, true, nil
	case errno != 0:
		return 0, true, errno
	case n == 0:
		return 0, true, io.EOF
	}
	return n, true, nil
}

// endBatch does at once all that the batch was to do for s.
func (s *Session) endBatch() {
	if r := &s.loop.batch.reads[s.inBatch-1]; r.room != nil {
		s.readBatch(r.g)
	}
	s.leaveBatch()
	s.settle()
}

// leaveBatch does at once what the batch was to do for s: it writes what a client has sent.
func (s *Session) leaveBatch() {
	if s.inBatch == 0 {
		return
	}
	r := &s.loop.batch.reads[s.inBatch-1]
	s.inBatch = 0
	if r.from != nil {
		r.from = nil
		s.write(s.up)
		s.core.Retain()
	}
}

// writeAll writes what the sessions of the batch have for one of their sockets, and settles
// them.
func (l *Loop) writeAll() {
	b := l.batch
	b.ring.Drop()
	for i := range b.n {
		if s := b.reads[i].g.s; int(s.inBatch) == i+1 {
			s.offerBatch(&b.reads[i])
		}
	}
	b.submit()
	for i := range b.n {
		if s := b.reads[i].g.s; int(s.inBatch) == i+1 {
			s.settleBatch(&b.reads[i])
		}
	}
	b.ring.Drop()
	clear(b.out)
	b.out = b.out[:0]
	clear(b.reads[:b.n])
	b.n = 0
}

// offerBatch adds the output of one of s's legs to the batch.
func (s *Session) offerBatch(r *read) {
	defer s.rescue()
	b := s.loop.batch
	for _, g := range [2]*leg{s.up, s.down} {
		if g == nil || g.full || g.fd < 0 || g.layer != nil {
			continue
		}
		from := len(b.out)
		if b.out = s.core.Out(s.loop.now, g.leg, b.out); len(b.out) > from {
			r.wrote, r.out, r.write = g, [2]int{from, len(b.out)}, b.ring.Send(g.fd, b.out[from:])
			return
		}
	}
}

// settleBatch takes the result of s's write, and does what else the core wants done.
func (s *Session) settleBatch(r *read) {
	defer s.rescue()
	if g, b := r.wrote, s.loop.batch; g != nil {
		out := b.out[r.out[0]:r.out[1]]
		size := 0
		for _, p := range out {
			size += len(p)
		}
		switch n, errno := b.ring.Result(r.write); errno {
		case unix.EINTR: // it was not made
			n, full, err := s.loop.sender.Send(g.fd, out)
			s.wrote(g, n, full, err)
		case unix.EAGAIN:
			s.wrote(g, 0, true, nil)
		case 0:
			s.wrote(g, n, n < size, nil)
		default:
			s.wrote(g, 0, false, errno)
		}
	}
	s.leaveBatch()
	s.settle()
}
