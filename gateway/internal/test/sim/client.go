package sim

import (
	"fmt"
	"time"

	"reseat/gateway/session"
)

// The model client is written from the protocol document alone: it counts, acks,
// resends what a hello reports missing, keeps to the unacked limits, and retries until
// the gateway refuses. With rogue set it has violated the protocol once, and expects
// the session to end for that.

// The limits in every hello.
const (
	windowMessages = 1024
	windowBytes    = 1 << 20
)

type client struct {
	g    *game
	says flow

	token  token
	grace  int64  // in ms, the newest value received
	count  uint64 // N: messages received, or reported lost
	hellos int

	queued uint64  // messages that the application has queued
	sent   uint64  // of these, ever sent on a connection
	acked  uint64  // acked by the gateway
	held   uint64  // A: the newest that the gateway has said it holds
	sums   []int64 // sums[n] is the payload of messages 1 to n

	live      *link // the newest connection with a hello, while it lasts
	trying    *link // the attempt in flight
	abandoned int   // hellos when an attempt was last abandoned; -1: none
	retryAt   session.Time

	disconnectedAt session.Time // when the newest connection was lost; zero: it is alive

	upstream string // the state of the game server, as the gateway says it
	claimed  bool   // another node has claimed the session: it does not know what its client has heard
	from     int    // which upstream the newest message was from,
	nth      int    // and which of its messages

	begun  []byte // what has come of a message in parts,
	begunN uint64 // which is this one

	deadly   uint64 // a message whose arrival breaks the connection each time; 0: none
	lazy     int    // how it acks: every so many of 1000 messages
	closing  bool
	bye      int // the code of its bye
	byeText  string
	done     bool
	rogue    int  // which rule it has violated
	heedless bool // ignores the window
}

// A link is one connection, as the client sees it.
type link struct {
	c    *client
	g    *game    // the owner that has it, or was asked for the session
	nums *numbers // of its messages
	*conn
	dec     decoder
	pending []byte // not in the network yet
	marks   []mark // what pending contains, as far as it was not read

	stated    uint64 // the N of its resume,
	held      uint64 // the A,
	given     uint64 // and the C
	lost      uint64 // from its hello
	received  uint64 // data messages, including repeats
	hello     int    // which of the client's hellos it received; 0: none yet
	next      uint64 // the next client message to send
	byeSent   bool   // bye was sent: nothing may follow
	mustClose bool   // it has received a Close, and must still send its own

	acked        uint64 // acked on this connection
	pings        uint64
	unacked      int // messages not acked
	unackedBytes int // their bytes
	unackedSince session.Time

	heard      session.Time
	excused    session.Time // until when the client itself was suspended
	upgraded   bool         // its 101 has arrived
	left       bool         // another node goes on with the session
	closed     bool         // it has sent a Close
	lostAt     bool         // the client considers it dead
	last       bool         // after end or close 4502: the answer to its Close ends the session
	takesParts bool         // it has offered so,
	parts      assembly     // and this message comes so
	partAcked  session.Time
	partial    bool         // and to go on inside them:
	holds      []byte       // so much of the first it had,
	partSince  session.Time // and `part` is owed since then
	up         int          // of the next message the gateway has so many bytes
	rogueEnd   uint64       // offset of the end of the bytes that violate the protocol
}

// A mark is the offset, in what a link sends, of the end of something that the core
// must react to.
type mark struct {
	kind markKind
	end  uint64
	n    uint64 // the number of an ack, or of a pong
}

type markKind uint8

const (
	markData markKind = iota
	markAck
	markPing   // of the protocol
	markWSPing // of RFC 6455
	markAnswer // the answer to a Close that ends the session
	markPong   // of the protocol, or of RFC 6455
	markClose  // a plain client's, which is forwarded
)

func (l *link) mark(kind markKind, n uint64) {
	l.marks = append(l.marks, mark{kind, l.in.put + uint64(len(l.pending)), n})
}

// A token is what the gateway signs, here in plain form.
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
	l := &link{c: c, g: c.g, conn: c.g.connection(), heard: w.now, next: 1, takesParts: c.offers()}
	l.partial = l.takesParts && c.g.partial
	l.mute(c.g.lineDown, c.g.lineDown)
	return l
}

// resume starts an attempt to resume.
func (c *client) resume() bool {
	w := c.g.w
	if c.done || c.trying != nil || c.token.gen == 0 || w.now < c.retryAt || len(c.g.tries) > 4 {
		return false
	}
	l := c.newLink()
	l.stated, l.held, l.given = c.count, c.held, c.sent
	if c.trying = l; l.partial {
		l.holds = c.hold()
	}
	l.g = c.front()
	l.g.tries = append(l.g.tries, &attempt{link: l, conn: l.conn, token: c.token, received: c.count, settled: c.settled(), arrived: w.now})
	c.g.log("cl resume", int64(c.token.gen), int64(c.count))
	if c.live != nil && !c.g.dead {
		c.noteBeside()
	}
	return true
}

// noteBeside records what was in progress when an attempt began beside a live connection.
func (c *client) noteBeside() {
	g := c.g
	attached := g.core.State() == session.Attached
	other := attached && g.down.tap.link != c.live // another of its attempts has taken over, without its knowledge
	for _, t := range g.tries {
		other = other || attached && t.stage > handshaking && t.link != c.trying
	}
	if other {
		g.w.cov.hit("R24")
	}
	if g.dial != nil {
		g.w.cov.hit("R25")
	}
}

// abandon gives up the attempt in flight; the gateway may still serve it.
func (c *client) abandon() bool {
	l := c.trying
	if l == nil || c.token.gen == 0 {
		return false
	}
	c.g.log("cl abandon", int64(l.id), 0)
	if c.live != nil && !l.upgraded {
		c.g.w.cov.hit("R23 before the 101")
	}
	l.drop()
	return true
}

// queue makes the application send a message.
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

// fits reports whether message n may be sent: protocol section 5, limits. Messages that
// were sent and not acked count, whatever a hello said.
func (c *client) fits(n uint64) bool {
	if !c.g.cfg.Resumable || c.heedless || n <= c.sent || c.sent == c.acked {
		return true
	}
	return c.sent-c.acked < windowMessages && c.sums[n]-c.sums[c.acked] <= windowBytes
}

// send encodes the next message for l.
func (c *client) send(l *link) bool {
	n := l.next
	if l != c.live || n > c.queued || l.closed || l.byeSent || len(l.pending) > maxOut || !c.fits(n) {
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
	switch {
	case l.partial && len(p) > partBytes:
		l.sendParts(n, m.op == opText, p)
	case l.up > 0:
		c.g.fail("parts", "hello says that %d bytes of message %d have come, which comes whole", l.up, n)
	default:
		l.frames(m.op, p)
	}
	l.mark(markData, n)
	return true
}

// frames encodes a message in one or more frames, each with its own key.
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

// ping sends the gateway a ping.
func (l *link) ping() {
	l.pings++
	l.sendControl(fmt.Sprint("ping ", l.pings))
	l.mark(markPing, l.pings)
}

func (l *link) wsPing(text string) {
	l.frame(0x80|opPing, []byte(text))
	l.mark(markWSPing, 0)
}

// sendControl sends a control message.
func (l *link) sendControl(text string) { l.frame(0x80|opText, []byte("\x10"+text)) }

func (l *link) sendAck(n uint64) {
	l.sendControl(fmt.Sprint("ack ", n))
	l.mark(markAck, n)
}

// write moves the output of l into the network.
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

// ackable returns the newest message that l may ack: one received on it and, on an
// older connection, not beyond the N that a resume has stated.
func (l *link) ackable() uint64 {
	n := min(l.c.count, l.stated+l.lost+l.received)
	if t := l.c.trying; t != nil && t != l {
		n = min(n, t.stated)
	}
	return n
}

// ack acks the messages received.
func (l *link) ack() bool {
	n := l.ackable()
	if l.closed || l.lostAt || !l.c.g.cfg.Resumable || n < l.acked || n == l.acked && l.unacked == 0 {
		return false
	}
	l.unacked, l.unackedBytes, l.unackedSince = 0, 0, 0
	if n > l.acked {
		l.acked = n
		l.c.g.log("cl ack", int64(n), int64(l.id))
		l.sendAck(n)
	}
	return true
}

// sendBye closes the session for the application once everything before it is sent.
func (c *client) sendBye() bool {
	l := c.live
	if c.done || !c.closing || l == nil || l.byeSent || l.closed || l.next <= c.queued {
		return false
	}
	l.byeSent = true
	c.g.log("cl bye", int64(c.bye), int64(c.sent))
	if !c.g.cfg.Resumable {
		l.frame(0x80|opClose, closeFrame(c.bye, c.byeText))
		l.closed = true
		if c.bye != 1001 || !c.g.cfg.PlainResume {
			l.mark(markClose, 0)
		}
		if l.mustClose {
			c.finish("close")
			l.leaving()
		}
		return true
	}
	if c.bye == 1000 && c.byeText == "" && c.g.w.chance(500) {
		l.sendControl("bye")
	} else {
		l.sendControl(fmt.Sprintf(`bye {"code":%d,"reason":%q,"x":[1]}`, c.bye, c.byeText))
	}
	if c.g.w.chance(500) {
		l.frame(0x80|opClose, closeFrame(c.bye, c.byeText))
		l.closed = true
	}
	return true
}

// close starts to close the session.
func (c *client) close(code int, text string) bool {
	if c.done || c.closing || c.g.cfg.Resumable && c.token.gen == 0 {
		return false
	}
	c.closing, c.bye, c.byeText = true, code, text
	return true
}

// drop closes the client's socket: what it has written may still arrive.
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
		l.c.live, l.c.disconnectedAt = nil, l.c.g.w.now
	}
	if l.c.trying == l {
		l.c.trying = nil
		l.c.abandoned = l.c.hellos // lost before its hello: the gateway may still serve it
		l.c.giveUpOld()
	}
}

// finish ends the session for the client.
func (c *client) finish(outcome string) {
	if c.done {
		return
	}
	c.done = true
	c.g.log("cl done", int64(c.count), int64(c.sent), outcome)
}

// quit abandons every connection, as a closed page does.
func (c *client) quit() {
	for _, l := range []*link{c.live, c.trying} {
		if l != nil {
			l.drop()
		}
	}
}

// due returns when the client's clock wants it to act; zero: never.
func (c *client) due() session.Time {
	if c.done {
		return 0
	}
	var t session.Time
	for _, l := range []*link{c.live, c.trying} {
		if l == nil {
			continue
		}
		if l.unackedSince > 0 {
			t = earlier(t, l.unackedSince.Add(time.Second))
		}
		if l.partSince > 0 && l == c.live {
			t = earlier(t, l.partSince.Add(partWait))
		}
		t = earlier(t, l.silentAt())
	}
	if c.trying == nil && c.live == nil && c.retryAt > c.g.w.now {
		t = earlier(t, c.retryAt)
	}
	return t
}

// patience returns how long l may be silent: twice the heartbeat, or 15 s until the
// hello of a resume.
func (l *link) patience() time.Duration {
	hb := 2 * l.c.g.cfg.Heartbeat
	switch {
	case l.hello == 0:
		return max(hb, 15*time.Second)
	case !l.c.g.keeps():
		return time.Hour
	}
	return hb + time.Second // its own clock is slower than the gateway's
}

// silentAt returns when the client considers l dead.
func (l *link) silentAt() session.Time { return max(l.heard, l.excused).Add(l.patience()) }

// tick does what is due.
func (c *client) tick(now session.Time) {
	if due := c.due(); due > 0 && now.Sub(due) > standstill { // it was suspended, and must first read its input
		for _, l := range []*link{c.live, c.trying} {
			if l != nil {
				l.excused = now
			}
		}
	}
	if l := c.live; l != nil && l.unackedSince > 0 && now >= l.unackedSince.Add(time.Second) {
		if !l.ack() {
			l.unackedSince = 0 // it must not ack until its resume is decided
		}
	}
	if l := c.live; l != nil && l.partSince > 0 && now >= l.partSince.Add(partWait) {
		l.sayPart()
	}
	if l := c.live; l != nil && now >= l.silentAt() {
		c.g.log("cl silence", int64(l.id), 0)
		l.drop()
	}
	if l := c.trying; l != nil && now >= l.silentAt() {
		if !c.abandon() { // a first connection: there is nothing to resume
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
