package gateway_test

import (
	"encoding/json"
	"fmt"
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
	p := testPolicy()
	p.Redial, p.RedialFor = true, 30*time.Second
	return p
}

// wantUpstream fails the test unless the next message but data is `upstream` with that state.
func wantUpstream(t *testing.T, p *wstest.Peer, state string) {
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
	wantUpstream(t, p.Peer, "lost")
}

// What a game server does with a dial, besides answering with a status.
const (
	accepts = 0
	closes  = -1
)

// redialWorld is newWorld with a game server that does as told with each dial.
func redialWorld(t *testing.T, p policy.Policy) (*world, *atomic.Int64) {
	t.Helper()
	w := newWorld(t, p)
	does := new(atomic.Int64)
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
	return w, does
}

func epochOf(t *testing.T, r *http.Request) int {
	t.Helper()
	n, err := strconv.Atoi(r.Header.Get("Reseat-Epoch"))
	if err != nil {
		t.Fatalf("Reseat-Epoch: %v", err)
	}
	return n
}

func TestLostUpstreamIsRedialledWhilePlayerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, does := redialWorld(t, redials())
		p, game := w.play()
		game.Text("before")
		game.Raw([]byte{0x01, 3, 'h', 'a', 'l'}) // the first fragment of a message that has no end
		p.Want("before")
		p.Pass(game, "taken")
		p.Sync()
		does.Store(closes)
		wantLoss(t, p, game)
		p.Text("meanwhile")
		p.Sync()
		time.Sleep(10 * time.Second)
		w.wantState(p, session.Attached)
		does.Store(accepts)
		again := w.game.Next()
		wantUpstream(t, p.Peer, "back")
		again.Want("meanwhile")
		goesOn(again, p)
		r := again.Req
		if r.Header.Get("Reseat-Resumed") != "upstream" || r.Header.Get("Reseat-Session") != p.Hello.Session || r.URL.String() != "/match/7" {
			t.Errorf("redial with %v for %v", r.Header, r.URL)
		}
		if first, next := epochOf(t, game.Req), epochOf(t, r); first != 1 || next <= first {
			t.Errorf("epochs %d and %d", first, next)
		}
	})
}

// 1001 and 1012 say that the server goes away; any other code is the game's own end.
func TestOnlyGoingAwayAndServiceRestartAreRedialled(t *testing.T) {
	for code, redialled := range map[int]bool{1001: true, 1012: true, 1000: false, 1011: false, 4000: false} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			inSession(t, redials(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				game.Text("last words")
				game.Close(code, "bye")
				p.Want("last words")
				if !redialled {
					p.WantControl(wire.VerbEnd)
					p.WantClose(code)
					p.Close(code, "")
					synctest.Wait()
					w.wantNoDial()
					return
				}
				wantUpstream(t, p.Peer, "lost")
				game.WantClose(code) // its Close frame is answered
				again := w.game.Next()
				wantUpstream(t, p.Peer, "back")
				again.Pass(p, "here again")
			})
		})
	}
}

// A server that sends what is forbidden would do so again.
func TestForbiddenFrameIsNotRedialled(t *testing.T) {
	inSession(t, redials(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Raw([]byte{0xf1, 0})
		p.WantFinal(wire.CodeUpstreamLost)
	})
}

func TestUpstreamNotBackInTimeIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, does := redialWorld(t, redials())
		p, game := w.play()
		p.Sync()
		does.Store(503)
		game.Text("kept")
		synctest.Wait()
		game.Drop()
		p.Want("kept")
		wantUpstream(t, p.Peer, "lost")
		began := time.Now()
		p.WantFinal(wire.CodeUpstreamLost)
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("lost after %v, want --redial-for", took)
		}
	})
}

// The time is over while nobody is there: a client that comes back is told, after the rest.
func TestReturningClientHearsThatUpstreamIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := redials()
		policy.Grace = 5 * time.Minute
		w, does := redialWorld(t, policy)
		p, game := w.play()
		w.detach(p)
		game.Text("missed")
		synctest.Wait()
		does.Store(closes)
		game.Drop()
		time.Sleep(time.Minute)
		w.wantState(p, session.Detached)
		p = p.Resume(0)
		p.Want("missed")
		p.WantClosing(wire.CodeUpstreamLost)
	})
}

// A client hears of an outage once, though it resumes in it.
func TestResumeDuringOutageGetsHelloAndNoFurtherLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, does := redialWorld(t, redials())
		p, game := w.play()
		p.Sync()
		does.Store(closes)
		wantLoss(t, p, game)
		p.Text("one")
		w.detach(p)
		p = p.Resume(0)
		if p.Hello.Received != 1 {
			t.Errorf("received %d, want 1", p.Hello.Received)
		}
		p.Text("two")
		p.Sync()
		does.Store(accepts)
		again := w.game.Next()
		wantUpstream(t, p.Peer, "back")
		again.Want("one", "two")
	})
}

// A client that has heard of the outage, and was away when it ended, hears that it is over.
func TestResumeAfterOutageHearsThatItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, does := redialWorld(t, redials())
		p, game := w.play()
		p.Sync()
		does.Store(closes)
		wantLoss(t, p, game)
		p.Sync() // its pong says that it has heard
		p.Drop()
		does.Store(accepts)
		again := w.game.Next()
		synctest.Wait()
		p = p.Resume(0)
		wantUpstream(t, p.Peer, "back")
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
	synctest.Test(t, func(t *testing.T) {
		policy := redials()
		policy.Notices = session.Notices{Detach: "away", Resume: "here"}
		w := newWorld(t, policy)
		p, game := w.play()
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

func TestByeDuringOutageIsAnsweredAndEndsDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, does := redialWorld(t, redials())
		p, game := w.play()
		p.Sync()
		does.Store(closes)
		wantLoss(t, p, game)
		p.Text("never taken")
		p.Control(`bye {"code":1000,"reason":"done"}`)
		p.WantClose(1000)
		does.Store(accepts)
		time.Sleep(time.Minute)
		w.wantNoDial()
	})
}

func TestRefusedRedialIsFinalExceptForBusyServers(t *testing.T) {
	for status, final := range map[int]bool{400: true, 404: true, 428: true, 429: false, 430: true, 499: true, 500: false, 503: false, 302: false} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, does := redialWorld(t, redials())
				p, game := w.play()
				p.Sync()
				does.Store(int64(status))
				game.Drop()
				wantUpstream(t, p.Peer, "lost")
				time.Sleep(5 * time.Second)
				if final {
					p.WantClosing(wire.CodeUpstreamLost)
					return
				}
				w.wantState(p, session.Attached)
				does.Store(accepts)
				w.game.Next()
				wantUpstream(t, p.Peer, "back")
			})
		})
	}
}

func TestRedialRefusesOtherSubprotocol(t *testing.T) {
	inWorld(t, redials(), func(t *testing.T, w *world) {
		w.game.Choose = "chat.v1"
		p := w.Player("/", "chat.v2", "chat.v1")
		game := w.game.Next()
		p.Sync()
		w.game.Choose = "chat.v2"
		wantLoss(t, p, game)
		p.WantClosing(wire.CodeUpstreamLost)
	})
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
			t.Errorf("lost after %v", took)
		}
		if dials < 10 || dials > 60 {
			t.Errorf("%d dials in 30 s", dials)
		}
	})
}

func TestTimeBeginsAnewAfterLivingConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, does := redialWorld(t, redials())
		p, game := w.play()
		p.Sync()
		for range 4 {
			does.Store(closes)
			wantLoss(t, p, game)
			time.Sleep(20 * time.Second)
			does.Store(accepts)
			game = w.game.Next()
			wantUpstream(t, p.Peer, "back")
			time.Sleep(11 * time.Second)
		}
		w.wantState(p, session.Attached)
	})
}

// With --disconnect hard a session without a client has no upstream: nothing is dialled
// until the resume, and that is a hard one.
func TestHardDetachEndsOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := redials()
		policy.Hard = true
		w, does := redialWorld(t, policy)
		p, game := w.play()
		p.Sync()
		does.Store(closes)
		wantLoss(t, p, game)
		p.Text("waits")
		w.detach(p)
		does.Store(accepts)
		time.Sleep(10 * time.Second)
		w.wantNoDial()
		p.Resume(0)
		again := w.game.Next()
		if got := again.Req.Header.Get("Reseat-Resumed"); got != "hard" {
			t.Errorf("Reseat-Resumed %q", got)
		}
		again.Want("waits")
	})
}

// A plain client sees the loss as on a direct connection.
func TestPlainClientIsNotRedialledFor(t *testing.T) {
	inWorld(t, redials(), func(t *testing.T, w *world) {
		p, game := w.plain()
		if e := game.Req.Header.Get("Reseat-Epoch"); e != "" {
			t.Errorf("Reseat-Epoch %q", e)
		}
		game.Drop()
		p.WantEnd()
		time.Sleep(time.Minute)
		w.wantNoDial()
	})
}

func TestMessageWrittenInPartGoesToNextUpstreamWhole(t *testing.T) {
	inSession(t, redials(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Hold(true)
		big := strings.Repeat("x", 50<<10)
		for range 3 { // the second one fits in part
			p.Text(big)
		}
		p.Sync()
		synctest.Wait()
		wantLoss(t, p, game)
		again := w.game.Next()
		again.Want(big, big)
		wantUpstream(t, p.Peer, "back")
		p.Pass(again, "new")
	})
}

// The headers may hold what the login has renewed since.
func TestRedialSendsHeadersOfNewestHandshake(t *testing.T) {
	inSession(t, redials(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		offer := []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}
		c, _, _, err := w.Handshake("/elsewhere", offer, "Cookie: sid=new\r\n")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		game.Drop()
		again := w.game.Next()
		if got := again.Req.Header.Get("Cookie"); got != "sid=new" || again.Req.URL.String() != "/match/7" {
			t.Errorf("cookie %q at %v", got, again.Req.URL)
		}
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
		wantUpstream(t, p.Peer, "lost")
		for range 3 {
			w.game.Next().WantClose(1001)
		}
		again := w.game.Next()
		p.Pass(again, "on")
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
