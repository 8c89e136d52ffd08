package listen

import (
	"sync"
	"syscall"
	"time"

	"reseat/gateway/transport/rawconn"
)

// An ender is a connection that notices when its peer closes it, though nobody reads.
type ender interface {
	// OnEnd registers f, which is called once when the peer has closed the connection and everything
	// that it sent has been read. A nil f cancels that.
	OnEnd(f func())
}

// onEnd is OnEnd for a connection of either kind.
func (c *Conn) onEnd(f func()) {
	if e, ok := c.TCP.(ender); ok {
		e.OnEnd(f)
		return
	}
	if f == nil {
		c.watch.stop()
		return
	}
	c.watch = watchEnd(c.TCP, c.raw, f)
}

// watchAfter is how long a handshake lasts before its connection is watched. Most end sooner, and
// never pay for it.
const watchAfter = 50 * time.Millisecond

// An endWatch calls f once the peer of a connection of package net has closed it. It waits until the
// connection is readable, and peeks.
type endWatch struct {
	conn    rawconn.TCP
	raw     syscall.RawConn
	f       func()
	begin   *time.Timer
	running sync.WaitGroup
}

func watchEnd(conn rawconn.TCP, raw syscall.RawConn, f func()) *endWatch {
	w := &endWatch{conn: conn, raw: raw, f: f}
	w.running.Add(1)
	w.begin = time.AfterFunc(watchAfter, w.run)
	return w
}

func (w *endWatch) run() {
	defer w.running.Done()
	ended := false
	w.raw.Read(func(fd uintptr) bool { // fails once stop has set the deadline
		ended = rawconn.Ended(int(fd))
		return ended
	})
	if ended {
		w.f()
	}
}

// stop stops w, and waits until it no longer uses the connection. It clears the read deadline.
func (w *endWatch) stop() {
	if w.begin.Stop() {
		return
	}
	w.conn.SetReadDeadline(time.Unix(1, 0))
	w.running.Wait()
	w.conn.SetReadDeadline(time.Time{})
}
