package sim

import (
	"fmt"
	"hash/crc32"
	"hash/maphash"

	"reseat/gateway/session"
)

// The model driver calls the core only in ways that a driver may. In the styles raw and
// blocking, writes and reads are in flight while other calls are made; in the style
// poll each completes at once. The driver checks that what the core lent stays
// unchanged, and overwrites read buffers with garbage as soon as the core must not use
// them.

type style uint8

const (
	raw      style = iota // write what fits, report, wait until writable
	blocking              // one long write at a time, from the core's own memory
	poll                  // nothing overlaps
)

// A leg is one socket of a session.
type leg struct {
	g       *game
	conn    *conn
	att     *session.Attachment // of a client
	ups     *upstream           // of an upstream; exactly one of the two is set
	gen     uint64              // the generation of its hello
	repeats uint64              // of a durable session's client: that are still to come
	tap     *tap                // checks what is written to a client

	// Writing.
	writing  bool // a write is in flight, or waits
	waiting  bool // the socket was full
	failing  bool // every further write fails
	flying   flight
	owner    *leg // the client reader during whose call an upstream write is in flight
	lastOut  session.Time
	reported uint64 // the newest message reported as written

	// Reading.
	buf     []byte // a client reader's buffer
	hand    []byte // read, and not passed to the core yet
	room    []byte // of the replay buffer, lent to the upstream's reader
	roomN   int    // what was read into it; -1: nothing yet
	roomSum uint64
	owes    bool // Retain must be called for what is in buf
	over    bool // the reader found the end, or stopped
	found   bool // the end was found and not reported yet
	lastIn  session.Time

	parting, lingering, closed, overdue bool
	deadline                            session.Time
}

// A flight is output that the core handed out.
type flight struct {
	up    bool
	bufs  [][]byte
	total int
	taken int // accepted by the network
	sum   uint64
	shut  bool // the socket failed
	final bool // for an upstream, and nothing from the session's queue
}

var hashSeed = maphash.MakeSeed()

func sumOf(bufs [][]byte) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	for _, b := range bufs {
		h.Write(b)
	}
	return h.Sum64()
}

func (l *leg) closeMode() session.CloseMode {
	return l.leg().CloseMode()
}

// leg returns the core's name for l.
func (l *leg) leg() session.Leg {
	if l.ups != nil {
		return l.ups.ten
	}
	return l.att
}

// begin asks the core for output.
func (l *leg) begin() bool {
	g, f := l.g, &l.flying
	if g.style == blocking {
		g.core.Retain()
	}
	if l.ups != nil {
		g.sync(false)
	}
	f.bufs = g.core.Out(g.w.now, l.leg(), f.bufs[:0])
	live := l.ups == nil && !l.stale()
	if live {
		g.life.handed(f.bufs)
	}
	if g.style == blocking && len(f.bufs) > 0 {
		if live {
			g.life.waits()
		}
		g.core.WriteBlocks(g.w.now, l.leg())
	}
	f.total, f.taken, f.shut = 0, 0, false
	for _, b := range f.bufs {
		f.total += len(b)
	}
	f.up = f.total > 0
	f.final = l.ups != nil && (l.ups.replaced || f.total == l.ups.wordLeft())
	if f.up {
		f.sum = sumOf(f.bufs)
	}
	return f.up
}

// accept lets the network accept some of the output in flight.
func (l *leg) accept(all bool) bool {
	f := &l.flying
	if !f.up || f.shut {
		return false
	}
	if l.closed || l.conn.out.rst {
		f.shut = true
		return true
	}
	n := min(f.total-f.taken, l.conn.out.room())
	if silent := l.conn.in.hole || l.conn.out.hole; l.conn.deaf && !silent && (n == 0 || l.g.w.chance(300)) {
		l.conn.out.rst = true // the peer has closed its socket
		return true
	}
	if n == 0 {
		return false
	}
	if !all {
		n = l.g.w.piece(n)
	}
	l.verify()
	l.each(f.taken, f.taken+n, l.put)
	f.taken += n
	return true
}

// each calls do with the bytes of the flight between two offsets.
func (l *leg) each(from, to int, do func([]byte)) {
	at := 0
	for _, b := range l.flying.bufs {
		lo, hi := max(from-at, 0), min(to-at, len(b))
		if lo < hi {
			do(b[lo:hi])
		}
		at += len(b)
	}
}

func (l *leg) put(b []byte) {
	l.g.w.bytes = crc32.Update(l.g.w.bytes, crc32.IEEETable, b)
	switch {
	case l.ups != nil:
		l.ups.accept(b)
	default:
		l.conn.out.write(b)
		if l.conn.out.hole && !l.conn.inHole {
			l.conn.inHole = true
			l.g.w.cov.hit("R8")
		}
		l.tap.accept(b)
	}
}

// verify checks that the output stays unchanged until the report.
func (l *leg) verify() {
	if sumOf(l.flying.bufs) != l.flying.sum {
		l.g.fail("I14", "bytes in flight to %s changed", l.name())
	}
}

func (l *leg) name() string {
	if l.ups != nil {
		return fmt.Sprintf("upstream %d", l.ups.no)
	}
	return "a client"
}

// report ends a write, tells the core, and then settles.
func (l *leg) report() {
	g, f := l.g, &l.flying
	failed := f.shut || l.closed
	g.log("wrote "+l.name(), int64(f.taken), int64(f.total))
	n, short := l.wrote()
	clear(f.bufs)
	switch {
	case failed:
		l.writing, l.waiting = false, false
		l.failed()
	case g.style == raw && !l.waiting && short:
		l.waiting = true
	case l.waiting && n == 0:
	default:
		l.writing = l.begin()
		l.waiting = l.waiting && l.writing
	}
	l.landed()
}

// landed releases the reader whose write this was, unless it continues.
func (l *leg) landed() {
	if o := l.owner; o != nil && (!l.flying.up || l.waiting) {
		l.owner = nil
		l.g.finishRead(o)
	}
	if !l.writing {
		l.g.closeLeg(l)
	}
	l.g.settle()
}

// failed tells the core that the socket accepts nothing more.
func (l *leg) failed() {
	l.g.log("write failed "+l.name(), 0, 0)
	if l.ups != nil {
		l.failing = true
		l.g.upstreamDeaf(l)
		return
	}
	l.g.clientDeaf(l)
	l.close(l.closeMode())
}

// retry writes again to a socket that was full.
func (l *leg) retry() bool {
	if !l.waiting || l.flying.up {
		return false
	}
	if l.conn.out.room() == 0 && !l.closed && !l.conn.out.rst && !l.g.w.chance(20) {
		return false
	}
	switch {
	case l.g.style == poll:
		l.writing, l.waiting = false, false
		l.g.flush(l)
		l.g.settle()
	case l.closed || !l.begin():
		l.writing, l.waiting = false, false
		l.landed()
	}
	return true
}

// flush starts to write the core's output for l.
func (g *game) flush(l *leg) {
	for !l.writing && !l.closed {
		if !l.begin() {
			break
		}
		l.writing = true
		if g.style != poll {
			break
		}
		l.accept(g.w.chance(700))
		l.reportPoll()
	}
	g.closeLeg(l)
}

// wrote tells the core how much of the flight the network has accepted.
func (l *leg) wrote() (n int, short bool) {
	f := &l.flying
	l.verify()
	n, short = f.taken, f.taken < f.total
	f.up = false
	if l.ups != nil {
		l.g.upstreamWrote(l, n)
	} else {
		l.g.clientWrote(l, n, short)
	}
	if n > 0 {
		l.lastOut = l.g.w.now
	}
	return n, short
}

// reportPoll is report without settle.
func (l *leg) reportPoll() {
	f := &l.flying
	_, short := l.wrote()
	l.writing, l.waiting = short && !f.shut, short && !f.shut
	if f.shut {
		l.failed()
	}
}

// settle does what a driver does after every call of the core.
func (g *game) settle() {
	g.flush(g.up)
	if l := g.down; l != nil {
		g.flush(l)
		if l.closed && g.down == l {
			g.down = nil
		}
	}
}

// closeLeg closes l as the core asks.
func (g *game) closeLeg(l *leg) {
	mode := l.closeMode()
	if mode == session.Open || l.closed {
		return
	}
	if mode >= session.Shut {
		l.close(mode)
		return
	}
	if !l.parting {
		l.parting = true
		l.deadline = g.w.now.Add(flushFor(l))
	}
	if !l.writing && !l.lingering {
		l.lingering = true
		l.deadline = g.w.now.Add(lingerFor)
		if l.ups == nil {
			l.conn.out.fin = true
			l.tap.finished()
		} else {
			l.ups.finished()
		}
	}
}

// close closes the socket.
func (l *leg) close(f session.CloseMode) {
	if l.closed {
		return
	}
	l.closed = true
	l.g.log("closed "+l.name(), int64(f), 0)
	if l.ups != nil {
		l.g.upstreamDeaf(l) // or the core would keep its queue
	}
	l.conn.closeGateway(f == session.Reset)
}

// late handles a deadline of l that has passed.
func (l *leg) late() bool {
	if l.closed || !l.parting || l.g.w.now < l.deadline {
		return false
	}
	if l.overdue = true; l == l.g.up && !l.ups.replaced {
		l.g.upLate = true
	}
	if l.writing {
		l.flying.shut = true
		if !l.flying.up {
			l.writing, l.waiting = false, false
			l.failed()
			l.landed()
		}
		l.deadline = l.g.w.now.Add(lingerFor)
		return true
	}
	if l.ups != nil && l.g.w.chance(500) {
		l.g.upstreamGone(l) // its reader met the deadline
	}
	l.over = true
	l.close(session.Shut)
	return true
}
