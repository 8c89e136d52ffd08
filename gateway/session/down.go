package session

import (
	"fmt"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// This file is the path of a message down, from the upstream's socket into the replay
// buffer: Room, Read, scanRaw, then a number for each complete message. The way from the
// buffer to the client is attachment.go. What must hold:
//
//   - Bytes are in the buffer once, and stay where the socket read put them.
//   - The raw part of the buffer is what has been read and not been walked over. It is
//     kept while a message waits for room, and the upstream is not read meanwhile.
//   - The first byte of an upstream's message may reach the client before its last byte
//     has arrived. So a frame is accepted or refused by its header, and a message gets
//     its number, and can be acked, only when it is complete.

// pausedText is the reason of Overflowed under the policy Pause.
const pausedText = "upstream paused"

// A scanner is the state of the walk over the upstream's frames. It parses headers
// only: payload goes from the socket to the client without being copied.
type scanner struct {
	open       bool  // a message has begun and not ended
	text       bool  // it is text, and its first byte is still to be checked for a DLE
	fin        bool  // the current frame is the message's last
	full       bool  // a message did not fit: raw bytes wait for room
	overflowed bool  // Overflowed was emitted since the detach
	rem        int64 // payload of the current frame still to come
	size       int64 // payload of the open message so far, as announced
	stored     int64 // the same as stored in the buffer: one more for an escaping DLE
	frames     int
	progress   Time // when the open message last grew
}

// room returns memory of the replay buffer: the upstream is read straight into it. A
// detached session gets less at a time, since its memory is not freed by acks.
func (u *Upstream) room(s *Session) []byte {
	if !u.wants(s) {
		return nil
	}
	room := s.ring.Room(s.state != Attached)
	s.starved = room == nil
	return room
}

// wants withholds reads while the buffer is full: backpressure then reaches the game
// server, protocol section 5.3.
func (u *Upstream) wants(s *Session) bool {
	return s.readsFrom(u) && !s.scan.full && !s.starved
}

// readsFrom reports whether input from u still belongs to the session.
func (s *Session) readsFrom(u *Upstream) bool {
	return u == s.up && !u.released && !u.over && s.state != Ended
}

// read drops input of a replaced upstream. It calls Fill even for no bytes, since Room has
// reserved the memory.
func (u *Upstream) read(s *Session, now Time, p []byte) {
	if !s.readsFrom(u) {
		return
	}
	s.ring.Fill(len(p))
	if len(p) > 0 {
		s.ring.Stamp(int64(now))
		s.up.heard = now
		s.up.pinged = false
		s.scanRaw(now)
	}
}

// unblock continues with raw bytes that waited for room, or for a client.
func (s *Session) unblock(now Time) {
	if s.starved {
		s.starved = false
		s.up.heard, s.scan.progress = now, now // as in tickUpstream
	}
	switch {
	case !s.scan.full:
		s.deliverEnd(now)
	case s.roomAgain():
		s.scan.full = false
		s.up.heard, s.scan.progress = now, now // it was not read meanwhile: the silence was ours
		s.scanRaw(now)
	case s.state == Detached:
		s.noteOverflow(pausedText)
	}
}

// roomAgain reports whether reading may continue after a full buffer: at half of it, so
// that a slow client does not stop and start the game server for each message, or where
// the policy makes room.
func (s *Session) roomAgain() bool {
	if s.state == Detached && s.cfg.Overflow != Pause {
		return true
	}
	return 2*s.ring.Messages() <= s.cfg.BufferMessages && 2*s.ring.Bytes() <= s.cfg.BufferBytes
}

// scanRaw processes the raw bytes, frame by frame, as far as frames are complete.
func (s *Session) scanRaw(now Time) {
	for s.scanFrame(now) {
	}
	if s.state != Ended {
		s.ring.Settle()
		s.deliverEnd(now)
	}
}

// scanFrame processes the next piece, and reports whether there may be another.
func (s *Session) scanFrame(now Time) bool {
	if !s.readsFrom(s.up) {
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
		// Control frames belong to this hop. They are removed from the stream, and may lie
		// between the fragments of a message: protocol section 1.
		end := h.Size + int(h.Length)
		if len(raw) < end {
			return false
		}
		s.ring.Skip(end) // before: a Close frame may discard the rest
		s.upstreamControl(now, h.Op, raw[h.Size:end])
		return true
	}
	return s.dataFrame(now, h, raw)
}

// payload takes over what has arrived of the current frame's payload.
func (s *Session) payload(now Time, raw []byte) {
	n := min(s.scan.rem, int64(len(raw)))
	s.ring.Take(int(n))
	s.scan.rem -= n
	s.scan.progress = now
	s.endFrame(now)
}

// dataFrame takes over the header of a data frame, if the frame is valid and fits. It
// must decide by the header alone: payload is passed on before the frame is complete.
func (s *Session) dataFrame(now Time, h frame.Header, raw []byte) bool {
	sc := &s.scan
	if (h.Op == frame.Continuation) != sc.open {
		return s.upstreamFault(now, wire.CodeProtocolError, "continuation frame out of place")
	}
	// A new message: reset everything but the state of the buffer.
	if !sc.open {
		*sc = scanner{text: h.Op == frame.Text && s.cfg.Resumable, full: sc.full, overflowed: sc.overflowed}
	}
	// The announced size counts, so that a message over the limit is refused before any of
	// it takes up the buffer.
	size := sc.size + h.Length
	was, wait := s.keepalive(h, raw)
	switch {
	case was, wait:
		return was
	case size > s.cfg.MaxMessage || size < 0:
		return s.upstreamFault(now, wire.CodeMessageTooBig, "message of the upstream over the limit")
	case sc.frames == frame.MaxFrames(s.cfg.MaxMessage):
		return s.upstreamFault(now, wire.CodeProtocolError, tooManyFrames(sc.frames))
	case sc.text && h.Length > 0 && len(raw) == h.Size: // the first byte decides whether a DLE is inserted
		return false // the first byte decides how the frame begins
	case !s.makeRoom(now, size):
		return false
	}
	sc.open, sc.fin, sc.size, sc.rem = true, h.Fin, size, h.Length
	sc.stored += h.Length
	sc.frames++
	sc.progress = now
	// Protocol section 3: data text that begins with a DLE gets one more in front.
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

// tooManyFrames describes a message of more frames than protocol section 11 allows:
// each frame costs work, whatever its size.
func tooManyFrames(limit int) string { return fmt.Sprintf("message of more than %d frames", limit) }

// endFrame ends the current frame once it is complete. If it is the last of its message,
// the message gets its number: protocol section 4.
func (s *Session) endFrame(now Time) {
	if s.scan.rem > 0 || !s.scan.fin {
		return
	}
	// EndMessage moves Last behind the message, so its beginning is taken before.
	from := s.ring.Last().Off
	s.ring.EndMessage(s.scan.stored)
	if s.scan.stored > PartBytes {
		s.large = s.ring.Last().Off
	}
	s.logDown(from, s.scan.size)
	s.stats.ToClient++
	s.stats.ToClientBytes += uint64(s.scan.size)
	s.data = now
	s.scan.open, s.scan.fin = false, false
	s.answerNewest(from)
	if s.replacing {
		s.noteState(from)
	}
}

// makeRoom applies the overflow policy so that an open message of this payload fits
// into the replay buffer. It reports false if the message must wait, or if the session
// has ended.
func (s *Session) makeRoom(now Time, payload int64) bool {
	if s.fits(payload) {
		return true
	}
	switch {
	case s.state == Detached && s.cfg.Overflow == EndSession:
		if s.scan.full = true; s.mayEnd(now) {
			s.endOverflow(now, bufferFull)
		}
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
	// A full buffer is one reason to read a plain client again: its Pong may make room.
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

// fits reports whether an open message of this payload fits. A single message always
// does: otherwise one larger than the buffer would wait forever.
func (s *Session) fits(payload int64) bool {
	n := s.ring.Messages()
	return n == 0 || s.isLeaving() || n < s.cfg.BufferMessages && s.ring.Bytes()+payload <= s.cfg.BufferBytes
}

// dropOldest frees the oldest message, or run of replaced ones. If it was written, the client may still count it
// in its N, so sentN must cover it.
func (s *Session) dropOldest() {
	from := s.ring.Base().N
	base, replaced := s.ring.Oldest()
	s.ring.Ack(base.N, s.ring.Last().Off)
	if base.Off <= s.sentOff {
		s.sentN = max(s.sentN, base.N)
	}
	if replaced {
		s.states.add(span{from, base.N}, s.sentN)
	} else {
		s.stats.Dropped++
	}
}

// noteOverflow emits Overflowed once between a detach and the next attach: the buffer
// overflows again with every message.
func (s *Session) noteOverflow(why string) {
	if !s.scan.overflowed {
		s.scan.overflowed = true
		s.emit(Event{Kind: Overflowed, Reason: why})
	}
}

// wasSent reports whether message n was ever written to one of the session's
// connections, or skipped as lost. A client may state such an N at a resume.
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
