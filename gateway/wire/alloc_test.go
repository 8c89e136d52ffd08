//go:build !race

package wire

import "testing"

// A frame with a JSON argument is made in one piece, whatever its length: besides it only the
// argument is allocated, as a value and encoded.
func TestFramesAllocateLittle(t *testing.T) {
	for _, token := range []string{"short", string(make([]byte, 2000))} {
		h := Hello{Session: "0123456789abcdef", Token: token}
		if n := testing.AllocsPerRun(200, func() { AppendJSON(nil, VerbHello, h) }); n > 3 {
			t.Errorf("a token of %d bytes: %v allocations, want at most 3", len(token), n)
		}
	}
	dst := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { AppendAck(dst, 1<<53); Append(dst, VerbPing, "17") }); n != 0 {
		t.Errorf("an ack and a ping: %v allocations, want none", n)
	}
}
