package message

import (
	"bytes"
	"testing"
)

var (
	tick  = Kind{Way: Down, Size: 128}
	kinds = map[string]Kind{
		"tick": tick, "small": {Way: Up, Size: 48}, "text": {Way: Up, Size: 48, Text: true},
		"state": {Way: Down, Size: 512, Text: true, State: true}, "smallest": {Way: Down, Size: headSize}, "largest": {Way: Down, Size: MaxSize},
	}
)

func newCheck(k Kind) *Check { return &Check{Kind: k, Session: 7, Faults: new(Faults)} }

// give passes a message to c in pieces of a size.
func give(c *Check, b []byte, text bool, piece int) bool {
	c.Begin(text)
	for len(b) > 0 {
		n := min(piece, len(b))
		c.Payload(b[:n])
		b = b[n:]
	}
	return c.End()
}

func TestIntactMessagesPass(t *testing.T) {
	for name, k := range kinds {
		for _, piece := range []int{1, 13, 64, 1 << 20} {
			c := newCheck(k)
			for n := uint64(1); n <= 3; n++ {
				if !give(c, k.Append(nil, 1234, 7, n), k.Text, piece) || c.Clock != 1234 || c.Taken != n {
					t.Fatalf("%s, pieces of %d, message %d: clock %d, %d taken, %v", name, piece, n, c.Clock, c.Taken, c.Faults)
				}
			}
		}
	}
}

// Only the clock may have any value: it is what is measured.
func TestEveryCorruptedByteIsDetected(t *testing.T) {
	for name, k := range kinds {
		if k.Size > 1024 {
			continue
		}
		for i := k.MinSize() * 8 / headSize; i < k.Size; i++ {
			for bit := range 8 {
				c, b := newCheck(k), k.Append(nil, 0x3132333435363738, 7, 1)
				b[i] ^= 1 << bit
				if give(c, b, k.Text, 1<<20) || !c.Faults.Any() {
					t.Errorf("%s: bit %d of byte %d is wrong and was taken", name, bit, i)
				}
			}
		}
	}
}

func TestFaultsAreCounted(t *testing.T) {
	message := func(n uint64) []byte { return tick.Append(nil, 1, 7, n) }
	for name, tt := range map[string]struct {
		messages [][]byte
		want     Faults
		taken    uint64
	}{
		"a gap":                {[][]byte{message(1), message(5), message(6)}, Faults{Gap: 3}, 6},
		"doubled":              {[][]byte{message(1), message(2), message(2), message(1)}, Faults{Double: 2}, 2},
		"of another session":   {[][]byte{tick.Append(nil, 1, 8, 1)}, Faults{Wrong: 1}, 1},
		"of the other way":     {[][]byte{Kind{Way: Up, Size: tick.Size}.Append(nil, 1, 7, 1)}, Faults{Wrong: 1}, 1},
		"of a number too high": {[][]byte{message(1 << 50)}, Faults{Wrong: 1}, 1},
		"cut short":            {[][]byte{message(1)[:100]}, Faults{Wrong: 1}, 1},
		"cut in its head":      {[][]byte{message(1)[:10]}, Faults{Wrong: 1}, 1},
		"empty":                {[][]byte{nil}, Faults{Wrong: 1}, 1},
		"too long":             {[][]byte{append(bytes.Clone(message(1)), 0)}, Faults{Wrong: 1}, 1},
	} {
		c := newCheck(tick)
		for _, b := range tt.messages {
			give(c, b, false, 64)
		}
		got := *c.Faults
		if got.First = ""; got != tt.want || c.Taken != tt.taken {
			t.Errorf("%s: %v, %d taken; want %v, %d", name, *c.Faults, c.Taken, tt.want, tt.taken)
		}
	}
	if c := newCheck(tick); give(c, message(1), true, 64) || c.Faults.Wrong != 1 {
		t.Errorf("a message of another type: %v", c.Faults)
	}
}

func TestFaultsAddUp(t *testing.T) {
	a := Faults{Wrong: 1, Gap: 2}
	a.Add(Faults{Double: 3, Refused: 4, Dropped: 5, First: "the first"})
	a.Add(Faults{Wrong: 1, First: "the second"})
	if want := (Faults{2, 2, 3, 4, 5, "the first"}); a != want || !a.Any() || new(Faults).Any() {
		t.Errorf("%+v, want %+v", a, want)
	}
}

func TestPatternsOfMessagesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for n := range uint64(2000) {
		seen[string(tick.pattern(7, n))] = true
	}
	if len(seen) < 1500 { // of 4,096 starts of a pattern
		t.Errorf("%d patterns in 2000 messages", len(seen))
	}
}
