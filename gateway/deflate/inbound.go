package deflate

import (
	"net"
	"strings"
	"time"

	"reseat/gateway/frame"
)

const (
	readSize = 4 << 10
	// leastLimit is above what a reader grants a control message of reseat.v1,
	// however small its limit.
	leastLimit = 64 << 10
	// pieces is into how many frames at most a message is cut. With those that
	// say that it goes on they stay below frame.MaxFrames: see speak.
	pieces = 512
)

// What the reader is to refuse, its masking key zero. The opcode of all but the
// first is that which is due.
const (
	reserved   = "\x83\x80\x00\x00\x00\x00"
	huge       = "\x80\xff\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	unfinished = "\x00\x80\x00\x00\x00\x00"
)

// inbound turns what the client sends into frames that are not compressed. It is
// the reader's own.
type inbound struct {
	limit int64 // beyond which nothing is inflated
	tab   *tab

	// What was read and not been looked at, and the buffer that it lies in.
	rest []byte
	lent *[]byte
	came bool // bytes have come since something was last handed on

	// The frame that rest is in the midst of: a header cut short, or a payload
	// of which left bytes are to come.
	head    [frame.MaxHeader]byte
	headLen int
	left    int64
	key     [4]byte // from the next byte of the payload on
	mine    bool    // it belongs to msg

	plain bool // a message that is not compressed is open
	loose bool // all passes as it is: the reader has been given what it cannot take

	msg  message
	inf  *inflater // of msg, once that is whole
	spun bool      // and all of it has been inflated
	done []byte    // frames to hand on
}

func newInbound(early []byte, limit int64, t *tab) inbound {
	return inbound{limit: max(limit, leastLimit), tab: t, rest: early, came: len(early) > 0}
}

// Read fills p with frames, as far as they can be had without waiting.
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
		case in.owes():
			in.speak(time.Now())
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

// fill waits for bytes. It reads into p and then takes them out of it, so that
// no buffer is held while it waits.
func (in *inbound) fill(conn net.Conn, p []byte) error {
	in.release()
	n, err := conn.Read(p[:min(len(p), readSize)])
	if n == 0 {
		return err
	}
	in.lent = buffers.Get().(*[]byte)
	*in.lent = append(*in.lent, p[:n]...)
	in.rest, in.came = *in.lent, true
	return nil // an error comes again with the next read
}

// release gives back what is not needed while nothing comes.
func (in *inbound) release() {
	if in.lent != nil {
		putBuffer(in.lent)
		in.lent = nil
	}
	in.rest, in.done = nil, nil
	in.tab.hold(in.msg.memory())
}

// step takes the next part of rest: a header, or what there is of a payload.
func (in *inbound) step() {
	if in.left == 0 && !in.loose {
		in.header()
		return
	}
	b := in.rest
	if !in.loose {
		b = b[:min(int64(len(b)), in.left)]
	}
	in.rest = in.rest[len(b):]
	in.left -= int64(len(b))
	if in.loose || !in.mine {
		in.done = b
		return
	}
	in.gather(b)
}

// header takes a header, or what there is of it.
func (in *inbound) header() {
	n := copy(in.head[in.headLen:], in.rest)
	b := in.head[:in.headLen+n]
	h, compressed, err := parse(b)
	switch {
	case err != nil:
		in.pass(len(b))
		in.loose = true
	case h.Size == 0:
		in.rest = in.rest[n:]
		in.headLen = len(b)
	case compressed, in.msg.open && !h.Control():
		in.begin(h, compressed)
	default:
		in.pass(h.Size)
		in.left, in.mine = h.Length, false
		if !h.Control() {
			in.plain = !h.Fin
		}
	}
}

// parse reads the header at the start of b; compressed says that it bears RSV1.
func parse(b []byte) (h frame.Header, compressed bool, err error) {
	var plain [frame.MaxHeader]byte
	n := copy(plain[:], b)
	compressed = plain[0]&rsv1 != 0
	plain[0] &^= rsv1
	h, err = frame.Parse(plain[:n])
	return h, compressed, err
}

// pass hands on the first n bytes of head as they are. What else lies there is
// still in rest.
func (in *inbound) pass(n int) {
	in.done = in.head[:n]
	in.took(n)
}

// took takes a header of n bytes off rest.
func (in *inbound) took(n int) {
	in.rest = in.rest[n-in.headLen:]
	in.headLen = 0
}

// begin takes the header of a frame that is compressed, or comes in the midst of
// a compressed message.
func (in *inbound) begin(h frame.Header, compressed bool) {
	m := &in.msg
	switch {
	case !h.Masked, compressed && (h.Control() || h.Op == frame.Continuation || in.plain):
		in.pass(h.Size) // the reader refuses it: RFC 6455 section 5.1, RFC 7692 section 6.1
		in.loose = true
		return
	case m.open && h.Op != frame.Continuation:
		in.refuse(reserved)
		return
	case !m.open:
		*m = message{open: true, op: h.Op, buf: buffers.Get().(*[]byte)}
	}
	in.took(h.Size)
	in.left, in.key, in.mine = h.Length, h.Key, true
	m.frames++
	m.last = h.Fin
	switch most := frame.MaxFrames(in.limit); {
	case m.frames > most:
		in.refuse(strings.Repeat(unfinished, most+1))
	case h.Length > mostOnWire(in.limit)-int64(len(*m.buf)):
		in.refuse(huge)
	case h.Length == 0:
		in.gather(nil)
	}
}

// mostOnWire is more than an honest compressor makes of a message of limit
// bytes: DEFLATE adds little to what it cannot compress.
func mostOnWire(limit int64) int64 { return limit + limit/4 + 16<<10 }

// gather takes payload of the compressed message, still masked.
func (in *inbound) gather(b []byte) {
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
	chunk := max(chunkSize, int(in.limit/pieces)+1)
	in.tab.hold(m.memory() + chunk + windowMemory)
	in.inf = newInflater(*m.buf, chunk)
}

// turned is a masking key after n bytes of payload.
func turned(key [4]byte, n int) (k [4]byte) {
	for i := range k {
		k[i] = key[(i+n)&3]
	}
	return k
}

// inflate hands on the next frame of a message that is whole.
func (in *inbound) inflate() {
	if in.spun {
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
	in.spun = last
}

// refuse hands on what the reader cannot take; see the package's comment.
func (in *inbound) refuse(frames string) {
	in.done = []byte(frames)
	if frames[0] != reserved[0] {
		in.done[0] = frames[0]&0xF0 | in.msg.opcode()
	}
	in.loose = true
	in.close()
}

// close is the end of the compressed message.
func (in *inbound) close() {
	if in.inf != nil {
		in.inf.free()
	}
	putBuffer(in.msg.buf)
	in.inf, in.spun, in.msg = nil, false, message{}
	in.tab.hold(0)
}
