package gateway_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func TestResumeTakesOverAnAttachedSession(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		old, game := w.play()
		now := old.Resume(0)
		old.WantClosing(wire.CodeSuperseded)
		old.WantEnd()
		game.Pass(now, "s1")
		w.wantNoDial()
	})
}

func TestTakeoverOfHalfOpenConnectionIsImmediate(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		old, game := w.play()
		old.Conn.Silence()
		for i := range 200 { // accepted by a dead connection, or stuck before it
			game.Text(fmt.Sprint(i, strings.Repeat("x", 2000)))
		}
		began := time.Now()
		p := old.Resume(0)
		if d := time.Since(began); d > 0 {
			t.Fatalf("the takeover took %v", d)
		}
		for i := range 200 {
			p.Want(fmt.Sprint(i, strings.Repeat("x", 2000)))
		}
	})
}

// TestStaleEventsOfReplacedConnectionAreIgnored sends each late event of an older connection
// after the new hello.
func TestStaleEventsOfReplacedConnectionAreIgnored(t *testing.T) {
	for name, late := range map[string]func(old *wstest.Player){
		"message":     func(old *wstest.Player) { old.Text("late") },
		"ack":         func(old *wstest.Player) { old.Ack(2) },
		"bye":         func(old *wstest.Player) { old.Control("bye") },
		"bad control": func(old *wstest.Player) { old.Control("BAD") },
		"bad frame":   func(old *wstest.Player) { old.Raw([]byte{0xff, 0xff}) },
		"Close":       func(old *wstest.Player) { old.Close(4000, "") },
		"reset":       func(old *wstest.Player) { old.Drop() },
		"half":        func(old *wstest.Player) { old.Frame(frame.Text, false, "half") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, testPolicy(), func(t *testing.T, w *world) {
				old, game := w.play()
				game.Pass(old, "s1", "s2")
				p := old.Resume(0)
				late(old)
				time.Sleep(40 * time.Second)
				w.wantState(p, session.Attached)
				p.Want("s1", "s2")
				if i, _ := w.gw.Session(p.Hello.Session); i.Acked != 0 || i.Received != 0 {
					t.Fatalf("acked %d, received %d; want 0 and 0", i.Acked, i.Received)
				}
				p.Pass(game, "c1")
			})
		})
	}
}

func TestOldGenerationsAreValidUntilNewerOneIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, _ := newDetached(t, testPolicy())
		first := p.Hello.Token
		for range 10 { // unread hellos
			q := p.TryResume(first, "0")
			synctest.Wait()
			q.Drop()
			synctest.Wait()
		}
		p = p.Resume(0)
		p.Ack(0) // confirms the newest
		w.detach(p)
		p.TryResume(first, "0").WantClosing(wire.CodeBadToken)
		p = p.Resume(0)
		w.wantState(p, session.Attached)
	})
}

func TestResumeConfirmsItsGeneration(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		a, _ := w.play()
		b := a.Resume(0) // with generation 1
		c := b.Resume(0) // with generation 2, which supersedes 1
		a.TryResume(a.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		w.wantState(c, session.Attached)
	})
}

func TestExactlyOneOfManyConcurrentResumesEndsAttached(t *testing.T) {
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			w, p, game := newDetached(t, testPolicy())
			w.wantState(p, session.Detached)
			const racers = 16
			peers := make(chan *wstest.Peer, racers)
			for range racers {
				go func() { peers <- p.TryResume(p.Hello.Token, "0") }()
			}
			time.Sleep(time.Second)
			attached := 0
			for range racers {
				attached += stillOpen(t, <-peers)
			}
			if attached != 1 {
				t.Fatalf("round %d: %d connections are attached, want 1", round, attached)
			}
			w.wantNoDial()
			game.WantNothing(0)
		})
	}
}

// stillOpen reads what has arrived and returns 1 unless it ended with a Close, which must be
// one of those that a race may cause.
func stillOpen(t *testing.T, p *wstest.Peer) int {
	for {
		m, ok := tryNext(p)
		switch {
		case !ok:
			return 1
		case m.Op == frame.Close:
			if m.Code != wire.CodeSuperseded && m.Code != wire.CodeBadToken {
				t.Fatalf("the loser of a race got %v", m)
			}
			return 0
		}
	}
}

func tryNext(p *wstest.Peer) (wstest.Message, bool) {
	got := make(chan wstest.Message, 1)
	go func() {
		if m, ok := p.Next(); ok {
			got <- m
		}
	}()
	synctest.Wait()
	select {
	case m := <-got:
		return m, true
	default:
		return wstest.Message{}, false
	}
}

func TestMoreThanTwentyTakeoversInTenSecondsAreDelayed(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		for range 20 {
			p = p.Resume(0)
		}
		c := p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeTooFast)
		if !c.Retry || c.RetryAfter < 1 || c.RetryAfter > 10000 {
			t.Fatalf("close %+v, want retry within 10 s", c)
		}
		w.wantState(p, session.Attached)
		time.Sleep(time.Duration(c.RetryAfter) * time.Millisecond)
		p = p.Resume(0)
		w.wantState(p, session.Attached)
	})
}

func TestResumesOfDetachedSessionsAreNotLimited(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		for range 100 {
			w.detach(p)
			p = p.Resume(0)
		}
	})
}

func TestMessageThatAlwaysKillsItsClientEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, game := newDetached(t, testPolicy())
		game.Text("poison")
		for i := range 5 {
			p = p.Resume(0)
			p.Ack(0)
			p.Want("poison")
			time.Sleep(3 * time.Second)
			if i < 4 {
				p.Drop()
				w.wantState(p, session.Detached)
			}
		}
		p.Drop()
		game.WantClose(wire.CodeGoingAway)
		c := p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeEnded)
		if c.Reason != "no progress" {
			t.Fatalf("reason %q", c.Reason)
		}
	})
}

func TestFutileResumesWithinTenSecondsAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, game := newDetached(t, testPolicy())
		game.Text("poison")
		for range 8 {
			p = p.Resume(0)
			p.Ack(0)
			p.Want("poison")
			time.Sleep(time.Second)
			p.Drop()
			w.wantState(p, session.Detached)
		}
		p = p.Resume(0)
		p.Want("poison")
		p.Ack(1) // progress: the count restarts
		p.Sync()
		for range 4 {
			p.Drop()
			w.wantState(p, session.Detached)
			p = p.Resume(1)
			time.Sleep(5 * time.Second)
		}
		w.wantState(p, session.Attached)
	})
}

// A client that never acks, but receives one message more each time, makes progress: its
// received says so.
func TestResumesThatMakeProgressAreNotFutile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, game := newDetached(t, testPolicy())
		for i := range 20 {
			game.Text(strconv.Itoa(i))
		}
		for i := range uint64(12) {
			w.wantState(p, session.Detached)
			p = p.Resume(i)
			p.Ack(i)
			p.Want(strconv.Itoa(int(i)))
			time.Sleep(3 * time.Second)
			p.Drop()
		}
		w.wantState(p, session.Detached)
	})
}

func TestMessageFinishedOnReplacedConnectionCountsAsSent(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		big := strings.Repeat("x", 200<<10) // more than the connection accepts
		p.Hold(true)
		game.Text(big)
		synctest.Wait()
		q := p.TryResume(p.Hello.Token, "0") // takes over, and disconnects before it reads its hello
		synctest.Wait()
		q.Drop()
		p.Hold(false)
		p.Want(big)
		synctest.Wait()
		p = p.Resume(1)
		if p.Hello.Replay != 0 {
			t.Fatalf("replay %d, want 0", p.Hello.Replay)
		}
	})
}

func TestMessagesWrittenToSlowUpstreamAreAcked(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		stall, p := stalledGame(t, w)
		for range 40 {
			p.Text(strings.Repeat("x", 16<<10))
		}
		synctest.Wait()
		go func() { // 16 KiB a second
			b := make([]byte, 1<<10)
			for {
				if _, err := stall.conn.Read(b); err != nil {
					return
				}
				time.Sleep(time.Second / 16)
			}
		}()
		time.Sleep(20 * time.Second)
		acked := ""
		for {
			m, ok := tryNext(p.Peer)
			if !ok {
				break
			}
			if m.Verb == wire.VerbAck {
				acked = m.Data
			}
		}
		if i, _ := w.gw.Session(p.Hello.Session); acked == "" || fmt.Sprint(i.Written) != acked && fmt.Sprint(i.Written-1) != acked {
			t.Fatalf("written %d, and acked only %q", i.Written, acked)
		}
	})
}
