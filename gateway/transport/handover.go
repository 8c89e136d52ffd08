package transport

import (
	"net"

	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/netio"
	"reseat/gateway/transport/rawconn"
)

// leaveLoop moves the session from its loop to goroutines, for good.
func (s *Session) leaveLoop(p *epoll.Session) {
	p.Leave(func(core *session.Session, sockets epoll.Sockets, over bool) (then func()) {
		n := s.driver.net.Adopt(core, connsOf(sockets), over, s.watch)
		s.net.Store(n)
		return n.NotifyRest
	})
}

func connsOf(sockets epoll.Sockets) netio.Sockets {
	n := netio.Sockets{Up: connOf(sockets.Up)}
	if sockets.Down != nil {
		down := connOf(*sockets.Down)
		n.Down = &down
	}
	for _, k := range sockets.Older {
		n.Older = append(n.Older, connOf(k))
	}
	return n
}

// connOf turns a descriptor into a connection, and closes the descriptor in any case.
func connOf(k epoll.Socket) netio.Socket {
	if k.FD < 0 {
		return netio.Socket{Conn: k.Conn, Leg: k.Leg}
	}
	conn, err := rawconn.ConnOf(k.FD)
	if err != nil { // out of descriptors: treat the connection as broken
		conn, _ = net.Pipe()
		conn.Close()
	}
	return netio.Socket{Conn: conn, Leg: k.Leg}
}
