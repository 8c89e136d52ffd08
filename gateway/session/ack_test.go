package session_test

import (
	"bytes"
	"testing"

	"reseat/gateway/session"
)

// A client acks a message of which it has been written a half, and the write
// comes to no more. The other half is forgotten, so nothing can follow.
func TestAckOfAMessageThatIsHalfWrittenCutsTheConnection(t *testing.T) {
	b := newTable(t, config())
	b.game(text("one") + text("two"))
	a := b.att
	lent := bytes.Join(b.s.Out(b.now, a, nil), nil)
	b.says("\x10ack 2")
	b.s.Wrote(b.now, a, len(lent)-2, true)
	b.wantState(session.Ended)
	if f := a.CloseMode(); f != session.Shut {
		t.Errorf("fate %d, want the connection closed", f)
	}
	if more := b.s.Out(b.now, a, nil); len(more) > 0 {
		t.Errorf("behind half a message %q is written", more)
	}
	b.wants(b.up, "close 1008 protocol_violation: ack 2 before it was sent")
}

// What is numbered and was not handed out for writing yet has not been sent:
// protocol section 5 has an ack of it refused at once, not when it is written.
func TestAckOfAMessageThatWasNotHandedOutIsAViolation(t *testing.T) {
	b := newTable(t, config())
	b.game(text("one"))
	lent := bytes.Join(b.s.Out(b.now, b.att, nil), nil)
	b.game(text("two"))
	b.says("\x10ack 2")
	b.wantState(session.Ended)
	b.wants(b.up, "close 1008 protocol_violation: ack 2 is beyond what was sent")
	b.s.Wrote(b.now, b.att, len(lent), false)
}

func TestAckOfAllThatWasHandedOutIsGood(t *testing.T) {
	b := newTable(t, config())
	b.game(text("one") + text("two"))
	lent := bytes.Join(b.s.Out(b.now, b.att, nil), nil)
	b.says("\x10ack 2") // it may come before the write that it answers was reported
	b.s.Wrote(b.now, b.att, len(lent), false)
	b.wantState(session.Attached)
}
