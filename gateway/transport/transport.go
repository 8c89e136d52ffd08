// Package transport moves bytes between sockets and session cores. It knows no frames:
// it reads, passes bytes to the core, and writes what the core returns.
//
// There are two drivers. The net driver (package netio) uses two goroutines per session
// and serves any net.Conn. The poll driver (package epoll) uses event loops and serves
// plain TCP connections on Linux. Sessions behave the same with both.
package transport

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

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
	Auto Kind = iota // the cheapest: Poll
	Net              // goroutines
	Poll             // event loops; Net for connections that they cannot serve
)

// A Driver makes Sessions.
type Driver struct {
	kind  Kind
	clock *Clock

	begin sync.Once
	loops []*epoll.Loop // empty before the first session that a loop can serve

	net *netio.Driver
}

// NewDriver returns a Driver. It starts goroutines only once they are needed.
func NewDriver(kind Kind, clock *Clock) *Driver {
	return &Driver{kind: kind, clock: clock, net: netio.NewDriver(clock.Now)}
}

// Clock returns the clock that the sessions use.
func (d *Driver) Clock() *Clock { return d.clock }

// New drives core over its upstream's connection and starts reading at once. client is
// the connection that the caller will attach first, nil if not known yet: it only helps
// to choose the driver.
func (d *Driver) New(core *session.Session, upstream, client net.Conn, watch session.Observer) *Session {
	s := &Session{driver: d, watch: watch}
	if _, plain := client.(*net.TCPConn); d.kind != Net && (plain || client == nil) {
		if s.poll = d.poll(core, upstream, watch); s.poll != nil {
			return s
		}
	}
	s.net.Store(d.net.New(core, upstream, watch))
	return s
}

// poll starts core on a loop. It returns nil if no loop can serve it; the caller then
// still owns upstream.
func (d *Driver) poll(core *session.Session, upstream net.Conn, watch session.Observer) *epoll.Session {
	fd, err := rawconn.Take(upstream)
	if err != nil {
		return nil
	}
	l := d.leastLoaded()
	if l == nil {
		rawconn.Release(fd)
		return nil
	}
	upstream.Close()
	return l.New(core, fd, watch)
}

// leastLoaded returns the loop with the fewest sessions, nil if there is none.
func (d *Driver) leastLoaded() (l *epoll.Loop) {
	d.begin.Do(d.start)
	for _, other := range d.loops {
		if l == nil || other.Load() < l.Load() {
			l = other
		}
	}
	return l
}

// start starts the wanted number of loops, or as many as possible.
func (d *Driver) start() {
	n := epoll.Loops(runtime.GOMAXPROCS(0))
	epoll.LeaveRoom(n)
	for range n {
		l, err := epoll.Start(d.clock)
		if err != nil {
			return
		}
		d.loops = append(d.loops, l)
	}
}

// Close stops what the sessions share, once the last of them has ended. It does not
// wait.
func (d *Driver) Close() {
	d.begin.Do(func() {})
	for _, l := range d.loops {
		l.Close()
	}
	d.net.Close()
}

// Wait waits for what Close stops.
func (d *Driver) Wait() {
	for _, l := range d.loops {
		l.Wait()
	}
	d.net.Wait()
}

// descriptorOf returns a duplicate of conn's descriptor for a loop. supported is false
// if a loop can't serve conn; fd is negative if no descriptor could be had.
func descriptorOf(conn net.Conn) (fd int, supported bool) {
	fd, err := rawconn.Take(conn)
	if err != nil {
		return -1, !errors.Is(err, rawconn.ErrUnsupported)
	}
	return fd, true
}

// Farewell sends b on a connection that belongs to no session, waits at most a second
// for the peer to close, and closes it.
func Farewell(conn net.Conn, b []byte) { netio.Farewell(conn, b) }
