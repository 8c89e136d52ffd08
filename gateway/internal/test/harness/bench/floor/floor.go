//go:build linux

// Package floor relays bytes between sockets, and does nothing else: on one thread, with one
// read and one write for each piece. It is what a proxy on epoll costs at least, since it
// knows no HTTP and no WebSocket and keeps nothing.
package floor

import (
	"net/netip"
	"time"

	"reseat/gateway/internal/test/harness/bench/epoll"
)

// Serve relays every connection accepted at listen to the server at upstream, both IP:PORT.
func Serve(listen, upstream string) error {
	from, err := netip.ParseAddrPort(listen)
	if err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(upstream)
	if err != nil {
		return err
	}
	loop, err := epoll.New()
	if err != nil {
		return err
	}
	defer loop.Close()
	_, err = loop.Listen(from, func(c *epoll.Conn) epoll.Owner {
		client := new(end)
		client.peer, client.err = loop.Dial(to, &end{peer: c})
		return client
	})
	for err == nil {
		err = loop.Wait(epoll.Now() + time.Hour.Nanoseconds())
	}
	return err
}

// An end owns one of two connections, and writes to the other.
type end struct {
	peer *epoll.Conn
	err  error // there is no other
}

// Connected implements epoll.Owner.
func (e *end) Connected() {}

// Data implements epoll.Owner.
func (e *end) Data(b []byte) {
	if e.err != nil {
		panic(e.err)
	}
	e.peer.Write(b)
}

// Room implements epoll.Owner.
func (e *end) Room() {}

// Gone implements epoll.Owner.
func (e *end) Gone(error) {
	if e.peer != nil {
		e.peer.Close()
	}
}
