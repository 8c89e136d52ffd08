package gate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// began begins a visit in a goroutine, and reports by the channel whether it may.
func began(t *Gate) <-chan *Visit {
	c := make(chan *Visit, 1)
	go func() { c <- t.Enter() }()
	synctest.Wait()
	return c
}

// frozenBy begins a freeze, and returns its error by the channel.
func frozenBy(ctx context.Context, t *Gate) <-chan error {
	c := make(chan error, 1)
	go func() { c <- t.Freeze(ctx) }()
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
func goesAway(v *Visit) (back, returned chan struct{}) {
	back, returned = make(chan struct{}), make(chan struct{})
	go func() {
		v.Away(func() { <-back })
		close(returned)
	}()
	synctest.Wait()
	return back, returned
}

func visits(g *Gate) int {
	inside, away := g.Visits()
	return inside + away
}

// wantNobody asserts that no visit is inside, and no turn is taken.
func (g *Gate) wantNobody(t *testing.T) {
	t.Helper()
	if n := visits(g); len(g.turns) != 0 || n != 0 {
		t.Errorf("%d turns are taken, and %d visits begun, by nobody", len(g.turns), n)
	}
}

func TestFreezeWaitsForVisitsInsideAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(0)
		first := g.Enter()
		second := g.Enter()
		back, returned := goesAway(second)
		frozen := frozenBy(t.Context(), g)
		wantOpen(t, frozen, "it did not wait for the visit inside")
		first.Leave()
		first.Leave() // as when a refusal is sent, and again by the handler
		if err := <-frozen; err != nil {
			t.Fatal(err)
		}
		close(back)
		wantOpen(t, returned, "a visit came back while frozen")
		late := began(g)
		wantOpen(t, late, "a visit began while frozen")
		if g.TryEnter() != nil {
			t.Error("a caller that can come again did not have to")
		}
		if n := visits(g); n != 1 {
			t.Errorf("%d visits, want the one that is away", n)
		}
		g.Thaw(false)
		<-returned
		v := <-late
		if v == nil {
			t.Fatal("a visit was turned away though nothing has moved")
		}
		v.Leave()
		second.Leave()
		g.wantNobody(t)
		if v := g.TryEnter(); v == nil {
			t.Error("turned away")
		} else {
			v.Leave()
		}
	})
}

func TestMovedSessionsTurnNewVisitsAwayAndLetOthersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(0)
		v := g.Enter()
		back, returned := goesAway(v)
		if err := <-frozenBy(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		late := began(g)
		g.Thaw(true)
		if <-late != nil {
			t.Error("a visit that had waited was let in")
		}
		if <-began(g) != nil {
			t.Error("a new visit was let in")
		}
		close(back)
		<-returned // it may come back, and finish its session
		if frozen := frozenBy(t.Context(), g); len(frozen) != 0 {
			t.Error("a later freeze did not wait for it")
		} else {
			v.Leave()
			if err := <-frozen; err != nil {
				t.Error(err)
			}
		}
		g.Thaw(false) // as after a late freeze that found nothing
		if <-began(g) != nil {
			t.Error("a visit was let in afterwards")
		}
	})
}

func TestFreezeThatTakesTooLongLetsEverybodyIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(0)
		v := g.Enter()
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		frozen := frozenBy(limited, g)
		late := began(g)
		wantOpen(t, late, "a visit began while frozen")
		if err := <-frozen; err == nil {
			t.Fatal("it does not stand still")
		}
		(<-late).Leave()
		done := false
		v.Away(func() { done = true })
		v.Leave()
		v.Away(func() {}) // after its end, as of a goroutine that was left behind
		if n := visits(g); n != 0 || !done {
			t.Errorf("%d visits, want none", n)
		}
		if err := g.Freeze(t.Context()); err != nil {
			t.Errorf("a later one: %v", err)
		}
		g.Thaw(false)
	})
}

// handshakes begins n handshakes, and returns those that are inside.
func handshakes(t *Gate, n int) <-chan *Visit {
	c := make(chan *Visit, n)
	for range n {
		go func() {
			if v := t.EnterInTurn(); v != nil {
				c <- v
			}
		}()
	}
	synctest.Wait()
	return c
}

func TestNoMoreHandshakesAreInsideThanThereAreTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(2)
		c := handshakes(g, 4)
		first, second := <-c, <-c
		wantOpen(t, c, "a third is inside")
		call := g.Enter() // of the control API
		call.Leave()
		wantOpen(t, c, "a call without a turn made room for a handshake")

		back, returned := goesAway(first)
		third := <-c
		wantOpen(t, c, "one that went away made room for two")
		close(back)
		wantOpen(t, returned, "one came back though two are inside")
		second.Leave()
		second.Leave() // as by its handler
		fourth := <-c  // it had waited for longer
		wantOpen(t, c, "one that left twice made room for two")
		third.Leave()
		<-returned

		c = handshakes(g, 2)
		wantOpen(t, c, "a third is inside")
		fourth.OutOfTurn(func() {
			(<-c).Leave()
			(<-c).Leave()
		})
		second.OutOfTurn(func() {}) // it has no turn to give
		first.Leave()
		fourth.Leave()
		g.wantNobody(t)
	})
}

// While the sessions are frozen nobody outside has a turn that somebody inside needs to leave.
func TestFreezeDoesNotWaitForTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1)
		comes := <-handshakes(g, 1)
		back, returned := goesAway(comes)
		inside := <-handshakes(g, 1)
		late := handshakes(g, 1)
		frozen := frozenBy(t.Context(), g)
		waits, left := make(chan struct{}), make(chan struct{})
		go func() {
			inside.OutOfTurn(func() { <-waits })
			inside.Leave()
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
		g.Thaw(true)
		<-returned
		comes.Leave()
		wantOpen(t, late, "a handshake began though a successor has the sessions")
		g.wantNobody(t)
	})
}

func TestAwayWithoutVisitCalls(t *testing.T) {
	called := 0
	var v *Visit
	v.Away(func() { called++ })
	v.OutOfTurn(func() { called++ })
	v.Leave()
	if called != 2 {
		t.Errorf("called %d times", called)
	}
}
