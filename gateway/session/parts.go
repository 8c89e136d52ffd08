package session

import (
	"bytes"
	"math"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/wire"
)

// This file sends large messages in parts, to clients that offer it: protocol section 3. A
// browser shows its page whole messages only, so that a large one on a slow line looks like
// silence. Between two parts control messages may go, and the connection may be released.
//
// Parts are copies, with their headers, unlike everything else that comes from the replay buffer: the
// message lies there with other headers. Where they begin follows from cur alone.
//
// A client with Attachment.partial says by `part` what it has of the message. No more than a window goes
// without that, as much as its line takes in a second: what is said meanwhile waits behind no more, whatever
// the sockets and the network hold. The line is measured from when what fills the window was sent: answers that
// have waited, and come together, do not look like a fast line.

const (
	// PartBytes is hello.part_bytes: larger messages are sent in parts of at most this size.
	PartBytes = 4 << 10
	// partsAtOnce is the max number of parts in one write. A client whose socket is full gets them one by one.
	partsAtOnce = 16

	firstWindow = 8 << 10 // of part bytes without a `part`: protocol section 11
	minWindow   = 2 << 10
	maxWindow   = 1 << 20
	windowTime  = 750 * time.Millisecond // what the line takes in this time and two round trips is the window
	partLatest  = 250 * time.Millisecond // protocol section 3.1: `part` after this time,
	partAfter   = 32 << 10               // and after so many bytes
)

// parts is a message that is sent in parts, from before its first one.
type parts struct {
	rest []byte // of the part that lies before Attachment.mid: a write has stopped inside it
	next []byte // whole parts, in flight

	// Of a client with partial, in bytes of the message as it is sent.
	bytes    int64 // the whole of it; zero: the client says no `part`
	sent     int64 // behind the last part that was written, if only its beginning
	handed   int64 // behind next
	answered int64 // by `part`, or held from before
	resumes  bool  // the next part is the first on this connection, and not the first of the message
	full     int64 // the window was full when so much was sent; zero: it was not since it was last measured,
	fullAt   Time  // then,
	before   int64 // and so much was answered before
}

// partsOut is liveOut for a client that takes parts, while the buffer holds a message for which
// it does.
func (s *Session) partsOut(a *Attachment, dst [][]byte) [][]byte {
	f := &a.flight
	if a.parts != nil && len(a.parts.rest) > 0 {
		dst = append(dst, a.parts.rest)
		f.part = len(a.parts.rest)
	} else if a.mid > a.cur {
		dst = s.ring.Slices(dst, a.cur, a.mid)
		f.head = int(a.mid - a.cur)
	}
	if len(a.ctl) > 0 {
		dst = append(dst, a.ctl)
		f.ctl = len(a.ctl)
	}
	from, to := max(a.cur, a.mid), s.ring.Last().Off
	if a.hasNews {
		to = min(to, a.news[0].at)
	}
	if a.last || to <= from {
		return dst
	}
	begin, whole := s.wholeUntil(a, from, min(to, from+maxWrite))
	if whole > from {
		dst = s.ring.Slices(dst, from, whole)
		f.body = int(whole - from)
		return dst
	}
	n := partsAtOnce
	if a.behind {
		n = 1
	}
	p := a.parts
	if p == nil {
		p = new(parts)
		if a.parts = p; a.partial {
			left := s.ring.Payload(begin, from)
			p.bytes = left.Left()
		}
	}
	size := int64(PartBytes)
	if p.bytes > 0 {
		size = p.size(s.trip.window())
		n = min(n, max(1, int((s.trip.window()-p.unanswered())/size)))
	}
	if s.windowFull(a) {
		return dst
	}
	var behind replay.Payload
	p.next, behind = s.appendParts(p.next[:0], begin, from, n, size, p.resumes)
	p.handed = p.bytes - behind.Left()
	f.body, f.parts = int(behind.Off()-from), true
	return append(dst, p.next)
}

// unanswered returns how much was sent without a `part`.
func (p *parts) unanswered() int64 { return p.sent - p.answered }

// windowFull reports whether a's client must say a `part` before it is sent another.
func (s *Session) windowFull(a *Attachment) bool {
	if s.large <= a.cur {
		return false
	}
	p := a.parts
	return p != nil && p.bytes > 0 && p.unanswered() > 0 && p.unanswered()+min(p.size(s.trip.window()), p.bytes-p.sent) > s.trip.window()
}

// window returns how much of a message may be unanswered.
func (r *roundTrip) window() int64 {
	if r.partWindow == 0 {
		return firstWindow
	}
	return int64(r.partWindow)
}

// size returns the size of a part: eight fill a small window, so that an answer need not wait for much.
func (p *parts) size(window int64) int64 {
	if p.bytes <= window {
		return PartBytes
	}
	return min(window/8, PartBytes)
}

// answer takes a `part` of the client: it has n bytes of the message. One that is about the message before is
// behind its end, or does no harm.
func (s *Session) answer(now Time, a *Attachment, n int64) {
	s.noteAnswered(n)
	p := a.parts
	if p == nil || n <= p.answered || n > max(p.sent, p.handed) {
		return
	}
	p.answered, a.acks = n, now
	switch {
	case a.overdue.n <= s.acked:
		a.overdue = probe{}
	case a.overdue.at > 0:
		a.overdue.at = now
	}
	if !s.owes(a) {
		a.owed = 0
	}
	took, within, least := max(now.Sub(p.fullAt), time.Millisecond), windowTime+2*s.trip.smoothed, int64(minWindow)
	if s.partsLeft() > 0 { // the answer has waited behind other parts: the line is no slower
		within, least = within+windowTime, s.trip.window()
	}
	if p.full == 0 || n < p.full && took < within {
		return
	}
	fits := int64(float64(n-p.before) * float64(within) / float64(took))
	s.trip.partWindow = uint32(min(max(fits, least), 4*s.trip.window(), maxWindow))
	p.full = 0
}

// resumeParts makes a begin inside the first message, of which its client holds so many bytes. It returns
// that number, or 0 where the message must be sent from its beginning.
func (s *Session) resumeParts(a *Attachment, held uint64) int64 {
	if held == 0 || !s.inParts(a, a.cur) {
		return 0
	}
	p := s.ring.Payload(a.cur, a.cur)
	bytes := p.Left()
	if held >= uint64(bytes) {
		return 0
	}
	p.Skip(int(held))
	n := int64(held)
	s.noteAnswered(n)
	a.cur, a.mid, a.start = p.Off(), p.Off(), p.Off()
	a.parts = &parts{bytes: bytes, sent: n, answered: n, resumes: true}
	return n
}

// inParts reports whether the message that begins at begin is sent to a in parts.
func (s *Session) inParts(a *Attachment, begin uint64) bool {
	return a.takesParts && s.large > begin && s.ring.Larger(begin, begin+1, PartBytes) == begin
}

// wholeUntil returns how far from from on the stream is sent to a as it is, at most until to, and where
// the message begins that from lies in. If parts come next, until is from.
func (s *Session) wholeUntil(a *Attachment, from, to uint64) (begin, until uint64) {
	m, end := s.ring.Around(a.mark, from)
	switch {
	case m.Off < from && s.inParts(a, m.Off):
		return m.Off, from
	case m.Off < from:
		return m.Off, min(to, end)
	case a.takesParts && s.large > from:
		return from, s.ring.Larger(from, to, PartBytes)
	}
	return from, to
}

// unbroken returns how far a write that stops at off must go on, so that it breaks off neither
// a message nor a part of one.
func (s *Session) unbroken(a *Attachment, off uint64) uint64 {
	m, end := s.ring.Around(a.mark, off)
	if m.Off < off && s.inParts(a, m.Off) {
		return off
	}
	return end
}

// appendUntil appends the stream between two offsets as it is sent to a.
func (s *Session) appendUntil(a *Attachment, dst [][]byte, from, to uint64) [][]byte {
	for from < to {
		begin, until := s.wholeUntil(a, from, to)
		if until > from {
			dst = s.ring.Slices(dst, from, until)
			from = until
			continue
		}
		p, behind := s.appendParts(nil, begin, from, math.MaxInt, PartBytes, from == a.cur && a.parts != nil && a.parts.resumes)
		from = behind.Off()
		dst = append(dst, p)
	}
	return dst
}

// appendParts appends up to n parts of the message that begins at begin, from the offset from on,
// and returns what is left behind them. resumes says that the client was sent what precedes from on another
// connection.
func (s *Session) appendParts(dst []byte, begin, from uint64, n int, size int64, resumes bool) ([]byte, replay.Payload) {
	p := s.ring.Payload(begin, from)
	if from == begin || resumes {
		v := wire.Part{Bytes: p.Left(), Text: p.Op == frame.Text}
		if resumes {
			all := s.ring.Payload(begin, begin)
			v.Bytes, v.From = all.Left(), all.Left()-p.Left()
		}
		dst = wire.AppendJSON(dst, wire.VerbParts, v)
	}
	for ; n > 0 && p.Left() > 0; n-- {
		k := int(min(p.Left(), size))
		dst = frame.AppendHeader(dst, frame.Binary, true, k)
		dst = p.Append(dst, k)
	}
	return dst, p
}

// wroteParts is the part of wrote that is about the stream, for output with parts. It returns how
// much of ctl was written.
func (s *Session) wroteParts(now Time, a *Attachment, out flight, n int) (ctl int) {
	p := a.parts
	k := min(n, out.part)
	if out.part > 0 {
		if p.rest = p.rest[k:]; k == out.part {
			p.rest, a.cur = nil, a.mid
		}
	}
	n -= k
	k = min(n, out.head)
	a.cur += uint64(k)
	n -= k
	ctl = min(n, out.ctl)
	n -= ctl
	switch {
	case !out.parts:
		a.cur += uint64(n) // whole messages behind the last part
	case n == len(p.next):
		a.cur += uint64(out.body)
		p.sent = p.handed
	case n > 0 && s.ring.Base().Off <= a.cur: // else the message was acked before it was sent: see wrote
		s.cutParts(a, n)
		p.next = nil // a slow client: keep the memory of one part alone
	}
	if out.parts && n > 0 && p.bytes > 0 {
		p.resumes = false
		if p.full == 0 && s.windowFull(a) {
			p.full, p.fullAt, p.before = p.sent, now, p.answered
			if s.trip.partWindow == 0 && len(a.pings) == 0 { // its `part` comes before the pong, at once
				s.sendPing(now, a)
			}
		}
	}
	return ctl
}

// cutParts records that a write has ended n bytes behind the beginning of a.parts.next.
func (s *Session) cutParts(a *Attachment, n int) {
	p := a.parts
	m, _ := s.ring.Around(a.mark, a.cur)
	payload := s.ring.Payload(m.Off, a.cur)
	for from := 0; from < n; {
		h, _ := frame.Parse(p.next[from:])
		to := from + h.Size + int(h.Length)
		if h.Op == frame.Text { // parts, which belongs to the first of them
			h, _ = frame.Parse(p.next[to:])
			to += h.Size + int(h.Length)
		}
		payload.Skip(int(h.Length))
		if to > n {
			p.rest, a.mid, p.sent = bytes.Clone(p.next[n:to]), payload.Off(), p.bytes-payload.Left()
			return
		}
		from, a.cur, p.sent = to, payload.Off(), p.bytes-payload.Left()
	}
}

// betweenParts corrects a.mid after output with parts, which may go on behind a part; mid is the end of
// one that was cut.
func (s *Session) betweenParts(a *Attachment, mid uint64) {
	switch {
	case len(a.parts.rest) > 0:
		a.mid = mid
	case a.mark.Off < a.cur && s.inParts(a, a.mark.Off):
		a.mid = a.cur
	default:
		a.parts = nil // that message is through
	}
}
