package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// began begins a visit in a goroutine, and reports by the channel whether it may.
func began(t *gate) <-chan *visit {
	c := make(chan *visit, 1)
	go func() {
		_, v, ok := t.enter(context.Background())
		if ok != (v != nil) {
			panic("a visit that was turned away")
		}
		c <- v
	}()
	synctest.Wait()
	return c
}

// frozenBy begins a freeze, and returns its error by the channel.
func frozenBy(ctx context.Context, t *gate) <-chan error {
	c := make(chan error, 1)
	go func() { c <- t.freeze(ctx) }()
	synctest.Wait()
	return c
}

// wantOpen asserts that nothing has come by c.
func wantOpen[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	synctest.Wait()
	select {
	case <-c:
		t.Fatal(what)
	default:
	}
}

// goesAway has a visit be away until back is closed. It has returned when returned is closed.
func goesAway(ctx context.Context) (back, returned chan struct{}) {
	back, returned = make(chan struct{}), make(chan struct{})
	go func() {
		away(ctx, func() { <-back })
		close(returned)
	}()
	synctest.Wait()
	return back, returned
}

// wantNobody asserts that no visit is inside, and no turn is taken.
func (g *gate) wantNobody(t *testing.T) {
	t.Helper()
	if n := len(g.turns); n != 0 || g.visits() != 0 {
		t.Errorf("%d turns are taken, and %d visits begun, by nobody", n, g.visits())
	}
}

func TestFreezeWaitsForVisitsInsideAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		_, first, _ := g.enter(t.Context())
		ctx, second, _ := g.enter(t.Context())
		back, returned := goesAway(ctx)
		frozen := frozenBy(t.Context(), &g)
		wantOpen(t, frozen, "it did not wait for the visit inside")
		first.leave()
		first.leave() // as by leaveGate, and again by the handler
		if err := <-frozen; err != nil {
			t.Fatal(err)
		}
		close(back)
		wantOpen(t, returned, "a visit came back while frozen")
		late := began(&g)
		wantOpen(t, late, "a visit began while frozen")
		if _, _, ok := g.tryEnter(t.Context()); ok {
			t.Error("a caller that can come again did not have to")
		}
		if n := g.visits(); n != 1 {
			t.Errorf("%d visits, want the one that is away", n)
		}
		g.thaw(false)
		<-returned
		v := <-late
		if v == nil {
			t.Fatal("a visit was turned away though nothing has moved")
		}
		v.leave()
		second.leave()
		g.wantNobody(t)
		if _, v, ok := g.tryEnter(t.Context()); !ok {
			t.Error("turned away")
		} else {
			v.leave()
		}
	})
}

func TestMovedSessionsTurnNewVisitsAwayAndLetOthersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		ctx, v, _ := g.enter(t.Context())
		back, returned := goesAway(ctx)
		if err := <-frozenBy(t.Context(), &g); err != nil {
			t.Fatal(err)
		}
		late := began(&g)
		g.thaw(true)
		if <-late != nil {
			t.Error("a visit that had waited was let in")
		}
		if <-began(&g) != nil {
			t.Error("a new visit was let in")
		}
		close(back)
		<-returned // it may come back, and finish its session
		if frozen := frozenBy(t.Context(), &g); len(frozen) != 0 {
			t.Error("a later freeze did not wait for it")
		} else {
			v.leave()
			if err := <-frozen; err != nil {
				t.Error(err)
			}
		}
		g.thaw(false) // as after a late freeze that found nothing
		if <-began(&g) != nil {
			t.Error("a visit was let in afterwards")
		}
	})
}

func TestFreezeThatTakesTooLongLetsEverybodyIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		ctx, v, _ := g.enter(t.Context())
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		frozen := frozenBy(limited, &g)
		late := began(&g)
		wantOpen(t, late, "a visit began while frozen")
		if err := <-frozen; err == nil {
			t.Fatal("it does not stand still")
		}
		(<-late).leave()
		done := false
		away(ctx, func() { done = true })
		v.leave()
		away(ctx, func() {}) // after its end, as of a goroutine that was left behind
		if n := g.visits(); n != 0 || !done {
			t.Errorf("%d visits, want none", n)
		}
		if err := g.freeze(t.Context()); err != nil {
			t.Errorf("a later one: %v", err)
		}
		g.thaw(false)
	})
}

// handshakes begins n handshakes, and returns the contexts of those that are inside.
func handshakes(t *gate, n int) <-chan context.Context {
	c := make(chan context.Context, n)
	for range n {
		go func() {
			if ctx, _, ok := t.enterInTurn(context.Background()); ok {
				c <- ctx
			}
		}()
	}
	synctest.Wait()
	return c
}

func TestNoMoreHandshakesAreInsideThanThereAreTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate{turns: make(chan struct{}, 2)}
		c := handshakes(&g, 4)
		first, second := <-c, <-c
		wantOpen(t, c, "a third is inside")
		_, call, _ := g.enter(t.Context()) // of the control API
		call.leave()
		wantOpen(t, c, "a call without a turn made room for a handshake")

		back, returned := goesAway(first)
		third := <-c
		wantOpen(t, c, "one that went away made room for two")
		close(back)
		wantOpen(t, returned, "one came back though two are inside")
		leaveGate(second)
		leaveGate(second) // as by its handler
		fourth := <-c     // it had waited for longer
		wantOpen(t, c, "one that left twice made room for two")
		leaveGate(third)
		<-returned

		c = handshakes(&g, 2)
		wantOpen(t, c, "a third is inside")
		outOfTurn(fourth, func() {
			leaveGate(<-c)
			leaveGate(<-c)
		})
		outOfTurn(second, func() {}) // it has no turn to give
		leaveGate(first)
		leaveGate(fourth)
		g.wantNobody(t)
	})
}

// While the sessions are frozen nobody outside has a turn that somebody inside needs to leave.
func TestFreezeDoesNotWaitForTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate{turns: make(chan struct{}, 1)}
		comes := <-handshakes(&g, 1)
		back, returned := goesAway(comes)
		inside := <-handshakes(&g, 1)
		late := handshakes(&g, 1)
		frozen := frozenBy(t.Context(), &g)
		waits, left := make(chan struct{}), make(chan struct{})
		go func() {
			outOfTurn(inside, func() { <-waits })
			leaveGate(inside)
			close(left)
		}()
		wantOpen(t, late, "a handshake began while frozen")
		close(back)
		wantOpen(t, returned, "a handshake came back while frozen")
		close(waits)
		<-left
		if err := <-frozen; err != nil {
			t.Fatal(err)
		}
		g.thaw(true)
		<-returned
		leaveGate(comes)
		wantOpen(t, late, "a handshake began though a successor has the sessions")
		g.wantNobody(t)
	})
}

func TestAwayWithoutVisitCalls(t *testing.T) {
	called := 0
	away(t.Context(), func() { called++ })
	outOfTurn(t.Context(), func() { called++ })
	leaveGate(t.Context())
	if called != 2 {
		t.Errorf("called %d times", called)
	}
}

// A session that a predecessor still has is awaited until it comes, or will not come.
func TestResumeWaitsForLateSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l late
		l.expect([]string{"a", "b"})
		if l.next("c") != nil {
			t.Error("a session that nobody has is awaited")
		}
		for _, end := range []func(){func() { l.arrived("a") }, l.none} {
			c := l.next("b")
			wantOpen(t, c, "it came at once")
			end()
			<-c
		}
		if l.next("a") != nil || l.next("b") != nil {
			t.Error("they are still awaited")
		}
	})
}
