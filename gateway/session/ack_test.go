package session_test

import (
	"bytes"
	"testing"

	"reseat/gateway/session"
)

// A client acks a message of which half is in flight, and the write stops there. The
// other half has been freed, so nothing can follow.
func TestAckOfHalfWrittenMessageClosesConnection(t *testing.T) {
	b := newTable(t, config())
	b.game(text("one") + text("two"))
	a := b.att
	output := bytes.Join(b.s.Out(b.now, a, nil), nil)
	b.says("\x10ack 2")
	b.s.Wrote(b.now, a, len(output)-2, true)
	b.wantState(session.Ended)
	if f := a.CloseMode(); f != session.Shut {
		t.Errorf("close mode %d, want the connection closed", f)
	}
	if more := b.s.Out(b.now, a, nil); len(more) > 0 {
		t.Errorf("after half a message %q is written", more)
	}
	b.wants(b.up, "close 1008 protocol_violation: ack 2 before it was sent")
}

// A numbered message that Out has not returned has not been sent: its ack is refused at
// once, not when the message is written. Protocol section 5.2.
func TestAckBeyondOutputIsViolation(t *testing.T) {
	b := newTable(t, config())
	b.game(text("one"))
	output := bytes.Join(b.s.Out(b.now, b.att, nil), nil)
	b.game(text("two"))
	b.says("\x10ack 2")
	b.wantState(session.Ended)
	b.wants(b.up, "close 1008 protocol_violation: ack 2 is beyond what was sent")
	b.s.Wrote(b.now, b.att, len(output), false)
}

func TestAckOfOutputInFlightIsAccepted(t *testing.T) {
	b := newTable(t, config())
	b.game(text("one") + text("two"))
	output := bytes.Join(b.s.Out(b.now, b.att, nil), nil)
	b.says("\x10ack 2") // it may arrive before the write is reported
	b.s.Wrote(b.now, b.att, len(output), false)
	b.wantState(session.Attached)
}
