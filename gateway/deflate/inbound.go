package deflate

import (
	"net"
	"strings"
	"time"

	"reseat/gateway/frame"
)

const (
	readSize = 4 << 10
	// minLimit exceeds what a reader allows for a control message of reseat.v1,
	// however small its limit is.
	minLimit = 64 << 10
	// maxPieces is the max number of frames that a message is split into. Together with
	// the notices of notify they stay below frame.MaxFrames.
	maxPieces = 512
)

// Frames that the reader must refuse, with a masking key of zeros. The opcode of all but
// the first is filled in.
const (
	reserved   = "\x83\x80\x00\x00\x00\x00"
	huge       = "\x80\xff\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	unfinished = "\x00\x80\x00\x00\x00\x00"
)

// inbound converts what the client sends into uncompressed frames. The reading goroutine
// owns it.
type inbound struct {
	limit  int64 // max inflated bytes of a message
	held   holding
	window window

	// Bytes read and not parsed yet, and their buffer.
	rest []byte
	lent *[]byte
	came bool // bytes have arrived since something was last returned

	// The incomplete frame before rest: a partial header, or a payload
	// of which left bytes are missing.
	head    [frame.MaxHeader]byte
	headLen int
	left    int64
	key     [4]byte // from the next byte of the payload on
	inMsg   bool    // it belongs to msg

	plain   bool // a message that is not compressed is open
	passAll bool // everything passes unchanged: the reader has got a frame that it refuses

	msg      message
	inf      *inflater // of msg, once that is complete
	inflated bool      // and all of it has been inflated
	done     []byte    // frames to return
}

func newInbound(early []byte, limit int64, held holding, w window) inbound {
	return inbound{limit: max(limit, minLimit), held: held, window: w, rest: early, came: len(early) > 0}
}

// Read fills p with frames, as far as possible without blocking.
func (c *Conn) Read(p []byte) (n int, err error) {
	in := &c.in
	for n < len(p) {
		switch {
		case len(in.done) > 0:
			k := copy(p[n:], in.done)
			in.done = in.done[k:]
			n += k
		case in.inf != nil:
			in.inflate()
		case len(in.rest) > 0:
			in.step()
		case n > 0:
			in.came = false
			return n, nil
		case in.noticeDue():
			in.notify(time.Now())
			if len(in.done) > 0 {
				continue
			}
			fallthrough
		default:
			if err := in.fill(c.Conn, p); err != nil {
				return 0, err
			}
		}
	}
	in.came = false
	return n, nil
}

// fill waits for bytes. It reads into p and then moves them to a buffer, so that no
// buffer is held while it waits.
func (in *inbound) fill(conn net.Conn, p []byte) error {
	in.release()
	n, err := conn.Read(p[:min(len(p), readSize)])
	if n == 0 {
		return err
	}
	in.lent = buffers.Get().(*[]byte)
	*in.lent = append(*in.lent, p[:n]...)
	in.rest, in.came = *in.lent, true
	return nil // the next read returns the error again
}

// release frees what is not needed while waiting.
func (in *inbound) release() {
	if in.lent != nil {
		putBuffer(in.lent)
		in.lent = nil
	}
	in.rest, in.done = nil, nil
	in.held.set(in.msg.memory())
}

// step consumes the next part of rest: a header, or the available payload.
func (in *inbound) step() {
	if in.left == 0 && !in.passAll {
		in.header()
		return
	}
	b := in.rest
	if !in.passAll {
		b = b[:min(int64(len(b)), in.left)]
	}
	in.rest = in.rest[len(b):]
	in.left -= int64(len(b))
	if in.passAll || !in.inMsg {
		in.done = b
		return
	}
	in.collect(b)
}

// header consumes a header, or the available part of it.
func (in *inbound) header() {
	n := copy(in.head[in.headLen:], in.rest)
	b := in.head[:in.headLen+n]
	h, compressed, err := parse(b)
	switch {
	case err != nil:
		in.pass(len(b))
		in.passAll = true
	case h.Size == 0:
		in.rest = in.rest[n:]
		in.headLen = len(b)
	case compressed, in.msg.open && !h.Control():
		in.begin(h, compressed)
	default:
		in.pass(h.Size)
		in.left, in.inMsg = h.Length, false
		if !h.Control() {
			in.plain = !h.Fin
		}
	}
}

// parse reads the header at the start of b; compressed means that RSV1 is set.
func parse(b []byte) (h frame.Header, compressed bool, err error) {
	var plain [frame.MaxHeader]byte
	n := copy(plain[:], b)
	compressed = plain[0]&rsv1 != 0
	plain[0] &^= rsv1
	h, err = frame.Parse(plain[:n])
	return h, compressed, err
}

// pass returns the first n bytes of head unchanged. The rest of head is still in rest.
func (in *inbound) pass(n int) {
	in.done = in.head[:n]
	in.consumeHeader(n)
}

// consumeHeader removes a header of n bytes from rest.
func (in *inbound) consumeHeader(n int) {
	in.rest = in.rest[n-in.headLen:]
	in.headLen = 0
}

// begin handles the header of a frame that is compressed or belongs to a compressed
// message.
func (in *inbound) begin(h frame.Header, compressed bool) {
	m := &in.msg
	switch {
	case !h.Masked, compressed && (h.Control() || h.Op == frame.Continuation || in.plain):
		in.pass(h.Size) // the reader refuses it: RFC 6455 section 5.1, RFC 7692 section 6.1
		in.passAll = true
		return
	case m.open && h.Op != frame.Continuation:
		in.refuse(reserved)
		return
	case !m.open:
		*m = message{open: true, op: h.Op, buf: buffers.Get().(*[]byte)}
	}
	in.consumeHeader(h.Size)
	in.left, in.key, in.inMsg = h.Length, h.Key, true
	m.frames++
	m.last = h.Fin
	switch limit := frame.MaxFrames(in.limit); {
	case m.frames > limit:
		in.refuse(strings.Repeat(unfinished, limit+1))
	case h.Length > maxCompressed(in.limit)-int64(len(*m.buf)):
		in.refuse(huge)
	case h.Length == 0:
		in.collect(nil)
	}
}

// maxCompressed exceeds the output of a correct compressor for a message of limit
// bytes: DEFLATE adds little to what it cannot compress.
func maxCompressed(limit int64) int64 { return limit + limit/4 + 16<<10 }

// collect appends payload of the compressed message, still masked.
func (in *inbound) collect(b []byte) {
	m := &in.msg
	n := len(*m.buf)
	*m.buf = append(*m.buf, b...)
	frame.XOR((*m.buf)[n:], in.key)
	in.key = turned(in.key, len(b))
	m.moved = true
	if in.left > 0 || !m.last {
		return
	}
	*m.buf = append(*m.buf, end...)
	chunk := max(chunkSize, int(in.limit/maxPieces)+1)
	in.held.set(m.memory() + chunk + inflaterMemory)
	in.inf = newInflater(*m.buf, &in.window, chunk)
}

// turned returns a masking key as it applies after n bytes of payload.
func turned(key [4]byte, n int) (k [4]byte) {
	for i := range k {
		k[i] = key[(i+n)&3]
	}
	return k
}

// inflate returns the next frame of a complete message.
func (in *inbound) inflate() {
	if in.inflated {
		in.close()
		return
	}
	m := &in.msg
	p, last, err := in.inf.chunk()
	m.inflated += int64(len(p))
	switch {
	case err != nil:
		in.refuse(reserved)
		return
	case m.inflated > in.limit+1:
		in.refuse(huge)
		return
	}
	var room [frame.MaxHeader]byte
	head := appendMaskedHeader(room[:0], m.opcode(), last, len(p))
	at := frame.MaxHeader - len(head)
	copy(in.inf.buf[at:], head)
	in.done = in.inf.buf[at : frame.MaxHeader+len(p)]
	in.inflated = last
}

// refuse returns frames that the reader refuses; see the package comment.
func (in *inbound) refuse(frames string) {
	in.done = []byte(frames)
	if frames[0] != reserved[0] {
		in.done[0] = frames[0]&0xF0 | in.msg.opcode()
	}
	in.passAll = true
	in.close()
}

// close ends the compressed message.
func (in *inbound) close() {
	if in.inf != nil {
		in.inf.free()
	}
	putBuffer(in.msg.buf)
	in.inf, in.inflated, in.msg = nil, false, message{}
	in.held.set(0)
}
