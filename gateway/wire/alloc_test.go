//go:build !race

package wire

import "testing"

// A frame with a JSON argument is made in one piece, whatever its length: besides it only the
// argument is allocated, as a value and encoded.
func TestJSONFrameAllocatesItselfAndItsArgument(t *testing.T) {
	for _, token := range []string{"short", string(make([]byte, 2000))} {
		h := Hello{Session: "0123456789abcdef", Token: token}
		if n := testing.AllocsPerRun(200, func() { AppendJSON(nil, VerbHello, h) }); n > 3 {
			t.Errorf("a token of %d bytes: %v allocations, want at most 3", len(token), n)
		}
	}
}
