package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// errReset is the read error of a connection that a fault has reset.
var errReset = errors.New("reset by a fault")

const (
	chunkSize = 16 << 10
	maxChunks = 16 // under way, in each direction
)

// A chunk is bytes on their way.
type chunk struct {
	at   time.Time // when they were sent
	luck float64   // of their jitter, from -1 to 1
	b    []byte
}

func newChunk(b []byte) chunk { return chunk{time.Now(), 2*rand.Float64() - 1, b} }

// A Conn is a client's connection with a relay below it, which delays bytes as its Line says.
//
// It deliberately has no NetConn and no SyscallConn method. The socket below still receives data
// while the line is silent: bytes to read, or acknowledged by the peer's TCP, would be signs of life
// that a dead link does not have. Without the socket's state the gateway judges only by what it
// reads.
type Conn struct {
	tcp   net.Conn
	lines *Lines
	line  atomic.Pointer[Line] // nil: no fault so far

	up, down        chan chunk
	upErr           error // set before up is closed
	readBy, writeBy *deadline
	gone            atomic.Bool // the client has closed its side, or reset the connection
	abort           atomic.Bool // closing resets the connection

	finish, close    sync.Once
	finished, closed chan struct{}

	// Of Read alone.
	head         chunk // the next one; without bytes: the end
	has, arrived bool

	silent [3]time.Time // by Direction: until when; of the Line's lock
	free   [3]time.Time // by Direction: when the chunk before had passed; of the relay of that direction alone
}

func newConn(tcp net.Conn, l *Lines) *Conn {
	return &Conn{
		tcp: tcp, lines: l, up: make(chan chunk, maxChunks), down: make(chan chunk, maxChunks),
		readBy: newDeadline(), writeBy: newDeadline(),
		finished: make(chan struct{}), closed: make(chan struct{}),
	}
}

// receive passes on what the client sends, until its end. It also reads while the line is silent, so
// that it knows whether the client is gone.
func (c *Conn) receive() {
	for {
		b := make([]byte, chunkSize)
		n, err := c.tcp.Read(b)
		if n > 0 {
			select {
			case c.up <- newChunk(b[:n]):
			case <-c.closed: // nobody reads it
			case <-c.lines.over:
			}
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				err = errReset // the gateway does not read any more once it has closed c
			}
			c.upErr = err
			c.gone.Store(true)
			close(c.up)
			return
		}
	}
}

// send passes on what the gateway sends, and then its end.
func (c *Conn) send() {
	defer c.lines.forget(c)
	defer c.tcp.Close()
	for ch, ok := c.next(); ok; ch, ok = c.next() {
		if c.hold(Down, ch, nil, nil) != nil {
			return
		}
		c.tcp.Write(ch.b) // an error is known to Read, after what came before it
	}
	if c.hold(Down, newChunk(nil), nil, nil) != nil {
		return
	}
	if w, ok := c.tcp.(interface{ CloseWrite() error }); ok && !c.abort.Load() {
		w.CloseWrite()
	}
	select {
	case <-c.closed:
	case <-c.lines.over:
		return
	}
	if c.abort.Load() {
		c.reset()
	}
}

// next returns the next chunk for the client; false after the last one.
func (c *Conn) next() (ch chunk, ok bool) {
	select {
	case ch = <-c.down:
	case <-c.finished:
		select {
		case ch = <-c.down: // sent before the end
		default:
			return ch, false
		}
	case <-c.lines.over:
		return ch, false
	}
	return ch, !c.abort.Load()
}

// hold waits until a chunk has passed the line. It returns an error if deadline passes or closed is
// closed before; both may be nil.
func (c *Conn) hold(d Direction, ch chunk, deadline, closed <-chan struct{}) error {
	for {
		due, changed := c.line.Load().due(c, d, ch)
		left := time.Until(due)
		if left <= 0 {
			c.free[d] = time.Now()
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-deadline:
			timer.Stop()
			return os.ErrDeadlineExceeded
		case <-closed:
			timer.Stop()
			return net.ErrClosed
		case <-c.lines.over:
			timer.Stop()
			return net.ErrClosed
		}
		timer.Stop()
	}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	passed := c.readBy.passed()
	select {
	case <-passed: // even if there is something to read
		return 0, os.ErrDeadlineExceeded
	default:
	}
	if !c.has {
		select {
		case ch, ok := <-c.up:
			if !ok {
				ch = newChunk(nil)
			}
			c.head, c.has = ch, true
		case <-passed:
			return 0, os.ErrDeadlineExceeded
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	if !c.arrived {
		if err := c.hold(Up, c.head, passed, c.closed); err != nil {
			return 0, err
		}
		c.arrived = true
	}
	if c.head.b == nil {
		return 0, c.upErr
	}
	n := copy(p, c.head.b)
	c.head.b = c.head.b[n:]
	if len(c.head.b) == 0 {
		c.has, c.arrived = false, false
	}
	return n, nil
}

// Write implements net.Conn. Like a socket it buffers, and blocks when that is full.
func (c *Conn) Write(p []byte) (n int, err error) {
	for n < len(p) {
		b := append([]byte(nil), p[n:min(n+chunkSize, len(p))]...)
		passed := c.writeBy.passed()
		select {
		case <-passed:
			return n, os.ErrDeadlineExceeded
		case <-c.finished:
			return n, net.ErrClosed
		default:
		}
		select {
		case c.down <- newChunk(b):
			n += len(b)
		case <-passed:
			return n, os.ErrDeadlineExceeded
		case <-c.finished:
			return n, net.ErrClosed
		}
	}
	return n, nil
}

// CloseWrite closes the writing side.
func (c *Conn) CloseWrite() error {
	c.finish.Do(func() { close(c.finished) })
	return nil
}

// Close closes the connection. The client sees it once the line lets it pass.
func (c *Conn) Close() error {
	c.CloseWrite()
	c.close.Do(func() {
		close(c.closed)
		c.tcp.SetWriteDeadline(time.Now().Add(MaxFor)) // of a client that reads nothing
	})
	return nil
}

// SetLinger makes Close reset the connection if sec is zero, as that of a net.TCPConn does.
func (c *Conn) SetLinger(sec int) error {
	c.abort.Store(sec == 0)
	return nil
}

// reset resets the connection at once, for both ends.
func (c *Conn) reset() {
	if l, ok := c.tcp.(interface{ SetLinger(int) error }); ok {
		l.SetLinger(0)
	}
	c.tcp.Close()
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.tcp.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.tcp.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.readBy.at(t)
	c.writeBy.at(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readBy.at(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeBy.at(t)
	return nil
}

type connKey struct{}

// ConnContext is for an http.Server: it passes the connection to Lines.Admit.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}
