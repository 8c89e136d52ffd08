package upgrade

import (
	"net"
	"sync"
	"sync/atomic"

	"reseat/gateway/handover"
	"reseat/gateway/pipe"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
)

// A pump forwards the bytes of connections that cannot be handed over: those over TLS
// or compressed, whose state is in this process.
type pump struct {
	running sync.WaitGroup
	count   atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once it is closed
}

// A pumped is a connection that will be forwarded, and the ends of a socket pair: near is
// this process's, far the successor's.
type pumped struct {
	conn      net.Conn
	near, far int
}

func newPump() *pump {
	return &pump{conns: make(map[net.Conn]struct{})}
}

// start forwards until one end closes.
func (p *pump) start(c pumped) {
	near, err := rawconn.ConnOf(c.near)
	if err != nil {
		c.conn.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		c.conn.Close()
		near.Close()
		return
	}
	p.conns[c.conn], p.conns[near] = struct{}{}, struct{}{}
	p.count.Add(1)
	p.running.Go(func() {
		pipe.Copy(c.conn, near)
		p.count.Add(-1)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c.conn)
		delete(p.conns, near)
	})
}

// done returns a channel that is closed when nothing is forwarded any more.
func (p *pump) done() <-chan struct{} {
	c := make(chan struct{})
	go func() {
		p.running.Wait()
		close(c)
	}()
	return c
}

// close closes all connections.
func (p *pump) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// describe fills in the descriptors of a frozen session's ends: see descriptor.
func (l *pumpList) describe(s *FrozenSession) error {
	if err := l.descriptor(&s.Up); err != nil {
		return err
	}
	return l.descriptor(&s.Down)
}

// descriptor fills in the descriptor of a frozen session's end that has none: the
// connection will be forwarded, unless it is plain TCP, or itself one that an older process
// forwards.
func (l *pumpList) descriptor(end *transport.End) (err error) {
	if end.Conn == nil {
		return nil
	}
	switch c := end.Conn.(type) {
	case *net.UnixConn:
		l.older = append(l.older, c)
		end.FD, err = rawconn.Descriptor(c)
		return err
	case *net.TCPConn: // of a client that came too late
		end.FD, err = rawconn.Descriptor(c)
		return err
	}
	fds, err := handover.SocketPair()
	if err != nil {
		return err
	}
	end.FD = fds[1]
	l.list = append(l.list, pumped{end.Conn, fds[0], fds[1]})
	return nil
}

// A pumpList has what must be forwarded once a successor has the sessions.
type pumpList struct {
	list  []pumped
	older []net.Conn // sockets that older processes forward to
}

// sent closes the successor's ends, which it has.
func (l *pumpList) sent() {
	for i := range l.list {
		handover.CloseFD(l.list[i].far)
		l.list[i].far = -1
	}
}

// abandon closes what was made.
func (l *pumpList) abandon() {
	l.sent()
	for _, c := range l.list {
		handover.CloseFD(c.near)
	}
}

// start begins to forward.
func (l *pumpList) start(p *pump) {
	l.sent()
	for _, c := range l.list {
		p.start(c)
	}
	for _, c := range l.older {
		c.Close()
	}
}
