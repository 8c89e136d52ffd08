package message

import (
	"bytes"
	"compress/flate"
	"testing"
	"unicode/utf8"
)

var kinds = map[string]Kind{
	"small": {Way: Up, Size: 48}, "text": {Way: Up, Size: 48, Text: true}, "tick": {Way: Down, Size: 128},
	"state": {Way: Down, Size: 512, Text: true, State: true},
	"least": {Way: Down, Size: headSize}, "big": {Way: Down, Size: MaxSize}, "big text": {Way: Up, Size: MaxSize, Text: true},
}

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
				if !give(c, k.Append(nil, 1234, 7, n), k.Text, piece) || c.Clock != 1234 {
					t.Fatalf("%s, pieces of %d, message %d: %v", name, piece, n, c.Faults)
				}
			}
			if c.Faults.Any() || c.Taken != 3 {
				t.Errorf("%s: %v, %d taken", name, c.Faults, c.Taken)
			}
		}
	}
}

// Only the clock may have any value: it is what is measured.
func TestEveryCorruptedByteIsDetected(t *testing.T) {
	for _, name := range []string{"small", "text", "state", "tick", "least"} {
		k := kinds[name]
		clock := k.MinSize() * 8 / headSize
		for i := range k.Size {
			for bit := range 8 {
				c, b := newCheck(k), k.Append(nil, 0x3132333435363738, 7, 1)
				b[i] ^= 1 << bit
				if good := give(c, b, k.Text, 1<<20); i >= clock && (good || !c.Faults.Any()) {
					t.Errorf("%s: bit %d of byte %d is wrong and was taken", name, bit, i)
				}
			}
		}
	}
}

func TestGapIsCountedInMessages(t *testing.T) {
	k := kinds["tick"]
	c := newCheck(k)
	give(c, k.Append(nil, 1, 7, 1), false, 64)
	give(c, k.Append(nil, 1, 7, 5), false, 64)
	if *c.Faults != (Faults{Gap: 3, First: c.Faults.First}) || c.Faults.First == "" {
		t.Errorf("%+v", *c.Faults)
	}
	if !give(c, k.Append(nil, 1, 7, 6), false, 64) {
		t.Error("what follows upon the gap is not taken")
	}
}

func TestDuplicateIsCountedAndIgnored(t *testing.T) {
	k := kinds["tick"]
	c := newCheck(k)
	for _, n := range []uint64{1, 2, 2, 1} {
		give(c, k.Append(nil, 1, 7, n), false, 64)
	}
	if c.Faults.Double != 2 || c.Faults.Gap+c.Faults.Wrong > 0 || c.Taken != 2 {
		t.Errorf("%+v, %d taken", *c.Faults, c.Taken)
	}
}

func TestStrayMessageIsWrong(t *testing.T) {
	k := kinds["tick"]
	right := k.Append(nil, 1, 7, 1)
	for name, tt := range map[string]struct {
		b    []byte
		text bool
	}{
		"of another session": {k.Append(nil, 1, 8, 1), false},
		"of the other way":   {Kind{Way: Up, Size: k.Size}.Append(nil, 1, 7, 1), false},
		"of another type":    {right, true},
		"cut short":          {right[:100], false},
		"cut in its head":    {right[:10], false},
		"empty":              {nil, false},
		"too long":           {append(bytes.Clone(right), 0), false},
	} {
		c := newCheck(k)
		if give(c, tt.b, tt.text, 64) || c.Faults.Wrong != 1 {
			t.Errorf("a message %s was taken: %+v", name, *c.Faults)
		}
	}
}

// Two messages of a stream differ in their patterns, not only in their heads.
func TestMessagesDiffer(t *testing.T) {
	k := kinds["small"]
	seen := map[string]bool{}
	for n := range uint64(2000) {
		seen[string(k.pattern(7, n))] = true
	}
	if len(seen) < 1500 { // of 4,096 starts of a pattern
		t.Errorf("%d patterns in 2000 messages", len(seen))
	}
}

func TestTextIsText(t *testing.T) {
	b := kinds["big text"].Append(nil, 99, 7, 12345)
	if len(b) != MaxSize || !utf8.Valid(b) || b[0] == 0x10 {
		t.Errorf("%d bytes, begins with %q", len(b), b[:10])
	}
}

// A server's JSON compresses to about half its size, message by message; random letters
// don't get below the six bits that each of them has.
func TestStateCompresses(t *testing.T) {
	for name, want := range map[string][2]int{"state": {200, 330}, "letters": {400, 600}} {
		k, sum := Kind{Way: Down, Size: 512, Text: true, State: name == "state"}, 0
		for n := range uint64(100) {
			var z bytes.Buffer
			w, _ := flate.NewWriter(&z, flate.BestSpeed)
			w.Write(k.Append(nil, 1<<50, 7, n))
			w.Flush()
			sum += z.Len()
		}
		if mean := sum / 100; mean < want[0] || mean > want[1] {
			t.Errorf("%s: %d bytes of 512", name, mean)
		}
	}
}

func TestFaultsAddUp(t *testing.T) {
	a := Faults{Wrong: 1, Gap: 2}
	a.Add(Faults{Double: 3, Refused: 4, Dropped: 5, First: "the first"})
	a.Add(Faults{Wrong: 1, First: "the second"})
	if a != (Faults{2, 2, 3, 4, 5, "the first"}) || !a.Any() || new(Faults).Any() {
		t.Errorf("%+v", a)
	}
}
