package sim

import (
	"strconv"
	"strings"

	"reseat/gateway/session"
)

// The model upstream is one connection of an ordinary WebSocket server: it sends
// messages in fragments of any size, with Pings between them, reads slowly or not at
// all, and disconnects with a Close, without one, or by violating RFC 6455. Everything
// written to its connection is checked when it is accepted. A session has one, or under
// --disconnect hard one after another.

type upstream struct {
	g    *game
	conn *conn
	leg  *leg
	ten  *session.Upstream // the core's name for it
	no   int               // which of its owner's upstreams it is, from 1
	told promise           // what its dial stated
	nth  int               // messages of it that were numbered
	says flow

	// What it sends.
	out    []byte
	made   uint64 // messages
	items  []item // sent, and not yet processed by the core
	handed uint64 // bytes of its stream passed to the core
	doneTo uint64 // offset of the end of the last message that the core has processed
	doneAt session.Time
	pings  int

	echo    bool // it answers each message with one, and does not read while it can't write
	stalled bool // it reads nothing

	// How it disconnected.
	over   bool
	code   int    // of its Close; 0: it disconnected without one
	reason string //
	wrong  string // the rule that it violated

	// --disconnect hard: the session has replaced it.
	replaced bool
	parting  int    // with the code with which it went away; 0: its connection broke, or hard
	partText string // and the reason in the Close frame that it gets for it
	byeText  string // the reason in the one that it gets otherwise
	broken   bool   // its connection broke
	gone     bool   // the driver has reported its end
	torn     bool   // within a message, which goes to the next one in full
	replace  bool   // the next one was connected while its write was in flight
	stays    bool   // it has ended the session during a hand-off

	// What was written to it.
	tap      decoder
	first    string // a text that must be received first; "": none
	last     string // and, once replaced, the one before the Close
	received uint64 // the client's messages
	ends     []uint64
	read     uint64 // of these, read by its application
	ponged   int
	closed   bool // a Close was received
	gotCode  int
	gotText  string
}

// maxOut is how much a peer's socket and application queue before the peer stops
// sending.
const maxOut = 64 << 10

func newUpstream(g *game, told promise) *upstream {
	w := g.w
	u := &upstream{g: g, conn: newConn(0, w.capacity()), doneAt: w.now, no: 1}
	u.says = flow{seed: w.rng.Uint64(), texts: uint64(w.rng.IntN(17)), sizes: w.sizes, limit: int(w.maxMessage)}
	u.echo = w.chance(250) && !w.scarce
	u.hears(told)
	u.tap = decoder{masked: true, key: g.freshKey}
	u.leg = &leg{g: g, conn: u.conn, ups: u, lastIn: w.now, lastOut: w.now}
	return u
}

// early returns what it sends right after its handshake response.
// With leaves it goes away again at once.
func (u *upstream) early(leaves bool) []byte {
	w := u.g.w
	if !leaves && !w.chance(200) {
		return nil
	}
	for range 1 + w.rng.IntN(5) {
		u.send()
	}
	n := w.rng.IntN(min(len(u.out), maxEarly) + 1)
	if leaves && u.leave(pick(w, 1001, 1012), "") {
		n = min(len(u.out), maxEarly)
	}
	early := u.out[:n]
	u.out = u.out[len(early):]
	u.conn.in.put, u.conn.in.got, u.handed = uint64(len(early)), uint64(len(early)), uint64(len(early))
	return early
}

// send makes the next message.
func (u *upstream) send() bool {
	if u.over || u.conn.gateway || len(u.out) > maxOut || !u.newest() {
		return false
	}
	u.made++
	m := u.says.message(u.made)
	u.g.line.logs(u)
	if in, ok := u.g.heartbeat(); ok {
		m = in
	}
	u.g.log("up send", int64(u.made), int64(m.size))
	it := item{m: m, made: u.made, reply: u.g.replyTo(m), begin: u.conn.in.put + uint64(len(u.out))}
	it.single = u.frames(m)
	it.end = u.conn.in.put + uint64(len(u.out))
	u.items = append(u.items, it)
	return true
}

// frames encodes m, and reports whether it used one frame.
func (u *upstream) frames(m message) (single bool) {
	w := u.g.w
	p := m.append(w.scratch[:0])
	w.scratch = p[:0]
	op, pieces := m.op, u.fragments()
	for range pieces - 1 {
		n := w.rng.IntN(len(p) + 1)
		u.out = appendFrame(u.out, op, nil, p[:n])
		p, op = p[n:], opMore
		if w.chance(200) {
			u.ping()
		}
	}
	u.out = appendFrame(u.out, 0x80|op, nil, p)
	return pieces == 1
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

// write moves its output into the network.
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

// leave sends Close, perhaps within a message, and then nothing more.
func (u *upstream) leave(code int, reason string) bool {
	if u.over {
		return false
	}
	if u.g.w.chance(200) { // RFC 6455 section 5.4: a Close may stand between fragments
		u.out = appendFrame(u.out, opBinary, nil, make([]byte, min(u.g.w.rng.IntN(2000), int(u.g.cfg.MaxMessage))))
	}
	u.over, u.code, u.reason = true, code, reason
	u.g.log("up close", int64(code), int64(u.made))
	u.out = appendFrame(u.out, 0x80|opClose, nil, closeFrame(code, reason))
	if u.g.w.chance(100) { // what follows it counts for nothing
		u.out = appendFrame(u.out, 0x80|opText, nil, []byte("after the end"))
	}
	return true
}

// crash breaks the connection without a Close: what was sent arrives, or not.
func (u *upstream) crash() bool {
	if u.over {
		return false
	}
	u.over = true
	u.g.log("up crash", int64(u.made), int64(len(u.out)))
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
	if n == 0 && u.closed && !u.stalled && !u.conn.deaf {
		return u.answerClose()
	}
	if n == 0 || u.stalled || u.conn.deaf || u.echo && len(u.out) > 0 {
		return false
	}
	u.conn.out.read(u.g.w.piece(n))
	for len(u.ends) > 0 && u.ends[0] <= u.conn.out.got {
		u.ends = u.ends[1:]
		u.read++
		if u.echo {
			u.send()
		}
	}
	if u.closed && len(u.conn.out.buf) == 0 && u.g.w.chance(500) {
		u.answerClose()
	}
	return true
}

// answerClose answers a received Close, perhaps with another code, and perhaps after
// its remaining output.
func (u *upstream) answerClose() bool {
	w := u.g.w
	if !u.over && !w.calm && w.chance(600) {
		return u.send()
	}
	code := u.gotCode
	if w.chance(300) {
		code = 4321
	}
	if len(u.out) > 0 && !u.conn.gateway { // in flight
		return u.write()
	}
	if u.leave(code, "") {
		u.conn.in.write(u.out)
		u.out = nil
	}
	u.conn.hangUp()
	return true
}

// leaves closes the socket after a Close was received.
func (u *upstream) leaves() bool {
	if !u.conn.gateway || u.conn.deaf {
		return false
	}
	u.over = true
	u.conn.hangUp()
	return true
}

// accept checks what was written to the upstream's connection, and moves it into the
// network.
func (u *upstream) accept(b []byte) {
	if u.torn {
		u.g.fail("I2", "upstream %d has half of a message, and %d bytes follow", u.no, len(b))
	}
	u.conn.out.write(b)
	u.tap.feed(b)
	for {
		a, ok, bad := u.tap.next()
		if bad != "" {
			u.g.fail("I2", "upstream %d got a broken frame: %s", u.no, bad)
		}
		if !ok {
			return
		}
		if u.closed {
			u.g.fail("I10", "upstream %d got something behind a Close: opcode %d", u.no, a.op)
		}
		u.arrived(a)
	}
}

func (u *upstream) arrived(a arrival) {
	switch a.op {
	case opText, opBinary:
		u.data(a)
	case opPong:
		word, _, _ := strings.Cut(string(a.p), " ")
		if n, err := strconv.Atoi(word); err != nil || n <= u.ponged || n > u.pings {
			u.g.fail("I2", "upstream %d got the pong %q after %d of %d", u.no, a.p, u.ponged, u.pings)
		} else {
			u.ponged = n
		}
	case opPing:
		if !u.over && !u.g.silent {
			u.out = appendFrame(u.out, 0x80|opPong, nil, nil)
		}
	case opClose:
		u.closed = true
		u.gotCode, u.gotText = parseClose(a.p)
		u.g.log("up got close", int64(u.gotCode), int64(u.received))
		u.gotClose()
	}
}

// between reports whether the input of the core ends with a complete message.
func (u *upstream) between() bool { return u.doneTo > 0 && u.handed == u.doneTo }
