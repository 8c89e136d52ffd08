package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that stay behind. A slow machine may take a while to end them.
func TestMain(m *testing.M) {
	status := m.Run()
	for end := time.Now().Add(time.Minute); status == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

func mustParse(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := ParseTarget(raw)
	if err != nil {
		t.Fatalf("ParseTarget(%q): %v", raw, err)
	}
	return u
}

var localPeer = Peer{Addr: netip.MustParseAddr("192.0.2.7"), Host: "game.example:8443"}

// A game is an in-memory game server: each dial gets a pipe, whose other end serve gets
// together with the request. It is closed when serve returns.
type game struct {
	*Target
	serve func(conn net.Conn, r *http.Request)

	mu    sync.Mutex
	heads []string // the requests, byte for byte
	open  int      // client ends not yet closed
	wg    sync.WaitGroup
}

func newGame(t testing.TB, rawURL string, serve func(conn net.Conn, r *http.Request)) *game {
	g := &game{Target: &Target{URL: mustParse(t, rawURL)}, serve: serve}
	g.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		client, server := net.Pipe()
		g.mu.Lock()
		g.open++
		g.mu.Unlock()
		g.wg.Add(1)
		go g.handle(server)
		return &countedConn{Conn: client, closed: sync.OnceFunc(func() {
			g.mu.Lock()
			g.open--
			g.mu.Unlock()
		})}, nil
	}
	t.Cleanup(g.wg.Wait)
	return g
}

func (g *game) handle(conn net.Conn) {
	defer g.wg.Done()
	defer conn.Close()
	var raw strings.Builder
	r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(conn, &raw)))
	g.mu.Lock()
	g.heads = append(g.heads, raw.String())
	g.mu.Unlock()
	if err == nil {
		g.serve(conn, r)
	}
}

// head is the latest request head.
func (g *game) head() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.heads[len(g.heads)-1]
}

// wantClosed fails unless every dialled connection has been closed.
func (g *game) wantClosed(t testing.TB) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != 0 {
		t.Errorf("%d connections to the upstream are still open", g.open)
	}
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// switching is a valid 101 answer to r, with extra lines before its end.
func switching(r *http.Request, lines ...string) string {
	return fmt.Sprintf("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s\r\n",
		acceptFor(r.Header.Get("Sec-WebSocket-Key")), joinLines(lines))
}

func joinLines(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l + "\r\n")
	}
	return b.String()
}

// accepting sends a valid 101 and nothing else.
func accepting(lines ...string) func(net.Conn, *http.Request) {
	return func(conn net.Conn, r *http.Request) { io.WriteString(conn, switching(r, lines...)) }
}

// answering sends raw.
func answering(raw string) func(net.Conn, *http.Request) {
	return func(conn net.Conn, _ *http.Request) { io.WriteString(conn, raw) }
}

// A pipeListener is a net.Listener whose connections are pipes.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var discardLog = log.New(io.Discard, "", 0)
