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
type Beside struct{ orders chan order }

type order struct {
	do   func(*Client) error
	done chan error
}

// NewBeside makes the clients.
func NewBeside(s Setup) (*Beside, error) {
	c, err := New(s)
	if err != nil {
		return nil, err
	}
	b := &Beside{make(chan order)}
	go b.run(c)
	return b, nil
}

func (b *Beside) run(c *Client) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	defer c.Close()
	var broken error
	for {
		select {
		case o, ok := <-b.orders:
			if !ok {
				return
			}
			if broken == nil {
				broken = o.do(c)
			}
			if broken != nil && c.Faults.Any() {
				broken = fmt.Errorf("%w: %v", broken, c.Faults)
			}
			o.done <- broken
		default:
			if err := c.Run(served); err != nil && broken == nil {
				broken = err
			}
		}
	}
}

// Do has the clients do something. The result, or an earlier error, follows.
func (b *Beside) Do(f func(*Client) error) <-chan error {
	done := make(chan error, 1)
	b.orders <- order{f, done}
	return done
}

// Close closes all connections. Nothing may be under way.
func (b *Beside) Close() { close(b.orders) }
