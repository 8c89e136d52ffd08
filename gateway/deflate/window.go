package deflate

import (
	"math/bits"
	"sync"
)

// A window is the end of what one direction's compressed messages contain, as far back as
// later ones may refer to: RFC 7692 section 7.1.1. Its memory grows with what passes. Its
// direction's goroutine owns it.
type window struct {
	size int // max bytes; 0: each message stands for itself
	b    []byte
	tab  *tab
}

const minWindow = 512 // bytes that a window has at least once it is used

// add appends p and forgets what lies more than size bytes back.
func (w *window) add(p []byte) {
	p = p[max(0, len(p)-w.size):]
	if len(p) == 0 {
		return
	}
	w.b = w.b[:copy(w.b, w.b[max(0, len(w.b)+len(p)-w.size):])]
	if need := len(w.b) + len(p); need > cap(w.b) {
		size := min(w.size, max(minWindow, 1<<bits.Len(uint(need-1))))
		w.tab.add(size - cap(w.b))
		w.b = append(make([]byte, 0, size), w.b...)
	}
	w.b = append(w.b, p...)
}

// A tab accounts the memory that a connection holds.
type tab struct {
	charge func(int) // nil: nothing is counted

	mu     sync.Mutex // never held over I/O
	held   int
	closed bool
}

// add records that n bytes more are held, or fewer.
func (t *tab) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.charge == nil || n == 0 {
		return
	}
	t.charge(n)
	t.held += n
}

// close returns what is held.
func (t *tab) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.charge != nil {
		t.charge(-t.held)
	}
	t.held, t.closed = 0, true
}

// A holding is one direction's part of a tab.
type holding struct {
	tab *tab
	n   int
}

// set records that the direction holds n bytes now.
func (h *holding) set(n int) {
	if n != h.n {
		h.tab.add(n - h.n)
		h.n = n
	}
}
