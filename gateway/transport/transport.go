// Package transport moves bytes between sockets and session cores. It knows no
// frame: it reads, hands over, and writes what the core hands out.
//
// There are two drivers. The net driver (package netio) has two goroutines a session and
// takes any net.Conn; the poll driver (package epoll) has event loops and takes plain
// TCP connections, on Linux. What a session does is the same with both.
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

// A Clock turns time into session.Time.
type Clock struct{ start time.Time }

// NewClock makes a Clock that begins now.
func NewClock() *Clock { return &Clock{time.Now()} }

// Now is the present moment; it is never zero and never goes back.
func (c *Clock) Now() session.Time { return session.Time(time.Since(c.start)) + 1 }

// Wall is when t was, by the wall clock.
func (c *Clock) Wall(t session.Time) time.Time { return c.start.Add(time.Duration(t)) }

// A Kind says which driver to use.
type Kind uint8

// The values of --driver.
const (
	Auto Kind = iota // what costs least: Poll
	Net              // goroutines
	Poll             // event loops; Net for what they cannot serve
)

// A Driver makes Sessions.
type Driver struct {
	kind  Kind
	clock *Clock

	begin sync.Once
	loops []*epoll.Loop // none before the first session that one can serve

	net *netio.Driver
}

// NewDriver makes a Driver. It starts nothing before it is needed.
func NewDriver(kind Kind, clock *Clock) *Driver {
	return &Driver{kind: kind, clock: clock, net: netio.NewDriver(clock.Now)}
}

// Clock is what the Driver tells the sessions' time by.
func (d *Driver) Clock() *Clock { return d.clock }

// New drives core over its upstream's connection. It begins to read at once.
// client is the connection that will be attached first, nil where that is not
// known yet; it is still to be attached.
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

// poll has a loop drive core, if one can; else it is nil and upstream still the
// caller's.
func (d *Driver) poll(core *session.Session, upstream net.Conn, watch session.Observer) *epoll.Session {
	fd, err := rawconn.Take(upstream)
	if err != nil {
		return nil
	}
	l := d.idlest()
	if l == nil {
		rawconn.Release(fd)
		return nil
	}
	upstream.Close()
	return l.New(core, fd, watch)
}

// idlest is the loop with the fewest sessions, nil where there is none.
func (d *Driver) idlest() (l *epoll.Loop) {
	d.begin.Do(d.start)
	for _, other := range d.loops {
		if l == nil || other.Load() < l.Load() {
			l = other
		}
	}
	return l
}

// start starts as many loops as wanted, or as possible.
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

// Close ends what runs for all sessions together, once the last of them is over.
// It does not wait.
func (d *Driver) Close() {
	d.begin.Do(func() {})
	for _, l := range d.loops {
		l.Close()
	}
	d.net.Close()
}

// Wait waits for what Close ends.
func (d *Driver) Wait() {
	for _, l := range d.loops {
		l.Wait()
	}
	d.net.Wait()
}

// take is a descriptor of conn for a loop. It reports false where conn is not
// for loops; negative is a conn that they could not be given.
func take(conn net.Conn) (fd int, plain bool) {
	fd, err := rawconn.Take(conn)
	if err != nil {
		return -1, !errors.Is(err, rawconn.ErrUnsupported)
	}
	return fd, true
}

// Farewell sends b to a connection that belongs to no session, waits a second at most
// for its end, and closes it.
func Farewell(conn net.Conn, b []byte) { netio.Farewell(conn, b) }
