package interop

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// A snip is how a client's connection ends.
type snip struct {
	where string
	kind  snipKind
	up    bool // count the bytes that the client sends, otherwise those that it receives
	head  bool // start with the handshake, otherwise right after it
	after int  // how many bytes pass; for the last two kinds, messages
}

type snipKind int

const (
	snipReset    snipKind = iota // an RST
	snipEnd                      // an end of stream
	snipSilent                   // the gateway does not notice: the resume takes over
	snipClose                    // a Close frame without a bye
	snipLeftOpen                 // the client opens a new connection, and reads the old one afterwards
)

// snips are the places at which each library's client is disconnected, in this order.
// The first connection ends late, so that its token is known.
var snips = []snip{
	{"in the midst of a message to the client", snipReset, false, false, 9001},
	{"in the midst of a message to the gateway", snipReset, true, false, 7003},
	{"right behind the answer, before hello", snipEnd, false, false, 0},
	{"in the midst of hello", snipReset, false, false, 100},
	{"unheard, in the midst of messages to the client", snipSilent, false, false, 20011},
	{"in the answer to the handshake", snipReset, false, true, 40},
	{"in the midst of the first ack", snipEnd, true, false, 4},
	{"by a Close frame", snipClose, false, false, 23},
	{"in the request of the handshake", snipEnd, true, true, 90},
	{"by an end of stream, in the midst of messages to the client", snipEnd, false, false, 30021},
	{"unheard, in the midst of a message to the gateway", snipSilent, true, false, 10007},
	{"behind the first byte of what the client sends", snipReset, true, false, 1},
	{"left open", snipLeftOpen, false, false, 17},
	{"far into the messages to the client", snipReset, false, false, 70003},
	{"in the header of hello", snipEnd, false, false, 2},
	{"far into the messages to the gateway", snipSilent, true, false, 40001},
}

var errSnipped = errors.New("snipped")

// A snipped connection ends according to its snip.
type snipped struct {
	net.Conn
	snip snip

	mu   sync.Mutex
	up   passing
	down passing
	over bool
}

// A passing counts one direction's bytes.
type passing struct {
	line  int // how much of the end of the handshake's header was seen last
	past  bool
	bytes int
}

// pass returns how many of b may pass, with a limit of after bytes.
func (p *passing) pass(b []byte, head bool, after int) int {
	for i, c := range b {
		if p.past || head {
			if p.bytes == after {
				return i
			}
			p.bytes++
		}
		switch {
		case p.past:
		case c == "\r\n\r\n"[p.line]:
			p.line++
			p.past = p.line == 4
		case c == '\r':
			p.line = 1
		default:
			p.line = 0
		}
	}
	return len(b)
}

// allowed returns how many of b may pass, and ends the connection if that is not all.
func (c *snipped) allowed(up bool, b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return 0, errSnipped
	}
	if c.snip.kind >= snipClose || up != c.snip.up {
		return len(b), nil
	}
	way := &c.down
	if up {
		way = &c.up
	}
	n := way.pass(b, c.snip.head, c.snip.after)
	if n < len(b) || !up && way.past && way.bytes == c.snip.after {
		c.over = true
		return n, errSnipped
	}
	return n, nil
}

func (c *snipped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	n, over := c.allowed(false, b[:n])
	if over != nil {
		c.strike()
		return n, over
	}
	return n, err
}

func (c *snipped) Write(b []byte) (int, error) {
	n, over := c.allowed(true, b)
	n, err := c.Conn.Write(b[:n])
	if over != nil {
		c.strike()
		return n, over
	}
	return n, err
}

// strike ends the connection.
func (c *snipped) strike() {
	switch c.snip.kind {
	case snipReset:
		c.Conn.(*net.TCPConn).SetLinger(0)
		c.Conn.Close()
	case snipEnd:
		c.Conn.Close()
	case snipSilent:
		c.Conn.SetReadDeadline(time.Unix(1, 0)) // wake the reader
	}
}

// struck reports whether the snip has happened.
func (c *snipped) struck() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// Close is called by the library. A connection whose end the gateway must not notice
// stays open until the end of the test.
func (c *snipped) Close() error {
	if c.snip.kind == snipSilent && c.struck() {
		return nil
	}
	return c.Conn.Close()
}

// snipNext makes the arena's next connections snipped ones.
func (a *arena) snipNext(s snip) *snipped {
	c := &snipped{snip: s}
	a.connect = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c.Conn = conn
		a.t.Cleanup(func() { conn.Close() })
		return c, nil
	}
	return c
}
