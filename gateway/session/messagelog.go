package session

import (
	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// Logging of messages costs a copy of each message's beginning, so everything here is
// skipped unless --log-messages is set.

// MessageLog selects how much of each data message is logged: --log-messages.
type MessageLog struct {
	On     bool
	Prefix int // bytes of payload; zero: none
}

// logUp emits Message for a client's message; msg holds its frames as received.
func (s *Session) logUp(msg []byte, size int64) {
	if s.cfg.MessageLog.On {
		s.logMessage(false, msg, size)
	}
}

// logDown emits Message for the upstream's message that was just numbered.
func (s *Session) logDown(from uint64, size int64) {
	if !s.cfg.MessageLog.On {
		return
	}
	limit := uint64(s.cfg.MessageLog.Prefix + 1 + 4*frame.MaxHeader) // enough for a few frames; of a message in many tiny ones less is logged
	s.logMessage(true, s.ring.Copy(from, min(from+limit, s.ring.Last().Off)), size)
}

// logMessage emits Message for the frames in msg, without an escaping DLE.
func (s *Session) logMessage(down bool, msg []byte, size int64) {
	h, _ := frame.Parse(msg)
	head := s.head(msg)
	if s.cfg.Resumable && h.Op == frame.Text && len(head) > 0 && head[0] == wire.DLE {
		head = head[1:] // the escape
	}
	s.emit(Event{Kind: Message, Down: down, Text: h.Op == frame.Text, Size: size, Head: string(head[:min(len(head), s.cfg.MessageLog.Prefix)])})
}

// head returns the first Prefix+1 bytes of a message's payload: one more for an escaping
// DLE.
func (s *Session) head(msg []byte) (head []byte) {
	for len(msg) > 0 && len(head) <= s.cfg.MessageLog.Prefix {
		h, _ := frame.Parse(msg)
		if h.Size == 0 {
			break
		}
		msg = msg[h.Size:]
		n := min(int(h.Length), len(msg), s.cfg.MessageLog.Prefix+1-len(head))
		at := len(head)
		head = append(head, msg[:n]...)
		if h.Masked {
			frame.XOR(head[at:], h.Key)
		}
		msg = msg[min(int(h.Length), len(msg)):]
	}
	return head
}
