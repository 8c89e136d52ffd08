//go:build !linux

package rawconn

import "net"

// Outside Linux no descriptors are available: Raw returns ErrUnsupported, and nothing
// below is ever called.

// Supported reports whether this package works on this system.
const Supported = false

// Take returns ErrUnsupported.
func Take(net.Conn) (int, error) { return -1, ErrUnsupported }

// Wake does nothing.
func Wake(int) {}

// Release does nothing.
func Release(int) {}

// Receive returns ErrUnsupported.
func Receive(int, []byte) (int, error) { return 0, ErrUnsupported }

// Send returns ErrUnsupported.
func Send(int, []byte) (n int, full bool, err error) { return 0, false, ErrUnsupported }

// A Sender works only on Linux.
type Sender struct{}

// Send returns ErrUnsupported.
func (*Sender) Send(int, [][]byte) (n int, full bool, err error) { return 0, false, ErrUnsupported }

// StateOf returns ErrUnsupported.
func StateOf(int) (State, error) { return State{}, ErrUnsupported }

// Hangups works only on Linux.
type Hangups struct{}

// A Peer is notified of a hangup.
type Peer interface{ HungUp() }

// WatchHangups returns ErrUnsupported.
func WatchHangups() (*Hangups, error) { return nil, ErrUnsupported }

// Add returns ErrUnsupported.
func (*Hangups) Add(int, Peer) error { return ErrUnsupported }

// Remove does nothing.
func (*Hangups) Remove(int) {}

// Close does nothing.
func (*Hangups) Close() {}

// Wait does nothing.
func (*Hangups) Wait() {}

// WakeReader does nothing.
func WakeReader(int) {}

// PeerOf returns 0: it is unknown.
func PeerOf(int) int { return 0 }
