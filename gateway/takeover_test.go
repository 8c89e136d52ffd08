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
	inSession(t, testPolicy(), func(t *testing.T, w *world, old *wstest.Player, game *wstest.Peer) {
		now := old.Resume(0)
		old.WantClosing(wire.CodeSuperseded)
		old.WantEnd()
		game.Pass(now, "s1")
		w.wantNoDial()
	})
}

func TestTakeoverOfHalfOpenConnectionIsImmediate(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, _ *world, old *wstest.Player, game *wstest.Peer) {
		old.Conn.Silence()
		var said []string
		for i := range 200 { // accepted by a dead connection, or stuck before it
			said = append(said, fmt.Sprint(i, strings.Repeat("x", 2000)))
			game.Text(said[i])
		}
		began := time.Now()
		p := old.Resume(0)
		wstest.Equal(t, "the takeover took", time.Since(began), 0)
		p.Want(said...)
	})
}

// TestStaleEventsOfReplacedConnectionAreIgnored sends each late event of an older connection
// after the new hello.
func TestStaleEventsOfReplacedConnectionAreIgnored(t *testing.T) {
	eachInBubble(t, map[string]func(old *wstest.Player){
		"message":     func(old *wstest.Player) { old.Text("late") },
		"ack":         func(old *wstest.Player) { old.Ack(2) },
		"bye":         func(old *wstest.Player) { old.Control("bye") },
		"bad control": func(old *wstest.Player) { old.Control("BAD") },
		"bad frame":   func(old *wstest.Player) { old.Raw([]byte{0xff, 0xff}) },
		"Close":       func(old *wstest.Player) { old.Close(4000, "") },
		"reset":       func(old *wstest.Player) { old.Drop() },
		"half":        func(old *wstest.Player) { old.Frame(frame.Text, false, "half") },
	}, func(t *testing.T, late func(*wstest.Player)) {
		w := newWorld(t, testPolicy())
		old, game := w.play()
		game.Pass(old, "s1", "s2")
		p := old.Resume(0)
		late(old)
		time.Sleep(40 * time.Second)
		w.wantState(p, session.Attached)
		p.Want("s1", "s2")
		i, _ := w.gw.Session(p.Hello.Session)
		wstest.Equal(t, "acked", i.Acked, 0)
		wstest.Equal(t, "received", i.Received, 0)
		p.Pass(game, "c1")
	})
}

func TestOldGenerationsAreValidUntilNewerOneIsConfirmed(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		w.detach(p)
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
		w.wantState(p.Resume(0), session.Attached)
	})
}

func TestResumeConfirmsItsGeneration(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, a *wstest.Player, _ *wstest.Peer) {
		b := a.Resume(0) // with generation 1
		c := b.Resume(0) // with generation 2, which supersedes 1
		a.TryResume(a.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		c.Sync()
	})
}

func TestExactlyOneOfManyConcurrentResumesEndsAttached(t *testing.T) {
	for range 20 {
		inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
			w.detach(p)
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
			wstest.Equal(t, "attached connections", attached, 1)
			w.wantNoDial()
			game.WantNothing(0)
		})
	}
}

// stillOpen reads what has arrived and returns 1 unless it ended with a Close, which must be
// one of those that a race may cause.
func stillOpen(t *testing.T, p *wstest.Peer) int {
	synctest.Wait()
	for m, ok := p.Come(); ok; m, ok = p.Come() {
		if m.Op != frame.Close {
			continue
		}
		if m.Code != wire.CodeSuperseded && m.Code != wire.CodeBadToken {
			t.Errorf("the loser of a race got %v, want Close %d or %d", m, wire.CodeSuperseded, wire.CodeBadToken)
		}
		return 0
	}
	return 1
}

func TestMoreThanTwentyTakeoversInTenSecondsAreDelayed(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		for range 20 {
			p = p.Resume(0)
		}
		c := p.TryResume(p.Hello.Token, "0").WantRetry(wire.CodeTooFast)
		if c.RetryAfter > 10000 {
			t.Fatalf("close %+v, want retry within 10 s", c)
		}
		w.wantState(p, session.Attached)
		time.Sleep(time.Duration(c.RetryAfter) * time.Millisecond)
		p = p.Resume(0)
		for range 100 { // resumes of a detached session are not limited
			w.detach(p)
			p = p.Resume(0)
		}
	})
}

// Each resume gets so far, and disconnects after a while.
func TestFutileResumes(t *testing.T) {
	for name, c := range map[string]struct {
		resumes  int
		stays    time.Duration
		progress bool // it acks one message more each time, or its received says so
		ends     bool
	}{
		"a message always kills its client":    {5, 3 * time.Second, false, true},
		"one resume fewer":                     {4, 3 * time.Second, false, false},
		"within ten seconds":                   {8, time.Second, false, false},
		"received grows, and nothing is acked": {12, 3 * time.Second, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				w.detach(p)
				for i := range 20 {
					game.Text(strconv.Itoa(i))
				}
				received := uint64(0)
				for i := range c.resumes {
					p = p.Resume(received)
					p.Ack(received)
					p.Want(strconv.Itoa(int(received)))
					if c.progress {
						received++
					}
					time.Sleep(c.stays)
					p.Drop()
					if i < c.resumes-1 {
						w.wantState(p, session.Detached)
					}
				}
				if !c.ends {
					w.wantState(p, session.Detached)
					return
				}
				game.WantClose(wire.CodeGoingAway)
				wstest.Equal(t, "reason", p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeEnded).Reason, "no progress")
			})
		})
	}
}

func TestProgressRestartsTheCountOfFutileResumes(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		w.detach(p)
		game.Text("poison")
		for range 4 {
			p = p.Resume(0)
			p.Ack(0)
			p.Want("poison")
			time.Sleep(3 * time.Second)
			p.Drop()
			w.wantState(p, session.Detached)
		}
		p = p.Resume(0)
		p.Want("poison")
		p.Ack(1)
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

func TestMessageFinishedOnReplacedConnectionCountsAsSent(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, _ *world, p *wstest.Player, game *wstest.Peer) {
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
		wstest.Equal(t, "replay", p.Resume(1).Hello.Replay, 0)
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
		synctest.Wait()
		acked := ""
		for m, ok := p.Come(); ok; m, ok = p.Come() {
			if m.Verb == wire.VerbAck {
				acked = m.Data
			}
		}
		if i, _ := w.gw.Session(p.Hello.Session); acked == "" || fmt.Sprint(i.Written) != acked && fmt.Sprint(i.Written-1) != acked {
			t.Fatalf("written %d, and acked only %q", i.Written, acked)
		}
	})
}
