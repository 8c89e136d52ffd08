package session_test

import (
	"strings"
	"testing"

	"reseat/gateway/session"
)

// limits.unacked_bytes is exactly 1 MiB; an empty message uses none of it.
func TestUnackedBytesLimitIsExact(t *testing.T) {
	b := newTable(t, config())
	piece := strings.Repeat("x", 64<<10)
	for range 16 {
		b.says(piece)
		b.wantState(session.Attached)
	}
	b.s.Read(b.now, b.att, masked(2, ""))
	b.s.Retain()
	b.wantState(session.Attached)
	b.says("x")
	b.wantState(session.Ended)
}
