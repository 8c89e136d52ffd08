package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// A pipeListener accepts in-memory connections from dial, so that a whole server runs
// inside a synctest bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A game is a running Server and its listener, inside one synctest bubble, which fails the
// test if it leaks a goroutine.
type game struct {
	t      *testing.T
	server *Server
	client *http.Client
	stop   func() // stops the server and waits for it; idempotent
}

// play runs f against a running server on the fake clock.
func play(t *testing.T, c Config, f func(t *testing.T, g *game)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		transport := &http.Transport{DialContext: l.dial}
		g := &game{t: t, server: NewServer(c), client: &http.Client{Transport: transport}}
		web := &http.Server{Handler: g.server}
		ctx, cancel := context.WithCancel(t.Context())
		ran, served := make(chan error, 1), make(chan error, 1)
		go func() { ran <- g.server.Run(ctx) }()
		go func() { served <- web.Serve(l) }()
		ended := false
		g.stop = func() {
			cancel()
			if ended {
				return
			}
			ended = true
			if err := <-ran; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		defer func() {
			g.stop()
			web.Close()
			<-served
			transport.CloseIdleConnections()
		}()
		f(t, g)
	})
}

// A peer is a test's client of a game.
type peer struct {
	t    *testing.T
	conn *websocket.Conn
	n    uint64 // number of the latest message
}

// A heard is any message of the server, decoded.
type heard struct {
	N       uint64            `json:"n"`
	T       string            `json:"t"`
	Seat    int               `json:"seat"`
	Session string            `json:"session"`
	Score   int               `json:"score"`
	Tick    uint64            `json:"tick"`
	Players []json.RawMessage `json:"players"`
	Player  guest             `json:"player"`
	Gems    []place           `json:"gems"`
	Gem     place             `json:"gem"`
	By      int               `json:"by"`
	In      tally             `json:"in"`
	K       int               `json:"k"`
	Of      int               `json:"of"`
}

// handshake dials with a query and a Reseat-Session header.
func (g *game) handshake(query, session string) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(g.t.Context(), "ws://demo"+Path+query, &websocket.DialOptions{
		HTTPClient:   g.client,
		HTTPHeader:   http.Header{"Reseat-Session": {session}, "Origin": {"https://elsewhere.example"}},
		Subprotocols: []string{"other.v1", Subprotocol},
	})
}

// join connects a new player and reads its welcome.
func (g *game) join(name string) (*peer, heard) {
	g.t.Helper()
	conn, _, err := g.handshake("?name="+name, "session-of-"+name)
	if err != nil {
		g.t.Fatalf("join as %s: %v", name, err)
	}
	g.t.Cleanup(func() { conn.CloseNow() })
	p := &peer{t: g.t, conn: conn}
	m := p.read()
	if m.T != "welcome" {
		g.t.Fatalf("the first message to %s is %s, want welcome", name, m.T)
	}
	return p, m
}

// next reads one message.
func (p *peer) next() (heard, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, b, err := p.conn.Read(ctx)
	if err != nil {
		return heard{}, err
	}
	var m heard
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("read %s: %w", b, err)
	}
	p.n++
	if m.N != p.n {
		return m, fmt.Errorf("message %d has the number %d", p.n, m.N)
	}
	return m, nil
}

// read reads one message.
func (p *peer) read() heard {
	p.t.Helper()
	m, err := p.next()
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// until reads messages up to the first one of a type.
func (p *peer) until(kind string) heard {
	p.t.Helper()
	for {
		if m := p.read(); m.T == kind {
			return m
		}
	}
}

// wantClose reads until the connection ends, which must be by a Close frame with this code,
// or without one if code is -1.
func (p *peer) wantClose(code websocket.StatusCode) {
	p.t.Helper()
	for {
		_, err := p.next()
		switch {
		case err == nil:
			continue
		case errors.Is(err, context.DeadlineExceeded):
			p.t.Fatal("the connection has not ended")
		}
		if got := websocket.CloseStatus(err); got != code {
			p.t.Fatalf("the connection ended with %v, want code %d", err, code)
		}
		return
	}
}

// write sends raw text.
func (p *peer) write(msg string) {
	p.t.Helper()
	if err := p.conn.Write(context.Background(), websocket.MessageText, []byte(msg)); err != nil {
		p.t.Fatal(err)
	}
}

// steer sends an input with a number chosen by the test.
func (p *peer) steer(s uint64, x, y float64) {
	p.t.Helper()
	p.write(fmt.Sprintf(`{"s":%d,"t":"steer","x":%v,"y":%v}`, s, x, y))
}

// standing returns a seat's position in a state, and its score; ok is false if the seat is
// free.
func (m heard) standing(seat int) (at standing, ok bool) {
	for _, raw := range m.Players {
		if json.Unmarshal(raw, &at) == nil && at[0] == seat {
			return at, true
		}
	}
	return standing{}, false
}
