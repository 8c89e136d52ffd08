package session

import (
	"fmt"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

const pausedText = "upstream paused"

// A scanner is where the walk over the upstream's frames stands. It sees
// headers only; payload stays untouched in the replay buffer.
type scanner struct {
	open       bool  // a message has begun and not ended
	text       bool  // and it is text whose first byte is still to be looked at
	fin        bool  // the present frame is its last
	rem        int64 // payload of the present frame that is still to come
	size       int64 // payload of the open message so far, as announced
	stored     int64 // and of what the buffer keeps of it: an escaping DLE more
	frames     int
	full       bool // a message did not fit: the raw part waits for room
	overflowed bool // that the buffer overflowed, in this absence
	progress   Time // when the open message last grew
}

func (u *Upstream) room(s *Session, _ func() []byte) []byte {
	if !u.wants(s) {
		return nil
	}
	room := s.ring.Room(s.state != Attached)
	s.starved = room == nil
	return room
}

func (u *Upstream) wants(s *Session) bool {
	return s.readsFrom(u) && !s.scan.full && !s.starved
}

// readsFrom reports whether what comes from u still belongs to the session.
func (s *Session) readsFrom(u *Upstream) bool {
	return u == s.up && !u.released && !u.over && s.state != Ended
}

func (u *Upstream) read(s *Session, now Time, p []byte) {
	if !s.readsFrom(u) {
		return
	}
	s.ring.Fill(len(p))
	if len(p) > 0 {
		s.up.heard = now
		s.up.pinged = false
		s.scanRaw(now)
	}
}

// unblock goes on with what had to wait for room or for a client.
func (s *Session) unblock(now Time) {
	s.starved = false
	switch {
	case !s.scan.full:
		s.deliverEnd(now)
	case s.roomAgain():
		s.scan.full = false
		s.up.heard, s.scan.progress = now, now
		s.scanRaw(now)
	case s.state == Detached:
		s.noteOverflow(pausedText)
	}
}

// roomAgain reports whether it is worth going on after a full buffer: at half
// of it, or where the policy makes room.
func (s *Session) roomAgain() bool {
	if s.state == Detached && s.cfg.Overflow != Pause {
		return true
	}
	return 2*s.ring.Messages() <= s.cfg.BufferMessages && 2*s.ring.Bytes() <= s.cfg.BufferBytes
}

// scanRaw takes over what was read, frame by frame, as far as it is whole.
func (s *Session) scanRaw(now Time) {
	for s.scanFrame(now) {
	}
	if s.state != Ended {
		s.ring.Settle()
		s.deliverEnd(now)
	}
}

// scanFrame takes the next piece and reports whether there may be another.
func (s *Session) scanFrame(now Time) bool {
	if s.state == Ended || s.up.over {
		return false
	}
	raw := s.ring.Raw()
	if len(raw) == 0 {
		return false
	}
	if s.scan.rem > 0 {
		s.payload(now, raw)
		return true
	}
	h, err := frame.Parse(raw)
	switch {
	case err != nil:
		return s.upstreamFault(now, wire.CodeProtocolError, err.Error())
	case h.Size == 0:
		return false
	case h.Masked:
		return s.upstreamFault(now, wire.CodeProtocolError, "masked frame from the upstream")
	case h.Control():
		end := h.Size + int(h.Length)
		if len(raw) < end {
			return false
		}
		s.upstreamControl(now, h.Op, raw[h.Size:end])
		s.ring.Skip(end)
		return true
	}
	return s.dataFrame(now, h, raw)
}

// payload takes over what has come of the present frame's payload.
func (s *Session) payload(now Time, raw []byte) {
	n := min(s.scan.rem, int64(len(raw)))
	s.ring.Take(int(n))
	s.scan.rem -= n
	s.scan.progress = now
	s.endFrame(now)
}

// dataFrame takes over the header of a data frame, if the frame is allowed and
// there is room for it.
func (s *Session) dataFrame(now Time, h frame.Header, raw []byte) bool {
	sc := &s.scan
	if (h.Op == frame.Continuation) != sc.open {
		return s.upstreamFault(now, wire.CodeProtocolError, "continuation frame out of place")
	}
	if !sc.open {
		*sc = scanner{text: h.Op == frame.Text && s.cfg.Resumable, full: sc.full, overflowed: sc.overflowed}
	}
	size := sc.size + h.Length
	was, wait := s.keepalive(h, raw)
	switch {
	case was, wait:
		return was
	case size > s.cfg.MaxMessage || size < 0:
		return s.upstreamFault(now, wire.CodeMessageTooBig, "message of the upstream over the limit")
	case sc.frames == frame.MaxFrames(s.cfg.MaxMessage):
		return s.upstreamFault(now, wire.CodeProtocolError, tooManyFrames(sc.frames))
	case sc.text && h.Length > 0 && len(raw) == h.Size:
		return false // the first byte decides how the frame begins
	case !s.makeRoom(now, size):
		return false
	}
	sc.open, sc.fin, sc.size, sc.rem = true, h.Fin, size, h.Length
	sc.stored += h.Length
	sc.frames++
	sc.progress = now
	if sc.text && h.Length > 0 && raw[h.Size] == wire.DLE {
		head := frame.AppendHeader(make([]byte, 0, frame.MaxHeader), h.Op, h.Fin, int(h.Length)+1)
		s.ring.Insert(append(head, wire.DLE))
		s.ring.Skip(h.Size)
		sc.stored++
	} else {
		s.ring.Take(h.Size)
	}
	sc.text = sc.text && h.Length == 0
	s.endFrame(now)
	return true
}

func tooManyFrames(limit int) string { return fmt.Sprintf("message of more than %d frames", limit) }

// endFrame ends the present frame where it is whole, and with it perhaps the
// message, which thereby is numbered.
func (s *Session) endFrame(now Time) {
	if s.scan.rem > 0 || !s.scan.fin {
		return
	}
	from := s.ring.Last().Off
	s.ring.EndMessage(s.scan.stored)
	s.logDown(from, s.scan.size)
	s.stats.ToClient++
	s.stats.ToClientBytes += uint64(s.scan.size)
	s.data = now
	s.scan.open, s.scan.fin = false, false
	s.answerNewest(from)
}

// makeRoom sees to it that an open message of so much payload fits into the
// replay buffer, by the overflow policy; false where it has to wait.
func (s *Session) makeRoom(now Time, payload int64) bool {
	if s.fits(payload) {
		return true
	}
	switch {
	case s.state == Detached && s.cfg.Overflow == EndSession:
		s.endOverflow(now, "replay buffer full")
		return false
	case s.state == Detached && s.cfg.Overflow == DropOldest:
		s.noteOverflow("oldest messages dropped")
		for !s.fits(payload) {
			s.dropOldest()
		}
		return true
	case s.state == Detached:
		s.noteOverflow(pausedText)
	}
	read := s.att != nil && s.att.wants(s)
	s.scan.full = true
	if s.att != nil {
		if !read && s.att.wants(s) {
			s.readAgain(now, s.att)
		}
		s.askAck(now, s.att)
	}
	return false
}

// fits reports whether an open message of so much payload fits. One message
// alone always does.
func (s *Session) fits(payload int64) bool {
	n := s.ring.Messages()
	return n == 0 || n < s.cfg.BufferMessages && s.ring.Bytes()+payload <= s.cfg.BufferBytes
}

func (s *Session) dropOldest() {
	s.ring.Ack(s.ring.Base().N+1, s.ring.Last().Off)
	s.stats.Dropped++
	if base := s.ring.Base(); base.Off <= s.sentOff {
		s.sentN = max(s.sentN, base.N)
	}
}

func (s *Session) noteOverflow(why string) {
	if !s.scan.overflowed {
		s.scan.overflowed = true
		s.emit(Event{Kind: Overflowed, Reason: why})
	}
}

// wasSent reports whether message n was ever written to one of the session's
// connections, or told as lost.
func (s *Session) wasSent(n uint64) bool {
	if n <= s.sentN {
		return true
	}
	off := s.sentOff
	if s.att != nil {
		off = max(off, s.att.handed())
	}
	return n <= s.ring.Last().N && s.ring.After(n) <= off
}
