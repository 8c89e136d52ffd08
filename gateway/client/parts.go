package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"reseat/gateway/wire"
)

// This file moves large messages in parts, both ways: protocol section 3.1.

const (
	answerBytes = 32 << 10               // of parts: then an answer is due
	answerTime  = 250 * time.Millisecond // the same, after the oldest unanswered part
	repeatTime  = time.Second            // between two acks that tell an older gateway that parts come

	minWindow, firstWindow, maxWindow = 2 << 10, 8 << 10, 1 << 20 // bytes that are sent and unanswered: section 11
	windowTime                        = 750 * time.Millisecond
)

// ---- received

// parts is a message of which some has come. It outlives its connection.
type parts struct {
	typ   MessageType
	bytes int64 // of the whole message
	data  []byte
}

func typeOf(v wire.Part) MessageType {
	if v.Text {
		return MessageText
	}
	return MessageBinary
}

// held returns how much of message handed+1 has come.
func (p *loop) held() int64 {
	if p.partial == nil || p.handed() < p.taken {
		return 0
	}
	return int64(len(p.partial.data))
}

// beginParts begins a message that comes in parts, or continues one where an older connection was cut.
func (p *loop) beginParts(l *link, v wire.Part) {
	m, typ, limit := p.partial, typeOf(v), p.readLimit()
	known := l.last < p.taken // it has come whole on an older connection
	from := l.from
	l.from = 0
	continues := from > 0 && !known
	if l.parts != nil || v.From != from || limit > 0 && v.Bytes > limit+1 || // one more for an escaping DLE
		continues && (m == nil || m.typ != typ || m.bytes != v.Bytes || int64(len(m.data)) < from) {
		p.brokenParts(l, v.Bytes)
		return
	}
	if continues {
		m.data = m.data[:from]
	} else {
		m = &parts{typ, v.Bytes, make([]byte, from)}
	}
	if l.parts = m; !known {
		p.partial = m
	}
}

// part adds a part to its message.
func (p *loop) part(l *link, e event) {
	m, n := l.parts, int64(len(e.data))
	if e.typ != MessageBinary || n == 0 || int64(len(m.data))+n > m.bytes {
		p.brokenParts(l, m.bytes)
		return
	}
	p.silence.clogged()
	l.useful = l.useful || l.resumes
	if m.data = append(m.data, e.data...); int64(len(m.data)) == m.bytes {
		l.parts = nil
		if p.partial == m {
			p.partial = nil
		}
		p.data(l, m.typ, unescape(m.typ, m.data))
	}
	if l == p.live && p.talking() {
		p.tookPart(l, m, n, e.at)
	}
}

// brokenParts ends a link whose parts cannot be put together. The message begins anew on the next.
func (p *loop) brokenParts(l *link, bytes int64) {
	p.partial = nil
	p.broken(l, fmt.Errorf("%w: parts of a message of %d bytes", errBroken, bytes))
}

// tookPart answers a part of n bytes, or plans to. What answers the last part of a message is its ack.
func (p *loop) tookPart(l *link, m *parts, n int64, at time.Time) {
	l.unanswered += n
	if int64(len(m.data)) == n { // the first: a small message needs its ack alone
		l.answered = at
	}
	since := at.Sub(l.answered)
	switch {
	case !l.resumes:
		if l.parts != nil && since >= repeatTime {
			l.answered = at
			l.send(wire.VerbAck, strconv.FormatInt(l.acked, 10))
		}
	case l.parts != nil && (l.unanswered >= answerBytes || since >= answerTime):
		p.answerParts(at)
	case p.alarms.part.IsZero():
		p.alarms.part = at.Add(answerTime)
	}
}

// answerParts acks what was delivered, and says how much of a message that comes in parts is here.
func (p *loop) answerParts(now time.Time) {
	p.ack()
	l := p.live
	if l.resumes && l.parts != nil && l.unanswered > 0 {
		l.send(wire.VerbPart, strconv.Itoa(len(l.parts.data)))
	}
	l.unanswered, l.answered, p.alarms.part = 0, now, time.Time{}
}

// ---- sent

// partAnswered records that the gateway has n bytes of the message that is sent in parts.
func (p *loop) partAnswered(l *link, n int64, at time.Time) {
	l.useful = true
	p.silence.clogged()
	within, least := windowTime+2*cmp.Or(p.silence.roundTrip, p.silence.handshake/2), int64(minWindow)
	if l.parts != nil { // the answer has waited behind other parts: the line is no slower
		within, least = within+windowTime, p.upload.window
	}
	p.upload.answer(n, at, within, least)
}

// An upload is the large messages that are sent in parts, one after another. What the gateway has not
// answered by part stays within a window, which is as much as the line takes in windowTime and two round
// trips: no ping, ack or answer waits long behind it.
type upload struct {
	from int64 // where the first message on this connection begins: the gateway has what is before

	data           []byte    // the message in progress; nil: none
	sent, answered int64     // of data
	window         int64     // firstWindow until it is measured
	full           int64     // the window was full when so much was sent, zero if it was not since it was last measured,
	fullAt         time.Time // then,
	before         int64     // and so much was answered before
}

// start begins a connection.
func (u *upload) start(from int64) { *u = upload{from: from, window: cmp.Or(u.window, firstWindow)} }

// begin begins a message that is larger than a part, and returns what announces it.
func (u *upload) begin(typ MessageType, data []byte) frame {
	from := u.from
	*u = upload{data: data, sent: from, answered: from, window: u.window}
	arg, _ := json.Marshal(wire.Part{Bytes: int64(len(data)), Text: typ == MessageText, From: from})
	return frame{wire.VerbParts, MessageText, append([]byte(dle+wire.VerbParts+" "), arg...)}
}

// next returns the next part of at most limit bytes, unless there is none or the window is full. It asks for
// the first answer, which comes before the pong.
func (u *upload) next(limit int64, now time.Time) (f frame, ok, asks bool) {
	bytes, room := int64(len(u.data)), u.answered+u.window
	size := limit
	if bytes > u.window {
		size = min(limit, u.window/8) // so that an answer need not wait for much
	}
	end := min(u.sent+size, bytes)
	if u.data == nil || u.sent > u.answered && end > room {
		return frame{}, false, false
	}
	if u.full == 0 && min(end+size, bytes) > room {
		u.full, u.fullAt, u.before = end, now, u.answered
		asks = u.window == firstWindow
	}
	f = frame{typ: MessageBinary, data: u.data[u.sent:end]}
	if u.sent = end; end == bytes {
		u.data, u.sent = nil, 0
	}
	return f, true, asks
}

// answer records that the gateway has n bytes of the message in progress. The window becomes what the line takes
// within that time, and at least so much.
func (u *upload) answer(n int64, now time.Time, within time.Duration, least int64) {
	if n <= u.answered || n > u.sent {
		return // of the message before
	}
	u.answered = n
	took := max(now.Sub(u.fullAt), time.Millisecond)
	if u.full == 0 || n < u.full && took < within {
		return
	}
	fits := int64(float64(n-u.before) / took.Seconds() * within.Seconds())
	u.window = min(max(fits, least), 4*u.window, maxWindow)
	u.full = 0
}
