// Package netio drives session cores with goroutines, over any net.Conn: one goroutine
// reads the upstream, one the attached client, and one more exists for each socket that
// does not take what it is given, for as long as it does not.
package netio

import (
	"net"
	"sync"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A Driver makes Sessions. It starts nothing before it is needed.
type Driver struct {
	now func() session.Time

	watch sync.Once
	ends  *rawconn.Hangups // nil before hangups
}

// NewDriver makes a Driver whose sessions take the time from now.
func NewDriver(now func() session.Time) *Driver { return &Driver{now: now} }

// New drives core over its upstream's connection. It begins to read at once.
func (d *Driver) New(core *session.Session, upstream net.Conn, watch session.Observer) *Session {
	s := d.idle(core, watch)
	s.connect(upstream, core.Upstream())
	return s
}

// idle is a session without legs.
func (d *Driver) idle(core *session.Session, watch session.Observer) *Session {
	s := &Session{driver: d, watch: watch, core: core}
	s.timer = time.AfterFunc(time.Hour, s.tick)
	s.timer.Stop()
	return s
}

// hangups notifies the sockets' readers of their ends; nil where nobody can.
func (d *Driver) hangups() *rawconn.Hangups {
	d.watch.Do(func() {
		if h, err := rawconn.WatchHangups(); err == nil {
			d.ends = h
		}
	})
	return d.ends
}

// Close ends what runs for all sessions together, once the last of them is over. It
// does not wait.
func (d *Driver) Close() {
	d.watch.Do(func() {})
	if d.ends != nil {
		d.ends.Close()
	}
}

// Wait waits for what Close ends.
func (d *Driver) Wait() {
	if d.ends != nil {
		d.ends.Wait()
	}
}

// Sockets are the connections of a session that another driver has driven so far.
type Sockets struct {
	Up    Socket
	Down  *Socket  // of the last client; nil: there is none
	Older []Socket // that are still being closed
}

// A Socket is one of them.
type Socket struct {
	Conn net.Conn // nil: closed
	Leg  session.Leg
}

// Adopt drives a core that another driver has driven so far; over says whether its
// Observer knows already that all is closed. The Observer is called by TellRest alone,
// until that has returned.
func (d *Driver) Adopt(core *session.Session, sockets Sockets, over bool, watch session.Observer) *Session {
	s := d.idle(core, watch)
	s.enter()
	s.over, s.telling = over, true
	all := []*leg{s.adopt(sockets.Up)}
	s.up = all[0]
	if sockets.Down != nil {
		s.down = s.adopt(*sockets.Down)
		all = append(all, s.down)
	}
	for _, older := range sockets.Older {
		all = append(all, s.adopt(older))
	}
	for _, l := range all {
		if !l.closed {
			s.read(l, nil)
		}
		s.flush(l)
	}
	s.settle()
	return s
}

// adopt makes a leg of a socket. Called with mu held.
func (s *Session) adopt(k Socket) *leg {
	if k.Conn == nil {
		return &leg{s: s, leg: k.Leg, closed: true}
	}
	return newLeg(s, k.Conn, k.Leg)
}

// TellRest calls the Observer with what has happened since Adopt.
func (s *Session) TellRest() {
	for s.tellNext() {
	}
}

// Farewell sends b to a connection that belongs to no session, waits a second at most
// for its end, and closes it.
func Farewell(conn net.Conn, b []byte) {
	conn.SetDeadline(time.Now().Add(farewellTime))
	if _, err := conn.Write(b); err == nil {
		conn.SetReadDeadline(time.Now().Add(session.LingerTime))
		chore{conn, session.Linger}.do()
		drain(conn)
	}
	conn.Close()
}

// farewellTime is how long a client may take to read its Farewell.
const farewellTime = 5 * time.Second
