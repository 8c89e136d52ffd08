package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"runtime"
	"testing"

	"reseat/gateway/control"
	"reseat/gateway/front"
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
		e := g.newRecord(&front.Route{Route: policy.Route{Pattern: "/*"}, Terms: &registry.Terms{Group: fmt.Sprint("g", i/10%10)}}, "/", fmt.Sprint("p", i%10), true, netip.Addr{})
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
		got, next := g.Control().Sessions(f)
		if shown := len(got) == 1 && got[0].ID == want.ID; next != 0 || shown != (f.Group == "red" || f.Player != "") {
			t.Errorf("%s: %+v, next %d", name, got, next)
		}
	}
}

// A page allocates for its rows, and a pointer for each candidate.
func TestPageAllocatesInProportionToItsRows(t *testing.T) {
	g := newCrowd(t, many)
	allocs := func(f registry.Filter, want int) float64 {
		t.Helper()
		return testing.AllocsPerRun(5, func() {
			if list, _ := g.Control().Sessions(f); len(list) != want {
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

// An answer is as large as its window, however many sessions there are.
func TestOverviewShowsOnlyItsWindow(t *testing.T) {
	g := newCrowd(t, many)
	o := g.Watch().Overview(registry.View{Filter: registry.Filter{Limit: 60}, Offset: 5000})
	if o.Matching != many || len(o.Sessions) != 60 || o.Sessions[0].Seq() != 5001 || o.Totals.Sessions.Connecting != many {
		t.Errorf("%d fit, %d shown from %d", o.Matching, len(o.Sessions), o.Offset)
	}
	allocs := testing.AllocsPerRun(3, func() {
		g.Watch().Overview(registry.View{Filter: registry.Filter{Limit: 60}, Sort: registry.ByPlayer, Offset: 5000})
	})
	if allocs > 600 {
		t.Errorf("%v allocations for 60 rows of %d", allocs, many)
	}
}

// A session that was removed while its upstream was dialled does not begin, and supersedes
// no other.
func TestSessionRemovedDuringDialIsNotCommitted(t *testing.T) {
	g := newCrowd(t, 0)
	begin := func() *registry.Record {
		e := g.newRecord(&front.Route{Terms: &registry.Terms{Policy: policy.Policy{Duplicate: policy.Takeover}}}, "/", "ann", true, netip.Addr{})
		g.reg.Add(e)
		return e
	}
	older, removed := begin(), begin()
	if _, ok := g.reg.Commit(older); !ok {
		t.Fatal("a living session is not committed")
	}
	g.reg.Remove(removed)
	if others, ok := g.reg.Commit(removed); ok || len(others) > 0 {
		t.Errorf("it is committed (%v), and ends %d others", ok, len(others))
	}
	g.reg.Remove(removed) // removed twice, counted once
	if n := g.reg.Count(); n != 1 {
		t.Errorf("%d sessions live, want 1", n)
	}
}

// A session whose first dial fails while a second login of its player waits for its answer
// does not answer: that login begins.
func TestRemovedSessionDoesNotAnswer(t *testing.T) {
	g := newCrowd(t, 1)
	e := g.reg.All()[0]
	if !g.reg.Answers(t.Context(), e) {
		t.Error("a session that is about to begin must answer")
	}
	g.reg.Remove(e)
	if g.reg.Answers(t.Context(), e) {
		t.Error("a session that never began must not answer")
	}
}

// Of many conditional writes of a session's data with the same tag, one succeeds: checking
// and writing are one step.
func TestConditionalWriteOfDataIsAtomic(t *testing.T) {
	g := newCrowd(t, 1)
	id := g.reg.All()[0].ID
	first, _ := g.Control().SetData(id, []byte("first"), nil)
	want := func(tag uint64) bool { return tag == first }
	other := make(chan control.Outcome, 1)
	_, o := g.Control().SetData(id, []byte("mine"), func(tag uint64) bool {
		go func() {
			_, o := g.Control().SetData(id, []byte("theirs"), want)
			other <- o
		}()
		for range 10_000 { // long enough
			runtime.Gosched()
		}
		return want(tag)
	})
	if theirs := <-other; o != control.Done || theirs != control.Stale {
		t.Errorf("outcomes %v and %v, want Done and Stale", o, theirs)
	}
	if data, _, _ := g.Control().Data(id); string(data) != "mine" {
		t.Errorf("the data is %q", data)
	}
}
