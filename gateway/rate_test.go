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

func TestPacedClientDoesNotDelayUpstreamPings(t *testing.T) {
	inSession(t, rated(session.Rate{Messages: 1}), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		for i := range 100 {
			p.Text(fmt.Sprint(i))
		}
		game.Want("0")
		game.PingFrame()
		synctest.Wait()
		for m, ok := game.Come(); ; m, ok = game.Come() {
			if !ok {
				t.Fatal("no Pong before the next message")
			}
			if m.Op == 0xA {
				return
			}
		}
	})
}

func TestByeOfPacedClientComesAfterItsMessages(t *testing.T) {
	inSession(t, rated(session.Rate{Messages: 1}), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		for i := range 20 {
			p.Text(fmt.Sprint(i))
		}
		p.Control("bye")
		for i := range 20 {
			game.Want(fmt.Sprint(i))
		}
		game.WantClose(1000)
	})
}

func TestFloodEndsSessionIfConfigured(t *testing.T) {
	inSession(t, rated(session.Rate{Messages: 5, End: true}), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		for i := range 6 {
			p.Text(fmt.Sprint(i))
		}
		p.WantClosing(wire.CodeTooFast)
		game.Want("0", "1", "2", "3", "4")
		game.WantClose(1008)
		plain := w.Plain("/")
		w.game.Next()
		for i := range 6 {
			plain.Text(fmt.Sprint(i))
		}
		plain.WantClose(1008)
	})
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
