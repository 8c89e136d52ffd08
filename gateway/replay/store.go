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
	keep bool  // a caller may still use it: never reuse it
	at   int64 // when it was first filled: see Stamp
}

func (c *chunk) end() uint64 { return c.off + uint64(c.n) }

// A Store lends chunks to the Buffers of many sessions, and counts the memory
// that they hold. All methods may be called from any goroutine.
//
// Each session has a reserve in each direction, which the Store grants even while it is
// exhausted: sessions that hold much must not stop one that reads and acks what it gets.
type Store struct {
	limit       int64
	onExhausted func()
	used        atomic.Int64
	reserve     atomic.Int64
	small, big  sync.Pool
}

// MinReserve is the least reserve of a session in one direction, however many there are.
const MinReserve = smallChunk

// maxReserve is the largest reserve of a session in one direction. A client acks after 64 KiB
// at the latest (protocol section 5.2), so one that reads never needs more than this for
// messages of ordinary size.
const maxReserve = 64<<10 + bigChunk/2

// NewStore returns a Store of at most limit bytes, the sessions' reserves aside; see
// Grants. onExhausted, which may be nil, is called whenever memory is refused, or charged
// beyond the limit; it must not block.
func NewStore(limit int64, onExhausted func()) *Store {
	s := &Store{limit: limit, onExhausted: onExhausted}
	s.ShareReserve(1)
	return s
}

// ShareReserve sets the reserve that each of so many sessions has in each direction: together
// a tenth of the limit, but at least MinReserve each. For none there is no reserve.
func (s *Store) ShareReserve(sessions int) {
	if sessions == 0 {
		s.reserve.Store(0)
		return
	}
	s.reserve.Store(min(max(s.limit/20/int64(sessions), MinReserve), maxReserve))
}

// Used returns the memory lent and charged now, in bytes.
func (s *Store) Used() int64 { return s.used.Load() }

// Limit returns the Store's limit, in bytes.
func (s *Store) Limit() int64 { return s.limit }

// Charge adds n bytes, which may be negative, for memory that a session holds outside
// its Buffer.
func (s *Store) Charge(n int) {
	if used := s.used.Add(int64(n)); n > 0 && used > s.limit {
		s.refused()
	}
}

// Grants reports whether a session that holds so many bytes outside its Buffer may take
// some more: the Store is not exhausted, or the session does not exceed its reserve.
func (s *Store) Grants(held int) bool {
	if !s.Exhausted() || int64(held) <= s.reserve.Load() {
		return true
	}
	s.refused()
	return false
}

// Exhausted reports whether the Store grants nothing but reserves.
func (s *Store) Exhausted() bool { return !s.fits(smallChunk) }

// fits reports whether size more bytes are within the limit.
func (s *Store) fits(size int) bool { return s.used.Load()+int64(size) <= s.limit }

func (s *Store) refused() {
	if s.onExhausted != nil {
		s.onExhausted()
	}
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
