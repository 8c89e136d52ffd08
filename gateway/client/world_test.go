package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"

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

func inWorld(t *testing.T, f func(*world), change ...func(*policy.Policy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, change...)) })
}

func newGateway(pattern string, target upstream.Target, change ...func(*policy.Policy)) (*gateway.Gateway, error) {
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		return nil, err
	}
	rules := policy.Policy{
		Grace: grace, Heartbeat: heartbeat, AnswerTimeout: 5 * time.Second, DialTimeout: 10 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
	for _, f := range change {
		f(&rules)
	}
	return gateway.New(gateway.Config{
		Routes:  []policy.Route{{Pattern: pattern, Upstream: target, Policy: rules}},
		Default: rules, Keys: keys, Log: slog.New(slog.DiscardHandler),
	})
}

func newWorld(t *testing.T, change ...func(*policy.Policy)) *world {
	t.Helper()
	game := wstest.NewGame(t, 64<<10)
	gw, err := newGateway("/match/*", game.Target(), change...)
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
func (w *world) play(o client.Options) (*app, *wstest.Peer) {
	w.Helper()
	o.HTTPClient = w.client()
	c, err := client.Dial(w.Context(), "ws://game.example/match/7", &o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.CloseNow)
	synctest.Wait() // hello is confirmed
	return &app{w.T, c}, w.game.Next()
}

// state returns the session's state at the gateway.
func (w *world) state(c *app) string {
	synctest.Wait()
	i, _ := w.gw.Control().Session(c.Session())
	return i.State
}

// An app is the application of a client.
type app struct {
	*testing.T
	*client.Conn
}

func (a *app) say(texts ...string) {
	a.Helper()
	for _, text := range texts {
		if err := a.Write(a.Context(), client.MessageText, []byte(text)); err != nil {
			a.Fatal(err)
		}
	}
}

func (a *app) want(texts ...string) {
	a.Helper()
	for _, text := range texts {
		if data, err := a.read(); err != nil || string(data) != text {
			a.Fatalf("read %.80q, %v, want %q", data, err, text)
		}
	}
}

func (a *app) read() ([]byte, error) {
	ctx, cancel := context.WithTimeout(a.Context(), time.Hour)
	defer cancel()
	_, data, err := a.Read(ctx)
	return data, err
}

// wantEnd reads the end of the session, and returns the error.
func (a *app) wantEnd() error {
	a.Helper()
	data, err := a.read()
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		a.Fatalf("read %.80q, %v, want the end", data, err)
	}
	return err
}

// wantClose reads the end of the session, by the gateway or the game server.
func (a *app) wantClose(code int, fromServer bool) error {
	a.Helper()
	err := a.wantEnd()
	if e := (*client.CloseError)(nil); !errors.As(err, &e) || e.Code != code || e.FromServer != fromServer {
		a.Errorf("%v, want code %d, from the game server %t", err, code, fromServer)
	}
	return err
}

// A stage is a gateway played by the test, with one client.
type stage struct {
	*testing.T
	*network
	*app
	door    *wstest.Game // accepts handshakes as a gateway would
	mu      sync.Mutex
	resumes []client.Resumed
	lost    []error
	skips   []uint64
	late    atomic.Int64 // delay of a handshake's 101, in ns
	hang    func()       // called by OnResume
}

// onStage begins a session with these members in the hello, and passes the gateway's end of its connection.
func onStage(t *testing.T, members map[string]any, f func(*stage, *wstest.Peer)) {
	t.Helper()
	onBareStage(t, func(s *stage) { f(s, s.dial(members)) })
}

func onBareStage(t *testing.T, f func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, door: wstest.NewGame(t, 64<<10), hang: func() {}}
		s.door.Choose = wire.Subprotocol
		s.door.Refuse = func(net.Conn, *http.Request) bool {
			select {
			case <-time.After(time.Duration(s.late.Load())):
			case <-t.Context().Done():
			}
			return false
		}
		s.network = &network{over: t.Context().Done(), dial: func() (*wstest.Conn, error) {
			c, err := s.door.Dial(t.Context(), "", "")
			if err != nil {
				return nil, err
			}
			return c.(*wstest.Conn), nil
		}}
		f(s)
	})
}

// dial begins a session; members are added to the hello.
func (s *stage) dial(members map[string]any) *wstest.Peer {
	s.Helper()
	done := make(chan error, 1)
	go func() {
		c, err := client.Dial(s.Context(), "ws://game.example/match/7", &client.Options{
			HTTPClient: s.client(), OnResume: func(r client.Resumed) {
				s.mu.Lock()
				s.resumes = append(s.resumes, r)
				s.mu.Unlock()
				s.hang()
			},
			OnSkip: func(n uint64) {
				s.mu.Lock()
				s.skips = append(s.skips, n)
				s.mu.Unlock()
			},
			OnDetach: func(err error) {
				s.mu.Lock()
				s.lost = append(s.lost, err)
				s.mu.Unlock()
			},
		})
		s.app = &app{s.T, c}
		done <- err
	}()
	g := s.door.Next()
	hello(g, members)
	if err := <-done; err != nil {
		s.Fatal(err)
	}
	s.Cleanup(s.CloseNow)
	return g
}

var tokensMade int

func hello(g *wstest.Peer, members map[string]any) {
	tokensMade++
	h := map[string]any{
		"session": "s1", "token": fmt.Sprintf("t%d", tokensMade), "resumed": false, "received": 0, "lost": 0, "replay": 0,
		"grace_ms": 30000, "heartbeat_ms": 15000, "protocol": "",
		"limits": map[string]any{"message_bytes": 1 << 20, "unacked_messages": 1024, "unacked_bytes": 1 << 20},
	}
	maps.Copy(h, members)
	text, _ := json.Marshal(h)
	g.Control("hello " + string(text))
}

// words returns the texts that the client has sent on a connection so far.
func words(g *wstest.Peer) (list []string) {
	synctest.Wait()
	for {
		m, ok := g.Come()
		switch {
		case !ok:
			return list
		case m.Err != nil:
			list = append(list, "the end")
		case m.Op == frame.Close:
			list = append(list, fmt.Sprintf("Close %d", m.Code))
		default:
			list = append(list, strings.ReplaceAll(m.Data, "\x10", "^"))
		}
	}
}

// heard fails unless the client has said this on a connection since the last look.
func (s *stage) heard(g *wstest.Peer, want ...string) {
	s.Helper()
	if got := words(g); fmt.Sprint(got) != fmt.Sprint(want) {
		s.Errorf("the client said %q, want %q", got, want)
	}
}

// stated returns what a handshake states about the resume.
func stated(g *wstest.Peer) string {
	o := wire.ParseOffer(g.Req.Header)
	return fmt.Sprint(o.Resume, " ", o.Token, " ", o.Received)
}
