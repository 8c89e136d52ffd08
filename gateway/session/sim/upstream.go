package sim

import (
	"strconv"

	"reseat/gateway/session"
)

// The model upstream is an ordinary WebSocket server. It sends numbered
// messages in fragments of any size, with Pings in between, reads slowly or
// not at all, and leaves with a Close, without one, or by breaking RFC 6455.
// Everything that is written to its connection is checked as it is accepted.

type upstream struct {
	g    *game
	conn *conn
	says flow

	// What it sends. sums[n] is the payload of its messages 1 to n as a
	// replay buffer holds them, an escaping DLE included.
	out    []byte
	sent   uint64
	sums   []int64
	plain  []int64 // the same without the DLE
	pings  int
	marks  []uint64 // where messages end in its stream that were not read yet
	done   uint64   // messages that were read
	doneAt session.Time
	doneTo uint64

	echo    bool // it answers each message with one, and does not read while it cannot write
	stalled bool // it reads nothing

	// How it left.
	over   bool
	code   int    // of its Close; 0: it just broke
	reason string //
	wrong  string // the rule that it broke
	gone   bool   // the driver found its end

	// What was written to it.
	tap      decoder
	got      uint64 // the client's messages
	ends     []uint64
	taken    uint64 // of these, what its application has read
	ponged   int
	closed   bool // a Close came
	gotCode  int
	gotText  string
	admitted uint64 // by the core, when the Close came
}

// maxOut is what a peer's socket and application hold back before they stop
// making more.
const maxOut = 64 << 10

func newUpstream(g *game) *upstream {
	u := &upstream{g: g, conn: newConn(0, g.w.capacity()), doneAt: g.w.now, sums: []int64{0}, plain: []int64{0}}
	u.tap = decoder{masked: true, key: g.freshKey}
	return u
}

// send makes the next message.
func (u *upstream) send() bool {
	if u.over || u.conn.gateway || len(u.out) > maxOut {
		return false
	}
	u.sent++
	m := u.says.message(u.sent)
	kept := int64(m.size)
	if m.escaped() && u.g.cfg.Resumable {
		kept++
	}
	u.sums = append(u.sums, u.sums[len(u.sums)-1]+kept)
	u.plain = append(u.plain, u.plain[u.sent-1]+int64(m.size))
	u.g.log("up send", int64(u.sent), int64(m.size))
	u.frames(m)
	u.marks = append(u.marks, u.conn.in.put+uint64(len(u.out)))
	return true
}

// frames encodes m, in one frame or many.
func (u *upstream) frames(m message) {
	w := u.g.w
	p := m.append(w.scratch[:0])
	w.scratch = p[:0]
	op := m.op
	for pieces := u.fragments(); pieces > 1; pieces-- {
		n := w.rng.IntN(len(p) + 1)
		u.out = appendFrame(u.out, op, nil, p[:n])
		p, op = p[n:], opMore
		if w.chance(200) {
			u.ping()
		}
	}
	u.out = appendFrame(u.out, 0x80|op, nil, p)
}

func (u *upstream) fragments() int {
	if !u.g.w.chance(250) {
		return 1
	}
	return 2 + u.g.w.rng.IntN(4)
}

func (u *upstream) ping() {
	u.pings++
	p := strconv.AppendInt(nil, int64(u.pings), 10)
	for u.g.w.chance(100) && len(p) < 100 {
		p = append(p, " padded to be longer     "...)
	}
	u.out = appendFrame(u.out, 0x80|opPing, nil, p)
}

// write puts what it has to send on the wire.
func (u *upstream) write() bool {
	n := min(u.conn.in.room(), len(u.out))
	if n == 0 {
		return false
	}
	n = u.g.w.piece(n)
	u.conn.in.write(u.out[:n])
	u.out = u.out[n:]
	return true
}

// leave sends Close, perhaps in the midst of a message, and says no more.
func (u *upstream) leave(code int, reason string) bool {
	if u.over {
		return false
	}
	if u.g.w.chance(200) { // RFC 6455 section 5.4: a Close may stand between fragments
		u.out = appendFrame(u.out, opBinary, nil, make([]byte, u.g.w.rng.IntN(2000)))
	}
	u.over, u.code, u.reason = true, code, reason
	u.g.log("up close", int64(code), int64(u.sent))
	u.out = appendFrame(u.out, 0x80|opClose, nil, closeFrame(code, reason))
	return true
}

// crash breaks the connection without a Close: everything that was sent still
// arrives, or it does not.
func (u *upstream) crash() bool {
	if u.over {
		return false
	}
	u.over = true
	u.g.log("up crash", int64(u.sent), int64(len(u.out)))
	u.out = nil
	if u.g.w.chance(500) {
		u.conn.cut(u.g.w)
	} else {
		u.conn.hangUp()
	}
	return true
}

// consume reads what was written to it.
func (u *upstream) consume() bool {
	n := len(u.conn.out.buf)
	if n == 0 || u.stalled || u.conn.deaf || u.echo && len(u.out) > 0 {
		return false
	}
	u.conn.out.read(u.g.w.piece(n))
	for len(u.ends) > 0 && u.ends[0] <= u.conn.out.got {
		u.ends = u.ends[1:]
		u.taken++
		if u.echo {
			u.send()
		}
	}
	if u.closed && len(u.conn.out.buf) == 0 {
		u.answerClose()
	}
	return true
}

func (u *upstream) answerClose() {
	if u.leave(u.gotCode, "") {
		u.conn.in.write(u.out)
		u.out = nil
	}
	u.conn.hangUp()
}

// accept takes in what was written to the upstream's connection, checks it and
// puts it on the wire.
func (u *upstream) accept(b []byte) {
	u.conn.out.write(b)
	u.tap.feed(b)
	for {
		a, ok, bad := u.tap.next()
		if bad != "" {
			u.g.fail("I2", "the upstream got a broken frame: %s", bad)
		}
		if !ok {
			return
		}
		if u.closed {
			u.g.fail("I10", "the upstream got something behind a Close: opcode %d", a.op)
		}
		u.arrived(a)
	}
}

func (u *upstream) arrived(a arrival) {
	switch a.op {
	case opText, opBinary:
		u.got++
		m := u.g.cli.says.message(u.got)
		if m.op != a.op || !m.equal(a.p) {
			u.g.fail("I2", "the upstream got opcode %d of %d bytes for message %d, want opcode %d of %d bytes", a.op, len(a.p), u.got, m.op, m.size)
		}
		if u.got > u.g.cli.sent {
			u.g.fail("I2", "the upstream got message %d, the client has sent %d", u.got, u.g.cli.sent)
		}
		u.ends = append(u.ends, u.conn.out.put-uint64(len(u.tap.buf)-u.tap.at))
	case opPong:
		if n, err := strconv.Atoi(firstWord(a.p)); err != nil || n <= u.ponged || n > u.pings {
			u.g.fail("I2", "the upstream got the pong %q after %d of %d", a.p, u.ponged, u.pings)
		} else {
			u.ponged = n
		}
	case opPing:
		if !u.over && !u.g.silent {
			u.out = appendFrame(u.out, 0x80|opPong, nil, nil)
		}
	case opClose:
		u.closed = true
		u.gotCode, u.gotText = 1005, ""
		if len(a.p) >= 2 {
			u.gotCode, u.gotText = int(a.p[0])<<8|int(a.p[1]), string(a.p[2:])
		}
		u.admitted = u.g.core.Info().Received
		u.g.log("up got close", int64(u.gotCode), int64(u.got))
	}
}

// between reports whether what was read ends with a message.
func (u *upstream) between() bool { return u.whole() > 0 && u.conn.in.got == u.doneTo }

// whole is how many of its messages the driver has read to their end.
func (u *upstream) whole() uint64 {
	for len(u.marks) > 0 && u.marks[0] <= u.conn.in.got {
		u.doneTo, u.marks = u.marks[0], u.marks[1:]
		u.done++
		if !u.g.upOver() {
			u.doneAt = u.g.w.now
		}
	}
	return u.done
}

func firstWord(p []byte) string {
	for i, c := range p {
		if c == ' ' {
			return string(p[:i])
		}
	}
	return string(p)
}
