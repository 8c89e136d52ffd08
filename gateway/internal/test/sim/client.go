package sim

import (
	"fmt"
	"time"

	"reseat/gateway/session"
)

// The model client is written from the protocol document alone: it counts,
// acks, resends what a hello says is missing, keeps to the unacked limits, and
// tries again until it is told not to. With rogue set it has broken the
// protocol once, and expects to be ended for it.

// The limits of every hello.
const (
	windowMessages = 1024
	windowBytes    = 1 << 20
)

type client struct {
	g    *game
	says flow

	token  token
	grace  int64  // ms, as it was told last
	count  uint64 // N: messages taken in, or told to be lost
	lost   uint64 // of these
	hellos int

	queued uint64  // messages that the application has given to it
	sent   uint64  // of these, ever put on a connection
	acked  uint64  // by the gateway
	sums   []int64 // sums[n] is the payload of messages 1 to n

	live      *link // the newest that has had its hello, while it lasts
	trying    *link // the attempt under way
	abandoned int   // hellos seen when an attempt was abandoned last; -1: none
	retryAt   session.Time

	goneAt      session.Time  // when the newest connection was lost; zero: it is there
	answer      time.Duration // answer_ms of hello
	rtt         time.Duration // as its own pings have measured it
	suspectAt   session.Time  // when it may suspect its connection again
	falseAlarms int           // in a row

	deadly   uint64 // the message that kills it each time; 0: none
	lazy     int    // how it acks: of 1000 messages so many at once
	closing  bool
	bye      int // the code of its bye
	byeText  string
	done     bool
	outcome  string
	rogue    int  // which rule it has broken
	heedless bool // of the window
}

// A link is one connection, seen from the client.
type link struct {
	c *client
	*conn
	dec     decoder
	pending []byte // not yet in the network
	marks   []mark // what it holds, as far as it was not read

	stated uint64 // N of its resume
	lost   uint64 // of its hello
	came   uint64 // data messages, repeats included
	hello  int    // which hello of the client's it had; 0: none yet
	next   uint64 // the next of the client's messages to send
	byeing bool   // bye is sent: nothing follows
	closes bool   // the other side's Close has come, and its own is still to be sent

	told    uint64 // acked here
	pings   uint64
	watch   watch
	owed    int // messages not acked
	owedB   int // and their bytes
	owedFor session.Time

	opened, heard session.Time
	gap           time.Duration // between two times that it was heard, as a rule
	shaken        bool          // its 101 has come
	suspicion     bool          // it was begun beside a live connection that had fallen silent
	speaks        bool          // what came last was a sign of life
	closed        bool          // a Close was sent
	lostAt        bool          // it is dead to the client
	last          bool          // by end, or close 4502: its answer to the Close ends the session
	rogueEnd      uint64        // where the bytes that break the protocol end
}

// A mark is where something that the core must react to ends in what a link
// sends.
type mark struct {
	kind markKind
	end  uint64
	n    uint64 // of an ack, or what a pong says
}

type markKind uint8

const (
	markData markKind = iota
	markAck
	markPing   // the protocol's
	markWSPing // RFC 6455's
	markAnswer // to a Close that ends the session
	markPong   // the protocol's, or RFC 6455's
	markClose  // a plain client's that is passed on
)

func (l *link) mark(kind markKind, n uint64) {
	l.marks = append(l.marks, mark{kind, l.in.put + uint64(len(l.pending)), n})
}

// A token is what the gateway signs, here in the clear.
type token struct {
	gen     uint64
	expires session.Time
}

func newClient(g *game) *client {
	return &client{g: g, sums: []int64{0}, abandoned: -1}
}

// connect opens the session's first connection.
func (c *client) connect() *link {
	l := c.newLink()
	c.trying = l
	if !c.g.cfg.Resumable {
		c.live, c.trying, l.hello = l, nil, 1
	}
	return l
}

func (c *client) newLink() *link {
	w := c.g.w
	l := &link{c: c, conn: c.g.connection(), opened: w.now, heard: w.now, next: 1}
	l.mute(c.g.lineDown, c.g.lineDown)
	return l
}

// resume begins an attempt to come back.
func (c *client) resume() bool {
	w := c.g.w
	if c.done || c.trying != nil || c.token.gen == 0 || w.now < c.retryAt || len(c.g.tries) > 4 {
		return false
	}
	l := c.newLink()
	l.stated = c.count
	c.trying = l
	c.g.tries = append(c.g.tries, &attempt{link: l, conn: l.conn, token: c.token, received: c.count, came: w.now})
	c.g.log("cl resume", int64(c.token.gen), int64(c.count))
	return true
}

// abandon gives up the attempt under way; the gateway may still serve it.
func (c *client) abandon() bool {
	l := c.trying
	if l == nil || c.token.gen == 0 {
		return false
	}
	c.g.log("cl abandon", int64(l.id), 0)
	l.drop()
	return true
}

// queue is the application sending a message.
func (c *client) queue() bool {
	if c.done || c.closing || c.queued-c.sent > 64 {
		return false
	}
	c.queueOne()
	return true
}

func (c *client) queueOne() {
	c.queued++
	m := c.says.message(c.queued)
	c.sums = append(c.sums, c.sums[c.queued-1]+int64(m.size))
}

// fits reports whether message n may be sent: protocol section 5, limits.
// What was sent and not acked counts, whatever a hello said.
func (c *client) fits(n uint64) bool {
	if !c.g.cfg.Resumable || c.heedless || n <= c.sent || c.sent == c.acked {
		return true
	}
	return c.sent-c.acked < windowMessages && c.sums[n]-c.sums[c.acked] <= windowBytes
}

// send encodes the next message for l.
func (c *client) send(l *link) bool {
	n := l.next
	if l != c.live || n > c.queued || l.closed || l.byeing || len(l.pending) > maxOut || !c.fits(n) {
		return false
	}
	l.next++
	c.sent = max(c.sent, n)
	m := c.says.message(n)
	w := c.g.w
	p := w.scratch[:0]
	if m.escaped() && c.g.cfg.Resumable {
		p = append(p, dle)
	}
	p = m.append(p)
	w.scratch = p[:0]
	c.g.log("cl send", int64(n), int64(m.size))
	l.frames(m.op, p)
	l.mark(markData, n)
	l.watch.unacked = append(l.watch.unacked, unacked{n, w.now})
	return true
}

// frames encodes a message in one frame or many, each with a key of its own.
func (l *link) frames(op byte, p []byte) {
	w := l.c.g.w
	if w.chance(150) {
		for pieces := 1 + w.rng.IntN(4); pieces > 0; pieces-- {
			n := w.rng.IntN(len(p) + 1)
			l.frame(op, p[:n])
			p, op = p[n:], opMore
			if w.chance(150) {
				l.wsPing("between")
			}
		}
	}
	l.frame(0x80|op, p)
}

func (l *link) frame(first byte, p []byte) {
	key := l.c.g.w.key()
	l.pending = appendFrame(l.pending, first, &key, p)
}

func (l *link) wsPing(text string) {
	l.frame(0x80|opPing, []byte(text))
	l.mark(markWSPing, 0)
}

// say sends a control message.
func (l *link) say(text string) { l.frame(0x80|opText, []byte("\x10"+text)) }

func (l *link) sayAck(n uint64) {
	l.say(fmt.Sprint("ack ", n))
	l.mark(markAck, n)
}

// write puts what l has to send on the wire.
func (l *link) write() bool {
	n := min(l.in.room(), len(l.pending))
	if n == 0 || l.lostAt {
		return false
	}
	n = l.c.g.w.piece(n)
	l.in.write(l.pending[:n])
	l.pending = l.pending[n:]
	return true
}

// ackable is the newest message that l may ack: not beyond what has come on
// it, and on an older connection not beyond the N that a resume has stated.
func (l *link) ackable() uint64 {
	n := min(l.c.count, l.stated+l.lost+l.came)
	if t := l.c.trying; t != nil && t != l {
		n = min(n, t.stated)
	}
	return n
}

// ack tells the gateway what has been taken in.
func (l *link) ack() bool {
	n := l.ackable()
	if l.closed || l.lostAt || !l.c.g.cfg.Resumable || n < l.told || n == l.told && l.owed == 0 {
		return false
	}
	l.owed, l.owedB, l.owedFor = 0, 0, 0
	if n > l.told {
		l.told = n
		l.c.g.log("cl ack", int64(n), int64(l.id))
		l.sayAck(n)
	}
	return true
}

// sayBye closes the session for the application, once all before it is sent.
func (c *client) sayBye() bool {
	l := c.live
	if c.done || !c.closing || l == nil || l.byeing || l.closed || l.next <= c.queued {
		return false
	}
	l.byeing = true
	c.g.log("cl bye", int64(c.bye), int64(c.sent))
	if !c.g.cfg.Resumable {
		l.frame(0x80|opClose, closeFrame(c.bye, c.byeText))
		l.closed = true
		if c.bye != 1001 || !c.g.cfg.Kept {
			l.mark(markClose, 0)
		}
		if l.closes {
			c.finish("close")
			l.leaving()
		}
		return true
	}
	if c.bye == 1000 && c.byeText == "" && c.g.w.chance(500) {
		l.say("bye")
	} else {
		l.say(fmt.Sprintf(`bye {"code":%d,"reason":%q,"x":[1]}`, c.bye, c.byeText))
	}
	if c.g.w.chance(500) {
		l.frame(0x80|opClose, closeFrame(c.bye, c.byeText))
		l.closed = true
	}
	return true
}

// close begins to close the session.
func (c *client) close(code int, text string) bool {
	if c.done || c.closing || c.g.cfg.Resumable && c.token.gen == 0 {
		return false
	}
	c.closing, c.bye, c.byeText = true, code, text
	return true
}

// drop is the client closing its socket: what it has written may arrive.
func (l *link) drop() {
	if l.lostAt {
		return
	}
	l.lostAt = true
	if l.in.hole || l.c.g.w.chance(500) {
		l.hangUp()
	} else {
		l.cut(l.c.g.w)
		l.deaf = true
	}
	if l.c.live == l {
		l.c.live, l.c.goneAt = nil, l.c.g.w.now
	}
	if l.c.trying == l {
		l.c.trying = nil
		l.c.abandoned = l.c.hellos // lost before its hello: the gateway may yet serve it
	}
}

// finish ends the session for the client.
func (c *client) finish(outcome string) {
	if c.done {
		return
	}
	c.done, c.outcome = true, outcome
	c.g.log("cl done", int64(c.count), int64(c.sent), outcome)
}

// quit leaves every connection behind, as a closed page does.
func (c *client) quit() {
	for _, l := range []*link{c.live, c.trying} {
		if l != nil {
			l.drop()
		}
	}
}

// due is when the client's clock wants it to act; zero: not at all.
func (c *client) due() session.Time {
	if c.done {
		return 0
	}
	var t session.Time
	for _, l := range []*link{c.live, c.trying} {
		if l == nil {
			continue
		}
		if l.owedFor > 0 {
			t = earlier(t, l.owedFor.Add(time.Second))
		}
		t = earlier(t, max(l.heard, l.watch.excused).Add(l.patience()))
	}
	if c.live != nil {
		ping, dead := c.live.answerDue()
		t = earlier(t, earlier(ping, dead))
	}
	if c.trying == nil && c.live == nil && c.retryAt > c.g.w.now {
		t = earlier(t, c.retryAt)
	}
	return t
}

// patience is how long l may be silent: twice the heartbeat, and 15 s for the
// hello of a resume.
func (l *link) patience() time.Duration {
	hb := 2 * l.c.g.cfg.Heartbeat
	switch {
	case l.suspicion && !l.shaken:
		return max(suspectEvery, 4*l.c.rtt)
	case l.hello == 0:
		return max(hb, 15*time.Second)
	}
	if !l.c.g.keeps() {
		return time.Hour
	}
	return hb + time.Second // its own clock is slower than the gateway's
}

// tick does what is due by now.
func (c *client) tick(now session.Time) {
	if due := c.due(); due > 0 && now.Sub(due) > standstill { // it stood still, and has yet to read what waits
		for _, l := range []*link{c.live, c.trying} {
			if l != nil {
				l.watch.excused = now
			}
		}
	}
	if l := c.live; l != nil && l.owedFor > 0 && now >= l.owedFor.Add(time.Second) {
		if !l.ack() {
			l.owedFor = 0 // it may not, until its resume is decided
		}
	}
	if l := c.live; l != nil {
		l.tickAnswer(now)
	}
	if l := c.live; l != nil && now >= max(l.heard, l.watch.excused).Add(l.patience()) {
		c.g.log("cl silence", int64(l.id), 0)
		l.drop()
	}
	if l := c.trying; l != nil && now >= max(l.heard, l.watch.excused).Add(l.patience()) {
		if !c.abandon() { // a first connection: nothing to come back to
			l.drop()
			c.finish("no hello")
		}
	}
}

func earlier(a, b session.Time) session.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
