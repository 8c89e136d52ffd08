package netio

import "testing"

// A connection with TLS or compression keeps a buffer for as long as its player is silent.
func TestBlockingReadHoldsLittleMemory(t *testing.T) {
	l := new(leg)
	for _, filled := range []bool{false, true, false} {
		l.filled = filled
		want := heldRead
		if filled {
			want = smallRead
		}
		if b := l.borrow(); len(b) != want {
			t.Errorf("after a read that has filled its buffer, %v: %d bytes, want %d", filled, len(b), want)
		}
		l.giveBack()
	}
}
