package demo

import (
	"errors"
	"net"
	"sync"
	"time"
)

// errCut is the read error of a connection that the demo's page has dropped.
var errCut = errors.New("cut by the demo")

// A Listener accepts connections that can be silenced for a while.
type Listener struct{ net.Listener }

// Accept waits for the next connection.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{TCPConn: c.(*net.TCPConn), closed: make(chan struct{})}, nil
}

// A Conn is a client's connection that can fall silent: then nothing passes in either
// direction, not even its close, as on a dead link. Other connections are not affected: a
// client that reconnects is on another network.
//
// It deliberately has no NetConn method. The socket below still receives data while this
// connection is silent: bytes to read, or acknowledged by the peer's TCP, would be signs
// of life that a dead link does not have. Without the socket's state the gateway judges
// only by what it reads.
type Conn struct {
	*net.TCPConn

	mu     sync.Mutex
	until  time.Time
	once   sync.Once
	closed chan struct{}
}

// Silence stops both directions for d.
func (c *Conn) Silence(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Now().Add(d)
}

// wait waits until the connection is not silent, or closed.
func (c *Conn) wait() {
	for {
		c.mu.Lock()
		d := time.Until(c.until)
		c.mu.Unlock()
		if d <= 0 {
			return
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-c.closed:
			timer.Stop()
			return
		}
	}
}

// Read returns data that arrives while the connection is silent only afterwards. Its error
// is shown as the reason of the disconnect.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.wait()
	if errors.Is(err, net.ErrClosed) {
		err = errCut
	}
	return n, err
}

// Write writes once the connection is not silent.
func (c *Conn) Write(b []byte) (int, error) {
	c.wait()
	return c.TCPConn.Write(b)
}

// Close closes the connection, also while it is silent.
func (c *Conn) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}
