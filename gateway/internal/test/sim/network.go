package sim

// The network between the gateway and its peers: for each connection two byte streams
// with a bounded number of bytes in flight. A reader takes any number of them, which
// models segmentation and delay at once. A stream can end, break at any byte, or fall
// silent: for good, or until what is in flight arrives after all. silence.go has the
// forms of silence.

// A pipe is one direction of a connection.
type pipe struct {
	buf    []byte
	cap    int
	kernel int    // bytes in the receiver's TCP besides those that were read
	put    uint64 // bytes ever accepted
	got    uint64 // bytes ever read
	acked  uint64 // bytes acknowledged by the receiver's TCP, or by the proxy
	hole   bool   // silent: nothing arrives
	proxy  bool   // and a proxy acknowledges them anyway
	fin    bool   // nothing follows
	rst    bool   // both ends fail
}

// acknowledge advances what the sender's TCP knows to be acknowledged by at most n
// bytes: acknowledgements take time, too.
func (p *pipe) acknowledge(n uint64) {
	if p.hole && !p.proxy {
		return
	}
	if end := min(p.put, p.got+uint64(p.kernel)); end > p.acked {
		p.acked += min(n, end-p.acked)
	}
}

// room returns how many bytes the pipe accepts now.
func (p *pipe) room() int {
	if p.rst || p.fin {
		return 0
	}
	return max(p.cap-len(p.buf), 0)
}

func (p *pipe) write(b []byte) {
	p.buf = append(p.buf, b...)
	p.put += uint64(len(b))
}

func (p *pipe) readable() int {
	if p.hole {
		return 0
	}
	return len(p.buf)
}

// read removes the first n bytes, which are valid until the next write.
func (p *pipe) read(n int) []byte {
	b := p.buf[:n]
	p.buf = p.buf[n:]
	p.got += uint64(n)
	return b
}

// ended reports whether a reader would find the end, or an error, next.
func (p *pipe) ended() bool { return !p.hole && len(p.buf) == 0 && (p.fin || p.rst) }

// A conn is one connection, as the gateway sees it.
type conn struct {
	id       int
	in, out  pipe // to the gateway, and from it
	deaf     bool // the peer no longer reads
	gateway  bool // the gateway has closed it
	silenced bool // it was silent at some time, at least one way
	inHole   bool // bytes were lost, R8
	upgraded bool // the gateway has answered the handshake with 101
}

func newConn(id, capacity int) *conn {
	return &conn{id: id, in: pipe{cap: capacity}, out: pipe{cap: capacity}}
}

// connection makes a connection to the gateway.
func (g *game) connection() *conn {
	w := g.w
	w.conns++
	c := newConn(w.conns, w.capacity())
	c.out.kernel = pick(w, 0, 0, 100, 64<<10)
	return c
}

// cut breaks c for both sides: some of what is in flight arrives.
func (c *conn) cut(w *world) {
	for _, p := range []*pipe{&c.in, &c.out} {
		if p.hole {
			p.buf, p.hole = nil, false
		}
		if n := len(p.buf); n > 0 {
			p.buf = p.buf[:w.rng.IntN(n+1)]
		}
		p.rst = true
	}
}

// mute loses what is sent to the gateway, or from it, from now on.
func (c *conn) mute(in, out bool) {
	c.in.hole, c.out.hole = c.in.hole || in, c.out.hole || out
	c.silenced = c.silenced || in || out
}

// hangUp closes the peer's socket: what it has written arrives.
func (c *conn) hangUp() {
	c.in.fin = true
	c.deaf = true
}

// closeGateway closes the gateway's socket, with a reset or cleanly.
func (c *conn) closeGateway(reset bool) {
	c.gateway = true
	c.in.buf, c.in.rst = nil, true
	if reset {
		c.out.buf, c.out.rst = nil, true
	}
	c.out.fin = true
}
