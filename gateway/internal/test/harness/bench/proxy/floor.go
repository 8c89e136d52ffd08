//go:build linux

package proxy

import (
	"net/netip"
	"time"

	"reseat/gateway/internal/test/harness/bench/epoll"
)

// serveFloor relays bytes between sockets, and does nothing else: on one thread, with one read
// and one write for each piece. It is what a proxy on epoll costs at least, since it knows no
// HTTP and no WebSocket and keeps nothing.
func serveFloor(listen, upstream string) error {
	loop, err := epoll.New()
	if err != nil {
		return err
	}
	defer loop.Close()
	to := netip.MustParseAddrPort(upstream)
	_, err = loop.Listen(netip.MustParseAddrPort(listen), func(c *epoll.Conn) epoll.Owner {
		client := new(floorEnd)
		client.peer, client.err = loop.Dial(netip.Addr{}, to, &floorEnd{peer: c})
		return client
	})
	for err == nil {
		err = loop.Wait(epoll.Now() + time.Hour.Nanoseconds())
	}
	return err
}

// A floorEnd owns one of two connections, and writes to the other.
type floorEnd struct {
	peer *epoll.Conn
	err  error // there is no other
}

func (e *floorEnd) Connected() {}
func (e *floorEnd) Room()      {}
func (e *floorEnd) Data(b []byte) {
	if e.err != nil {
		panic(e.err)
	}
	e.peer.Write(b)
}
func (e *floorEnd) Gone(error) {
	if e.peer != nil {
		e.peer.Close()
	}
}
