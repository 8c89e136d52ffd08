// Package replay keeps the messages of one direction that the peer may still
// ask for, as the wire bytes that they came in. Reads go straight into it and
// writes straight out of it: it is the replay buffer and the send queue at once.
package replay

// A Mark is the end of a message: where it lies in the stream, and the number
// of the message that ends there.
type Mark struct {
	Off uint64
	N   uint64
}

// A Buffer holds the messages after Base up to Last, as unmasked frames, and
// behind them the bytes of a message that is not whole yet.
// Messages are numbered from 1. Invariant: Base.N <= Last.N, Base.Off <=
// Last.Off <= end, and held is the payload of the messages between the two.
//
// What has been read and not been looked at yet is the raw part. It lies behind
// everything else, and the scanner takes it over piece by piece: Take keeps
// bytes, Skip cuts them out, Insert puts others in their place.
//
// A Buffer does no locking: it belongs to its session. The bytes that Room and
// Slices hand out may be used without the session's lock until Fill and Unpin.
type Buffer struct {
	store      *Store
	head, tail *chunk

	base, last Mark
	end        uint64 // of the bytes taken over, whole messages or not
	held       int64

	src    *chunk // where the raw part lies: the tail, but in the midst of a scan
	lo, hi int    // the raw part is src.buf[lo:hi]

	reserved bool // Room is out
	burst    bool // the last read filled its room

	pinned bool // Slices are out, from pin on
	pin    uint64
}

// New makes an empty Buffer.
func New(s *Store) *Buffer { return &Buffer{store: s} }

// Base is the end of the newest message that was forgotten.
func (b *Buffer) Base() Mark { return b.base }

// Last is the end of the newest whole message.
func (b *Buffer) Last() Mark { return b.last }

// Messages is how many whole messages are held.
func (b *Buffer) Messages() int { return int(b.last.N - b.base.N) }

// Bytes is the payload of the whole messages that are held.
func (b *Buffer) Bytes() int64 { return b.held }

// Room hands out memory for the next read; Fill must follow. It is nil while
// the Store is spent. With frugal set it stays small whatever came before.
func (b *Buffer) Room(frugal bool) []byte {
	if b.tail == nil || len(b.tail.buf)-b.hi < minRoom {
		size := smallChunk
		if b.burst && !frugal {
			size = bigChunk
		}
		if b.store.exhausted(size) {
			return nil
		}
		b.reserved = true
		b.extend(max(size, b.hi-b.lo+minRoom))
	}
	b.reserved = true
	return b.tail.buf[b.hi:]
}

// Fill says that n bytes were read into what Room handed out.
func (b *Buffer) Fill(n int) {
	b.reserved = false
	b.burst = n == len(b.tail.buf)-b.hi
	b.hi += n
	if n == 0 {
		b.trim()
	}
}

// Raw is what was read and not looked at yet.
func (b *Buffer) Raw() []byte {
	if b.src == nil {
		return nil
	}
	return b.src.buf[b.lo:b.hi]
}

// Take moves the first n raw bytes to the end of the stream. They are not
// copied unless something before them was cut out or put in.
func (b *Buffer) Take(n int) {
	if b.src == b.tail && b.lo == b.tail.n {
		b.tail.n += n
		b.end += uint64(n)
	} else {
		b.append(b.src.buf[b.lo : b.lo+n])
	}
	b.lo += n
}

// Skip cuts the first n raw bytes out.
func (b *Buffer) Skip(n int) { b.lo += n }

// Insert puts p at the end of the stream, before the raw part.
func (b *Buffer) Insert(p []byte) {
	if b.src == b.tail {
		b.link(b.store.get(smallChunk))
	}
	b.append(p)
}

// EndMessage says that the stream now ends with a whole message, and how much
// payload that message has.
func (b *Buffer) EndMessage(payload int64) {
	b.last = Mark{b.end, b.last.N + 1}
	b.held += payload
}

// Settle ends a scan: what is still raw is moved behind the stream.
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

// extend puts a new chunk behind the tail and takes the raw part along.
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
