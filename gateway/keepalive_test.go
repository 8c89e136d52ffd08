package gateway_test

import (
	"bytes"
	"log/slog"
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
		w := newWorld(t, keeps(session.KeepaliveHint), func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
		route := ""
		for range 2 {
			p, game := w.play()
			shown := func(record string) {
				t.Helper()
				i, _ := w.gw.Session(p.Hello.Session)
				wstest.Equal(t, "keepalive of the session", i.Keepalive, record)
				wstest.Equal(t, "keepalive of the route", w.gw.Overview(registry.View{}).Routes[0].Keepalive, route)
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

// A plain client ends with its connection, and a hard session has no upstream without it: nothing could be sent.
func TestKeepaliveOfSessionThatHasNoUseForItIsNotNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hard := keeps(session.KeepaliveAuto)
		hard.Hard = true
		w := newWorld(t, hard)
		p, game := w.play()
		beats(p.Peer, game)
		if i, _ := w.gw.Session(p.Hello.Session); i.Keepalive != "" {
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

func TestKeepaliveOfCookieClientIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := keeps(session.KeepaliveAuto)
		pol.PlainResume = true
		w := newWorld(t, pol)
		p, _ := w.visit("")
		game := w.game.Next()
		beats(p, game)
		p.Drop()
		game.Want(alive, alive)
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
			w := newWorld(t, keeps(tt.mode), func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
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
			if i, _ := w.gw.Session(p.Hello.Session); i.ClosedAfter != "17s" {
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
			if i, _ := w.gw.Session(p.Hello.Session); !strings.HasSuffix(i.Detail, tt.detail) || i.ClosedAfter != "17s" {
				t.Errorf("record %+v", i)
			}
			for range 2 { // the end itself, and a resume that comes later
				r := w.gw.Refusals()[0]
				if r.Code == nil || !strings.Contains(r.Why, "17s after the client was last heard") || !strings.Contains(r.Hint, flag) || !strings.HasPrefix(r.Hint, "--keepalive") {
					t.Errorf("refusal %+v", r)
				}
				p.TryResume(again.Hello.Token, "0")
				synctest.Wait()
			}
		})
	}
}

// Where the upstream is dialled again, the loss is explained in the same way.
func TestUpstreamThatIsReplacedWhileClientIsAwayIsExplained(t *testing.T) {
	inWorld(t, changed(redials(), func(p *policy.Policy) { p.Keepalive = session.KeepaliveHint }), func(t *testing.T, w *world) {
		l := w.listen()
		p, game := w.play()
		beats(p.Peer, game)
		p.Sync()
		p.Drop()
		time.Sleep(15 * time.Second)
		game.Drop()
		lost := l.first(events.UpstreamLost)
		if lost.Detail != aliveFlag || lost.SilentMS == nil || *lost.SilentMS != 15_000 {
			t.Errorf("event %+v", lost)
		}
	})
}
