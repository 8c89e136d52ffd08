package client_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/client"
	"reseat/gateway/internal/test/leaks"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/tokens"
	"reseat/upstream"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A network connects clients with whatever accepts their connections.
type network struct {
	dial   func() (*wstest.Conn, error)
	wrap   func(net.Conn) net.Conn // nil: unchanged
	down   atomic.Bool
	dark   atomic.Bool     // connection attempts get no answer, not even a refusal
	over   <-chan struct{} // closed at the end of the test
	still  atomic.Int64    // nothing is read until then, in ns since 1970
	newest atomic.Pointer[wstest.Conn]
	dials  atomic.Int32
}

// client returns an HTTP client on this network.
func (n *network) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.connect}}
}

func (n *network) connect(context.Context, string, string) (net.Conn, error) {
	n.dials.Add(1)
	if n.dark.Load() {
		<-n.over
		return nil, net.ErrClosed
	}
	if n.down.Load() {
		return nil, errors.New("the network is down")
	}
	c, err := n.dial()
	if err != nil {
		return nil, err
	}
	n.newest.Store(c)
	if n.wrap != nil {
		return n.wrap(c), nil
	}
	return stopped{c, &n.still}, nil
}

// A stopped connection delivers nothing to its reader until a given time.
type stopped struct {
	*wstest.Conn
	until *atomic.Int64 // ns since 1970
}

func (c stopped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(time.Until(time.Unix(0, c.until.Load())))
	return n, err
}

// stop delays all reads by d.
func (n *network) stop(d time.Duration) { n.still.Store(time.Now().Add(d).UnixNano()) }

// cut resets the newest connection.
func (n *network) cut() { n.newest.Load().Reset() }

// A world is a gateway between a game server and its clients, all in memory.
type world struct {
	*testing.T
	*network
	game *wstest.Game
	gw   *gateway.Gateway
	ln   *wstest.Listener
}

const grace, heartbeat = 30 * time.Second, 15 * time.Second

func inWorld(t *testing.T, f func(*testing.T, *world), change ...func(*policy.Policy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, change...)) })
}

func newWorld(t *testing.T, change ...func(*policy.Policy)) *world {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rules := policy.Policy{
		Grace: grace, GraceUnconfirmed: 5 * time.Second, Heartbeat: heartbeat, AnswerTimeout: 5 * time.Second, DialTimeout: 10 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
	for _, f := range change {
		f(&rules)
	}
	game := wstest.NewGame(t, 64<<10)
	target := upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example:9000"}, DialContext: game.Dial}
	gw, err := gateway.New(gateway.Config{
		Routes:  []policy.Route{{Pattern: "/match/*", Upstream: target, Policy: rules}},
		Default: rules, Keys: keys, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ln := wstest.NewListener(64 << 10)
	server := &http.Server{Handler: gw}
	go server.Serve(ln)
	t.Cleanup(func() {
		server.Close()
		gw.Close()
		time.Sleep(20 * time.Second) // fake time: every closing handshake has timed out by then
	})
	return &world{t, &network{dial: ln.Dial, over: t.Context().Done()}, game, gw, ln}
}

// play starts a session, and returns both its ends.
func (w *world) play(o client.Options) (*client.Conn, *wstest.Peer) {
	w.Helper()
	o.HTTPClient = w.client()
	c, err := client.Dial(w.Context(), "ws://game.example/match/7", &o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.CloseNow)
	synctest.Wait() // hello is confirmed
	return c, w.game.Next()
}

// state returns the session's state at the gateway.
func (w *world) state(c *client.Conn) string {
	synctest.Wait()
	i, _ := w.gw.Session(c.Session())
	return i.State
}

func send(t *testing.T, c *client.Conn, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := c.Write(t.Context(), client.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

func want(t *testing.T, c *client.Conn, texts ...string) {
	t.Helper()
	for _, text := range texts {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		_, data, err := c.Read(ctx)
		cancel()
		if err != nil || string(data) != text {
			t.Fatalf("read %.80q, %v, want %q", data, err, text)
		}
	}
}

// wantEnd reads until the session ends, and returns the error.
func wantEnd(t *testing.T, c *client.Conn) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, data, err := c.Read(ctx)
	if err == nil || ctx.Err() != nil {
		t.Fatalf("read %.80q, %v, want the end", data, err)
	}
	return err
}

func wantClose(t *testing.T, err error, code int, fromServer bool) {
	t.Helper()
	if e := (*client.CloseError)(nil); !errors.As(err, &e) || e.Code != code || e.FromServer != fromServer {
		t.Errorf("%v, want code %d", err, code)
	}
}
