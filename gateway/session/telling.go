package session

import (
	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// Telling says how much is told of each data message, --log-messages.
type Telling struct {
	On     bool
	Prefix int // of the payload, in bytes
}

// logUp tells of a message of the client's; msg are its frames as they came.
func (s *Session) logUp(msg []byte, size int64) {
	if s.cfg.Tell.On {
		s.logMessage(false, msg, size)
	}
}

// logDown tells of the message of the upstream's that has just been numbered.
func (s *Session) logDown(from uint64, size int64) {
	if !s.cfg.Tell.On {
		return
	}
	limit := uint64(s.cfg.Tell.Prefix + 1 + 4*frame.MaxHeader) // of a message in many small frames it may be less
	s.logMessage(true, s.ring.Copy(from, min(from+limit, s.ring.Last().Off)), size)
}

func (s *Session) logMessage(down bool, msg []byte, size int64) {
	h, _ := frame.Parse(msg)
	head := s.head(msg)
	if s.cfg.Resumable && h.Op == frame.Text && len(head) > 0 && head[0] == wire.DLE {
		head = head[1:] // the escape
	}
	s.emit(Event{Kind: Message, Down: down, Text: h.Op == frame.Text, Size: size, Head: string(head[:min(len(head), s.cfg.Tell.Prefix)])})
}

// head is the beginning of a message's payload, with a byte to spare.
func (s *Session) head(msg []byte) (head []byte) {
	for len(msg) > 0 && len(head) <= s.cfg.Tell.Prefix {
		h, _ := frame.Parse(msg)
		if h.Size == 0 {
			break
		}
		msg = msg[h.Size:]
		n := min(int(h.Length), len(msg), s.cfg.Tell.Prefix+1-len(head))
		at := len(head)
		head = append(head, msg[:n]...)
		if h.Masked {
			frame.XOR(head[at:], h.Key)
		}
		msg = msg[min(int(h.Length), len(msg)):]
	}
	return head
}
