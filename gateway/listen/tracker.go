// Package listen accepts connections while descriptors are short: it knows which
// connections only wait, and closes those that have waited the longest.
package listen

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/transport/rawconn"
)

// A ConnTracker knows the connections that wait: for their TLS handshake, for a request
// to be complete, for the next one, or for a refused client to read its Close. Each holds
// a descriptor, which strangers could take from clients that resume. Where descriptors
// are short, it closes those that have waited the longest, as any server may: RFC 9112
// section 9.5.
//
// Its listeners stand below TLS. An http.Server that serves them has ConnState as its
// ConnState, Handler around its handler, and this package's ConnContext. All methods may
// be called from any goroutine.
type ConnTracker struct {
	opts Options

	mu    sync.Mutex // never held over a call of Options
	line  list.List  // of net.Conn, the longest waiting first
	conns map[net.Conn]*tracked
}

// Options are what a ConnTracker is made from. All functions may be nil.
type Options struct {
	// Max is how many descriptors may be in use; zero: any number.
	Max int
	// InUse is how many are in use apart from the connections that wait.
	InUse func() int
	// Short is called before connections are closed.
	Short func()
	// Closed is called with how many connections were closed.
	Closed func(n int)
}

// A tracked connection has been accepted and not been taken over yet: its place in the
// line, nil while one of its requests is served.
type tracked struct{ place *list.Element }

// NewConnTracker makes a ConnTracker.
func NewConnTracker(o Options) *ConnTracker {
	return &ConnTracker{opts: o, conns: make(map[net.Conn]*tracked)}
}

// releaseDelay is how long a closed connection has to release its descriptor before the
// next attempt to get one.
const releaseDelay = time.Millisecond

// Listen tracks the connections that inner accepts from the first moment.
func (t *ConnTracker) Listen(inner net.Listener) net.Listener { return &listener{inner, t} }

type listener struct {
	net.Listener
	tracker *ConnTracker
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			l.tracker.Track(c)
			l.tracker.MakeRoom()
			return c, nil
		case !NoDescriptor(err), !l.tracker.FreeOne():
			return nil, err
		}
	}
}

// Forget is for callers that close an accepted connection before an http.Server has it.
func (l *listener) Forget(c net.Conn) { l.tracker.Forget(c) }

// Track has c wait, until Forget.
func (t *ConnTracker) Track(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[c] = &tracked{place: t.line.PushBack(c)}
}

// Forget is called when c is closed, or taken over.
func (t *ConnTracker) Forget(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tc := t.conns[c]; tc != nil {
		t.leaveLocked(tc)
		delete(t.conns, c)
	}
}

// MakeRoom is called when one more descriptor is in use, or is about to be. Where they
// are short it closes connections that wait.
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

// NoDescriptor reports whether err says that there was none left.
func NoDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// FreeOne closes one connection that waits, after an attempt that found no descriptor,
// and reports whether there was one: then the attempt may be repeated.
func (t *ConnTracker) FreeOne() bool {
	if t.close(func(int) int { return 1 }) == 0 {
		return false
	}
	time.Sleep(releaseDelay)
	return true
}

// Counts returns how many connections are tracked, and how many of them wait.
func (t *ConnTracker) Counts() (conns, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.conns), t.line.Len()
}

// close closes as many waiting connections as excess says, and returns how many.
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

// remove takes those out that have waited the longest. short says that there were to be
// some, even if nobody waits.
func (t *ConnTracker) remove(excess func(waiting int) int) (oldest []net.Conn, short bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := excess(t.line.Len())
	for range min(n, t.line.Len()) {
		c := t.line.Remove(t.line.Front()).(net.Conn)
		delete(t.conns, c)
		oldest = append(oldest, c)
	}
	return oldest, n > 0
}

// leaveLocked takes tc out of the line.
func (t *ConnTracker) leaveLocked(tc *tracked) {
	if tc.place != nil {
		t.line.Remove(tc.place)
		tc.place = nil
	}
}

// serve is called when a request of c's is complete.
func (t *ConnTracker) serve(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tc := t.conns[c]; tc != nil {
		t.leaveLocked(tc)
	}
}

// wait is called when a request of c's has been served: it may wait for the next.
func (t *ConnTracker) wait(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tc := t.conns[c]; tc != nil {
		t.leaveLocked(tc)
		tc.place = t.line.PushBack(c)
	}
}

type connKey struct{}

// ConnContext is for an http.Server: a ConnTracker's Handler finds the connection there.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnState is an http.Server's.
func (t *ConnTracker) ConnState(c net.Conn, state http.ConnState) {
	switch c = rawconn.Lowest(c); state {
	case http.StateIdle:
		t.wait(c)
	case http.StateHijacked, http.StateClosed:
		t.Forget(c)
	}
}

// Handler is h; a connection does not wait while h serves a request of its.
func (t *ConnTracker) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			c = rawconn.Lowest(c)
			t.serve(c)
			if r.ProtoMajor == 1 { // of HTTP/2 ConnState says when no request is left
				defer t.wait(c)
			}
		}
		h.ServeHTTP(w, r)
	})
}
