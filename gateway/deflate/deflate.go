// Package deflate is permessage-deflate with a client, RFC 7692: Negotiate
// answers an offer, and a Conn takes the extension off a connection, so that
// what is behind it reads and writes plain RFC 6455 frames and knows nothing of
// compression. There is no second path for messages.
//
// No context is taken over, either way: a connection keeps no window, and what
// a message compresses to tells nothing of the messages before it (its own secrets
// it may tell, where a stranger chooses a part of it: that is why compression is
// off unless it is asked for). Compressors are lent for the length of one call.
//
// # What is the client's stays the client's
//
// A Conn judges nothing that its reader judges. Frames that are not compressed
// pass byte for byte, control frames in the midst of a message among them; so
// does whatever is no frame at all. A compressed message is gathered, with its
// memory charged, and handed on as the frames of a client that did not compress,
// under a masking key of zeros. While it is gathered the reader is told, by
// frames without payload, that the client lives and that a message is under way
// and goes on, so that its rules for both hold.
//
// Where the extension itself is violated, the reader is given a frame that says
// so in the language of RFC 6455: a reserved opcode (1002) for data that does
// not inflate or frames out of place, a length beyond any limit (1009) for a
// message too large, more frames than a message may have for a message of too
// many. After it a Conn only passes on what comes.
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

// Options are what a Conn holds to.
type Options struct {
	// Limit is the largest message in bytes that the reader takes. A message
	// that goes far beyond it is inflated no further.
	Limit int64
	// Charge counts n bytes that are held for messages on their way in, or with
	// a negative n gives them back. It may be called by several goroutines at
	// once. Nil counts nothing.
	Charge func(n int)
}

// A Conn is a client's connection less permessage-deflate. Read gives the frames
// of a client, masked; Write takes the frames of a server, not masked, cut
// anywhere. One goroutine may read while another writes. Deadlines are those of
// the connection below, and a Read or a Write that met one can go on later; but
// what has been read already is handed on whatever the deadline.
type Conn struct {
	net.Conn
	in  inbound  // the reader's
	out outbound // the writer's
	tab tab
}

// NewConn takes conn over, on which p was agreed. early is what the client has
// sent behind its handshake.
func NewConn(conn net.Conn, early []byte, p Params, o Options) *Conn {
	c := &Conn{Conn: conn, tab: tab{charge: o.Charge}, out: outbound{window: 1 << p.bits}}
	c.in = newInbound(early, o.Limit, &c.tab)
	return c
}

// Write takes all of b and returns when the connection below has taken what it
// becomes; the part of a frame that is not whole is kept for the next Write. On
// an error n is 0 where nothing was taken, and else all of b, any of which the
// client may have.
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
	if n, err = c.Conn.Write(out); err != nil && n == 0 {
		return 0, err
	}
	return len(b), err
}

// CloseWrite ends the outward direction where the connection below can.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// NetConn is the network's connection below, under TLS too.
func (c *Conn) NetConn() net.Conn {
	if below, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return below.NetConn()
	}
	return c.Conn
}

// Close closes the connection and gives back what was charged. It waits for
// nobody and may be called more than once.
func (c *Conn) Close() error {
	c.tab.close()
	return c.Conn.Close()
}

// A tab says what a connection holds, to whoever counts it.
type tab struct {
	charge func(int)

	mu     sync.Mutex // never held over I/O
	held   int
	closed bool
}

// hold says that n bytes are held now.
func (t *tab) hold(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.charge == nil || n == t.held {
		return
	}
	t.charge(n - t.held)
	t.held = n
}

func (t *tab) close() {
	t.hold(0)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

const (
	bufferSize = 16 << 10
	// keptBuffer is the largest buffer that is lent again.
	keptBuffer = 64 << 10

	// rsv1 marks the first frame of a compressed message, RFC 7692 section 6.
	rsv1 = 0x40
)

// tail ends a flushed DEFLATE stream, and is left away on the wire: RFC 7692
// section 7.2.1.
const tail = "\x00\x00\xff\xff"

// buffers hold what is on its way, for the length of one call, and what has
// been read and not been looked at.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

// putBuffer gives a buffer back, empty.
func putBuffer(p *[]byte) {
	if cap(*p) <= keptBuffer {
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
