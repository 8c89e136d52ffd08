// Package transport moves bytes between sockets and session cores. It knows no frames:
// it reads, passes bytes to the core, and writes what the core returns.
//
// There are two drivers, and a system uses one. On Linux it is the poll driver (package epoll): event loops,
// as many as the load needs.
// They serve TCP connections, and TLS and compression above those. On other systems it is the net driver (package netio): two goroutines for each
// session, for any net.Conn. Sessions behave the same with both.
package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/link"
	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/netio"
	"reseat/gateway/transport/rawconn"
)

// A Clock supplies session.Time.
type Clock struct{ start time.Time }

// NewClock returns a Clock that starts now.
func NewClock() *Clock { return &Clock{time.Now()} }

// ContinueClock returns a Clock that reads now at this moment, to continue another
// process's.
func ContinueClock(now session.Time) *Clock { return &Clock{time.Now().Add(-time.Duration(now - 1))} }

// Now returns the current time; it is never zero and never goes back.
func (c *Clock) Now() session.Time { return session.Time(time.Since(c.start)) + 1 }

// Wall converts t to wall clock time.
func (c *Clock) Wall(t session.Time) time.Time { return c.start.Add(time.Duration(t)) }

// A Kind selects a driver.
type Kind uint8

// The values of --driver.
const (
	Auto Kind = iota // Poll on Linux, else Net
	Net              // goroutines, everywhere; on Linux for diagnosis
	Poll             // event loops, on Linux
)

// A Driver makes Sessions.
type Driver struct {
	kind  Kind
	clock *Clock

	begin sync.Once
	many  int                         // loops; zero: as many as the load needs
	loops atomic.Pointer[epoll.Loops] // nil before start, and where there are none

	net *netio.Driver
}

// NewDriver returns a Driver, with so many event loops: as many as the load needs, up to the number of processors,
// if loops is zero. It starts goroutines only once they are needed.
func NewDriver(kind Kind, loops int, clock *Clock) *Driver {
	if !rawconn.Supported {
		kind = Net
	}
	return &Driver{kind: kind, many: loops, clock: clock, net: netio.NewDriver(clock.Now)}
}

// Clock returns the clock that the sessions use.
func (d *Driver) Clock() *Clock { return d.clock }

// New drives core over its upstream's connection and starts reading at once. client is
// the connection that the caller will attach first, nil if not known yet.
//
// A loop drives it, unless there is none, or no descriptor is left, or a connection has no socket, such
// as a pipe in a test: then goroutines do.
func (d *Driver) New(core *session.Session, upstream, client net.Conn, watch session.Observer) *Session {
	if d.kind != Net && (client == nil || servable(client)) {
		if p := d.poll(core, upstream, watch); p != nil {
			return &Session{poll: p}
		}
	}
	return &Session{net: d.net.New(core, rawconn.OffLoop(upstream), watch)}
}

// poll starts core on a loop. It returns nil if no loop can serve it; the caller then
// still owns upstream.
func (d *Driver) poll(core *session.Session, upstream net.Conn, watch session.Observer) *epoll.Session {
	if c, ok := upstream.(*epoll.Conn); ok {
		return c.Loop().New(core, c.Handle(), watch)
	}
	h, err := take(upstream)
	if err != nil {
		return nil
	}
	l := d.place()
	if l == nil {
		h.Release()
		return nil
	}
	if !h.Layered() {
		upstream.Close()
	}
	return l.New(core, h, watch)
}

// Dial opens a TCP connection to an upstream, on a loop where one will serve it. It has the
// signature of net.Dialer's DialContext.
func (d *Driver) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if to, err := netip.ParseAddrPort(addr); err == nil && to.Addr().Zone() == "" && d.kind != Net {
		if l := d.place(); l != nil {
			c, err := l.Dial(ctx, to)
			if err != nil {
				return nil, err
			}
			return c, nil
		}
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// Accepted returns the connection of an accepted descriptor, on a loop if there is one, and
// owns the descriptor even if there is an error. local is the address of the listener.
func (d *Driver) Accepted(fd int, local, peer net.Addr) (net.Conn, error) {
	if l := d.place(); l != nil {
		c, err := l.Accepted(fd, local, peer)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	return rawconn.ConnOf(fd)
}

// Loops reports whether loops serve TCP connections, and starts them.
func (d *Driver) Loops() bool {
	d.begin.Do(d.start)
	return d.loops.Load() != nil
}

// DialLayered opens a TCP connection for TLS, which loops can serve above it.
func DialLayered(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return rawconn.Quiet(conn), nil
}

// LoopStats describes an event loop.
type LoopStats = epoll.Stats

// LoopStats describes the event loops, if they have started.
func (d *Driver) LoopStats() []LoopStats {
	if all := d.loops.Load(); all != nil {
		return all.Stats()
	}
	return nil
}

// InUse counts the loops that take new sessions.
func InUse(list []LoopStats) (n int) {
	for _, l := range list {
		if l.InUse {
			n++
		}
	}
	return n
}

// place returns the loop for a new session, nil if there is none.
func (d *Driver) place() *epoll.Loop {
	d.begin.Do(d.start)
	if all := d.loops.Load(); all != nil {
		return all.Place()
	}
	return nil
}

// start starts the loops, if that is possible.
func (d *Driver) start() {
	if d.kind != Net {
		if all, err := epoll.Start(d.clock, d.many); err == nil {
			d.loops.Store(all)
		}
	}
}

// Close stops what the sessions share, once the last of them has ended. It does not
// wait.
func (d *Driver) Close() {
	d.begin.Do(func() {})
	if all := d.loops.Load(); all != nil {
		all.Close()
	}
	d.net.Close()
}

// Wait waits for what Close stops.
func (d *Driver) Wait() {
	if all := d.loops.Load(); all != nil {
		all.Wait()
	}
	d.net.Wait()
}

// HostLink has a loop move the bytes of a link, over conn, which it owns then. It reports false if none can.
func (d *Driver) HostLink(of *link.Link, conn net.Conn) bool {
	layer := layerOf(conn)
	l := d.place()
	if layer == nil || l == nil {
		return false
	}
	h, err := take(conn)
	if err == nil {
		l.Link(of, h)
	}
	return err == nil
}

// Relay passes bytes between a client and the stream of a link that a loop hosts, until both directions have ended
// or one end is broken; then it calls over, which must not block. It owns both, unless it reports false: no loop can.
func (d *Driver) Relay(client, stream net.Conn, over func()) bool {
	s, ok := stream.(*link.Stream)
	if !ok {
		return false
	}
	l, ok := s.Host().(*epoll.Loop)
	if !ok {
		return false
	}
	h, ok := handleOf(client)
	if !ok {
		return false
	}
	if _, looped := client.(*epoll.Conn); !looped && !h.Layered() {
		client.Close() // the loop has a duplicate of its descriptor
	}
	l.Relay(h, s, over)
	return true
}

// handleOf returns conn for a loop, false if no loop can serve it. The Handle is unusable if no descriptor could
// be had.
func handleOf(conn net.Conn) (h epoll.Handle, ok bool) {
	if c, ok := conn.(*epoll.Conn); ok {
		return c.Handle(), true
	}
	h, err := take(conn)
	if err != nil {
		return epoll.Descriptor(-1), !errors.Is(err, rawconn.ErrUnsupported)
	}
	return h, true
}

// take returns a Handle with a duplicate of the descriptor of conn's socket.
func take(conn net.Conn) (h epoll.Handle, err error) {
	layer := layerOf(conn)
	if layer != nil {
		conn = rawconn.Lowest(conn)
	}
	fd, err := rawconn.Take(conn)
	if err != nil {
		return h, err
	}
	_, forwarded := conn.(*net.UnixConn)
	switch {
	case layer != nil:
		return epoll.Above(fd, layer), nil
	case forwarded:
		return epoll.Forwarded(fd), nil
	}
	return epoll.Descriptor(fd), nil
}

// servable reports whether a loop can serve conn.
func servable(conn net.Conn) bool { return rawconn.Stream(conn) || layerOf(conn) != nil }

// layerOf returns conn if a loop can serve what is above its socket, TLS or compression: then a
// rawconn.Conn is below. Else it returns nil.
func layerOf(conn net.Conn) epoll.Layered {
	if l, ok := conn.(epoll.Layered); ok && rawconn.Below(conn) != nil {
		return l
	}
	return nil
}

// Farewell sends b on a connection that belongs to no session, waits at most a second
// for the peer to close, and closes it.
func Farewell(conn net.Conn, b []byte) { netio.Farewell(conn, b) }
