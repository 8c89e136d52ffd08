package gateway_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func hard() policy.Policy {
	p := testPolicy()
	p.Hard = true
	return p
}

// detachedHard returns a session whose client and upstream have both disconnected.
func (w *world) detachedHard() *wstest.Player {
	w.t.Helper()
	p, game := w.play()
	w.detach(p)
	game.WantClose(wire.CodeGoingAway)
	return p
}

// afterEightSeconds is for Game.Refuse: each dial is answered after 8 s.
func afterEightSeconds(net.Conn, *http.Request) bool {
	time.Sleep(8 * time.Second)
	return false
}

func TestHardDisconnectClosesUpstreamAndResumeDialsAgain(t *testing.T) {
	inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Pass(p, "s1", "s2")
		p.Ack(1)
		p.Pass(game, "c1")
		w.detach(p)
		game.WantReason(wire.CodeGoingAway, "disconnected")
		game.Close(wire.CodeGoingAway, "")
		w.wantState(p, session.Detached)
		time.Sleep(29 * time.Second)
		p = p.Resume(1)
		again := w.game.Next()
		if id := again.Req.Header.Get("Reseat-Session"); id != p.Hello.Session {
			t.Errorf("the upstream got session %q, want %q", id, p.Hello.Session)
		}
		if v := again.Req.Header.Get("Reseat-Resumed"); v != "hard" || game.Req.Header.Get("Reseat-Resumed") != "" {
			t.Errorf("Reseat-Resumed %q, at first %q", v, game.Req.Header.Get("Reseat-Resumed"))
		}
		if again.Req.URL.String() != "/match/7" {
			t.Errorf("the upstream was asked for %q, want the first handshake's path", again.Req.URL)
		}
		if p.Hello.Replay != 1 || p.Hello.Received != 1 {
			t.Errorf("hello %+v, want replay 1, received 1", p.Hello)
		}
		p.Want("s2")
		again.Pass(p, "s3")
		p.Ack(3)
		p.Pass(again, "c2")
	})
}

func TestHardDisconnectDiscardsUnfinishedMessageOfOldUpstream(t *testing.T) {
	inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Text("whole")
		game.Raw([]byte{0x01, 3, 'h', 'a', 'l'}) // the first fragment
		p.Want("whole")
		w.detach(p)
		game.WantClose(wire.CodeGoingAway)
		game.Raw([]byte{0x80, 1, 'f'})
		game.Text("too late")
		p = p.Resume(1)
		again := w.game.Next()
		again.Pass(p, "next")
	})
}

func TestHardResumeSendsUnwrittenMessagesToNextUpstream(t *testing.T) {
	inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Hold(true)
		big := strings.Repeat("x", 50<<10)
		for range 4 { // two, and a part of the third, fit into the connection's buffer
			p.Text(big)
		}
		p.Text("last")
		p.Sync()
		synctest.Wait() // the connection's buffer is full
		p.Drop()
		w.wantState(p, session.Detached)
		p = p.Resume(0)
		if p.Hello.Received != 5 {
			t.Fatalf("received %d, want 5", p.Hello.Received)
		}
		again := w.game.Next()
		game.Hold(false)
		synctest.Wait()
		written := 0
		for m, ok := game.Come(); ok && m.Data == big; m, ok = game.Come() {
			written++
		}
		if written == 0 || written > 3 {
			t.Fatalf("the old upstream got %d whole messages", written)
		}
		for range 4 - written {
			again.Want(big)
		}
		again.Want("last")
		p.Pass(again, "new")
	})
}

func TestHardResumeWithUnreachableUpstreamIsRefusedWithRetry(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		p := w.detachedHard()
		time.Sleep(10 * time.Second)
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			time.Sleep(15 * time.Second) // longer than --dial-timeout
			c.Close()
			return true
		}
		c := p.TryResume(p.Hello.Token, "0")
		time.Sleep(5 * time.Second)
		w.wantState(p, session.Connecting)
		closing := c.WantClosing(wire.CodeUpstreamLost)
		if !closing.Retry || closing.RetryAfter < 1000 || closing.RetryAfter >= 2000 {
			t.Errorf("close %+v, want retry after 1 to 2 s", closing)
		}
		w.wantState(p, session.Detached)
		w.game.Refuse = nil
		time.Sleep(20*time.Second - time.Millisecond) // 10 of the 30 s had passed; the dial's time does not count
		w.wantState(p, session.Detached)
		p = p.Resume(0)
		again := w.game.Next()
		again.Pass(p, "there")
	})
}

func TestHardResumeReplacesWaitingResumeAndInheritsItsDial(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		p := w.detachedHard()
		dials := 0
		w.game.Refuse = func(net.Conn, *http.Request) bool {
			dials++
			time.Sleep(5 * time.Second)
			return false
		}
		first := p.TryResume(p.Hello.Token, "0")
		time.Sleep(time.Second)
		second := p.Resume(0)
		first.WantClosing(wire.CodeSuperseded)
		again := w.game.Next()
		again.Pass(second, "hello")
		if dials != 1 {
			t.Errorf("%d dials, want 1", dials)
		}
	})
}

// The dial of the first of two resumes is queued when the second inherits it: the game
// server gets the headers of the newest handshake.
func TestHardResumeSendsHeadersOfNewestHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hard(), trustProxies)
		p := w.detachedHard()
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			if r.Header.Get("Reseat-Resumed") == "" {
				time.Sleep(5 * time.Second)
				c.Close()
				return true
			}
			return false
		}
		for i := range 64 { // the maximum number of concurrent dials
			go w.Handshake("/", []string{wire.Subprotocol}, from(i))
		}
		synctest.Wait()
		offer := []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}
		for _, cookie := range []string{"old", "new"} {
			if _, _, _, err := w.Handshake("/", offer, "Cookie: sid="+cookie+"\r\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := w.game.Next().Req.Header.Get("Cookie"); got != "sid=new" {
			t.Errorf("the upstream got %q", got)
		}
	})
}

// Path, query and subprotocols are those of the first handshake, whatever the newest one
// has.
func TestHardResumeSendsPathOfFirstHandshake(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		w.game.Choose = "chat.v1"
		p := w.Player("/match/7?seat=3&x=%2F", "chat.v2", "chat.v1")
		game := w.game.Next()
		w.detach(p)
		game.WantClose(wire.CodeGoingAway)
		offer := []string{"other", wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}
		c, err := w.Dial("/elsewhere?seat=4", offer)
		if err != nil {
			t.Fatal(err)
		}
		again := w.game.Next()
		if got, want := again.Req.URL.String(), "/match/7?seat=3&x=%2F"; got != want {
			t.Errorf("the upstream was asked for %q, want %q", got, want)
		}
		if got := again.Req.Header.Get("Sec-WebSocket-Protocol"); got != "chat.v2, chat.v1" {
			t.Errorf("the upstream was offered %q", got)
		}
		c.WantControl(wire.VerbHello)
	})
}

// The client has learned the subprotocol once: if the game server chooses another one at the
// next dial, the client cannot understand it.
func TestHardResumeRefusesOtherSubprotocol(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		w.game.Choose = "chat.v1"
		p := w.Player("/", "chat.v2", "chat.v1")
		game := w.game.Next()
		w.detach(p)
		game.WantClose(wire.CodeGoingAway)
		w.game.Choose = "chat.v2"
		p.TryResume(p.Hello.Token, "0").WantRetry(wire.CodeUpstreamLost)
		w.wantState(p, session.Detached)
	})
}

func TestHardResumeCancelsDialWhenNobodyWaits(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		p := w.detachedHard()
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

func TestHardTakeoverOfAttachedSessionDoesNotDial(t *testing.T) {
	inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		q := p.Resume(0)
		p.WantClosing(wire.CodeSuperseded)
		game.Pass(q, "still the same")
		w.wantNoDial()
	})
}

func TestHardSessionEndedDuringDialIsReported(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		p := w.detachedHard()
		w.game.Refuse = afterEightSeconds
		c := p.TryResume(p.Hello.Token, "0")
		time.Sleep(time.Second)
		if o := w.gw.End(p.Hello.Session, 1000, "enough"); o != gateway.Done {
			t.Fatalf("End: %v", o)
		}
		if closing := c.WantClosing(wire.CodeEnded); closing.Reason != "enough" {
			t.Errorf("reason %q", closing.Reason)
		}
	})
}

func TestHardResumeAfterUpstreamCloseGetsTheClose(t *testing.T) {
	inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		p.Hold(true)
		game.Text("last")
		game.Close(4321, "match over")
		synctest.Wait()
		p.Drop()
		p = p.Resume(0)
		p.Want("last")
		p.WantControl(wire.VerbEnd)
		p.WantClose(4321)
		w.wantNoDial()
	})
}

// The attached client disconnects while the token of a resume that would take it over is
// being signed. That closes its upstream too.
func TestHardResumeDialsWhenUpstreamDisconnectsMeanwhile(t *testing.T) {
	inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		release := gateway.HoldSigning(w.gw)
		c := p.TryResume(p.Hello.Token, "0")
		synctest.Wait()
		p.Drop()
		game.WantClose(wire.CodeGoingAway)
		w.wantState(p, session.Detached)
		release()
		again := w.game.Next()
		again.Text("there")
		c.WantControl(wire.VerbHello)
		c.Want("there")
		c.Pass(again, "and I")
	})
}

// A resume that arrived while the session was attached, and starts again because the client
// has disconnected since, is older than one that waits for the dial: it must not replace it,
// or the client's own later attempt would get the close of a takeover.
func TestRestartedHardResumeDoesNotReplaceLaterOne(t *testing.T) {
	inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		release := gateway.HoldSigning(w.gw)
		older := p.TryResume(p.Hello.Token, "0")
		synctest.Wait()
		p.Drop()
		game.WantClose(wire.CodeGoingAway)
		w.game.Refuse = func(net.Conn, *http.Request) bool {
			time.Sleep(5 * time.Second)
			return false
		}
		time.Sleep(time.Second)
		newer := p.TryResume(p.Hello.Token, "0")
		synctest.Wait()
		release()
		older.WantClosing(wire.CodeSuperseded)
		again := w.game.Next()
		again.Text("there")
		newer.WantControl(wire.VerbHello)
		newer.Want("there")
	})
}

// What a session keeps for later dials is counted. It has no headers: a hard resume sends
// those of the newest handshake.
func TestFirstHandshakesOfHardSessionsCountTowardsBufferTotal(t *testing.T) {
	for _, isHard := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			pol := hard()
			pol.Hard = isHard
			w := newWorld(t, pol)
			before := w.gw.BufferBytes()
			p := w.PlayerWith("/match/7?x="+strings.Repeat("q", 20<<10), "X-Large: "+strings.Repeat("h", 30<<10)+"\r\n")
			w.game.Next()
			p.Sync()
			kept := gateway.KeptOfFirst(w.gw, p.Hello.Session)
			if len(kept.Header) > 0 || kept.Host != "" || (kept.Path == "/match/7") != isHard {
				t.Errorf("hard %t: kept %d headers, host %q, path %q", isHard, len(kept.Header), kept.Host, kept.Path)
			}
			if got := w.gw.BufferBytes() - before; (got >= 20<<10) != isHard || got > 28<<10 {
				t.Errorf("hard %t: %d bytes more are counted", isHard, got)
			}
			w.gw.End(p.Hello.Session, 1000, "")
			synctest.Wait()
			p.Drop()
			time.Sleep(10 * time.Second) // both legs are closed
			if got := w.gw.BufferBytes(); got != before {
				t.Errorf("hard %t: %d bytes are counted after the end, %d before the session", isHard, got, before)
			}
		})
	}
}
