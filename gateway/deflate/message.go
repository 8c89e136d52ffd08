package deflate

import (
	"time"

	"reseat/gateway/frame"
)

// A message is a compressed message that is being collected or returned.
type message struct {
	open     bool
	op       byte
	last     bool // its current frame is its last
	frames   int
	buf      *[]byte // its payload so far, unmasked
	inflated int64   // bytes returned so far
	started  bool    // the reader has got its first frame

	moved   bool      // more has come since noticed
	began   time.Time // when the reader got its first frame
	noticed time.Time // when the reader last got a frame of it
}

const (
	// alive only shows activity: an unsolicited Pong, RFC 6455 section 5.5.3.
	alive = "\x8a\x80\x00\x00\x00\x00"
	// noticeInterval is the min time between two notices that a message continues.
	noticeInterval = time.Second
	// noticeShare makes the notices rarer the longer a message takes: at least this
	// fraction of its time apart. In half an hour there are 280, and from then on they
	// are 30 s apart, so that the reader treats a slower message as stalled.
	noticeShare = 64
)

// opcode returns the opcode of m's next frame for the reader.
func (m *message) opcode() byte {
	if m.started {
		return frame.Continuation
	}
	m.started = true
	return m.op
}

// memory returns the memory that m holds, in bytes.
func (m *message) memory() int {
	if m.buf == nil {
		return 0
	}
	return cap(*m.buf)
}

// noticeDue reports whether the reader may need a notice. Within a frame that passes
// unchanged none can be sent, and none is needed.
func (in *inbound) noticeDue() bool {
	return (in.came || in.msg.open) && (in.left == 0 || in.inMsg)
}

// notify sends the reader, which would otherwise see no activity, a frame without
// payload: the start of a message, its continuation, or an unsolicited Pong.
func (in *inbound) notify(now time.Time) {
	m := &in.msg
	switch {
	case m.open && !m.started:
		m.began, m.noticed, m.moved = now, now, false
		in.done = appendMaskedHeader(nil, m.opcode(), false, 0)
	case m.moved && now.Sub(m.noticed) >= max(noticeInterval, now.Sub(m.began)/noticeShare):
		m.noticed, m.moved = now, false
		in.done = appendMaskedHeader(nil, frame.Continuation, false, 0)
	case in.came:
		in.done = []byte(alive)
	}
	in.came = false
}
