package gateway_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/control"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func hard() policy.Policy {
	return changed(testPolicy(), func(p *policy.Policy) { p.Hard = true })
}

// leaveHard disconnects p, and checks that its upstream is closed.
func (w *world) leaveHard(p *wstest.Player, game *wstest.Peer) {
	w.t.Helper()
	w.detach(p)
	game.WantReason(wire.CodeGoingAway, "disconnected")
}

// detachedHard returns a session whose client and upstream have both disconnected.
func (w *world) detachedHard() *wstest.Player {
	w.t.Helper()
	p, game := w.play()
	w.leaveHard(p, game)
	return p
}

// inDetachedHard is inWorld with a session whose client and upstream have both disconnected.
func inDetachedHard(t *testing.T, f func(*testing.T, *world, *wstest.Player), change ...func(*gateway.Config)) {
	t.Helper()
	inWorld(t, hard(), func(t *testing.T, w *world) { f(t, w, w.detachedHard()) }, change...)
}

// after is for Game.Refuse: each dial is answered after d.
func after(d time.Duration) func(net.Conn, *http.Request) bool {
	return func(net.Conn, *http.Request) bool {
		time.Sleep(d)
		return false
	}
}

// afterEightSeconds is for Game.Refuse: each dial is answered after 8 s.
func afterEightSeconds(c net.Conn, r *http.Request) bool { return after(8*time.Second)(c, r) }

func refuseDials(c net.Conn, _ *http.Request) bool { c.Close(); return true }

// resumeOffer are the subprotocols of a resume of p that has received nothing.
func resumeOffer(p *wstest.Player) []string {
	return []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}
}

func TestHardDisconnectClosesUpstreamAndResumeDialsAgain(t *testing.T) {
	inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Pass(p, "s1", "s2")
		p.Ack(1)
		p.Pass(game, "c1")
		game.Raw([]byte{0x01, 3, 'h', 'a', 'l'}) // the first fragment of a message that has no end
		w.leaveHard(p, game)
		game.Text("too late")
		game.Close(wire.CodeGoingAway, "")
		time.Sleep(29 * time.Second)
		p = p.Resume(1)
		again := w.game.Next()
		wstest.Equal(t, "Reseat-Session", again.Req.Header.Get("Reseat-Session"), p.Hello.Session)
		wstest.Equal(t, "Reseat-Resumed", again.Req.Header.Get("Reseat-Resumed"), "hard")
		wstest.Equal(t, "Reseat-Resumed at first", game.Req.Header.Get("Reseat-Resumed"), "")
		wstest.Equal(t, "path", again.Req.URL.String(), "/match/7")
		wstest.Equal(t, "replay", p.Hello.Replay, 1)
		wstest.Equal(t, "received", p.Hello.Received, 1)
		p.Want("s2")
		again.Pass(p, "s3")
		p.Ack(3)
		p.Pass(again, "c2")
	})
}

func TestHardResumeWithUnreachableUpstreamIsRefusedWithRetry(t *testing.T) {
	inDetachedHard(t, func(t *testing.T, w *world, p *wstest.Player) {
		time.Sleep(10 * time.Second)
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			time.Sleep(15 * time.Second) // longer than --dial-timeout
			c.Close()
			return true
		}
		c := p.TryResume(p.Hello.Token, "0")
		time.Sleep(5 * time.Second)
		w.wantState(p, session.Connecting)
		if ms := c.WantRetry(wire.CodeUpstreamLost).RetryAfter; ms < 1000 || ms >= 2000 {
			t.Errorf("retry after %d ms, want 1 to 2 s", ms)
		}
		w.game.Refuse = nil
		time.Sleep(20*time.Second - time.Millisecond) // 10 of the 30 s had passed; the dial's time does not count
		w.wantState(p, session.Detached)
		p = p.Resume(0)
		w.game.Next().Pass(p, "there")
	})
}

// The dial of the first of two resumes is queued when the second inherits it: the game
// server gets the headers of the newest handshake.
func TestHardResumeSendsHeadersOfNewestHandshake(t *testing.T) {
	inDetachedHard(t, func(t *testing.T, w *world, p *wstest.Player) {
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			if r.Header.Get("Reseat-Resumed") != "" {
				return false
			}
			time.Sleep(5 * time.Second)
			return refuseDials(c, r)
		}
		for i := range 64 { // the maximum number of concurrent dials
			go w.Handshake("/", []string{wire.Subprotocol}, from(i))
		}
		synctest.Wait()
		for _, cookie := range []string{"old", "new"} {
			if _, _, _, err := w.Handshake("/", resumeOffer(p), "Cookie: sid="+cookie+"\r\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		wstest.Equal(t, "cookie", w.game.Next().Req.Header.Get("Cookie"), "sid=new")
	}, trustProxies)
}

// Path, query and subprotocols are those of the first handshake, whatever the newest one
// has.
func TestHardResumeSendsPathOfFirstHandshake(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		w.game.Choose = "chat.v1"
		p := w.Player("/match/7?seat=3&x=%2F", "chat.v2", "chat.v1")
		w.leaveHard(p, w.game.Next())
		c, err := w.Dial("/elsewhere?seat=4", append([]string{"other"}, resumeOffer(p)...))
		if err != nil {
			t.Fatal(err)
		}
		again := w.game.Next().Req
		wstest.Equal(t, "path", again.URL.String(), "/match/7?seat=3&x=%2F")
		wstest.Equal(t, "subprotocols", again.Header.Get("Sec-WebSocket-Protocol"), "chat.v2, chat.v1")
		c.WantControl(wire.VerbHello)
	})
}

// The client has learned the subprotocol once: if the game server chooses another one, or none, at the
// next dial, the client cannot understand it.
func TestNextUpstreamWithOtherSubprotocolIsRefused(t *testing.T) {
	for name, pol := range map[string]policy.Policy{"hard": hard(), "redial": redials()} {
		for _, c := range [][2]string{{"chat.v1", "chat.v2"}, {"chat.v1", ""}, {"", "chat.v1"}} {
			t.Run(fmt.Sprintf("%s %q then %q", name, c[0], c[1]), func(t *testing.T) {
				inWorld(t, pol, func(t *testing.T, w *world) {
					w.game.Choose = c[0]
					p := w.Player("/", "chat.v2", "chat.v1")
					game := w.game.Next()
					p.Sync()
					w.game.Choose = c[1]
					if !pol.Hard {
						wantLoss(t, p, game)
						p.WantClosing(wire.CodeUpstreamLost)
						return
					}
					w.leaveHard(p, game)
					game.Close(wire.CodeGoingAway, "")
					p.TryResume(p.Hello.Token, "0").WantRetry(wire.CodeUpstreamLost)
					w.game.Next().WantEnd()
					w.wantState(p, session.Detached)
				})
			})
		}
	}
}

func TestHardResumeCancelsDialWhenNobodyWaits(t *testing.T) {
	inDetachedHard(t, func(t *testing.T, w *world, p *wstest.Player) {
		w.game.Refuse = afterEightSeconds
		c := p.TryResume(p.Hello.Token, "0")
		time.Sleep(time.Second)
		w.wantState(p, session.Connecting)
		c.Drop()
		w.wantState(p, session.Detached)
		time.Sleep(30*time.Second - time.Millisecond)
		w.wantState(p, session.Detached)
		time.Sleep(2 * time.Millisecond)
		w.wantState(p, session.Ended)
	})
}

// The end of a session cancels the dial of its new upstream: neither the client nor the game
// server waits for it.
func TestSessionEndCancelsItsDial(t *testing.T) {
	inDetachedHard(t, func(t *testing.T, w *world, p *wstest.Player) {
		var broken time.Time
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			c.Read(make([]byte, 1)) // until the gateway closes it
			broken = time.Now()
			return true
		}
		c := p.TryResume(p.Hello.Token, "0")
		time.Sleep(time.Second)
		began := time.Now()
		wstest.Equal(t, "End", w.gw.Control().End("", p.Hello.Session, 1000, "enough"), control.Done)
		wstest.Equal(t, "reason", c.WantClosing(wire.CodeEnded).Reason, "enough")
		synctest.Wait()
		wstest.Equal(t, "the client waited", time.Since(began), 0)
		wstest.Equal(t, "the dial was cancelled", broken, began)
	})
}

// The attached client disconnects while the token of a resume that would take it over is
// being signed. That closes its upstream too: the resume starts again, and dials. It is older than one that
// waits for the dial by then: it must not replace it, or the client's own later attempt would get the close of a takeover.
func TestHardResumeDialsWhenUpstreamDisconnectsMeanwhile(t *testing.T) {
	for _, later := range []bool{false, true} {
		inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
			p.Sync()
			release := gateway.HoldSigning(w.gw)
			c := p.TryResume(p.Hello.Token, "0")
			synctest.Wait()
			p.Drop()
			game.WantClose(wire.CodeGoingAway)
			w.wantState(p, session.Detached)
			if later {
				w.game.Refuse = after(5 * time.Second)
				time.Sleep(time.Second)
				older := c
				defer older.WantClosing(wire.CodeSuperseded)
				c = p.TryResume(p.Hello.Token, "0")
				synctest.Wait()
			}
			release()
			again := w.game.Next()
			c.WantControl(wire.VerbHello)
			goesOn(c, again)
		})
	}
}

// What a session keeps for later dials is counted. It has no headers: a hard resume sends
// those of the newest handshake.
func TestFirstHandshakesOfHardSessionsCountTowardsBufferTotal(t *testing.T) {
	for _, isHard := range []bool{true, false} {
		inWorld(t, changed(hard(), func(p *policy.Policy) { p.Hard = isHard }), func(t *testing.T, w *world) {
			before := w.gw.Watch().BufferBytes()
			p := w.PlayerWith("/match/7?x="+strings.Repeat("q", 20<<10), "X-Large: "+strings.Repeat("h", 30<<10)+"\r\n")
			w.game.Next()
			p.Sync()
			kept := gateway.KeptOfFirst(w.gw, p.Hello.Session)
			if len(kept.Header) > 0 || kept.Host != "" || (kept.Path == "/match/7") != isHard {
				t.Errorf("hard %t: kept %d headers, host %q, path %q", isHard, len(kept.Header), kept.Host, kept.Path)
			}
			if got := w.gw.Watch().BufferBytes() - before; (got >= 20<<10) != isHard || got > 28<<10 {
				t.Errorf("hard %t: %d bytes more are counted", isHard, got)
			}
			w.gw.Control().End("", p.Hello.Session, 1000, "")
			synctest.Wait()
			p.Drop()
			time.Sleep(10 * time.Second) // both legs are closed
			wstest.Equal(t, "bytes counted after the end", w.gw.Watch().BufferBytes(), before)
		})
	}
}

// What a client may send while it waits for its upstream is limited to the byte.
func TestWaitingClientMaySend64KiBAndNoMore(t *testing.T) {
	for over := range 2 {
		inDetachedHard(t, func(t *testing.T, w *world, p *wstest.Player) {
			w.game.Refuse = afterEightSeconds
			c := p.TryResume(p.Hello.Token, "0")
			const head = 2 + 2 + 4 // a frame with a length of two bytes and the mask
			said := strings.Repeat("x", 64<<10-head+over)
			began := time.Now()
			c.Text(said)
			if over > 0 {
				c.WantRetry(wire.CodeUpstreamLost)
				wstest.Equal(t, "refused after", time.Since(began), 0)
				w.wantState(p, session.Detached)
				return
			}
			c.WantControl(wire.VerbHello)
			w.game.Next().Want(said)
		})
	}
}
