// Package listen accepts connections. It tracks those that are idle, and closes those that have
// been so for the longest when descriptors are short. For an upgrade its Listeners can be paused, and its
// Conns handed over, with what has been read of a request; a Queue has those that were.
package listen

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/transport/rawconn"
)

// A ConnTracker tracks idle connections: those in a TLS handshake, waiting for a request
// to be complete or for the next one, or waiting for a refused client to close. Each holds
// a descriptor, which clients that resume may need. When descriptors are short, it closes
// the connections that have been idle for the longest, as RFC 9112 section 9.5 allows.
//
// Its listeners belong below TLS. An http.Server on them needs ConnState as its ConnState,
// Handler around its handler, and this package's ConnContext. All methods are safe for
// concurrent use.
type ConnTracker struct {
	opts Options

	mu    sync.Mutex // never held over a call of Options
	line  list.List  // of net.Conn, the longest idle first
	conns map[net.Conn]*tracked
}

// Options configure a ConnTracker. All functions may be nil.
type Options struct {
	// Max is the maximum number of descriptors in use; zero means no limit.
	Max int
	// InUse is the number in use, not counting idle connections.
	InUse func() int
	// Short is called before connections are closed.
	Short func()
	// Closed is called with the number of closed connections.
	Closed func(n int)
}

// A tracked connection has been accepted and not been hijacked. place is its place in
// the list of idle connections, nil while one of its requests is served.
type tracked struct {
	place *list.Element
	conn  *Conn // nil if it cannot be handed over
}

// NewConnTracker makes a ConnTracker.
func NewConnTracker(o Options) *ConnTracker {
	return &ConnTracker{opts: o, conns: make(map[net.Conn]*tracked)}
}

// releaseDelay is the time that a closed connection gets to release its descriptor before
// the next attempt to get one.
const releaseDelay = time.Millisecond

// Listen tracks the connections that inner accepts from the moment they are accepted.
// With movable, its connections are Conns: see Freeze.
func (t *ConnTracker) Listen(inner net.Listener, movable bool) net.Listener {
	return &listener{inner, t, movable}
}

type listener struct {
	net.Listener
	tracker *ConnTracker
	movable bool
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			c = l.tracker.accept(c, l.movable)
			l.tracker.MakeRoom()
			// Handshakes that are runnable go first. Otherwise, when thousands of clients connect at once,
			// hundreds of them wait before the first is served, and every message behind them: a mass
			// reconnect (workload W7) took 1.2 s, and 1.5 s without this.
			runtime.Gosched()
			return c, nil
		case !NoDescriptor(err), !l.tracker.FreeOne():
			return nil, err
		}
	}
}

// Track adds c as idle, until Forget.
func (t *ConnTracker) Track(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[c] = &tracked{place: t.line.PushBack(c)}
}

// accept tracks an accepted connection, and wraps it if it can be handed over.
func (t *ConnTracker) accept(c net.Conn, movable bool) net.Conn {
	w, wrapped := c.(*Conn)
	if !wrapped && movable {
		w = NewConn(c, nil)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	below := rawconn.Lowest(c)
	t.conns[below] = &tracked{place: t.line.PushBack(below), conn: w}
	if w != nil {
		return w
	}
	return c
}

// Freeze freezes the idle connections that can be handed over, and returns them.
func (t *ConnTracker) Freeze() (list []FrozenConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tc := range t.conns {
		if tc.place == nil || tc.conn == nil {
			continue
		}
		if fd, request, ok := tc.conn.Freeze(); ok {
			list = append(list, FrozenConn{tc.conn, fd, request})
		}
	}
	return list
}

// A FrozenConn is an idle connection, its descriptor, and what has been read of its next
// request.
type FrozenConn struct {
	*Conn
	FD      int
	Request []byte
}

// Forget must be called when c is closed, or hijacked.
func (t *ConnTracker) Forget(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tc := t.conns[c]; tc != nil {
		t.leaveLocked(tc)
		delete(t.conns, c)
	}
}

// MakeRoom must be called when another descriptor is in use, or about to be. If
// descriptors are short, it closes idle connections.
func (t *ConnTracker) MakeRoom() {
	if t.opts.Max == 0 {
		return
	}
	room := t.opts.Max
	if t.opts.InUse != nil {
		room -= t.opts.InUse()
	}
	t.close(func(waiting int) int { return waiting - room })
}

// NoDescriptor reports whether err means that the process ran out of descriptors.
func NoDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// FreeOne closes one idle connection, after an attempt that found no descriptor. If it
// reports true, the attempt may be repeated.
func (t *ConnTracker) FreeOne() bool {
	if t.close(func(int) int { return 1 }) == 0 {
		return false
	}
	time.Sleep(releaseDelay)
	return true
}

// Counts returns the number of tracked connections, and how many of them are idle.
func (t *ConnTracker) Counts() (conns, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.conns), t.line.Len()
}

// close closes as many idle connections as excess returns, and returns their number.
func (t *ConnTracker) close(excess func(waiting int) int) (closed int) {
	oldest, short := t.remove(excess)
	if short && t.opts.Short != nil {
		t.opts.Short()
	}
	for _, c := range oldest {
		c.Close()
	}
	if len(oldest) > 0 && t.opts.Closed != nil {
		t.opts.Closed(len(oldest))
	}
	return len(oldest)
}

// remove removes the connections that have been idle for the longest. short reports
// whether excess asked for any, even if none is idle.
func (t *ConnTracker) remove(excess func(waiting int) int) (oldest []net.Conn, short bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := excess(t.line.Len())
	for range min(n, t.line.Len()) {
		c := t.line.Remove(t.line.Front()).(net.Conn)
		tc := t.conns[c]
		delete(t.conns, c)
		if tc.conn != nil {
			c = tc.conn // whose Close waits while it is frozen
		}
		oldest = append(oldest, c)
	}
	return oldest, n > 0
}

// leaveLocked removes tc from the idle connections.
func (t *ConnTracker) leaveLocked(tc *tracked) {
	if tc.place != nil {
		t.line.Remove(tc.place)
		tc.place = nil
	}
}

// serve marks c as in use: it has a complete request. It reports false if another process
// serves that.
func (t *ConnTracker) serve(c net.Conn) bool {
	t.mu.Lock()
	tc := t.conns[c]
	t.mu.Unlock()
	if tc == nil {
		return true
	}
	if tc.conn != nil && !tc.conn.begin() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveLocked(tc)
	return true
}

// wait marks c as idle: its request has been served.
func (t *ConnTracker) wait(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tc := t.conns[c]; tc != nil {
		t.leaveLocked(tc)
		tc.place = t.line.PushBack(c)
	}
}

// served notes that the answer to c's request has been written.
func (t *ConnTracker) served(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tc := t.conns[c]; tc != nil && tc.conn != nil {
		tc.conn.end()
	}
}

type connKey struct{}

// ConnContext is for an http.Server: it passes the connection to a ConnTracker's Handler.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnState is for an http.Server.
func (t *ConnTracker) ConnState(c net.Conn, state http.ConnState) {
	switch c = rawconn.Lowest(c); state {
	case http.StateIdle:
		t.wait(c)
		t.served(c)
	case http.StateHijacked, http.StateClosed:
		t.Forget(c)
	}
}

// Handler wraps h, so that a connection is not idle while h serves a request of its.
func (t *ConnTracker) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			if !t.serve(rawconn.Lowest(c)) {
				panic(http.ErrAbortHandler)
			}
			if f, ok := c.(*forwarded); ok && f.secure {
				r.TLS = &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true}
			}
			if r.ProtoMajor == 1 { // for HTTP/2, ConnState reports the last request
				defer t.wait(rawconn.Lowest(c))
			}
		}
		h.ServeHTTP(w, r)
	})
}
