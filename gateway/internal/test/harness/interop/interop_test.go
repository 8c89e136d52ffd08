//lint:file-ignore SA1019 the deprecated import path is one of the peers on purpose

package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"
	"go.uber.org/goleak"
	nhooyr "nhooyr.io/websocket"

	"reseat/gateway"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/leaks"
	"reseat/gateway/policy"
	"reseat/tokens"
	"reseat/upstream"
)

// Two WebSocket libraries as plain clients and one of them as the game server,
// over real connections on loopback.

// An endpoint is the common interface of the libraries' connections. Message types are
// opcodes.
type endpoint interface {
	Read() (op byte, p []byte, err error)
	Write(op byte, p []byte) error
	WriteParts(op byte, parts ...[]byte) error // each in its own frames
	Ping() error
	Close(code int, reason string) error
	CloseNow() error
	Subprotocol() string
}

// A wsConn is the connection of a WebSocket library, with its own message types
// and codes.
type wsConn[M, S ~int] interface {
	Read(context.Context) (M, []byte, error)
	Write(context.Context, M, []byte) error
	Writer(context.Context, M) (io.WriteCloser, error)
	Ping(context.Context) error
	Close(S, string) error
	CloseNow() error
	SetReadLimit(int64)
	Subprotocol() string
}

// A libraryEndpoint is a library's connection as an endpoint, bounded by ctx.
type libraryEndpoint[M, S ~int] struct {
	wsConn[M, S]
	ctx context.Context
}

func newEndpoint[M, S ~int](ctx context.Context, c wsConn[M, S]) endpoint {
	c.SetReadLimit(-1)
	return libraryEndpoint[M, S]{c, ctx}
}

func (p libraryEndpoint[M, S]) Read() (byte, []byte, error) {
	op, b, err := p.wsConn.Read(p.ctx)
	return byte(op), b, err
}

func (p libraryEndpoint[M, S]) Write(op byte, b []byte) error {
	return p.wsConn.Write(p.ctx, M(op), b)
}

func (p libraryEndpoint[M, S]) WriteParts(op byte, parts ...[]byte) error {
	w, err := p.wsConn.Writer(p.ctx, M(op))
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return w.Close()
}

func (p libraryEndpoint[M, S]) Ping() error { return p.wsConn.Ping(p.ctx) }

func (p libraryEndpoint[M, S]) Close(code int, reason string) error {
	return p.wsConn.Close(S(code), reason)
}

// closeOf returns the code and reason of the Close that ended a connection; 1006
// without one.
func closeOf(err error) string {
	var c coder.CloseError
	var n nhooyr.CloseError
	var g *gorilla.CloseError
	switch {
	case errors.As(err, &g):
		return fmt.Sprintf("%d %s", g.Code, g.Text)
	case errors.As(err, &c):
		return fmt.Sprintf("%d %s", c.Code, c.Reason)
	case errors.As(err, &n):
		return fmt.Sprintf("%d %s", n.Code, n.Reason)
	case err != nil:
		return "1006 "
	}
	return "still open"
}

// An arena is a gateway and a game server on loopback. The game server passes each of
// its connections to the test.
type arena struct {
	t      *testing.T
	ctx    context.Context // bounds the test
	url    string
	offer  []string // subprotocols offered by clients
	dialer http.Client
	joined chan endpoint

	// connect makes the TCP connection of a client's library.
	connect func(ctx context.Context, network, addr string) (net.Conn, error)
}

func newArena(t *testing.T, change ...func(*policy.Policy)) *arena {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaks.VerifyNone(t, before) }) // runs last
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	a := &arena{t: t, ctx: ctx, joined: make(chan endpoint), offer: []string{"chat.v1", "chat.v2"}, connect: new(net.Dialer).DialContext}
	a.dialer.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return a.connect(ctx, network, addr)
	}}
	t.Cleanup(a.dialer.CloseIdleConnections)
	game := serveLoopback(t, http.HandlerFunc(a.serveGame))
	pol := compressing()
	for _, c := range change {
		c(&pol)
	}
	gw := newLoopbackGateway(t, game, pol)
	a.url = "ws://" + serveLoopback(t, gw)
	t.Cleanup(gw.Close)
	return a
}

// newLoopbackGateway returns a gateway in front of the game server at an address.
func newLoopbackGateway(t *testing.T, game string, pol policy.Policy) *gateway.Gateway {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	target := upstream.Target{URL: &url.URL{Scheme: "ws", Host: game}}
	gw, err := gateway.New(gateway.Config{
		Routes: []policy.Route{{Pattern: "/*", Upstream: target, Policy: pol}}, Default: testPolicy(), Keys: keys,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return gw
}

// serveLoopback serves h on loopback until the end of the test, and returns its
// address.
func serveLoopback(t *testing.T, h http.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(ln) })
	t.Cleanup(func() {
		s.Close()
		serving.Wait()
	})
	return ln.Addr().String()
}

// serveGame accepts a connection and passes it to the test, whose ctx ends it.
func (a *arena) serveGame(w http.ResponseWriter, r *http.Request) {
	c, err := coder.Accept(w, r, &coder.AcceptOptions{Subprotocols: []string{"chat.v2"}})
	if err != nil {
		a.t.Errorf("accept: %v", err)
		return
	}
	select {
	case a.joined <- newEndpoint[coder.MessageType, coder.StatusCode](a.ctx, c):
	case <-a.ctx.Done():
		c.CloseNow()
	}
}

// A dialFunc connects a library's client, with the arena's offers.
type dialFunc func(a *arena) (endpoint, error)

// dialCoder returns a client that offers compression with mode.
func dialCoder(mode coder.CompressionMode, agreed string) dialFunc {
	return func(a *arena) (endpoint, error) {
		c, answer, err := coder.Dial(a.ctx, a.url+"/match/7", &coder.DialOptions{HTTPClient: &a.dialer, Subprotocols: a.offer, CompressionMode: mode})
		if err != nil {
			return nil, err
		}
		return newEndpoint[coder.MessageType, coder.StatusCode](a.ctx, c), wantAgreed(answer, agreed)
	}
}

func dialNhooyr(mode nhooyr.CompressionMode, agreed string) dialFunc {
	return func(a *arena) (endpoint, error) {
		c, answer, err := nhooyr.Dial(a.ctx, a.url+"/match/7", &nhooyr.DialOptions{HTTPClient: &a.dialer, Subprotocols: a.offer, CompressionMode: mode})
		if err != nil {
			return nil, err
		}
		return newEndpoint[nhooyr.MessageType, nhooyr.StatusCode](a.ctx, c), wantAgreed(answer, agreed)
	}
}

// What each library agrees on. With coder's default, messages downward refer to earlier ones;
// the others decline that. None of them limits its own window.
const (
	noTakeover   = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	downTakeover = "permessage-deflate; client_no_context_takeover"
)

func wantAgreed(answer *http.Response, want string) error {
	if got := answer.Header.Get("Sec-WebSocket-Extensions"); got != want {
		return fmt.Errorf("answered %q, want %q", got, want)
	}
	return nil
}

// withEachLibrary runs a test with each library's client.
func withEachLibrary(t *testing.T, run func(t *testing.T, dial dialFunc)) {
	for name, dial := range map[string]dialFunc{
		"coder": dialCoder(coder.CompressionDisabled, ""), "nhooyr": dialNhooyr(nhooyr.CompressionDisabled, ""),
		"coder compressed":  dialCoder(coder.CompressionContextTakeover, downTakeover),
		"nhooyr compressed": dialNhooyr(nhooyr.CompressionNoContextTakeover, noTakeover),
		"gorilla":           dialGorilla(false, ""), "gorilla compressed": dialGorilla(true, noTakeover),
	} {
		t.Run(name, func(t *testing.T) { run(t, dial) })
	}
}

// join connects a client and returns both its ends.
func (a *arena) join(dial dialFunc) (client, game endpoint) {
	a.t.Helper()
	client, err := dial(a)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { client.CloseNow() })
	select {
	case game = <-a.joined:
	case <-a.ctx.Done():
		a.t.Fatal("the game server got no connection")
	}
	a.t.Cleanup(func() { game.CloseNow() })
	return client, game
}

// patternOf returns n bytes that depend on n and on their position.
func patternOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + (i*7+n)%26)
	}
	return b
}

// passMessage sends a message from one end, in one or three parts, and checks that it
// arrives unchanged at the other.
func passMessage(from, to endpoint, op byte, msg []byte, inParts bool) error {
	sent := make(chan error, 1)
	go func() {
		if inParts {
			sent <- from.WriteParts(op, msg[:len(msg)/3], msg[len(msg)/3:len(msg)/2], msg[len(msg)/2:])
			return
		}
		sent <- from.Write(op, msg)
	}()
	gotOp, got, err := to.Read()
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if gotOp != op || !bytes.Equal(got, msg) {
		return fmt.Errorf("got opcode %d, %d bytes %.20q, want %d, %d bytes %.20q", gotOp, len(got), got, op, len(msg), msg)
	}
	return nil
}

func TestLibrariesExchangeMessagesOfEverySize(t *testing.T) {
	withEachLibrary(t, func(t *testing.T, dial dialFunc) {
		client, game := newArena(t).join(dial)
		for _, size := range []int{0, 1, 2, 125, 126, 127, 4096, 65535, 65536, 300001, 1 << 20} {
			for _, op := range []byte{frame.Text, frame.Binary} {
				for _, inParts := range []bool{false, true} {
					if err := errors.Join(passMessage(client, game, op, patternOf(size), inParts), passMessage(game, client, op, patternOf(size), inParts)); err != nil {
						t.Fatalf("%d bytes, opcode %d, in parts %t: %v", size, op, inParts, err)
					}
				}
			}
		}
	})
}

func TestSubprotocolOfTheGameReachesTheLibrary(t *testing.T) {
	withEachLibrary(t, func(t *testing.T, dial dialFunc) {
		client, game := newArena(t).join(dial)
		if c, g := client.Subprotocol(), game.Subprotocol(); c != "chat.v2" || g != "chat.v2" {
			t.Fatalf("client has %q, game has %q, want chat.v2", c, g)
		}
	})
}

// interopCloses are the ways to close; 1006 stands for a disconnect.
var interopCloses = []struct {
	code   int
	reason string
}{
	{1000, ""}, {1000, "done"}, {1001, "away"}, {1003, "no"}, {1008, "policy"}, {1011, "oops"}, {1012, ""}, {1013, ""},
	{3000, "registered"}, {4000, ""}, {4999, string(patternOf(123))}, {1005, ""}, {1006, ""},
}

// wantCloseAt closes one side, and checks that the other receives a last message and
// exactly that Close.
func wantCloseAt(t *testing.T, from, to endpoint, code int, reason string) {
	t.Helper()
	if err := from.Write(frame.Text, []byte("last")); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, p, err := to.Read()
		if err == nil && string(p) == "last" {
			_, _, err = to.Read()
		}
		ended <- err
	}()
	if code == 1006 {
		from.CloseNow()
	} else if err := from.Close(code, reason); err != nil && code != 1005 {
		t.Errorf("close with %d: %v", code, err)
	}
	if got, want := closeOf(<-ended), fmt.Sprintf("%d %s", code, reason); got != want {
		t.Errorf("the other side saw %q, want %q", got, want)
	}
}

func TestCloseReachesTheOtherSideOfLibraries(t *testing.T) {
	withEachLibrary(t, func(t *testing.T, dial dialFunc) {
		a := newArena(t)
		for _, c := range interopCloses {
			t.Run(fmt.Sprintf("client %d", c.code), func(t *testing.T) {
				client, game := a.join(dial)
				wantCloseAt(t, client, game, c.code, c.reason)
			})
			t.Run(fmt.Sprintf("game %d", c.code), func(t *testing.T) {
				client, game := a.join(dial)
				wantCloseAt(t, game, client, c.code, c.reason)
			})
		}
	})
}

// A ping in these libraries returns with its pong, which arrives only during a read.
func TestPingsOfLibrariesAreAnswered(t *testing.T) {
	withEachLibrary(t, func(t *testing.T, dial dialFunc) {
		client, game := newArena(t).join(dial)
		var reading, pinging sync.WaitGroup
		for _, p := range []endpoint{client, game} {
			reading.Go(func() { p.Read() })
			pinging.Go(func() {
				for range 20 {
					if err := p.Ping(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		pinging.Wait()
		client.CloseNow()
		reading.Wait()
	})
}

// The crowd's traffic: each message is its number, with a filler that depends on it.
const (
	crowdSize     = 16
	crowdMessages = 400
)

func sendNumbers(p endpoint) error {
	for n := range uint64(crowdMessages) {
		msg := binary.BigEndian.AppendUint64(nil, n)
		msg = append(msg, patternOf(int(n*n)%5000)...)
		if err := p.Write(frame.Binary, msg); err != nil {
			return fmt.Errorf("send %d: %w", n, err)
		}
	}
	return nil
}

func readNumbers(p endpoint) error {
	for n := range uint64(crowdMessages) {
		op, msg, err := p.Read()
		if err != nil {
			return fmt.Errorf("read %d: %w", n, err)
		}
		if op != frame.Binary || len(msg) < 8 || binary.BigEndian.Uint64(msg) != n || !bytes.Equal(msg[8:], patternOf(int(n*n)%5000)) {
			return fmt.Errorf("message %d is %d bytes %.20x with opcode %d", n, len(msg), msg, op)
		}
	}
	return nil
}

func TestManyLibraryClientsExchangeMessagesAtOnce(t *testing.T) {
	withEachLibrary(t, func(t *testing.T, dial dialFunc) {
		a := newArena(t)
		var all []endpoint // they talk once all have joined: the first ones take all processors
		for range crowdSize {
			client, game := a.join(dial)
			all = append(all, client, game)
		}
		var talking sync.WaitGroup
		for _, p := range all {
			talking.Go(func() { reportError(t, sendNumbers(p)) })
			talking.Go(func() { reportError(t, readNumbers(p)) })
		}
		talking.Wait()
	})
}

func reportError(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

// testPolicy is the tests' default policy.
func testPolicy() policy.Policy {
	return policy.Policy{
		Grace: 30 * time.Second, GraceUnconfirmed: 5 * time.Second, Heartbeat: 15 * time.Second, DialTimeout: time.Minute,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
}

func compressing() policy.Policy {
	p := testPolicy()
	p.Compression, p.CompressionWindow = true, 4<<10
	return p
}

// noise returns n incompressible bytes, always the same.
func noise(n int) string {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return string(b)
}
