package listen

import (
	"bufio"
	"context"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"reseat/upstream/head"
)

// Most connections are WebSocket handshakes, which take the connection over: what net/http
// prepares for further requests and for an answer is never used, and its buffers are lost. So a
// Conn is not passed to the http.Server at first. If its first bytes are one whole plain
// handshake, the handler is called; if not, the server gets the connection together with these
// bytes. If the handler answers by HTTP after all, the server gets it too, and the
// ResponseWriter is that of the server's answer.

// Upgrades serves handshakes of movable connections that t accepts by s.Handler without the help
// of s. again passes any other connection to s. It must be called before the first connection is
// accepted.
func (t *ConnTracker) Upgrades(s *http.Server, again func(net.Conn)) { t.server, t.again = s, again }

// serves begins to serve c if it is a Conn, and reports whether it does.
//
// It yields to other goroutines before the next connection is accepted. Otherwise, when thousands
// of clients connect at once, hundreds of handshakes become runnable before the first is served,
// and every message waits behind them.
func (t *ConnTracker) serves(c net.Conn) bool {
	w, ok := c.(*Conn)
	if !ok || t.server == nil {
		return false
	}
	go t.first(w)
	runtime.Gosched()
	return true
}

// first serves c's first request if it is a plain handshake, and otherwise passes c to the
// http.Server.
func (t *ConnTracker) first(c *Conn) {
	growStack(false)
	buf := heads.Get().(*[headSize]byte)
	defer heads.Put(buf)
	if limit := t.server.ReadHeaderTimeout; limit > 0 {
		c.SetReadDeadline(time.Now().Add(limit))
	}
	n, err := c.Read(buf[:])
	c.SetReadDeadline(time.Time{})
	switch {
	case err == nil && t.upgrade(c, buf[:n]):
	case err == nil && c.unread(buf[:n]):
		t.again(c)
	default:
		t.Forget(c.TCP)
		c.Close()
	}
}

// headSize is the max size of a handshake that first serves.
const headSize = 4096

// heads are for first.
var heads = sync.Pool{New: func() any { return new([headSize]byte) }}

// An upgrade is a handshake that a Conn serves. It is its ResponseWriter.
type upgrade struct {
	conn   *Conn
	head   []byte
	header http.Header // of an answer
	cancel context.CancelFunc

	hijacked bool
	wrote    bool

	// Of an answer by an http.Server, made by answer.
	server chan serving  // one slot
	lost   chan struct{} // closed with the connection, if the server has not called the handler
	writer http.ResponseWriter
	done   chan struct{} // closed when the handler has returned
	panics any           // what it has panicked with
}

// A serving is a call of the handler by an http.Server.
type serving struct {
	w http.ResponseWriter
	r *http.Request
}

// upgrade serves head if it is a plain handshake. It reports false if the http.Server must.
func (t *ConnTracker) upgrade(c *Conn, head []byte) bool {
	ctx, cancel := context.WithCancel(ConnContext(context.Background(), c))
	defer cancel()
	r := parsePlain(ctx, head)
	if r == nil {
		return false
	}
	r.RemoteAddr = c.RemoteAddr().String()
	u := &upgrade{conn: c, head: c.heard(), header: make(http.Header), cancel: cancel}
	c.onEnd(cancel)
	u.serve(t, r)
	return true
}

// heard returns what has been read of the request.
func (c *Conn) heard() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.request
}

// growStack grows the stack of the goroutine once to what a handshake needs, instead of three
// times by half of it, each time with more frames to move.
//
//go:noinline
func growStack(use bool) {
	if use { // never: so the frame is only reserved, not cleared
		var room [8 << 10]byte
		runtime.KeepAlive(&room)
	}
}

// serve calls the handler, and has an http.Server answer unless it takes the connection over.
func (u *upgrade) serve(t *ConnTracker, r *http.Request) {
	defer func() {
		u.panics = recover()
		switch {
		case !u.hijacked:
			u.answer()
			close(u.done)
		case u.panics != nil && u.panics != http.ErrAbortHandler:
			t.logf("http: panic serving %s: %v\n%s", r.RemoteAddr, u.panics, debug.Stack())
		}
	}()
	t.server.Handler.ServeHTTP(u, r)
}

// logf logs as the server does.
func (t *ConnTracker) logf(format string, args ...any) {
	if t.server.ErrorLog != nil {
		t.server.ErrorLog.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}

// Hijack implements http.Hijacker.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, err := u.TakeOver()
	if err != nil {
		return nil, nil, err
	}
	return conn, bufio.NewReadWriter(bufio.NewReaderSize(conn, 16), bufio.NewWriterSize(conn, 16)), nil
}

// TakeOver is Hijack without buffers: nothing has been read behind the request.
func (u *upgrade) TakeOver() (net.Conn, error) {
	if u.hijacked || u.server != nil {
		return nil, http.ErrHijacked
	}
	u.hijacked = true
	conn := u.conn.give(nil)
	conn.SetDeadline(time.Time{}) // as net/http does
	return conn, nil
}

// give takes the connection out of c, which t has accepted, to be read from first on.
func (c *Conn) give(first []byte) *Conn {
	c.onEnd(nil)
	c.tracker.Forget(c.TCP)
	n := NewConn(c.TCP, first)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given = true
	return n
}

// answer passes the connection to an http.Server, unless that has been done, and returns the
// ResponseWriter of its answer; nil if the connection is lost.
func (u *upgrade) answer() http.ResponseWriter {
	if u.server != nil {
		return u.writer
	}
	u.server, u.lost, u.done = make(chan serving, 1), make(chan struct{}), make(chan struct{})
	t := u.conn.tracker
	n := u.conn.give(u.head)
	n.upgrade, n.serving = u, true // Freeze leaves it here
	go t.again(n)                  // which waits for the server; serve waits for the handler below
	select {
	case s := <-u.server:
		u.writer = s.w
		context.AfterFunc(s.r.Context(), u.cancel)
	case <-u.lost:
	}
	return u.writer
}

// takeUpgrade returns the upgrade that c must answer, once; nil if there is none.
func (c *Conn) takeUpgrade() *upgrade {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.upgrade
	c.upgrade = nil
	return u
}

// finish is called by the http.Server's handler, in place of the one that u has called.
func (u *upgrade) finish(w http.ResponseWriter, r *http.Request) {
	u.server <- serving{w, r}
	<-u.done
	if u.panics != nil {
		panic(u.panics)
	}
}

// Header implements http.ResponseWriter.
func (u *upgrade) Header() http.Header { return u.header }

// WriteHeader implements http.ResponseWriter.
func (u *upgrade) WriteHeader(status int) {
	w := u.answer()
	if w == nil {
		return
	}
	clear(w.Header())
	maps.Copy(w.Header(), u.header)
	u.wrote = u.wrote || status >= 200
	w.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (u *upgrade) Write(p []byte) (int, error) {
	if !u.wrote {
		u.WriteHeader(http.StatusOK)
	}
	if u.writer == nil {
		return 0, net.ErrClosed
	}
	return u.writer.Write(p)
}

// Unwrap is for http.ResponseController: whatever else the handler needs is net/http's.
func (u *upgrade) Unwrap() http.ResponseWriter {
	if w := u.answer(); w != nil {
		return w
	}
	return lostWriter{}
}

// A lostWriter is that of a connection that is lost.
type lostWriter struct{}

func (lostWriter) Header() http.Header       { return http.Header{} }
func (lostWriter) WriteHeader(int)           {}
func (lostWriter) Write([]byte) (int, error) { return 0, net.ErrClosed }

// parsePlain parses a WebSocket handshake as net/http does. It returns nil for everything else,
// and for what it leaves to net/http: requests with bytes behind them, requests that an
// http.Server may refuse or treat in a particular way, and requests in unusual spelling.
func parsePlain(ctx context.Context, b []byte) *http.Request {
	h, ok := head.Parse(b)
	if !ok || h.Size != len(b) || len(h.Host) != 1 || h.Host[0] == "" || !hostChars(h.Host[0]) {
		return nil
	}
	target, get := strings.CutPrefix(h.Line, "GET ")
	target, current := strings.CutSuffix(target, " HTTP/1.1")
	if !get || !current || !strings.HasPrefix(target, "/") || strings.Contains(target, " ") {
		return nil
	}
	if h.Header.Get("Upgrade") == "" || slices.ContainsFunc(h.Header["Connection"], closes) {
		return nil
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || u.Host != "" {
		return nil
	}
	r := http.Request{
		Method: http.MethodGet, URL: u, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h.Header, Body: http.NoBody, Host: h.Host[0], RequestURI: target,
	}
	return r.WithContext(ctx)
}

// closes reports whether a Connection field may ask for the connection's end after the answer.
func closes(field string) bool { return strings.Contains(strings.ToLower(field), "close") }

// hostChars reports whether s could be a host and port.
func hostChars(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("-.:[]_", c) < 0 {
			return false
		}
	}
	return true
}
