package gateway_test

import (
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func TestUpstreamGetsConfiguredTexts(t *testing.T) {
	for name, hard := range map[string]bool{"soft": false, "hard": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pol := testPolicy()
				pol.Hard = hard
				pol.Notices = session.Notices{Detach: `{"away":"{session}"}`, Resume: "back", Expire: "gone"}
				w := newWorld(t, pol)
				p, game := w.play()
				p.Text("before")
				p.Sync()
				p.Drop()
				game.Want("before", `{"away":"`+p.Hello.Session+`"}`)
				p = p.Resume(0)
				if hard {
					game.WantClose(wire.CodeGoingAway)
					game = w.game.Next()
				}
				p.Text("after")
				game.Want("back", "after")
				p.Sync()
				q := p.Resume(0)
				p.WantClosing(wire.CodeSuperseded)
				q.Text("taken over")
				game.Want("taken over") // a takeover is not a return
				q.Sync()
				q.Drop()
				game.Want(`{"away":"` + p.Hello.Session + `"}`)
				time.Sleep(31 * time.Second)
				if !hard { // else there is no upstream
					game.Want("gone")
				}
				game.WantClose(wire.CodeGoingAway)
				if i, _ := w.gw.Session(p.Hello.Session); i.Received != 3 || i.Written != 3 {
					t.Errorf("received %d, written %d: configured texts must not count as the client's messages", i.Received, i.Written)
				}
			})
		})
	}
}

func TestPlayerNamesAreEscapedInConfiguredTexts(t *testing.T) {
	inWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.Notices.Detach = `{"player":"{player}","in":"{session}"}` }), func(t *testing.T, w *world) {
		_, token, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/match/7", Player: "a\"b\\\n"})
		if err != nil {
			t.Fatal(err)
		}
		game := w.game.Next()
		p := w.Claim(token)
		p.Sync()
		p.Drop()
		game.Want(`{"player":"a\"b\\\n","in":"` + p.Hello.Session + `"}`)
	})
}

func TestGameHeartbeatsAreAnsweredWhileDetached(t *testing.T) {
	inSession(t, changed(testPolicy(), func(p *policy.Policy) {
		p.KeepaliveReplies = []session.KeepaliveReply{{In: "2", Out: "3"}, {In: "ping", Out: "pong"}}
	}), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Pass(p, "2")
		p.Pass(game, "3")
		p.Ack(1)
		game.Text("2") // numbered, and not acked when the client disconnects
		p.Want("2")
		p.Sync()
		p.Drop()
		game.Want("3")
		game.Text("2")
		game.Want("3")
		game.Text("hello")
		for _, piece := range []string{"\x81", "\x04", "pi", "n", "g"} { // split everywhere
			game.Raw([]byte(piece))
			synctest.Wait()
		}
		game.Want("pong")
		game.Text("pin!")
		game.Binary("2")
		synctest.Wait()
		p = p.Resume(1)
		if p.Hello.Replay != 4 {
			t.Fatalf("replay %d, want 4", p.Hello.Replay)
		}
		p.Want("2", "hello", "pin!", "2")
		game.Text("ping") // while attached, the client answers
		p.Want("ping")
		game.WantNothing(time.Second)
	})
}

func TestHeartbeatSplitByResumeReachesClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.KeepaliveReplies = []session.KeepaliveReply{{In: "ping", Out: "pong"}}
		w, p, game := newDetached(t, pol)
		w.wantState(p, session.Detached)
		game.Raw([]byte("\x81\x04pi"))
		synctest.Wait()
		p = p.Resume(0)
		game.Raw([]byte("ng"))
		p.Want("ping")
	})
}

func TestIdleTimeoutEndsSilentSession(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *world){
		"attached": func(t *testing.T, w *world) {
			p, game := w.play()
			time.Sleep(50 * time.Second)
			game.Pass(p, "once")
			time.Sleep(time.Minute - time.Millisecond)
			w.wantState(p, session.Attached)
			if c := p.WantClosing(wire.CodeEnded); c.Reason != "idle timeout" || c.Retry {
				t.Errorf("close %+v", c)
			}
			game.WantReason(wire.CodeGoingAway, "idle timeout")
		},
		"detached": func(t *testing.T, w *world) {
			p, game := w.play()
			p.Sync()
			p.Drop()
			game.WantClose(wire.CodeGoingAway)
			p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeEnded)
		},
		"plain": func(t *testing.T, w *world) {
			p := w.Plain("/match/7")
			w.game.Next().WantClose(wire.CodeGoingAway)
			p.WantReason(wire.CodeGoingAway, "idle timeout")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pol := testPolicy()
				pol.Grace, pol.IdleTimeout = time.Hour, time.Minute
				end(t, newWorld(t, pol))
			})
		})
	}
}
