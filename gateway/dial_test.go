package gateway_test

import (
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

	"reseat/gateway"
	"reseat/gateway/control"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func hard() policy.Policy {
	return changed(testPolicy(), func(p *policy.Policy) { p.Hard = true })
}

// after is for Game.Refuse: each dial is answered after d.
func after(d time.Duration) func(net.Conn, *http.Request) bool {
	return func(net.Conn, *http.Request) bool {
		time.Sleep(d)
		return false
	}
}

func refuseDials(c net.Conn, _ *http.Request) bool { c.Close(); return true }

// resumeOffer are the subprotocols of a resume of p that has received nothing.
func resumeOffer(p *wstest.Player) []string {
	return []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}
}

// The dial of the first of two resumes is queued when the second inherits it: the game
// server gets the headers of the newest handshake.
func TestHardResumeSendsHeadersOfNewestHandshake(t *testing.T) {
	inScene(t, hard(), func(s *scene) {
		s.play(leaves)
		w, p := s.world, s.client
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

// The end of a session cancels the dial of its new upstream: neither the client nor the game
// server waits for it.
func TestSessionEndCancelsItsDial(t *testing.T) {
	inScene(t, hard(), func(s *scene) {
		s.play(leaves)
		w, p := s.world, s.client
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
		inScene(t, hard(), func(s *scene) {
			s.play(leaves)
			w, p := s.world, s.client
			w.game.Refuse = after(8 * time.Second)
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

// redials is the policy of --upstream-lost redial.
func redials() policy.Policy {
	return changed(testPolicy(), func(p *policy.Policy) { p.Redial, p.RedialFor = true, 30*time.Second })
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

// A dial may hang while a hard detach ends its outage, and until the next outage: its request had older numbers.
func TestDialOfEndedOutageCountsForNothing(t *testing.T) {
	both := changed(redials(), func(p *policy.Policy) { p.Hard = true })
	for name, status := range map[string]int{"answered": 101, "refused": 403} {
		t.Run(name, func(t *testing.T) {
			inScene(t, both, func(s *scene) {
				s.play(`sync`)
				var dials atomic.Int64
				hangs, given := make(chan struct{}), make(chan struct{})
				s.game.Refuse = func(c net.Conn, _ *http.Request) bool {
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
				s.play(`game drops; client< ^upstream lost; 1s; detach; mark; resume 0; next`)
				if <-given; time.Since(s.mark) > time.Second {
					t.Errorf("the dial of the ended outage goes on for %v", time.Since(s.mark))
				}
				s.play(`client< ^upstream back; game drops; client< ^upstream lost`)
				close(hangs)
				if status == 101 {
					s.play(`next; game< end`)
				}
				s.play(`next; client< ^upstream back`)
				goesOn(s.client, s.up)
				wstest.Equal(t, "dials", dials.Load(), 3)
			})
		})
	}
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
		p.WantControl(wire.VerbUpstream)
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

// leaves is the script of a client that disconnects, and with it its game server.
const leaves = `detach; game< Close 1001 disconnected; `

// halfMessage is the first fragment of a message that has no end.
var halfMessage = []byte{0x01, 3, 'h', 'a', 'l'}

// wantDialled checks headers of the game server's newest connection.
func (s *scene) wantDialled(headers map[string]string) {
	s.t.Helper()
	wstest.Equal(s.t, "path", s.up.Req.URL.String(), "/match/7")
	for name, want := range headers {
		wstest.Equal(s.t, name, s.up.Req.Header.Get(name), want)
	}
}

func TestHardDisconnectClosesUpstreamAndResumeDialsAgain(t *testing.T) {
	inScene(t, hard(), func(s *scene) {
		wstest.Equal(t, "Reseat-Resumed at first", s.up.Req.Header.Get("Reseat-Resumed"), "")
		s.play(`game> s1, s2; client< s1, s2; client> ^ack 1, c1; game< c1`)
		s.up.Raw(halfMessage)
		s.play(leaves + `game> too late, Close 1001; 29s; resume 1; next; hello replay=1 received=1`)
		s.wantDialled(map[string]string{"Reseat-Session": s.client.Hello.Session, "Reseat-Resumed": "hard"})
		s.play(`client< s2; game> s3; client< s3; client> ^ack 3, c2; game< c2`)
	})
}

// The grace period stands still while a resume waits for its dial, which takes longer than --dial-timeout.
func TestHardResumeWithUnreachableUpstreamIsRefusedWithRetry(t *testing.T) {
	inScene(t, hard(), func(s *scene) {
		s.play(leaves + `10s; server hangs up after 15s`)
		c := s.client.TryResume(s.client.Hello.Token, "0")
		s.play(`5s; connecting`)
		if ms := c.WantRetry(wire.CodeUpstreamLost).RetryAfter; ms < 1000 || ms >= 2000 {
			t.Errorf("retry after %d ms, want 1 to 2 s", ms)
		}
		s.play(`server accepts; 19.999s; detached; resume 0; next; game> there; client< there`) // 10 of the 30 s had passed
	})
}

func TestHardResumeCancelsDialWhenNobodyWaits(t *testing.T) {
	inScene(t, hard(), func(s *scene) {
		s.play(leaves + `server waits 8s`)
		c := s.client.TryResume(s.client.Hello.Token, "0")
		s.play(`1s; connecting`)
		c.Drop()
		s.play(`detached; 29.999s; detached; 2ms; ended`)
	})
}

func TestLostUpstreamIsRedialledWhilePlayerStays(t *testing.T) {
	inScene(t, redials(), func(s *scene) {
		wstest.Equal(t, "first epoch", s.up.Req.Header.Get("Reseat-Epoch"), "1")
		s.play(`game> before; client< before; server hangs up; client> taken; game< taken; sync`)
		s.up.Raw(halfMessage)
		s.play(`game drops; client< ^upstream lost; client> meanwhile; sync; 10s; attached; server accepts; next; client< ^upstream back; game< meanwhile`)
		goesOn(s.client, s.up)
		s.wantDialled(map[string]string{"Reseat-Resumed": "upstream", "Reseat-Session": s.client.Hello.Session})
		if next, err := strconv.Atoi(s.up.Req.Header.Get("Reseat-Epoch")); err != nil || next <= 1 {
			t.Errorf("next epoch %d, %v, want a higher one", next, err)
		}
	})
}

// What the core makes of an outage, package session tests; here its dials.
func TestOutages(t *testing.T) {
	both := changed(redials(), func(p *policy.Policy) { p.Hard = true })
	notices := changed(redials(), func(p *policy.Policy) { p.Notices = session.Notices{Detach: "away", Resume: "here"} })
	playEach(t, map[string]scripted{
		"an upstream that is not back in time is lost": {redials(), `sync; server refuses 503; game> kept; game drops; client< kept, ^upstream lost; mark; client< ^close 4502 final; took 30s`},
		"while the client is away, too":                {notices, `detach; game< away; game drops; next; game< away; game> missed; resume 0; client< missed; game< here`},
		"time begins anew after a living connection":   {redials(), `sync; ` + strings.Repeat(`server hangs up; game drops; client< ^upstream lost; 20s; server accepts; next; client< ^upstream back; 11s; `, 4) + `attached`},
		// Without a client a hard session has no upstream: nothing is dialled until the resume, and that is a hard one.
		"a hard detach ends it": {both, `sync; server hangs up; game drops; client< ^upstream lost; client> waits; detach; server accepts; 10s; no dial; resume 0; next; game< waits`},
	})
}

func TestRefusedRedialIsFinalExceptForBusyServers(t *testing.T) {
	scripts := map[string]scripted{}
	for status, then := range map[int]string{400: "", 404: "", 428: "", 430: "", 499: "", 429: "busy", 500: "busy", 503: "busy", 302: "busy"} {
		script := fmt.Sprintf(`sync; server refuses %d; game drops; client< ^upstream lost; 5s; `, status)
		if then == "" {
			script += `client< ^close 4502`
		} else {
			script += `attached; server accepts; next; client< ^upstream back`
		}
		scripts[fmt.Sprint(status)] = scripted{redials(), script}
	}
	playEach(t, scripts)
}

// The client has learned the subprotocol once: if the game server chooses another one, or none, at the
// next dial, the client cannot understand it.
func TestNextUpstreamWithOtherSubprotocolIsRefused(t *testing.T) {
	for name, pol := range map[string]policy.Policy{"hard": hard(), "redial": redials()} {
		for _, c := range [][2]string{{"chat.v1", "chat.v2"}, {"chat.v1", ""}, {"", "chat.v1"}} {
			t.Run(fmt.Sprintf("%s %q then %q", name, c[0], c[1]), func(t *testing.T) {
				inScene(t, pol, func(s *scene) {
					s.game.Choose = c[0]
					s.client, s.up = s.Player("/", "chat.v2", "chat.v1"), s.game.Next()
					s.play(`sync`)
					s.game.Choose = c[1]
					if !pol.Hard {
						s.play(`game drops; client< ^upstream lost, ^close 4502`)
						return
					}
					s.play(leaves + `game> Close 1001`)
					s.client.TryResume(s.client.Hello.Token, "0").WantRetry(wire.CodeUpstreamLost)
					s.play(`next; game< end; detached`)
				})
			})
		}
	}
}

// The headers may hold what the login has renewed since; path, query and subprotocols are those of the first handshake.
func TestDialsSendHeadersOfNewestHandshake(t *testing.T) {
	for name, pol := range map[string]policy.Policy{"hard": hard(), "redial": redials()} {
		t.Run(name, func(t *testing.T) {
			inScene(t, pol, func(s *scene) {
				s.game.Choose = "chat.v1"
				s.client, s.up = s.Player("/match/7?seat=3&x=%2F", "chat.v2", "chat.v1"), s.game.Next()
				s.play(`detach`)
				c, _, _, err := s.Handshake("/elsewhere?seat=4", append([]string{"other"}, resumeOffer(s.client)...), "Cookie: sid=new\r\n")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if synctest.Wait(); !pol.Hard {
					s.up.Drop()
				}
				again := s.game.Next().Req
				wstest.Equal(t, "cookie", again.Header.Get("Cookie"), "sid=new")
				wstest.Equal(t, "path", again.URL.String(), "/match/7?seat=3&x=%2F")
				wstest.Equal(t, "subprotocols", again.Header.Get("Sec-WebSocket-Protocol"), "chat.v2, chat.v1")
			})
		})
	}
}
