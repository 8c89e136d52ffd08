package sim

import (
	"reseat/gateway/session"
)

// How peers violate the protocol, and how their sessions end.

// A violation is one way for a client to violate the protocol.
type violation struct {
	reason string // the end reason
	plain  bool   // a plain client can do it too
	commit func(l *link)
}

func (l *link) rawFrame(b ...byte) { l.pending = append(l.pending, b...) }

// sins[0] is no violation.
var violations = []violation{
	{},
	{"protocol_error", true, func(l *link) { l.rawFrame(0x82, 0x02, 'h', 'i') }},               // not masked
	{"protocol_error", true, func(l *link) { l.rawFrame(0xC2, 0x80, 0, 0, 0, 0) }},             // a reserved bit
	{"protocol_error", true, func(l *link) { l.rawFrame(0x83, 0x80, 0, 0, 0, 0) }},             // opcode 3
	{"protocol_error", true, func(l *link) { l.rawFrame(0x89, 0xFE, 0, 126, 0, 0, 0, 0) }},     // a long Ping
	{"protocol_error", true, func(l *link) { l.rawFrame(0x09, 0x80, 0, 0, 0, 0) }},             // a fragmented Ping
	{"protocol_error", true, func(l *link) { l.frame(0x80|opMore, nil) }},                      // a continuation without a start
	{"protocol_error", true, func(l *link) { l.frame(opText, nil); l.frame(opText, nil) }},     // a message in a message
	{"protocol_error", true, func(l *link) { l.frame(0x80|opClose, []byte{3}) }},               // half a code
	{"protocol_error", true, func(l *link) { l.frame(0x80|opClose, closeFrame(1006, "")) }},    // a code that must not be sent
	{"protocol_error", true, func(l *link) { l.rawFrame(0x82, 0xFE, 0, 125, 0, 0, 0, 0) }},     // not the shortest length
	{"message_too_big", true, func(l *link) { l.oversized() }},                                 //
	{"protocol_violation", true, func(l *link) { l.shreds() }},                                 //
	{"protocol_violation", false, func(l *link) { l.sendControl("") }},                         // a lone DLE
	{"protocol_violation", false, func(l *link) { l.sendControl("Ack 1") }},                    // no verb
	{"protocol_violation", false, func(l *link) { l.sendControl("ack 01x") }},                  // no number
	{"protocol_violation", false, func(l *link) { l.sendControl("ack  1") }},                   // a doubled blank
	{"protocol_violation", false, func(l *link) { l.sendControl("ack 9999999999") }},           // beyond what was sent
	{"protocol_violation", false, func(l *link) { l.sendControl("hello {}") }},                 // the gateway's verb
	{"protocol_violation", false, func(l *link) { l.sendControl(`bye {"code":1006}`) }},        // no code for it
	{"protocol_violation", false, func(l *link) { l.sendControl("ping \x01") }},                // a control character
	{"invalid_utf8", false, func(l *link) { l.frame(0x80|opText, []byte("\x10ping \xff")) }},   //
	{"protocol_violation", false, func(l *link) { l.sendAck(max(l.c.g.core.Info().Sent, 1)) }}, // what is not sent yet, if anything
	{"protocol_violation", false, func(l *link) { l.flood() }},                                 // the window, if it is full
}

// oversized announces a message over the limit. It sends one byte of payload, which
// shows whether it is a control message.
func (l *link) oversized() {
	n := max(l.c.g.cfg.MaxMessage+2, 5000)
	key := [4]byte{1, 2, 3, 4}
	b := appendFrame(nil, 0x82, &key, make([]byte, n))
	l.pending = append(l.pending, b[:15]...)
}

// shreds sends a message of more frames than allowed.
func (l *link) shreds() {
	l.frame(opBinary, nil)
	for range 1024 {
		l.frame(opMore, nil)
	}
}

// flood exceeds the unacked limits.
func (l *link) flood() {
	c := l.c
	c.heedless = true
	for range windowMessages + 100 {
		c.queueOne()
	}
	for c.send(l) {
	}
}

func (g *game) clientMisbehaves() bool {
	c := g.cli
	l := c.live
	if l == nil || c.done || c.rogue > 0 || l.closed || l.byeSent || c.trying != nil || l.in.hole {
		return false
	}
	n := 1 + g.w.rng.IntN(len(violations)-1)
	if !g.cfg.Resumable && !violations[n].plain {
		return false
	}
	c.rogue = n
	g.log("client sins", int64(n), int64(l.id), violations[n].reason)
	violations[n].commit(l)
	if n < len(violations)-2 { // the last two may be no violation any more when they arrive
		l.rogueEnd = l.in.put + uint64(len(l.pending))
		l.closed = true
	}
	return true
}

// checkViolation records that a live connection's input contains the violation.
func (g *game) checkViolation(l *leg) {
	link := l.tap.link
	if link == nil || link.rogueEnd == 0 || l.conn.in.got < link.rogueEnd {
		return
	}
	if s := g.core.State(); s != session.Ended {
		g.fail("section 6", "sin %d had no effect: %v", g.cli.rogue, s)
	}
	link.rogueEnd = 0
}

// upstreamViolations are the ways for an upstream to violate RFC 6455.
var upstreamViolations = []struct {
	name string
	code int // of the Close that it receives
	make func(u *upstream)
}{
	{"masked", 1002, func(u *upstream) { u.out = appendFrame(u.out, 0x82, &[4]byte{1, 2, 3, 4}, []byte("hi")) }},
	{"reserved", 1002, func(u *upstream) { u.out = appendFrame(u.out, 0xB2, nil, nil) }},
	{"opcode", 1002, func(u *upstream) { u.out = appendFrame(u.out, 0x8B, nil, nil) }},
	{"continuation", 1002, func(u *upstream) { u.out = appendFrame(u.out, 0x80, nil, nil) }},
	{"nested", 1002, func(u *upstream) { u.out = appendFrame(appendFrame(u.out, 1, nil, nil), 1, nil, nil) }},
	{"close", 1002, func(u *upstream) { u.out = appendFrame(u.out, 0x88, nil, []byte{1}) }},
	{"shreds", 1002, func(u *upstream) {
		u.out = appendFrame(u.out, opBinary, nil, nil)
		for range 1024 {
			u.out = appendFrame(u.out, opMore, nil, nil)
		}
	}},
	{"too big", 1009, func(u *upstream) {
		b := appendFrame(nil, 0x82, nil, make([]byte, u.g.cfg.MaxMessage+1))
		u.out = append(u.out, b[:min(len(b), 10)]...)
	}},
}

// misbehave violates RFC 6455, after which nothing counts any more.
func (u *upstream) misbehave() bool {
	if u.over {
		return false
	}
	n := u.g.w.rng.IntN(len(upstreamViolations))
	u.over, u.wrong, u.code = true, upstreamViolations[n].name, 0
	u.g.log("up sins", int64(n), int64(u.made), u.wrong)
	upstreamViolations[n].make(u)
	return true
}
