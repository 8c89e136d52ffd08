// Package netio drives session cores with goroutines, over any net.Conn. One goroutine
// reads the upstream and one the attached client. While a socket is full, one more
// waits to write to it.
package netio

import (
	"net"
	"sync"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A Driver makes Sessions. It starts goroutines only once they are needed.
type Driver struct {
	now func() session.Time

	watch sync.Once
	ends  *rawconn.Hangups // nil until hangups is called
}

// NewDriver returns a Driver whose sessions read the time from now.
func NewDriver(now func() session.Time) *Driver { return &Driver{now: now} }

// New drives core over its upstream's connection and starts reading at once.
func (d *Driver) New(core *session.Session, upstream net.Conn, watch session.Observer) *Session {
	s := d.idle(core, watch)
	s.connect(upstream, core.Upstream())
	return s
}

// idle returns a session without legs.
func (d *Driver) idle(core *session.Session, watch session.Observer) *Session {
	s := &Session{driver: d, watch: watch, core: core}
	s.timer = time.AfterFunc(time.Hour, s.tick)
	s.timer.Stop()
	return s
}

// hangups returns what notifies readers of hangups; nil if the system can't.
func (d *Driver) hangups() *rawconn.Hangups {
	d.watch.Do(func() {
		if h, err := rawconn.WatchHangups(); err == nil {
			d.ends = h
		}
	})
	return d.ends
}

// Close stops what the sessions share, once the last of them has ended. It does not
// wait.
func (d *Driver) Close() {
	d.watch.Do(func() {})
	if d.ends != nil {
		d.ends.Close()
	}
}

// Wait waits for what Close stops.
func (d *Driver) Wait() {
	if d.ends != nil {
		d.ends.Wait()
	}
}

// Adopt drives a core that session.Restore has made, over the connections of its upstream and its attached
// client. up is nil where the upstream's is closed; down is not looked at where no client is attached.
func (d *Driver) Adopt(core *session.Session, up, down net.Conn, watch session.Observer) *Session {
	s := d.idle(core, watch)
	s.enter()
	s.up = s.adopt(up, core.Upstream())
	if a := core.Attachment(); a != nil {
		s.down = s.adopt(down, a)
	}
	for _, l := range s.current() {
		if !l.closed {
			s.read(l, nil)
		}
	}
	s.settle()
	return s
}

// adopt makes a leg of a connection, of which nil is a closed one. Called with mu held.
func (s *Session) adopt(conn net.Conn, known session.Leg) *leg {
	if conn == nil {
		return &leg{s: s, leg: known, closed: true}
	}
	return newLeg(s, conn, known)
}

// Farewell sends b on a connection that belongs to no session, waits at most a second
// for the peer to close, and closes it.
func Farewell(conn net.Conn, b []byte) {
	conn.SetDeadline(time.Now().Add(farewellTime))
	if _, err := conn.Write(b); err == nil {
		conn.SetReadDeadline(time.Now().Add(session.LingerTime))
		chore{conn, session.Linger}.do()
		drain(conn)
	}
	conn.Close()
}

// farewellTime bounds how long a client may take to read a Farewell.
const farewellTime = 5 * time.Second
