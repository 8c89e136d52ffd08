//go:build !linux

package handover

import (
	"os"
	"time"
)

// A Conn cannot exist on this system: nothing makes one.
type Conn struct{}

// New fails with ErrUnsupported.
func New(int) (*Conn, error) { return nil, ErrUnsupported }

// Pair fails with ErrUnsupported.
func Pair() (*Conn, *os.File, error) { return nil, nil, ErrUnsupported }

// SocketPair fails with ErrUnsupported.
func SocketPair() ([2]int, error) { return [2]int{}, ErrUnsupported }

// Close does nothing.
func (c *Conn) Close() error { return nil }

// SetDeadline does nothing.
func (c *Conn) SetDeadline(time.Time) {}

// Withdraw does nothing.
func (c *Conn) Withdraw(error) <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Send fails with ErrUnsupported.
func (c *Conn) Send(Kind, []int, ...[]byte) error { return ErrUnsupported }

// Receive fails with ErrUnsupported.
func (c *Conn) Receive() (Message, error) { return Message{}, ErrUnsupported }

// Close does nothing.
func (m *Message) Close() {}

// A Listener cannot exist on this system: nothing makes one.
type Listener struct{}

// Listen fails with ErrUnsupported.
func Listen(string, bool) (*Listener, error) { return nil, ErrUnsupported }

// Accept fails with ErrUnsupported.
func (l *Listener) Accept() (*Conn, error) { return nil, ErrUnsupported }

// Close does nothing.
func (l *Listener) Close() error { return nil }

// Dial fails with ErrUnsupported.
func Dial(string) (*Conn, error) { return nil, ErrUnsupported }

// Monotonic is zero: there is no successor to agree with.
func Monotonic() time.Duration { return 0 }

// CloseFD does nothing.
func CloseFD(int) {}

// Duplicate fails with ErrUnsupported.
func (c *Conn) Duplicate() (int, error) { return -1, ErrUnsupported }
