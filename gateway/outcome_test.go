package gateway

import (
	"net"
	"net/http"
	"net/url"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/upstream"
)

// A session that was removed while its upstream was dialled does not begin, and takes
// nobody else's place.
func TestSessionThatWasRemovedDuringItsDialIsNotCommitted(t *testing.T) {
	g := newCrowd(t, 2)
	list := g.reg.all()
	older, removed := list[0], list[1]
	for _, e := range list {
		e.player = playerKey{name: "ann"}
		e.current.Store(&terms{Policy: Policy{Duplicate: Takeover}})
	}
	if _, ok := g.reg.commit(older); !ok {
		t.Fatal("a session that lives is not committed")
	}
	g.reg.remove(removed)
	if others, ok := g.reg.commit(removed); ok || len(others) > 0 || removed.won {
		t.Errorf("it is committed (%v), and ends %d others", ok, len(others))
	}
	g.reg.remove(removed) // a second time: it is counted once
	if n := g.reg.count(); n != 1 {
		t.Errorf("%d sessions live, want 1", n)
	}
}

// A session whose first dial fails while a second login of its player asks for it is
// no answer: that login begins.
func TestSessionThatWasRemovedDoesNotAnswer(t *testing.T) {
	g := newCrowd(t, 1)
	e := g.reg.all()[0]
	if !g.reg.answers(t.Context(), e) {
		t.Error("a session that is about to begin does not answer")
	}
	g.reg.remove(e)
	if g.reg.answers(t.Context(), e) {
		t.Error("a session that never came about answers")
	}
}

// The client leaves just as its dial succeeds: nobody will have that connection, and it
// is closed.
func TestUpstreamThatNobodyWaitsForIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newCrowd(t, 1)
		e := g.reg.all()[0]
		e.current.Store(&terms{Policy: Policy{DialTimeout: 5 * time.Second}})
		game := wstest.NewGame(t, 1<<10)
		d := &redial{waiter: &waiter{}, done: make(chan struct{}), ask: upstream.Request{Path: "/"}}
		game.Refuse = func(net.Conn, *http.Request) bool { // what leave does, too late to cancel the dial
			e.mu.Lock()
			defer e.mu.Unlock()
			d.waiter = nil
			return false
		}
		e.target = upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example:9000"}, DialContext: game.Dial}
		if out, again := g.redials.dialOnce(e, d); out != nil || again || !d.taken {
			t.Errorf("outcome %v, again %v, taken %v; want none for anybody", out, again, d.taken)
		}
		game.Next().WantEnd()
	})
}

// Of many writes of a session's data that each ask for the same state, one wins: asking
// and writing are one step.
func TestConditionalWriteOfDataIsOneStep(t *testing.T) {
	g := newCrowd(t, 1)
	id := g.reg.all()[0].ID
	first, _ := g.SetData(id, []byte("first"), nil)
	want := func(tag uint64) bool { return tag == first }
	other := make(chan Outcome, 1)
	_, o := g.SetData(id, []byte("mine"), func(tag uint64) bool {
		go func() {
			_, o := g.SetData(id, []byte("theirs"), want)
			other <- o
		}()
		for range 10_000 { // it has all the time that it could want
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
