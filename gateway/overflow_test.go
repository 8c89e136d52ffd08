package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func numbered(from, to int) []string {
	var list []string
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprint("s", i))
	}
	return list
}

func sendAll(p *wstest.Peer, texts []string) {
	for _, s := range texts {
		p.Text(s)
	}
}

func small(o session.Overflow) policy.Policy {
	p := testPolicy()
	p.BufferMessages, p.Overflow = 10, o
	return p
}

func TestOverflowEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, game := newDetached(t, small(session.EndSession))
		w.wantState(p, session.Detached)
		sendAll(game, numbered(1, 10))
		w.wantState(p, session.Detached)
		game.Text("s11")
		game.WantClose(wire.CodeTryAgainLater)
		w.wantState(p, session.Ended)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeWindowExceeded)
	})
}

func TestSlowClientPausesTheUpstreamWhateverThePolicy(t *testing.T) {
	for _, o := range []session.Overflow{session.Pause, session.DropOldest, session.EndSession} {
		t.Run(o.String(), func(t *testing.T) {
			inSession(t, small(o), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				sendAll(game, numbered(1, 30)) // the client acks nothing
				p.Want(numbered(1, 10)...)
				began := time.Now()
				p.WantControl(wire.VerbPing) // after all messages that it requests an ack of
				if d := time.Since(began); d > time.Second {
					t.Errorf("the ping came after %v", d)
				}
				p.WantNothing(10 * time.Second)
				p.Ack(10)
				p.Want(numbered(11, 20)...)
				p.Ack(20)
				p.Want(numbered(21, 30)...)
			})
		})
	}
}

func TestBufferBytesBoundsWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.BufferBytes = 1000
		w, p, game := newDetached(t, pol)
		w.wantState(p, session.Detached)
		for range 30 {
			game.Text(strings.Repeat("x", 300))
		}
		synctest.Wait()
		if i, _ := w.gw.Session(p.Hello.Session); i.BufferBytes != 900 || i.BufferMessages != 3 {
			t.Fatalf("%d bytes in %d messages kept, want 900 in 3", i.BufferBytes, i.BufferMessages)
		}
	})
}

func rated(r session.Rate) policy.Policy {
	p := testPolicy()
	p.Rate = r
	return p
}

// A client that sends too fast is paced: all messages arrive, in order, at the limited rate,
// and are acked as they are passed on.
func TestFastClientIsPaced(t *testing.T) {
	for name, c := range map[string]struct {
		rate session.Rate
		size int
	}{
		"messages": {session.Rate{Messages: 10}, 1},
		"bytes":    {session.Rate{Bytes: 1000}, 100},
	} {
		for kind, speaks := range map[string]bool{"resumable": true, "plain": false} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				inWorld(t, rated(c.rate), func(t *testing.T, w *world) {
					var p *wstest.Peer
					if speaks {
						p = w.Player("/").Peer
					} else {
						p = w.Plain("/")
					}
					game := w.game.Next()
					began := time.Now()
					go func() { // 10 at once, then 10 a second
						for i := range 40 {
							p.Text(pad(i, c.size))
						}
					}()
					for i := range 40 {
						game.Want(pad(i, c.size))
						if want := time.Duration(max(i-9, 0)) * 100 * time.Millisecond; time.Since(began).Round(time.Millisecond) != want {
							t.Fatalf("message %d came after %v, want %v", i, time.Since(began), want)
						}
					}
					if speaks {
						if m := p.WantControl(wire.VerbAck); m.Data == "0" {
							t.Errorf("first ack %s", m.Data)
						}
					}
				})
			})
		}
	}
}

func pad(i, size int) string {
	s := fmt.Sprint(i)
	return s + strings.Repeat("x", max(size-len(s), 0))
}

// Messages that a client resends at a resume do not count against its rate.
func TestResumeMayResendAllUnackedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		rate session.Rate
		size int
	}{
		"messages": {session.Rate{Messages: 5, End: true}, 3},
		"bytes":    {session.Rate{Bytes: 2000, End: true}, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, rated(c.rate), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				p.Pass(game, "0")
				w.detach(p)
				p = p.Resume(0)
				for i := range 500 {
					text := fmt.Sprintf("%0*d", c.size, i)
					p.Pass(game, text)
				}
				w.wantState(p, session.Attached)
			})
		})
	}
}
