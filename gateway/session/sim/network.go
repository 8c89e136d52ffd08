package sim

// The network between the gateway and its peers: for each connection two byte
// streams with a bounded number of bytes under way. Whoever reads takes any
// number of them, which is segmentation and delay at once; a stream can end,
// break at any byte, or swallow everything and say nothing.

// A pipe is one direction of a connection.
type pipe struct {
	buf  []byte
	cap  int
	put  uint64 // bytes ever accepted
	got  uint64 // bytes ever read
	hole bool   // half-open: what is accepted never arrives
	fin  bool   // nothing follows
	rst  bool   // both ends fail
}

// room is how many bytes the pipe accepts now.
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

// read takes the first n bytes, which are good until the next write.
func (p *pipe) read(n int) []byte {
	b := p.buf[:n]
	p.buf = p.buf[n:]
	p.got += uint64(n)
	return b
}

// ended reports whether a reader finds the end, or an error, next.
func (p *pipe) ended() bool { return !p.hole && len(p.buf) == 0 && (p.fin || p.rst) }

// A conn is one connection, seen from the gateway.
type conn struct {
	id      int
	in, out pipe // toward the gateway, and from it
	deaf    bool // the peer reads no more
	gateway bool // the gateway has closed it
	inHole  bool // bytes were swallowed, R8
}

func newConn(id, capacity int) *conn {
	return &conn{id: id, in: pipe{cap: capacity}, out: pipe{cap: capacity}}
}

// cut breaks c for both sides: of what is under way some arrives.
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

// swallow makes c half-open: both sides may write, nothing arrives.
func (c *conn) swallow() { c.in.hole, c.out.hole = true, true }

// hangUp is the peer closing its socket: what it has written arrives.
func (c *conn) hangUp() {
	c.in.fin = true
	c.deaf = true
}

// closeGateway is the gateway closing its socket, with a reset or in order.
func (c *conn) closeGateway(reset bool) {
	c.gateway = true
	c.in.buf, c.in.rst = nil, true
	if reset {
		c.out.buf, c.out.rst = nil, true
	}
	c.out.fin = true
}
