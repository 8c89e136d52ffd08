package replay

import (
	"sync"
	"sync/atomic"
)

const (
	smallChunk = 4 << 10
	bigChunk   = 64 << 10

	// minRoom is the smallest room for a read. It exceeds any control frame, so that
	// one always lies in one chunk.
	minRoom = 512
)

// A chunk is a piece of the stream: buf[:n] is stream[off : off+n].
type chunk struct {
	buf  []byte
	n    int
	off  uint64
	next *chunk
	keep bool // a caller may still use it: never reuse it
}

func (c *chunk) end() uint64 { return c.off + uint64(c.n) }

// A Store lends chunks to the Buffers of many sessions, and counts the memory
// that they hold. All methods may be called from any goroutine.
type Store struct {
	limit       int64
	onExhausted func()
	used        atomic.Int64
	small, big  sync.Pool
}

// NewStore returns a Store of at most limit bytes; see Buffer.Room. onExhausted, which
// may be nil, is called whenever a Room is refused; it must not block.
func NewStore(limit int64, onExhausted func()) *Store {
	return &Store{limit: limit, onExhausted: onExhausted}
}

// Used returns the memory lent and charged now, in bytes.
func (s *Store) Used() int64 { return s.used.Load() }

// Limit returns the Store's limit, in bytes.
func (s *Store) Limit() int64 { return s.limit }

// Charge adds n bytes, which may be negative, for memory that a session holds outside
// its Buffer.
func (s *Store) Charge(n int) { s.used.Add(int64(n)) }

// fits reports whether size more bytes are within the limit.
func (s *Store) fits(size int) bool { return s.used.Load()+int64(size) <= s.limit }

// exhausted reports whether size more bytes would exceed the limit.
func (s *Store) exhausted(size int) bool {
	if s.fits(size) {
		return false
	}
	if s.onExhausted != nil {
		s.onExhausted()
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
