package gateway

import (
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
	"reseat/upstream"
)

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

// Of two who end a session one does, and is named.
func TestOfTwoWhoEndASessionTheFirstIsNamed(t *testing.T) {
	g := newCrowd(t, 1)
	e := g.reg.All()[0]
	conn, far := wstest.Pipe(1 << 10)
	t.Cleanup(func() { far.Close() })
	g.beginSession(e, &upstream.Conn{Conn: conn}, nil).Do(func(core *session.Session, now session.Time) {
		first, second := terminate(e, core, now, "first", 1000, ""), terminate(e, core, now, "second", 1000, "")
		if !first || second || e.Ender() != "first" {
			t.Errorf("ended by the first: %v, by the second: %v, and it names %q", first, second, e.Ender())
		}
	})
}
