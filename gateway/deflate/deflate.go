// Package deflate is permessage-deflate with a client, RFC 7692: Negotiate answers an
// offer, and a Conn removes the extension from a connection, so that its user reads and
// writes plain RFC 6455 frames and is not aware of compression. There is no second path
// for messages.
//
// # Context takeover
//
// A message may refer to the ones before it in its direction, within a bound: the last
// bytes of those are kept as plain bytes, a window, for each direction. Compressors and
// inflaters, which take a hundred times as much memory, are lent for one call each and
// begin with the window. A connection begins with empty windows, so that a resume is
// independent of what the connection before it carried.
//
// The compressed size of a message may reveal what it has in common with the others in
// its window, if an attacker chooses a part of one of them: why compression is off by
// default. The gateway's control messages, of which hello has the resume token, are
// therefore never compressed, and no window has them.
//
// # Validation stays with the reader
//
// A Conn checks nothing that its reader checks. Uncompressed frames pass byte for byte,
// including control frames within a message and invalid frames. A compressed message is
// collected, with its memory accounted, and passed as the frames of a client that does
// not compress, with a masking key of zeros. Meanwhile the reader gets frames without
// payload, which show that the client lives and that a message is in flight, so that its
// timeouts for both keep working.
//
// A violation of the extension itself is passed to the reader as a frame that RFC 6455
// forbids: a reserved opcode (1002) for data that does not inflate or frames out of
// order, a length beyond any limit (1009) for a message that is too large, and too many
// frames for a message with too many. After it a Conn passes all bytes unchanged.
//
// Data that does not inflate is 1002, broken framing, and not 1007: RFC 7692
// section 7.2.2 asks for failing the connection without a code, and in
// protocol section 6 1007 is about UTF-8.
package deflate

import (
	"net"
	"sync"

	"reseat/gateway/frame"
)

// Options configure a Conn.
type Options struct {
	// Limit is the max size of a message in bytes that the reader accepts. A message
	// that exceeds it is not inflated further.
	Limit int64
	// Window bounds the bytes of earlier messages that are kept for each direction: a power of
	// two from 512 to 32768. 0 disables context takeover.
	Window int
	// Charge adds n bytes, which may be negative, held for messages, and ChargeWindow for
	// windows. They may be called from any goroutine. Nil counts nothing.
	Charge, ChargeWindow func(n int)
}

// A Conn is a client's connection without permessage-deflate. Read returns the masked
// frames of a client; Write takes the unmasked frames of a server, split anywhere. One
// goroutine may read while another writes. Deadlines are those of the connection below,
// and a Read or Write that met one can be continued; bytes that were read already are
// returned whatever the deadline.
type Conn struct {
	net.Conn
	in       inbound  // the reader's
	out      outbound // the writer's
	messages tab
	windows  tab
}

// NewConn takes ownership of conn, on which p was negotiated. early are the bytes that
// the client sent after its handshake.
func NewConn(conn net.Conn, early []byte, p Params, o Options) *Conn {
	c := &Conn{Conn: conn, messages: tab{charge: o.Charge}, windows: tab{charge: o.ChargeWindow}}
	c.in = newInbound(early, o.Limit, holding{tab: &c.messages}, window{size: p.up, tab: &c.windows})
	c.out = outbound{reach: p.reach(), window: window{size: p.down, tab: &c.windows}, held: holding{tab: &c.messages}}
	return c
}

// Write converts all of b and returns when the connection below has accepted the
// result; an incomplete part of a frame is kept for the next Write. On an error n is 0
// if nothing was written, else len(b), of which the client may have received any part.
func (c *Conn) Write(b []byte) (n int, err error) {
	p := buffers.Get().(*[]byte)
	defer putBuffer(p)
	out, err := c.out.convert(*p, b)
	switch {
	case err != nil:
		return 0, err
	case len(out) == 0:
		return len(b), nil
	}
	*p = out
	if cap(out) > maxPooled {
		c.out.held.set(c.out.memory() + cap(out))
		defer func() { c.out.held.set(c.out.memory()) }()
	}
	if n, err = c.Conn.Write(out); err != nil && n == 0 {
		return 0, err
	}
	return len(b), err
}

// CloseWrite closes the write side, if the connection below supports it.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Close closes the connection and returns what was charged. It does not block and is
// idempotent.
func (c *Conn) Close() error {
	c.messages.close()
	c.windows.close()
	return c.Conn.Close()
}

const (
	bufferSize = 16 << 10
	// maxPooled is the max size of a buffer that is reused.
	maxPooled = 64 << 10

	// rsv1 marks the first frame of a compressed message, RFC 7692 section 6.
	rsv1 = 0x40
)

// tail ends a flushed DEFLATE stream, and is omitted on the wire: RFC 7692
// section 7.2.1.
const tail = "\x00\x00\xff\xff"

// buffers are lent for one call, or until the bytes read have been parsed.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

// putBuffer returns a buffer to the pool.
func putBuffer(p *[]byte) {
	if cap(*p) <= maxPooled {
		*p = (*p)[:0]
		buffers.Put(p)
	}
}

// appendMaskedHeader appends the header of a client's frame whose masking key
// is zero, so that its payload is plain.
func appendMaskedHeader(dst []byte, op byte, fin bool, length int) []byte {
	n := len(dst)
	dst = frame.AppendHeader(dst, op, fin, length)
	dst[n+1] |= 0x80
	return append(dst, 0, 0, 0, 0)
}
