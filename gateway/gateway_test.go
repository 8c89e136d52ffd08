package gateway_test

import (
	"io"
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/upstream"
)

// A world is a gateway, a game server and players, connected in memory.
type world struct {
	*wstest.Door
	game *wstest.Game
	gw   *gateway.Gateway
	t    *testing.T
}

// testPolicy is the default policy of the tests.
func testPolicy() policy.Policy {
	return policy.Policy{
		Grace: 30 * time.Second, GraceUnconfirmed: 5 * time.Second, Heartbeat: 15 * time.Second, DialTimeout: 10 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
}

func newWorld(t *testing.T, p policy.Policy, change ...func(*gateway.Config)) *world {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	game := wstest.NewGame(t, 64<<10)
	target := upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example:9000"}, DialContext: game.Dial}
	cfg := gateway.Config{
		Routes:  []policy.Route{{Pattern: "/*", Upstream: target, Policy: p}},
		Default: p, Keys: keys, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	offer := compressAll(&cfg)
	gw, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{gw: gw, game: game, t: t, Door: wstest.Open(t, gw, 64<<10)}
	w.Offer = offer
	t.Cleanup(func() {
		gw.Close()
		time.Sleep(20 * time.Second) // fake: all closing handshakes have finished
	})
	return w
}

// play begins a session and returns its client and its upstream.
func (w *world) play() (*wstest.Player, *wstest.Peer) {
	w.t.Helper()
	p := w.Player("/match/7")
	return p, w.game.Next()
}

// newDetached returns a world with one session, whose client was disconnected after
// everything so far was acked.
func newDetached(t *testing.T, p policy.Policy, change ...func(*gateway.Config)) (*world, *wstest.Player, *wstest.Peer) {
	t.Helper()
	w := newWorld(t, p, change...)
	player, game := w.play()
	player.Sync()
	player.Drop()
	return w, player, game
}

// state returns a session's state, "" if it is unknown.
func (w *world) state(p *wstest.Player) string {
	synctest.Wait()
	i, _ := w.gw.Session(p.Hello.Session)
	return i.State
}

func (w *world) wantState(p *wstest.Player, want session.State) {
	w.t.Helper()
	if got := w.state(p); got != want.String() {
		w.t.Fatalf("the session is %q, want %q", got, want)
	}
}

func TestMissedMessagesAreReplayedOnResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy())
		p, game := w.play()
		game.Text("one")
		p.Want("one")
		p.Text("hello")
		game.Want("hello")
		p.Drop()
		w.wantState(p, session.Detached)
		game.Text("two")
		game.Binary("three")
		time.Sleep(29 * time.Second)
		p = p.Resume(1)
		if p.Hello.Replay != 2 || p.Hello.Received != 1 || p.Hello.Lost != 0 {
			t.Fatalf("hello %+v, want replay 2, received 1, lost 0", p.Hello)
		}
		p.Want("two", "three")
		p.Text("still me")
		game.Want("still me")
		if n := w.game.Joined(); n != 0 {
			t.Fatalf("%d more upstream connections", n)
		}
	})
}

func TestSessionEndsAfterGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy())
		p, game := w.play()
		p.Ack(0) // confirms the token, so that the full grace period applies
		p.Sync()
		p.Drop()
		w.wantState(p, session.Detached)
		time.Sleep(30*time.Second - time.Millisecond)
		w.wantState(p, session.Detached)
		time.Sleep(time.Millisecond)
		if reason := game.WantClose(wire.CodeGoingAway); reason != "grace period over" {
			t.Fatalf("reason %q", reason)
		}
		w.wantState(p, session.Ended)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNoSession)
	})
}
