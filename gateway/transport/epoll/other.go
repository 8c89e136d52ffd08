//go:build !linux

package epoll

import (
	"context"
	"net"
	"net/netip"

	"reseat/gateway/link"
	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// Outside Linux there are no loops: Start returns an error, and nothing below is ever
// called.

// A Loop works only on Linux.
type Loop struct{}

// A Conn works only on Linux.
type Conn struct{ net.Conn }

// TCP returns rawconn.ErrUnsupported.
func (*Conn) TCP() (net.Conn, error) { return nil, rawconn.ErrUnsupported }

// Handle returns the zero Handle.
func (*Conn) Handle() Handle { return Handle{} }

// Loop returns nil.
func (*Conn) Loop() *Loop { return nil }

// A Handle works only on Linux.
type Handle struct{}

// Descriptor returns the zero Handle.
func Descriptor(int) Handle { return Handle{} }

// Above returns the zero Handle.
func Above(int, Layered) Handle { return Handle{} }

// Forwarded returns the zero Handle.
func Forwarded(int) Handle { return Handle{} }

// Release does nothing.
func (Handle) Release() {}

// Layered returns false.
func (Handle) Layered() bool { return false }

// A Session works only on Linux.
type Session struct{}

// Loops work only on Linux.
type Loops struct{}

// Start returns rawconn.ErrUnsupported.
func Start(Clock, int) (*Loops, error) { return nil, rawconn.ErrUnsupported }

// Infos does nothing.
func Infos([]*Session, func(int, session.Info)) {}

func (*Loops) Place() *Loop                                                     { return nil }
func (*Loops) Close()                                                           {}
func (*Loops) Wait()                                                            {}
func (*Loops) Stats() []Stats                                                   { return nil }
func (*Loops) Pause() (resume func())                                           { return nil }
func (*Loop) New(*session.Session, Handle, session.Observer) *Session           { return nil }
func (*Loop) Accepted(int, net.Addr, net.Addr) (*Conn, error)                   { return nil, rawconn.ErrUnsupported }
func (*Loop) Dial(context.Context, netip.AddrPort) (*Conn, error)               { return nil, rawconn.ErrUnsupported }
func (*Loop) Adopt(*session.Session, Handle, Handle, session.Observer) *Session { return nil }
func (*Loop) Link(*link.Link, Handle)                                           {}
func (*Loop) Relay(Handle, *link.Stream, func())                                {}
func (*Session) Freeze(int) (f session.Frozen, up, down rawconn.Socket, err error) {
	return f, up, down, session.ErrBusy
}
func (*Session) Drop()                                        {}
func (*Session) Do(func(*session.Session, session.Time)) bool { return false }
func (*Session) Attach(Handle, []byte, session.AttachFunc) (*session.Refusal, bool) {
	return nil, false
}
func (*Session) AttachFirst(*Conn, []byte, session.AttachFunc)             {}
func (*Session) Reconnect(Handle, []byte, session.Time) (taken, here bool) { return false, false }
