//go:build linux

package load

import (
	"fmt"
	"runtime"
	"time"
)

// served is how long Beside serves its clients before it looks for an order.
const served = 10 * time.Millisecond

// A Beside is clients on a thread of their own, without traffic. Their connections can
// be reset and resume while other clients are measured.
type Beside struct {
	orders chan func(*Client) error
	done   chan error
}

// NewBeside makes the clients.
func NewBeside(s Setup) (*Beside, error) {
	c, err := New(s)
	if err != nil {
		return nil, err
	}
	b := &Beside{orders: make(chan func(*Client) error), done: make(chan error, 1)}
	go b.run(c)
	return b, nil
}

func (b *Beside) run(c *Client) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	defer c.Close()
	var broken error
	for {
		select {
		case do, ok := <-b.orders:
			if !ok {
				return
			}
			if broken == nil {
				broken = do(c)
			}
			if broken != nil && c.Faults.Any() {
				broken = fmt.Errorf("%w: %v", broken, c.Faults)
			}
			b.done <- broken
		default:
			if err := c.Run(served); err != nil && broken == nil {
				broken = err
			}
		}
	}
}

// Close closes all connections. Nothing may be under way.
func (b *Beside) Close() { close(b.orders) }

// Connect connects all sessions.
func (b *Beside) Connect(limit time.Duration) error {
	b.orders <- func(c *Client) error { return c.Connect(limit) }
	return <-b.done
}

// Cut resets all connections.
func (b *Beside) Cut(inFlight int) error {
	b.orders <- func(c *Client) error {
		c.Cut()
		c.InFlight = inFlight
		return nil
	}
	return <-b.done
}

// Resume begins to resume all sessions. Done receives the result.
func (b *Beside) Resume(limit time.Duration) {
	b.orders <- func(c *Client) error { return c.Back(limit) }
}

// Done receives the result of Resume, once.
func (b *Beside) Done() <-chan error { return b.done }
