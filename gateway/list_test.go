package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"testing"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/tokens"
	"reseat/upstream"
)

// many is the number of sessions that a list must support.
const many = 10_000

// newCrowd makes a gateway with n sessions, of ten players in ten groups, whose game servers
// have not answered yet.
func newCrowd(t testing.TB, n int) *Gateway {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	target := upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example"}}
	g, err := New(Config{
		Keys: keys, Routes: []policy.Route{{Pattern: "/*", Upstream: target, Policy: policy.Policy{HTTPOff: true}}},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, e := range g.reg.All() {
			if e.Driver() == nil { // it never began: nobody must wait for its end
				g.reg.Remove(e)
			}
		}
		g.Close()
	})
	for i := range n {
		e := g.newRecord(&route{Route: policy.Route{Pattern: "/*"}, terms: &registry.Terms{Group: fmt.Sprint("g", i/10%10)}}, "/", fmt.Sprint("p", i%10), true, netip.Addr{})
		g.reg.Add(e)
	}
	return g
}

// TestListQueriesOnlySessionsItShows locks every other session while the list is made.
func TestListQueriesOnlySessionsItShows(t *testing.T) {
	g := newCrowd(t, 3)
	list := g.reg.All()
	release := make(chan bool)
	defer close(release)
	for _, e := range []*registry.Record{list[0], list[2]} {
		conn, far := wstest.Pipe(1 << 10)
		t.Cleanup(func() { far.Close() })
		d := g.beginSession(e, &upstream.Conn{Conn: conn}, nil)
		held := make(chan bool)
		go d.Do(func(*session.Session, session.Time) { close(held); <-release })
		<-held
	}
	want := list[1]
	want.SetTerms(&registry.Terms{Group: "red"})
	for name, f := range map[string]registry.Filter{
		"group":  {Group: "red", Limit: 10},
		"player": {Player: want.Player, Limit: 10},
		"both":   {Group: "red", Player: want.Player, State: "connecting", Limit: 10},
		"ended":  {State: "ended", Limit: 10},
		"none":   {Group: "blue", Limit: 10},
	} {
		got, next := g.Sessions(f)
		if shown := len(got) == 1 && got[0].ID == want.ID; next != 0 || shown != (f.Group == "red" || f.Player != "") {
			t.Errorf("%s: %+v, next %d", name, got, next)
		}
	}
}

// A list may look at a session that ended after it was found.
func TestJustEndedSessionIsNotListedAsConnecting(t *testing.T) {
	g := newCrowd(t, 1)
	e := g.reg.All()[0]
	if i, living := g.reg.Info(e); !living || i.State != session.Connecting {
		t.Errorf("before: %v, living %t", i.State, living)
	}
	g.reg.AddTombstone(e, session.Info{State: session.Ended})
	if _, living := g.reg.Info(e); living {
		t.Error("it lives")
	}
	g.reg.LegsClosed()
}

// A page allocates for its rows, and a pointer for each candidate.
func TestPageAllocatesInProportionToItsRows(t *testing.T) {
	g := newCrowd(t, many)
	allocs := func(f registry.Filter, want int) float64 {
		t.Helper()
		return testing.AllocsPerRun(5, func() {
			if list, _ := g.Sessions(f); len(list) != want {
				t.Fatalf("%d sessions, want %d", len(list), want)
			}
		})
	}
	one := allocs(registry.Filter{Group: "g3", Player: "p3", Limit: 1}, 1)
	page := allocs(registry.Filter{Limit: 100}, 100)
	none := allocs(registry.Filter{State: "detached", Limit: 100}, 0)
	if one > 30 || page > 400 || none > 30 {
		t.Errorf("%v allocations for one session, %v for a page of 100, %v for none, of %d", one, page, none, many)
	}
}
