package demo

import (
	"errors"
	"net"
	"sync"
	"time"
)

// errCut is why a connection ends that the page has had cut.
var errCut = errors.New("cut by the demo")

// A Listener accepts connections that can be cut for a while.
type Listener struct{ net.Listener }

// Accept waits for the next connection.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{TCPConn: c.(*net.TCPConn), closed: make(chan struct{})}, nil
}

// A Conn is a client's connection that can fall silent: then nothing passes
// either way, not even its end, as behind a link that has gone down. Other
// connections pass: a client that connects again is on another network.
//
// It deliberately has no NetConn method. The socket below goes on receiving while
// this connection is silent, and would show bytes that wait to be read, or that
// the peer's TCP has acknowledged: signs of life that do not exist on a dead link.
// Without one the gateway knows no socket state, and judges by what it reads alone.
type Conn struct {
	*net.TCPConn

	mu     sync.Mutex
	until  time.Time
	once   sync.Once
	closed chan struct{}
}

// Silence stops everything for d.
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

// Read reads, but what comes while the connection is silent only afterwards. Its
// error is shown as the reason why the client was lost.
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

// Close closes the connection at once.
func (c *Conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.TCPConn.Close()
}
