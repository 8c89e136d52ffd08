package transport

import (
	"net"
	"os"

	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/netio"
)

// leave takes the session off its loop, for good.
func (s *Session) leave(p *epoll.Session) {
	p.Leave(func(core *session.Session, sockets epoll.Sockets, over bool) (then func()) {
		n := s.driver.net.Adopt(core, connsOf(sockets), over, s.watch)
		s.net.Store(n)
		return n.TellRest
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

// connOf makes a connection of a descriptor, which is closed in any case.
func connOf(k epoll.Socket) netio.Socket {
	if k.FD < 0 {
		return netio.Socket{Leg: k.Leg}
	}
	f := os.NewFile(uintptr(k.FD), "")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil { // no descriptor left for a moment: as if the network had cut it
		conn, _ = net.Pipe()
		conn.Close()
	}
	return netio.Socket{Conn: conn, Leg: k.Leg}
}
