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
	lent := bytes.Join(b.s.ClientOut(b.now, a, nil), nil)
	b.says("\x10ack 2")
	b.s.ClientWrote(b.now, a, len(lent)-2, true)
	b.wantState(session.Ended)
	if f := a.Fate(); f != session.Shut {
		t.Errorf("fate %d, want the connection closed", f)
	}
	if more := b.s.ClientOut(b.now, a, nil); len(more) > 0 {
		t.Errorf("behind half a message %q is written", more)
	}
	b.wants(b.up, "close 1008 protocol_violation: ack 2 before it was sent")
}
