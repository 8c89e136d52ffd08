package sim

import (
	"encoding/json"
	"strconv"
	"strings"
)

// How the model client handles what it receives. The network changes nothing, so that the bytes of one connection are
// checked where they are written (tap.go); here is what must hold over all connections of a client.

type helloArg struct {
	Session  string      `json:"session"`
	Token    string      `json:"token"`
	Resumed  *bool       `json:"resumed"`
	Received uint64      `json:"received"`
	Lost     uint64      `json:"lost"`
	Replay   uint64      `json:"replay"`
	Skipped  uint64      `json:"skipped"`
	Grace    int64       `json:"grace_ms"`
	Beat     int64       `json:"heartbeat_ms"`
	Answer   int64       `json:"answer_ms"`
	Parts    int         `json:"part_bytes"`
	Partial  *partialArg `json:"partial"`
	Durable  bool        `json:"durable"`
	Moved    string      `json:"moved"`
	Protocol string      `json:"protocol"`
	Limits   struct {
		Message  int64 `json:"message_bytes"`
		Messages int64 `json:"unacked_messages"`
		Bytes    int64 `json:"unacked_bytes"`
	} `json:"limits"`
}

type closeArg struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
	Retry  *bool  `json:"retry"`
	After  int64  `json:"retry_after_ms"`
}

// receive reads from the network, any number of bytes.
func (l *link) receive() bool {
	if l.lostAt || l.deaf {
		return false
	}
	switch {
	case l.out.ended():
		l.c.broken(l)
		return true
	case l.conn.upgraded && !l.upgraded && !l.out.hole:
		l.upgraded = true
		l.heard = l.c.g.w.now
		return true
	}
	n := l.out.readable()
	if n == 0 {
		return false
	}
	l.heard = l.c.g.w.now
	b := l.out.read(l.c.g.w.piece(n))
	if l != l.c.live && l != l.c.trying {
		return true // older than the newest hello, or abandoned
	}
	l.dec.feed(b)
	for !l.lostAt {
		a, ok, _ := l.dec.next()
		if !ok {
			break
		}
		l.take(a)
	}
	if t := l.c.trying; t != nil && t.upgraded && l == l.c.live {
		l.c.g.w.cov.hit("R23 after the 101")
	}
	return true
}

// broken handles a disconnect without a Close.
func (c *client) broken(l *link) {
	c.g.log("cl lost", int64(l.id), int64(l.received))
	if l.dec.torn() {
		c.g.w.cov.hit("R9")
	}
	own := l == c.trying || l == c.live
	l.drop()
	if own && c.token.gen == 0 {
		c.finish("1006")
	}
}

func (l *link) take(a arrival) {
	c := l.c
	switch {
	case a.op == opPing:
		if !l.closed {
			l.pong(a.p)
		}
	case a.op == opPong:
	case a.op == opClose:
		l.gotClose(a.p)
	case c.g.cfg.Resumable && isControl(a.op, a.p):
		l.control(string(a.p[1:]))
	default:
		if whole, ok, _ := l.parts.add(a, l.takesParts); ok {
			l.data(whole)
		} else {
			l.parted()
		}
	}
}

// data counts a message, and passes it to the application unless it is a repeat.
func (l *link) data(a arrival) {
	c := l.c
	l.received++
	n := l.stated + l.lost + l.received
	if n > c.count+1 {
		c.g.fail("I1", "message %d came when the client had %d", n, c.count)
	}
	if n == c.deadly && c.g.keeps() {
		l.leaving()
		return
	}
	if n > c.count && l.nums.list[n].answered > 0 {
		c.g.w.cov.hit("R19 client too")
	}
	if n > c.count {
		c.takes(n, l.nums.list[n])
	}
	c.count = max(c.count, n)
	if !c.g.cfg.Resumable {
		return
	}
	l.owesAck(len(unescaped(a)))
}

// owesAck counts what must be acked, and acks it in time.
func (l *link) owesAck(bytes int) {
	c := l.c
	l.unacked++
	l.unackedBytes += bytes
	if l.unackedSince == 0 {
		l.unackedSince = c.g.w.now
	}
	if l.unacked >= 32 || l.unackedBytes >= 64<<10 || c.g.w.chance(c.lazy) {
		l.ack()
	}
}

func (l *link) control(text string) {
	verb, arg, _ := strings.Cut(text, " ")
	c := l.c
	switch verb {
	case "hello":
		l.gotHello(arg)
	case "ack":
		n, err := strconv.ParseUint(arg, 10, 64)
		c.g.must(err)
		c.acked, c.held = max(c.acked, n), max(c.held, n)
		c.checkHeld()
	case "ping":
		if !l.closed {
			l.ack()
			if l.partial {
				l.sayPart()
			}
			l.sendControl(strings.TrimSpace("pong " + arg))
			if n, err := strconv.ParseUint(arg, 10, 64); err == nil {
				l.mark(markPong, n)
			}
		}
	case "grace":
		n, err := strconv.ParseInt(arg, 10, 64)
		c.g.must(err)
		c.grace = n
	case "pong":
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n > l.pings {
			c.g.fail("section 5", "the client got the pong %q after %d pings", arg, l.pings)
		}
	case "parts":
		l.parts.announce(arg, c.g.cfg.MaxMessage)
	case "skip":
		l.skip(arg)
	case "move", "part":
	case "upstream":
		var v struct{ State string }
		c.g.must(json.Unmarshal([]byte(arg), &v))
		if c.upstream == "" && v.State == "back" && !c.claimed {
			c.g.fail("redial", "the client hears that the game server is back, and has not heard that it was lost")
		}
		c.upstream = v.State
	case "token":
		var v struct{ Token string }
		c.g.must(json.Unmarshal([]byte(arg), &v))
		if t := parseToken(v.Token); t.gen != c.token.gen || t.expires < c.token.expires {
			c.g.fail("I4", "renewed to generation %d, the client holds %d", t.gen, c.token.gen)
		} else {
			c.token = t
		}
		c.g.w.cov.hit("R18")
	case "end", "close":
		var v closeArg
		c.g.must(json.Unmarshal([]byte(arg), &v))
		l.verdict(verb, v)
	default:
		c.g.fail("protocol", "unknown verb %q", verb)
	}
}

// gotHello makes this the client's connection.
func (l *link) gotHello(arg string) {
	c := l.c
	var h helloArg
	c.g.must(json.Unmarshal([]byte(arg), &h))
	if l.outdated(h) {
		return
	}
	if h.Received < c.held && l.g.cfg.Durable || h.Received < c.acked || h.Received > c.sent {
		c.g.fail("I5", "hello.received %d, the client has sent %d and been acked %d", h.Received, c.sent, c.acked)
	}
	if h.Limits.Messages != windowMessages || h.Limits.Bytes != windowBytes || h.Session != c.g.cfg.ID || h.Beat != c.g.cfg.Heartbeat.Milliseconds() || h.Answer != c.g.cfg.Answer.Milliseconds() ||
		h.Limits.Message != c.g.cfg.MaxMessage || h.Protocol != c.g.cfg.Protocol {
		c.g.fail("protocol", "hello says %s", arg)
	}
	if h.Parts == partBytes != l.takesParts {
		c.g.fail("parts", "hello says part_bytes %d", h.Parts)
	}
	l.checkEpoch(h)
	old := c.live
	c.hellos++
	l.hello = c.hellos
	c.live, c.trying, c.disconnectedAt = l, nil, 0
	c.held = max(c.held, h.Received)
	c.checkHeld()
	c.token, c.grace = parseToken(h.Token), h.Grace
	l.lost = h.Lost
	if n := l.stated + l.lost; n > c.count {
		c.skips(n, l.nums)
		c.count = n
	}
	l.acked = l.stated + l.lost
	l.next = h.Received + 1
	l.goesOn(h.Partial)
	c.g.log("cl hello", int64(h.Received), int64(h.Replay))
	l.sendAck(l.acked)
	if old != nil {
		old.drop()
		c.live = l
	}
}

// verdict handles an end or a close: the verb decides.
func (l *link) verdict(verb string, v closeArg) {
	c := l.c
	c.g.log("cl verdict", int64(v.Code), int64(l.hello), verb)
	switch {
	case verb == "close" && v.Retry == nil:
		c.g.fail("protocol", "close without retry")
	case verb == "close" && *v.Retry:
		c.retryAt = c.g.w.now.Add(millis(v.After))
		l.drop()
	case verb == "close" && v.Code == 4409 && (c.trying != nil && c.trying != l || c.abandoned >= c.before()):
		l.drop() // an attempt of its own: it continues with that, or retries
	default:
		l.last = verb == "end" || v.Code == 4502
		c.finish(verb + " " + strconv.Itoa(v.Code))
	}
}

// before returns how many hellos preceded the newest.
func (c *client) before() int { return max(c.hellos-1, 0) }

// gotClose handles the end of the connection; a verb has said whether the session ends.
func (l *link) gotClose(p []byte) {
	c := l.c
	code, text := parseClose(p)
	c.g.log("cl got close", int64(code), int64(l.id), text)
	if !l.closed && c.sendsMore(l) {
		return
	}
	if !l.closed {
		l.frame(0x80|opClose, closeFrame(code, ""))
		l.closed = true
		if l.last {
			l.mark(markAnswer, 0)
		}
	}
	switch {
	case l.byeSent && code == c.bye:
		c.finish("bye")
	case !c.g.cfg.Resumable:
		c.afterClose(code)
	}
	l.leaving()
}

// leaving writes l's last bytes and then closes it.
func (l *link) leaving() {
	if len(l.pending) > 0 && !l.in.rst {
		l.in.write(l.pending) // a Close fits into the socket's buffer
		l.pending = nil
	}
	l.lostAt = true
	l.hangUp()
	if l.c.live == l {
		l.c.live, l.c.disconnectedAt = nil, l.c.g.w.now
	}
	if l.c.trying == l {
		l.c.trying = nil
		l.c.abandoned = l.c.hellos
	}
}
