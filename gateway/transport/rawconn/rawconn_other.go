//go:build !linux

package rawconn

import "net"

// Elsewhere than on Linux there are no descriptors to be had: Raw says so, and
// nothing of what follows is ever called.

const supported = false

// Take reports ErrUnsupported.
func Take(net.Conn) (int, error) { return -1, ErrUnsupported }

// Release does nothing.
func Release(int) {}

// Receive reports ErrUnsupported.
func Receive(int, []byte) (int, error) { return 0, ErrUnsupported }

// Send reports ErrUnsupported.
func Send(int, []byte) (n int, full bool, err error) { return 0, false, ErrUnsupported }

// A Sender is of use on Linux alone.
type Sender struct{}

// Send reports ErrUnsupported.
func (*Sender) Send(int, [][]byte) (n int, full bool, err error) { return 0, false, ErrUnsupported }

// StateOf reports ErrUnsupported.
func StateOf(int) (State, error) { return State{}, ErrUnsupported }

// Hangups is of use on Linux alone.
type Hangups struct{}

// A Peer is who wants to know of a hangup.
type Peer interface{ HungUp() }

// WatchHangups reports ErrUnsupported.
func WatchHangups() (*Hangups, error) { return nil, ErrUnsupported }

// Add reports ErrUnsupported.
func (*Hangups) Add(int, Peer) error { return ErrUnsupported }

// Remove does nothing.
func (*Hangups) Remove(int) {}

// Close does nothing.
func (*Hangups) Close() {}

// Wait does nothing.
func (*Hangups) Wait() {}

// WakeReader does nothing.
func WakeReader(int) {}
