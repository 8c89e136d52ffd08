package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
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
		Grace: 30 * time.Second, Heartbeat: 15 * time.Second, DialTimeout: 10 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
}

// changed returns p with a change.
func changed(p policy.Policy, change func(*policy.Policy)) policy.Policy {
	change(&p)
	return p
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
		Default: p, Keys: keys, Log: slog.New(slog.DiscardHandler),
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

// logTo has the gateway write its log to out.
func logTo(out io.Writer) func(*gateway.Config) {
	return func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(out, nil)) }
}

// inWorld runs f in a bubble of synctest, with a world of its own.
func inWorld(t *testing.T, p policy.Policy, f func(*testing.T, *world), change ...func(*gateway.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, p, change...)) })
}

// inSession is inWorld with a session: f gets its client and its game server's connection.
func inSession(t *testing.T, p policy.Policy, f func(*testing.T, *world, *wstest.Player, *wstest.Peer), change ...func(*gateway.Config)) {
	t.Helper()
	inWorld(t, p, func(t *testing.T, w *world) {
		player, game := w.play()
		f(t, w, player, game)
	}, change...)
}

// eachInBubble runs f for each case, as a subtest in a bubble of its own.
func eachInBubble[C any](t *testing.T, cases map[string]C, f func(*testing.T, C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, c) })
		})
	}
}

// play begins a session and returns its client and its upstream.
func (w *world) play() (*wstest.Player, *wstest.Peer) {
	w.t.Helper()
	p := w.Player("/match/7")
	return p, w.game.Next()
}

// detach disconnects p once everything that it said has been processed.
func (w *world) detach(p *wstest.Player) {
	w.t.Helper()
	p.Sync()
	p.Drop()
	w.wantState(p, session.Detached)
}

// wantNoDial fails the test if the gateway has dialled the game server since the last Next.
func (w *world) wantNoDial() {
	w.t.Helper()
	synctest.Wait()
	wstest.Equal(w.t, "connections to the game server that nobody wanted", w.game.Joined(), 0)
}

// A talker is a client, or its game server's connection.
type talker interface {
	Pass(to interface{ Want(...string) }, texts ...string)
	Want(...string)
}

// goesOn checks that messages go both ways between a client and its game server.
func goesOn(a, b talker) {
	a.Pass(b, "one way")
	b.Pass(a, "and back")
}

// state returns a session's state, "" if it is unknown.
func (w *world) state(p *wstest.Player) string {
	synctest.Wait()
	i, _ := w.gw.Control().Session(p.Hello.Session)
	return i.State
}

func (w *world) wantState(p *wstest.Player, want session.State) {
	w.t.Helper()
	if got := w.state(p); got != want.String() {
		w.t.Fatalf("the session is %q, want %q", got, want)
	}
}

// A hello that nobody has confirmed has a grace period of its own: perhaps its token never arrived.
func TestSessionEndsAfterGracePeriod(t *testing.T) {
	of := func(d time.Duration) policy.Policy {
		return changed(testPolicy(), func(p *policy.Policy) { p.Grace = d })
	}
	const over = `game< Close 1001 grace period over; ended; refused 4404`
	playEach(t, map[string]scripted{
		"confirmed":   {of(30 * time.Second), `sync; client drops; 29.999s; detached; 1ms; ` + over},
		"unconfirmed": {of(time.Hour), `client drops; 4.999s; detached; 1ms; ` + over},
		"none":        {of(0), `sync; client drops; ` + over},
	})
}

func TestNewRefusesInvalidConfig(t *testing.T) {
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	game := upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example"}}
	for name, c := range map[string]struct {
		cfg  gateway.Config
		want string
	}{
		"no keys":           {gateway.Config{}, "Config.Keys is missing"},
		"no upstream":       {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "/*"}}}, `route "/*": no upstream`},
		"pattern":           {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "ranked", Upstream: game}}}, `route "ranked": `},
		"unfinished":        {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "/{id", Upstream: game}}}, `route "/{id": `},
		"one pattern twice": {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "/a", Upstream: game}, {Pattern: "/a", Upstream: game}}}, `route "/a": given twice`},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Log = slog.New(slog.DiscardHandler)
			g, err := gateway.New(c.cfg)
			if err == nil {
				g.Close()
				t.Fatal("it was made")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, want %q in it", err, c.want)
			}
		})
	}
}

// within bounds what a test waits for. Nothing is asserted about it.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for ctx := within(t); !holds(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("it has not come to that: %s", what)
		}
	}
}
