// Package replay keeps the messages of one direction that the peer has not acked, as
// the wire bytes in which they came. Reads go straight into it and writes straight
// out of it: it is the replay buffer and the send queue at once (protocol section 6).
package replay

// A Mark is the end of a message: its offset in the stream in bytes, and the number of
// the message that ends there.
type Mark struct {
	Off uint64
	N   uint64
}

// A Buffer holds the messages after Base up to Last, as unmasked frames, followed by
// the bytes of a message that is not complete yet.
// Messages are numbered from 1. Invariant: Base.N <= Last.N, Base.Off <=
// Last.Off <= end, and held is the payload of the messages between the two, except those that
// newer ones have replaced.
//
// Bytes that were read and not scanned yet are the raw part, after everything else.
// The scanner consumes them piece by piece: Take keeps bytes, Skip removes them,
// Insert puts other bytes before the rest.
//
// A Buffer does no locking: its session owns it. Only the memory that Room and Slices
// return may be used without the session's lock, until Fill and Unpin.
type Buffer struct {
	store      *Store
	head, tail *chunk

	base, last Mark
	end        uint64 // of the bytes kept, complete messages or not
	held       int64

	src    *chunk // where the raw part lies: the tail, except during a scan
	lo, hi int    // the raw part is src.buf[lo:hi]

	reserved bool // Room was returned and Fill has not come
	burst    bool // the last read filled its Room

	pinned bool // Slices from pin on are in use
	pin    uint64

	replaced *replaced // nil: no message was replaced
}

// New returns an empty Buffer, which borrows its memory from s.
func New(s *Store) *Buffer { return &Buffer{store: s} }

// Base returns the end of the newest acked message, whose bytes are no longer kept.
func (b *Buffer) Base() Mark { return b.base }

// Last returns the end of the newest complete message.
func (b *Buffer) Last() Mark { return b.last }

// Renumber adds by to the numbers of all messages, past and to come. None of them may have been used yet.
func (b *Buffer) Renumber(by uint64) {
	b.base.N += by
	b.last.N += by
	if b.replaced != nil {
		for i := range b.replaced.dead {
			b.replaced.dead[i] += by
		}
	}
}

// Restart forgets all messages; the next one is number n+1. Nobody has used the numbers of those.
func (b *Buffer) Restart(n uint64) {
	b.Ack(b.last.N, b.last.Off)
	b.base.N, b.last.N = n, n
}

// Messages returns the number of complete messages held, without replaced ones.
func (b *Buffer) Messages() int { return int(b.last.N - b.base.N - b.Replaced()) }

// Bytes returns the payload of these messages, in bytes.
func (b *Buffer) Bytes() int64 { return b.held }

// Memory returns how much memory b holds, in bytes.
func (b *Buffer) Memory() (n int64) {
	for c := b.head; c != nil; c = c.next {
		n += int64(len(c.buf))
	}
	return n
}

// Since returns when the memory that b has held longest was filled, as Stamp says; zero:
// it holds none, or that is not known.
func (b *Buffer) Since() int64 {
	for c := b.head; c != nil; c = c.next {
		if c.at != 0 {
			return c.at
		}
	}
	return 0
}

// Stamp notes when the last Fill was.
func (b *Buffer) Stamp(now int64) {
	if c := b.tail; c != nil && c.at == 0 {
		c.at = now
	}
}

// Room returns memory for the next read; Fill must follow. It returns nil while the
// Store is exhausted and b holds its session's reserve, for which Fill must not follow. With
// frugal set it stays small even after a burst, and so it does where the Store has no more
// left than that.
func (b *Buffer) Room(frugal bool) []byte {
	if b.tail == nil || len(b.tail.buf)-b.hi < minRoom {
		size := smallChunk
		if b.burst && !frugal && b.store.fits(bigChunk) {
			size = bigChunk
		}
		if !b.store.fits(size) && b.Memory()+int64(size) > b.store.reserve.Load() {
			b.store.refused()
			return nil
		}
		b.reserved = true
		b.extend(max(size, b.hi-b.lo+minRoom))
	}
	b.reserved = true
	return b.tail.buf[b.hi:]
}

// Fill records that n bytes were read into the memory that Room returned.
func (b *Buffer) Fill(n int) {
	b.reserved = false
	b.burst = n == len(b.tail.buf)-b.hi
	b.hi += n
	if n == 0 {
		b.trim()
	}
}

// Raw returns the bytes that were read and not scanned yet.
func (b *Buffer) Raw() []byte {
	if b.src == nil {
		return nil
	}
	return b.src.buf[b.lo:b.hi]
}

// Take moves the first n raw bytes to the end of the stream. It copies them only after
// a Skip or Insert.
func (b *Buffer) Take(n int) {
	if b.src == b.tail && b.lo == b.tail.n {
		b.tail.n += n
		b.end += uint64(n)
	} else {
		b.append(b.src.buf[b.lo : b.lo+n])
	}
	b.lo += n
}

// Skip removes the first n raw bytes.
func (b *Buffer) Skip(n int) { b.lo += n }

// Insert appends a copy of p to the stream, before the raw part.
func (b *Buffer) Insert(p []byte) {
	if b.src == b.tail {
		b.link(b.store.get(smallChunk))
	}
	b.append(p)
}

// EndMessage records that the stream now ends with a complete message of that many
// bytes of payload.
func (b *Buffer) EndMessage(payload int64) {
	b.last = Mark{b.end, b.last.N + 1}
	b.held += payload
}

// Settle ends a scan: it moves the raw part next to the end of the stream.
func (b *Buffer) Settle() {
	if b.src == nil {
		return
	}
	rest := b.src.buf[b.lo:b.hi]
	if b.src != b.tail && len(b.tail.buf)-b.tail.n < len(rest) {
		b.link(b.store.get(len(rest) + minRoom))
	}
	b.src = b.tail
	b.lo = b.tail.n
	b.hi = b.lo + copy(b.tail.buf[b.lo:], rest)
	b.trim()
}

// append copies p to the end of the stream.
func (b *Buffer) append(p []byte) {
	for len(p) > 0 {
		if b.tail.n == len(b.tail.buf) {
			b.link(b.store.get(len(p)))
		}
		n := copy(b.tail.buf[b.tail.n:], p)
		b.tail.n += n
		b.end += uint64(n)
		p = p[n:]
	}
}

// extend adds a chunk after the tail and moves the raw part into it.
func (b *Buffer) extend(size int) {
	c := b.store.get(size)
	raw := b.Raw()
	b.lo, b.hi = 0, copy(c.buf, raw)
	b.link(c)
	b.src = c
	b.trim()
}

func (b *Buffer) link(c *chunk) {
	c.off = b.end
	if b.tail == nil {
		b.head = c
	} else {
		b.tail.next = c
	}
	b.tail = c
}
