package faults

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
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

	in, passedUp net.Conn    // a pipe: what the gateway reads, and where what has passed the line is written
	out, sent    net.Conn    // a pipe: what the gateway writes, and where it is read before it passes the line
	upErr        error       // set before passedUp is closed
	gone         atomic.Bool // the client has closed its side, or reset the connection
	abort        atomic.Bool // closing resets the connection

	close  sync.Once
	closed chan struct{}

	silent [3]time.Time // by Direction: until when; of the Line's lock
	free   [3]time.Time // by Direction: when the chunk before had passed; of the relay of that direction alone
}

func newConn(tcp net.Conn, l *Lines) *Conn {
	c := &Conn{tcp: tcp, lines: l, closed: make(chan struct{})}
	c.in, c.passedUp = net.Pipe()
	c.out, c.sent = net.Pipe()
	return c
}

// chunks reads r in another goroutine, which calls last with the error at its end, and then closes the
// channel.
func (c *Conn) chunks(r net.Conn, last func(error)) <-chan chunk {
	all := make(chan chunk, maxChunks)
	c.lines.running.Go(func() {
		defer close(all)
		for {
			b := make([]byte, chunkSize)
			n, err := r.Read(b)
			if n > 0 {
				all <- newChunk(b[:n])
			}
			if err != nil {
				last(err)
				return
			}
		}
	})
	return all
}

// receive passes on what the client sends, until its end. It also reads while the line is silent, so
// that it knows whether the client is gone.
func (c *Conn) receive() {
	defer c.passedUp.Close()
	all := c.chunks(c.tcp, func(err error) {
		if errors.Is(err, net.ErrClosed) {
			err = errReset // the gateway does not read any more once it has closed c
		}
		c.upErr = err
		c.gone.Store(true)
	})
	for ch := range all {
		if c.hold(Up, ch, c.closed) {
			c.passedUp.Write(ch.b) // fails if nobody reads it any more
		}
	}
	c.hold(Up, newChunk(nil), c.closed)
}

// send passes on what the gateway sends, and then its end.
func (c *Conn) send() {
	defer c.lines.forget(c)
	defer c.tcp.Close()
	for ch := range c.chunks(c.sent, func(error) {}) {
		if !c.abort.Load() && c.hold(Down, ch, nil) {
			c.tcp.Write(ch.b) // an error is known to Read, after what came before it
		}
	}
	if !c.hold(Down, newChunk(nil), nil) {
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

// hold waits until a chunk has passed the line. It returns false if closed, which may be nil, is
// closed before, or the Lines stop.
func (c *Conn) hold(d Direction, ch chunk, closed <-chan struct{}) bool {
	for {
		due, changed := c.line.Load().due(c, d, ch)
		left := time.Until(due)
		if left <= 0 {
			c.free[d] = time.Now()
			return true
		}
		select {
		case <-time.After(left):
		case <-changed:
		case <-closed:
			return false
		case <-c.lines.over:
			return false
		}
	}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if err == io.EOF {
		return n, c.upErr
	}
	return n, ofSocket(err)
}

// Write implements net.Conn. Like a socket it buffers, and blocks when that is full.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	return n, ofSocket(err)
}

// ofSocket returns the error that a socket has in place of a pipe's.
func ofSocket(err error) error {
	if err == io.ErrClosedPipe {
		return net.ErrClosed
	}
	return err
}

// CloseWrite closes the writing side.
func (c *Conn) CloseWrite() error { return c.out.Close() }

// Close closes the connection. The client sees it once the line lets it pass.
func (c *Conn) Close() error {
	c.close.Do(func() {
		c.tcp.SetWriteDeadline(time.Now().Add(MaxFor)) // of a client that reads nothing
		close(c.closed)
		c.in.Close()
		c.out.Close()
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
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.in.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }

type connKey struct{}

// ConnContext is for an http.Server: it passes the connection to Lines.Admit.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}
