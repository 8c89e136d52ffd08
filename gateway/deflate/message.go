package deflate

import (
	"time"

	"reseat/gateway/frame"
)

// A message is a compressed one that is being gathered, or handed on.
type message struct {
	open     bool
	op       byte
	last     bool // its present frame is its last
	frames   int
	buf      *[]byte // its payload so far, unmasked
	inflated int64   // bytes that were handed on
	told     bool    // the reader knows of it

	moved bool      // more has come since word
	began time.Time // when the reader was told of it,
	word  time.Time // and when it was last told that it goes on
}

const (
	// alive is a sign of life and nothing else: an unsolicited Pong, RFC 6455
	// section 5.5.3.
	alive = "\x8a\x80\x00\x00\x00\x00"
	// wordEvery is how often at most the reader is told that a message goes on.
	wordEvery = time.Second
	// wordParts makes these words rarer the longer a message takes, by that part
	// of its time. In half an hour they are 280, and then come every 30 s: a
	// message that takes longer is taken for one that stalls.
	wordParts = 64
)

// opcode is that of m's next frame for the reader.
func (m *message) opcode() byte {
	if m.told {
		return frame.Continuation
	}
	m.told = true
	return m.op
}

// memory is what m holds, in bytes.
func (m *message) memory() int {
	if m.buf == nil {
		return 0
	}
	return cap(*m.buf)
}

// owes reports whether the reader may have to be told something. In the midst of
// a frame that passes it cannot, and hears of what comes.
func (in *inbound) owes() bool {
	return (in.came || in.msg.open) && (in.left == 0 || in.mine)
}

// speak tells the reader, that would else hear nothing, that bytes have come and
// how the message stands: that there is one, or that it goes on.
func (in *inbound) speak(now time.Time) {
	m := &in.msg
	switch {
	case m.open && !m.told:
		m.began, m.word, m.moved = now, now, false
		in.done = appendMaskedHeader(nil, m.opcode(), false, 0)
	case m.moved && now.Sub(m.word) >= max(wordEvery, now.Sub(m.began)/wordParts):
		m.word, m.moved = now, false
		in.done = appendMaskedHeader(nil, frame.Continuation, false, 0)
	case in.came:
		in.done = []byte(alive)
	}
	in.came = false
}
