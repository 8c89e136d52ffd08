package gateway

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

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
		Log: slog.New(slog.DiscardHandler),
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

func TestRoundTripsOmitUnmeasuredClients(t *testing.T) {
	var infos []session.Info
	if median, high := roundTrips(infos); median != 0 || high != 0 {
		t.Errorf("of none: %v, %v", median, high)
	}
	for i := range 100 {
		infos = append(infos, session.Info{},
			session.Info{State: session.Attached, RTT: time.Duration(100-i) * time.Millisecond},
			session.Info{State: session.Detached, RTT: time.Hour})
	}
	if median, high := roundTrips(infos); median != 51 || high != 96 {
		t.Errorf("of 1 to 100 ms: %v, %v", median, high)
	}
}

// An answer is as large as its window, however many sessions there are.
func TestOverviewShowsOnlyItsWindow(t *testing.T) {
	g := newCrowd(t, many)
	o := g.Overview(registry.View{Filter: registry.Filter{Limit: 60}, Offset: 5000})
	if o.Matching != many || len(o.Sessions) != 60 || o.Sessions[0].Seq() != 5001 || o.Totals.Sessions.Connecting != many {
		t.Errorf("%d fit, %d shown from %d", o.Matching, len(o.Sessions), o.Offset)
	}
	allocs := testing.AllocsPerRun(3, func() {
		g.Overview(registry.View{Filter: registry.Filter{Limit: 60}, Sort: registry.ByPlayer, Offset: 5000})
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
		e := g.newRecord(&route{terms: &registry.Terms{Policy: policy.Policy{Duplicate: policy.Takeover}}}, "/", "ann", true, netip.Addr{})
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

// The client disconnects just as its dial succeeds: that connection is closed.
func TestUpstreamWithoutWaitingClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newCrowd(t, 1)
		e := g.reg.All()[0]
		e.SetTerms(&registry.Terms{Policy: policy.Policy{DialTimeout: 5 * time.Second}})
		game := wstest.NewGame(t, 1<<10)
		d := &redial{waiter: &waiter{arrival: &arrival{}}, done: make(chan struct{}), ask: upstream.Request{Path: "/"}}
		game.Refuse = func(net.Conn, *http.Request) bool { // what leave does, too late to cancel the dial
			g.redials.mu.Lock()
			defer g.redials.mu.Unlock()
			d.waiter = nil
			return false
		}
		e.Target = upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example:9000"}, DialContext: game.Dial}
		if out, again := g.redials.dialOnce(e, d); out != nil || again || !d.decided {
			t.Errorf("outcome %v, again %v, decided %v; want none for anybody", out, again, d.decided)
		}
		game.Next().WantEnd()
	})
}

// Of many conditional writes of a session's data with the same tag, one succeeds: checking
// and writing are one step.
func TestConditionalWriteOfDataIsAtomic(t *testing.T) {
	g := newCrowd(t, 1)
	id := g.reg.All()[0].ID
	first, _ := g.SetData(id, []byte("first"), nil)
	want := func(tag uint64) bool { return tag == first }
	other := make(chan Outcome, 1)
	_, o := g.SetData(id, []byte("mine"), func(tag uint64) bool {
		go func() {
			_, o := g.SetData(id, []byte("theirs"), want)
			other <- o
		}()
		for range 10_000 { // long enough
			runtime.Gosched()
		}
		return want(tag)
	})
	if theirs := <-other; o != Done || theirs != Stale {
		t.Errorf("outcomes %v and %v, want Done and Stale", o, theirs)
	}
	if data, _, _ := g.Data(id); string(data) != "mine" {
		t.Errorf("the data is %q", data)
	}
}
