package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// redials is the policy of --upstream-lost redial.
func redials() policy.Policy {
	return changed(testPolicy(), func(p *policy.Policy) { p.Redial, p.RedialFor = true, 30*time.Second })
}

// wantUpstream fails the test unless the next message but data is `upstream` with that state.
func wantUpstream(t *testing.T, p *wstest.Player, state string) {
	t.Helper()
	var got wire.Upstream
	if err := json.Unmarshal([]byte(p.WantControl(wire.VerbUpstream).Data), &got); err != nil || got.State != state {
		t.Fatalf("upstream %+v, %v, want %s", got, err, state)
	}
}

// wantLoss breaks the game server's connection, and fails the test unless the client hears of it.
func wantLoss(t *testing.T, p *wstest.Player, game *wstest.Peer) {
	t.Helper()
	game.Drop()
	wantUpstream(t, p, "lost")
}

// wantBack returns the game server's next connection, and fails the test unless the client hears of it.
func (w *world) wantBack(p *wstest.Player) *wstest.Peer {
	w.t.Helper()
	game := w.game.Next()
	wantUpstream(w.t, p, "back")
	return game
}

// An outage is a session whose game server answers each dial as the test asks: it answers with
// a status, or does one of these.
type outage struct {
	*world
	does *atomic.Int64
}

const (
	accepts = 0
	closes  = -1
)

// inOutage runs f with a session whose game server accepts its first dial, and then does what the test asks. Everything
// that was said before has been processed.
func inOutage(t *testing.T, p policy.Policy, then int64, f func(*testing.T, outage, *wstest.Player, *wstest.Peer)) {
	t.Helper()
	inSession(t, p, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		does := new(atomic.Int64)
		does.Store(then)
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			switch n := does.Load(); n {
			case accepts:
				return false
			case closes:
			default:
				fmt.Fprintf(c, "HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n", n)
			}
			c.Close()
			return true
		}
		f(t, outage{w, does}, p, game)
	})
}

func TestLostUpstreamIsRedialledWhilePlayerStays(t *testing.T) {
	inOutage(t, redials(), closes, func(t *testing.T, w outage, p *wstest.Player, game *wstest.Peer) {
		game.Pass(p, "before")
		game.Raw([]byte{0x01, 3, 'h', 'a', 'l'}) // the first fragment of a message that has no end
		p.Pass(game, "taken")
		p.Sync()
		wantLoss(t, p, game)
		p.Text("meanwhile")
		p.Sync()
		time.Sleep(10 * time.Second)
		w.wantState(p, session.Attached)
		w.does.Store(accepts)
		again := w.wantBack(p)
		again.Want("meanwhile")
		goesOn(p, again)
		r := again.Req
		wstest.Equal(t, "Reseat-Resumed", r.Header.Get("Reseat-Resumed"), "upstream")
		wstest.Equal(t, "Reseat-Session", r.Header.Get("Reseat-Session"), p.Hello.Session)
		wstest.Equal(t, "path", r.URL.String(), "/match/7")
		wstest.Equal(t, "first epoch", game.Req.Header.Get("Reseat-Epoch"), "1")
		if next, err := strconv.Atoi(r.Header.Get("Reseat-Epoch")); err != nil || next <= 1 {
			t.Errorf("next epoch %d, %v, want a higher one", next, err)
		}
	})
}

func TestUpstreamNotBackInTimeIsLost(t *testing.T) {
	inOutage(t, redials(), 503, func(t *testing.T, w outage, p *wstest.Player, game *wstest.Peer) {
		game.Text("kept")
		synctest.Wait()
		game.Drop()
		p.Want("kept")
		wantUpstream(t, p, "lost")
		began := time.Now()
		p.WantFinal(wire.CodeUpstreamLost)
		wstest.Equal(t, "lost after", time.Since(began), 30*time.Second)
	})
}

// A client hears once of an outage, though it resumes in it, and once that it is over, though it was away then.
func TestResumesHearOfOutageOnceEachWay(t *testing.T) {
	inOutage(t, redials(), closes, func(t *testing.T, w outage, p *wstest.Player, game *wstest.Peer) {
		wantLoss(t, p, game)
		p.Text("one")
		w.detach(p) // its pong says that it has heard
		p = p.Resume(0)
		wstest.Equal(t, "received", p.Hello.Received, 1)
		p.Text("two")
		w.detach(p)
		w.does.Store(accepts)
		again := w.game.Next()
		again.Want("one", "two")
		p = p.Resume(0)
		wantUpstream(t, p, "back")
		w.detach(p)
		p = p.Resume(0)
		p.Pass(again, "on")
		p.Sync()
		for m, ok := p.Come(); ok; m, ok = p.Come() {
			if m.Verb == wire.VerbUpstream {
				t.Errorf("the client hears %s again", m.Data)
			}
		}
	})
}

// While the client is away the session keeps its game server, too.
func TestUpstreamIsRedialledWhileClientIsAway(t *testing.T) {
	notices := changed(redials(), func(p *policy.Policy) { p.Notices = session.Notices{Detach: "away", Resume: "here"} })
	inSession(t, notices, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		w.detach(p)
		game.Want("away")
		game.Drop()
		again := w.game.Next()
		again.Want("away") // it cannot know that otherwise
		again.Text("missed")
		p = p.Resume(0)
		p.Want("missed")
		again.Want("here")
	})
}

func TestRefusedRedialIsFinalExceptForBusyServers(t *testing.T) {
	for status, final := range map[int64]bool{400: true, 404: true, 428: true, 429: false, 430: true, 499: true, 500: false, 503: false, 302: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			inOutage(t, redials(), status, func(t *testing.T, w outage, p *wstest.Player, game *wstest.Peer) {
				wantLoss(t, p, game)
				time.Sleep(5 * time.Second)
				if final {
					p.WantClosing(wire.CodeUpstreamLost)
					return
				}
				w.wantState(p, session.Attached)
				w.does.Store(accepts)
				w.wantBack(p)
			})
		})
	}
}

// An upstream that answers and breaks again at once must neither be dialled without a pause
// nor keep its player waiting for ever.
func TestUpstreamThatBreaksAgainGetsNoNewTime(t *testing.T) {
	inSession(t, redials(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		began := time.Now()
		game.Drop()
		dials := 0
		for over := false; !over; time.Sleep(time.Millisecond) {
			for w.game.Joined() > 0 {
				w.game.Next().Drop()
				dials++
			}
			for m, ok := p.Come(); ok; m, ok = p.Come() {
				over = over || m.Verb == wire.VerbClose
			}
		}
		if took := time.Since(began); took < 25*time.Second || took > 30100*time.Millisecond {
			t.Errorf("lost after %v, want 25 to 30 s", took)
		}
		if dials < 10 || dials > 60 {
			t.Errorf("%d dials in 30 s, want 10 to 60", dials)
		}
	})
}

func TestTimeBeginsAnewAfterLivingConnection(t *testing.T) {
	inOutage(t, redials(), closes, func(t *testing.T, w outage, p *wstest.Player, game *wstest.Peer) {
		for range 4 {
			w.does.Store(closes)
			wantLoss(t, p, game)
			time.Sleep(20 * time.Second)
			w.does.Store(accepts)
			game = w.wantBack(p)
			time.Sleep(11 * time.Second)
		}
		w.wantState(p, session.Attached)
	})
}

// With --disconnect hard a session without a client has no upstream: nothing is dialled
// until the resume, and that is a hard one.
func TestHardDetachEndsOutage(t *testing.T) {
	both := changed(redials(), func(p *policy.Policy) { p.Hard = true })
	inOutage(t, both, closes, func(t *testing.T, w outage, p *wstest.Player, game *wstest.Peer) {
		wantLoss(t, p, game)
		p.Text("waits")
		w.detach(p)
		w.does.Store(accepts)
		time.Sleep(10 * time.Second)
		w.wantNoDial()
		p.Resume(0)
		again := w.game.Next()
		wstest.Equal(t, "Reseat-Resumed", again.Req.Header.Get("Reseat-Resumed"), "hard")
		again.Want("waits")
	})
}

// A dial may hang while a hard detach ends its outage, and until the next outage: its request had older numbers.
func TestDialOfEndedOutageCountsForNothing(t *testing.T) {
	both := changed(redials(), func(p *policy.Policy) { p.Hard = true })
	for name, status := range map[string]int{"answered": 101, "refused": 403} {
		t.Run(name, func(t *testing.T) {
			inSession(t, both, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				p.Sync()
				var dials atomic.Int64
				hangs, given := make(chan struct{}), make(chan struct{})
				w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
					if dials.Add(1) > 1 {
						return false
					}
					go func() {
						io.Copy(io.Discard, c)
						close(given)
					}()
					<-hangs
					if status != 101 {
						fmt.Fprintf(c, "HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n", status)
						c.Close()
					}
					return status != 101
				}
				wantLoss(t, p, game)
				time.Sleep(time.Second)
				w.detach(p)
				began := time.Now()
				p = p.Resume(0)
				game = w.game.Next()
				if <-given; time.Since(began) > time.Second {
					t.Errorf("the dial of the ended outage goes on for %v", time.Since(began))
				}
				wantUpstream(t, p, "back")
				wantLoss(t, p, game)
				close(hangs)
				if status == 101 {
					w.game.Next().WantEnd()
				}
				goesOn(p, w.wantBack(p))
				wstest.Equal(t, "dials", dials.Load(), 3)
			})
		})
	}
}

// The headers may hold what the login has renewed since.
func TestRedialSendsHeadersOfNewestHandshake(t *testing.T) {
	inSession(t, redials(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		c, _, _, err := w.Handshake("/elsewhere", resumeOffer(p), "Cookie: sid=new\r\n")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		game.Drop()
		again := w.game.Next().Req
		wstest.Equal(t, "cookie", again.Header.Get("Cookie"), "sid=new")
		wstest.Equal(t, "path", again.URL.String(), "/match/7")
	})
}

// The Close frame may come in the packet of the handshake response: the next outage begins
// while the dial that ended the last one is still under way.
func TestUpstreamThatGoesAwayWithItsHandshakeIsRedialled(t *testing.T) {
	inWorld(t, redials(), func(t *testing.T, w *world) {
		w.game.Early = append(frame.Append(nil, frame.Text, []byte("hi")), frame.Append(nil, frame.Close, frame.ClosePayload(1001, ""))...)
		dials := 0
		w.game.Refuse = func(net.Conn, *http.Request) bool {
			if dials++; dials > 4 {
				w.game.Early = nil
			}
			return false
		}
		p, game := w.play()
		game.WantClose(1001)
		p.Want("hi")
		wantUpstream(t, p, "lost")
		for range 3 {
			w.game.Next().WantClose(1001)
		}
		p.Pass(w.game.Next(), "on")
		synctest.Wait()
		state, hi := "lost", 1
		for m, ok := p.Come(); ok; m, ok = p.Come() {
			switch {
			case m.Data == "hi":
				hi++
			case m.Verb == wire.VerbUpstream && strings.Contains(m.Data, state):
				t.Errorf("%q twice in a row", state)
			case m.Verb == wire.VerbUpstream:
				state = map[string]string{"lost": "back", "back": "lost"}[state]
			}
		}
		if state != "back" || hi != 4 {
			t.Errorf("the upstream is %s, %d messages, want it back and 4", state, hi)
		}
	})
}
