package gateway_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
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
				if i, _ := w.gw.Control().Session(p.Hello.Session); i.Received != 3 || i.Written != 3 {
					t.Errorf("received %d, written %d: configured texts must not count as the client's messages", i.Received, i.Written)
				}
			})
		})
	}
}

func TestPlayerNamesAreEscapedInConfiguredTexts(t *testing.T) {
	inWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.Notices.Detach = `{"player":"{player}","in":"{session}"}` }), func(t *testing.T, w *world) {
		_, token, err := w.gw.Create(t.Context(), nil, gateway.CreateRequest{Path: "/match/7", Player: "a\"b\\\n"})
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

const (
	alive     = `{"type":"keep-alive"}`
	aliveFlag = `--keepalive-send '5s:{"type":"keep-alive"}'`
)

// beats has p send what is steady three times.
func beats(p, game *wstest.Peer) {
	for range 3 {
		p.Pass(game, alive)
		time.Sleep(5 * time.Second)
	}
}

func keeps(m session.KeepaliveMode) policy.Policy {
	p := testPolicy()
	p.Keepalive = m
	return p
}

func TestKeepaliveIsNamedOnceInLogAndInRouteAndEachRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		w := newWorld(t, keeps(session.KeepaliveHint), logTo(&said))
		route := ""
		for range 2 {
			p, game := w.play()
			shown := func(record string) {
				t.Helper()
				i, _ := w.gw.Control().Session(p.Hello.Session)
				wstest.Equal(t, "keepalive of the session", i.Keepalive, record)
				wstest.Equal(t, "keepalive of the route", w.gw.Watch().Overview(registry.View{}).Routes[0].Keepalive, route)
			}
			shown("")
			beats(p.Peer, game)
			route = aliveFlag
			shown(aliveFlag)
		}
		if n := strings.Count(said.String(), "keepalive.noticed"); n != 1 || !strings.Contains(said.String(), `hint="--keepalive-send '5s:{\"type\":\"keep-alive\"}'"`) {
			t.Errorf("%d lines in %s", n, &said)
		}
	})
}

// A mass reconnect must not pay for a look at what waits for each client.
func TestStatesAreNamedOnceInLogAndInRouteAndRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		w := newWorld(t, testPolicy(), logTo(&said))
		const flag = "--newest 'state=pos|'"
		cases := []struct {
			messages   int
			wait       time.Duration // until the resume
			ofOne, all string
		}{
			{1, 10 * time.Second, "", ""}, // nothing shows,
			{25, 0, "", ""},               // this one comes too soon after it,
			{25, time.Second, flag, flag},
			{25, time.Second, "", flag}, // and since then it is known
		}
		var players []*wstest.Player
		for _, c := range cases {
			p, game := w.play()
			players = append(players, p)
			w.detach(p)
			for range c.messages {
				game.Text("pos|1,2")
			}
		}
		for i, c := range cases {
			time.Sleep(c.wait)
			players[i].Resume(0)
			s, _ := w.gw.Control().Session(players[i].Hello.Session)
			wstest.Equal(t, fmt.Sprint("flag of session ", i), s.NewestHint, c.ofOne)
			wstest.Equal(t, fmt.Sprint("flag of the route after session ", i), w.gw.Watch().Overview(registry.View{}).Routes[0].NewestHint, c.all)
		}
		if n := strings.Count(said.String(), "states.noticed"); n != 1 || !strings.Contains(said.String(), `hint="`+flag+`"`) {
			t.Errorf("%d lines in %s", n, &said)
		}
	})
}

// A plain client ends with its connection, and a hard session has no upstream without it: nothing could be sent.
func TestKeepaliveOfSessionThatHasNoUseForItIsNotNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hard := keeps(session.KeepaliveAuto)
		hard.Hard = true
		w := newWorld(t, hard)
		p, game := w.play()
		beats(p.Peer, game)
		if i, _ := w.gw.Control().Session(p.Hello.Session); i.Keepalive != "" {
			t.Errorf("hard: keepalive %q", i.Keepalive)
		}
		w = newWorld(t, keeps(session.KeepaliveAuto))
		plain, game := w.plain()
		beats(plain, game)
		if i := w.onlySession(); i.Keepalive != "" {
			t.Errorf("plain: keepalive %q", i.Keepalive)
		}
	})
}

func TestAutoKeepaliveIsSentAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := keeps(session.KeepaliveAuto)
		pol.Keepalives = []session.Keepalive{{Every: 7 * time.Second, Text: "own {session}"}, {Every: 20 * time.Second, Kind: session.KeepalivePing}}
		w := newWorld(t, pol)
		p, game := w.play()
		beats(p.Peer, game)
		p.Sync()
		before := w.metrics()
		p.Drop()
		own := "own " + p.Hello.Session
		game.Want(alive, alive, own, alive, own)
		w.wantSince(before, "reseat_keepalives_sent_total", map[string]float64{"auto": 3, "flag": 2})
		p.Resume(0)
		game.WantNothing(20 * time.Second)
	})
}

// first returns the next event of a type, and forgets those before.
func (l listener) first(kind string) events.Event {
	l.t.Helper()
	synctest.Wait()
	list, _ := l.Next(make([]events.Event, 0, 64))
	for _, e := range list {
		if e.Type == kind {
			return e
		}
	}
	l.t.Fatalf("no %s among %+v", kind, list)
	return events.Event{}
}

// The log, the events, the record and the refusals say after how long a game server has closed the connection of a
// client who was away, and which flag would have sent what it missed.
func TestUpstreamThatClosesWhileClientIsAwayIsExplained(t *testing.T) {
	for _, tt := range []struct {
		mode   session.KeepaliveMode
		closes func(*wstest.Peer)
		detail string
		code   int
		reason string
	}{
		{session.KeepaliveHint, (*wstest.Peer).Drop, "reset by peer, 17s after the client was last heard; " + aliveFlag, wire.CodeUpstreamLost, "upstream_lost"},
		{session.KeepaliveHint, func(p *wstest.Peer) { p.Close(4000, "timeout") }, "timeout, 17s after the client was last heard; " + aliveFlag, wire.CodeEnded, "upstream_closed"},
		{session.KeepaliveOff, func(p *wstest.Peer) { p.Close(4000, "timeout") }, "timeout, 17s after the client was last heard", wire.CodeEnded, "upstream_closed"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			w := newWorld(t, keeps(tt.mode), logTo(&said))
			l := w.listen()
			p, game := w.play()
			beats(p.Peer, game)
			p.Sync()
			time.Sleep(2 * time.Second)
			p.Drop()
			time.Sleep(15 * time.Second)
			tt.closes(game)
			synctest.Wait()
			flag := map[bool]string{true: aliveFlag}[tt.mode == session.KeepaliveHint]
			closed := l.first(events.UpstreamClosed)
			if closed.Detail != flag || closed.SilentMS == nil || *closed.SilentMS != 17_000 {
				t.Errorf("event %+v", closed)
			}
			if !strings.Contains(said.String(), "session.upstream_closed") || !strings.Contains(said.String(), "silent=17s detached=15s") {
				t.Errorf("log %s", &said)
			}
			if i, _ := w.gw.Control().Session(p.Hello.Session); i.ClosedAfter != "17s" {
				t.Errorf("closed after %q", i.ClosedAfter)
			}
			again := p.Resume(0)
			if tt.code == wire.CodeUpstreamLost {
				again.WantClosing(tt.code)
			} else {
				again.WantControl(wire.VerbEnd)
			}
			again.Frame(frame.Close, true, "\x0f\xa0")
			ended := l.first(events.Ended)
			if ended.Reason != tt.reason || !strings.HasSuffix(ended.Detail, tt.detail) {
				t.Errorf("event %+v, want detail %q", ended, tt.detail)
			}
			if i, _ := w.gw.Control().Session(p.Hello.Session); !strings.HasSuffix(i.Detail, tt.detail) || i.ClosedAfter != "17s" {
				t.Errorf("record %+v", i)
			}
			for range 2 { // the end itself, and a resume that comes later
				r := w.gw.Watch().Refusals()[0]
				if r.Code == nil || !strings.Contains(r.Why, "17s after the client was last heard") || !strings.Contains(r.Hint, flag) || !strings.HasPrefix(r.Hint, "--keepalive") {
					t.Errorf("refusal %+v", r)
				}
				p.TryResume(again.Hello.Token, "0")
				synctest.Wait()
			}
		})
	}
}

// Each data message has its line, with the configured part of it; control messages have none.
func TestMessagesAreLoggedIfConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		log  session.MessageLog
		want []string
	}{
		"off":  {session.MessageLog{}, nil},
		"size": {session.MessageLog{On: true}, []string{"to_upstream kind=text size=5\n", "to_client kind=binary size=300\n", "to_upstream kind=text size=3\n", "to_client kind=text size=4\n", "to_upstream kind=text size=6\n"}},
		"prefix": {session.MessageLog{On: true, Prefix: 4}, []string{
			`size=5 head="\"hell\""`, `size=300 head="\"zzzz\""`, `size=3 head="\"\\x10ab\""`, `size=4 head="\"\\x10\\x10\\nx\""`, `size=6 head="\"in p\""`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pol := testPolicy()
				pol.MessageLog = c.log
				said := new(bytes.Buffer)
				w := newWorld(t, pol, logTo(said))
				p, game := w.play()
				p.Pass(game, "hello")
				game.Binary(strings.Repeat("z", 300))
				p.Want(strings.Repeat("z", 300))
				p.Pass(game, "\x10ab")
				game.Pass(p, "\x10\x10\nx")
				p.Frame(frame.Text, false, "in")
				p.Frame(frame.Continuation, true, " par")
				game.Next()
				synctest.Wait()
				var got []string
				for line := range strings.Lines(said.String()) {
					if strings.Contains(line, "msg=session.message") {
						got = append(got, line)
					}
				}
				if len(got) != len(c.want) {
					t.Fatalf("%d lines, want %d: %q", len(got), len(c.want), got)
				}
				for i, want := range c.want {
					if !strings.Contains(got[i], want) {
						t.Errorf("line %q, want %q in it", got[i], want)
					}
				}
			})
		})
	}
}
