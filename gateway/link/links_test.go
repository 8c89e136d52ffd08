package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"reseat/gateway/internal/test/wstest"
)

// A linked is a node and another that passes clients on to it.
type linked struct {
	t            *testing.T
	front, owner *Links
	server       *http.Server
	dials        atomic.Int64
	down         atomic.Bool // the owner
	retired      atomic.Bool // the front's process
	reach        context.Context
	lose         context.CancelFunc
}

func newLinked(t *testing.T) *linked {
	x := &linked{t: t}
	x.reach, x.lose = context.WithCancel(t.Context())
	ln := wstest.NewListener(64 << 10)
	dial := func(context.Context, string) (net.Conn, error) {
		x.dials.Add(1)
		if x.down.Load() {
			return nil, errDown
		}
		return ln.Dial()
	}
	x.front, x.owner = NewLinks(Options{Dial: dial, Retired: x.retired.Load}), NewLinks(Options{})
	x.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == Path {
			r.TLS = new(tls.ConnectionState)
			x.owner.ServeHTTP(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(conn, r.URL.Path)
		conn.Read(make([]byte, 1))
		conn.Close()
	})}
	go x.server.Serve(ln)
	go x.server.Serve(x.owner)
	t.Cleanup(func() { x.front.Close(); x.server.Close(); x.owner.Close(); x.lose() })
	return x
}

var errDown = errors.New("the node is down")

// client opens a connection for one client, and makes sure that the owner serves it.
func (x *linked) client(who string) net.Conn {
	x.t.Helper()
	conn, err := x.front.Open(x.reach, "b")
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: b\r\n\r\n", who)
	got := make([]byte, 1+len(who))
	if _, err := bufio.NewReader(conn).Read(got); err != nil || string(got) != "/"+who {
		x.t.Fatalf("%q, %v; want /%s", got, err, who)
	}
	return conn
}

func (x *linked) wantDials(n int64) {
	x.t.Helper()
	wstest.Equal(x.t, "connections between the nodes", x.dials.Load(), n)
}

func wantOver(t *testing.T, c net.Conn) {
	t.Helper()
	var timeout net.Error
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%d bytes, %v; want the end", n, err)
	}
}

func TestClientsOfANodeShareALink(t *testing.T) {
	x := newLinked(t)
	for i := range 5 {
		x.client(fmt.Sprint("client", i))
	}
	x.wantDials(1)
}

// Clients of a node that cannot be reached learn why. The next one tries again.
func TestLinkThatFailsIsMadeAgain(t *testing.T) {
	x := newLinked(t)
	x.down.Store(true)
	conn, err := x.front.Open(x.reach, "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, errDown) {
		t.Errorf("%v, want %v", err, errDown)
	}
	x.down.Store(false)
	x.client("next")
	x.wantDials(2)
}

// The clients of a node that is judged silent come back, and find out what becomes of their sessions.
func TestLinkToASilentNodeEnds(t *testing.T) {
	x := newLinked(t)
	first, second := x.client("first"), x.client("second")
	x.lose()
	wantOver(t, first)
	wantOver(t, second)
}

// A process that retires leaves the cluster, and passes on until its clients have gone.
func TestLinksOfARetiredProcessGoOn(t *testing.T) {
	x := newLinked(t)
	c := x.client("first")
	x.retired.Store(true)
	x.lose()
	x.client("second")
	c.Write([]byte("x"))
	wantOver(t, c) // as the owner does
	x.wantDials(1)
}

// A node whose process has a successor takes no more clients on its links: they are for the successor.
func TestLeftLinkIsReplaced(t *testing.T) {
	x := newLinked(t)
	c := x.client("first")
	x.owner.Leave()
	x.owner.mu.Lock()
	x.owner.leaving = false // the successor's
	x.owner.mu.Unlock()
	for x.dials.Load() == 1 { // the front may not have heard of it yet
		conn, err := x.front.Open(x.reach, "b")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /early HTTP/1.1\r\nHost: b\r\n\r\n")
		if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
		conn.Close()
	}
	x.client("second")
	x.wantDials(2)
	c.Write([]byte("x"))
	wantOver(t, c)
}

func TestStreamIsMadeNoLink(t *testing.T) {
	x := newLinked(t)
	rec := httptest.NewRecorder()
	x.owner.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, Path, nil))
	wstest.Equal(t, "status", rec.Code, http.StatusNotFound)
}
