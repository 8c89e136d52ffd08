package replay

import (
	"sync"
	"sync/atomic"
)

const (
	smallChunk = 4 << 10
	bigChunk   = 64 << 10

	// minRoom is the least that is worth a read. It exceeds any control frame,
	// so that one always comes to lie in one piece.
	minRoom = 512
)

// A chunk is a piece of the stream: buf[:n] is stream[off : off+n].
type chunk struct {
	buf  []byte
	n    int
	off  uint64
	next *chunk
	keep bool // somebody outside may still read it: never used again
}

func (c *chunk) end() uint64 { return c.off + uint64(c.n) }

// A Store lends chunks to the Buffers of many sessions and counts the memory
// that they hold together. It may be used by several goroutines at once.
type Store struct {
	limit      int64
	onSpent    func()
	used       atomic.Int64
	small, big sync.Pool
}

// NewStore makes a Store of at most limit bytes; see Buffer.Room. onSpent, which
// may be nil, is called whenever a Room is refused; it must not block.
func NewStore(limit int64, onSpent func()) *Store {
	return &Store{limit: limit, onSpent: onSpent}
}

// Used is the memory that is lent out now, in bytes.
func (s *Store) Used() int64 { return s.used.Load() }

// Limit is what the Store was made with, in bytes.
func (s *Store) Limit() int64 { return s.limit }

// Charge counts n bytes, or with a negative n gives them back, for memory that
// a session holds outside its Buffer.
func (s *Store) Charge(n int) { s.used.Add(int64(n)) }

// exhausted reports whether size bytes more would pass the limit.
func (s *Store) exhausted(size int) bool {
	if s.used.Load()+int64(size) <= s.limit {
		return false
	}
	if s.onSpent != nil {
		s.onSpent()
	}
	return true
}

func (s *Store) get(size int) *chunk {
	var c *chunk
	switch {
	case size <= smallChunk:
		size = smallChunk
		c, _ = s.small.Get().(*chunk)
	case size <= bigChunk:
		size = bigChunk
		c, _ = s.big.Get().(*chunk)
	}
	s.used.Add(int64(size))
	if c == nil {
		c = &chunk{buf: make([]byte, size)}
	}
	return c
}

func (s *Store) put(c *chunk) {
	s.used.Add(-int64(len(c.buf)))
	if c.keep {
		return
	}
	*c = chunk{buf: c.buf}
	switch len(c.buf) {
	case smallChunk:
		s.small.Put(c)
	case bigChunk:
		s.big.Put(c)
	}
}
