package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A listener reads a gateway's events.
type listener struct {
	t *testing.T
	*events.Reader
}

func (w *world) listen() listener {
	synctest.Wait() // earlier events are published first
	return listener{w.t, w.gw.Watch().Events.Live()}
}

// want checks the events of a session since the last call, each as "type reason".
func (l listener) want(id string, want ...string) {
	l.t.Helper()
	synctest.Wait()
	var got []string
	list, _ := l.Next(make([]events.Event, 0, 64))
	for _, e := range list {
		if e.Session == id {
			got = append(got, strings.TrimSpace(e.Type+" "+e.Reason))
		}
	}
	if !slices.Equal(got, want) {
		l.t.Errorf("got %q, want %q", got, want)
	}
}

// A thief may try a copy of a token again and again, and after the session has ended.
func TestSupersededTokenPublishesLimitedEvents(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, a *wstest.Player, _ *wstest.Peer) {
		b := a.Resume(0)
		c := b.Resume(0)
		synctest.Wait() // its events have been published
		l := w.listen()
		for range 200 {
			a.TryResume(a.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		}
		synctest.Wait()
		list, _ := l.Next(make([]events.Event, 0, 300))
		if n := len(list); n < 40 || n > 60 || list[0].Type != events.Replayed {
			t.Errorf("%d events of 200 at once, the first %+v", n, list[0])
		}
		c.Control("bye")
		w.wantState(a, session.Ended)
		time.Sleep(10 * time.Second)
		l = w.listen()
		a.TryResume(c.Hello.Token, "0").WantClosing(wire.CodeNoSession)
		l.want(a.Hello.Session)
		a.TryResume(a.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		l.want(a.Hello.Session, events.Replayed)
	})
}

// docs/operating.md, written out: dashboards rely on these names and values.
var (
	results = []string{
		"ok", "protocol_error", "invalid_utf8", "message_too_big", "internal_error", "protocol_violation", "bad_token", "refused",
		"no_session", "window_exceeded", "superseded", "ended", "too_fast", "upstream_lost", "draining", "node_unreachable",
	}
	reasons = append([]string{
		"bye", "grace_over", "upstream_closed", "idle_timeout", "no_progress", "client_gone", "node_lost",
	}, results[1:len(results)-1]...) // node_unreachable ends no session
	promised = map[string]struct {
		kind   dto.MetricType
		label  string
		values []string
	}{
		"reseat_sessions":                {dto.MetricType_GAUGE, "state", []string{"connecting", "attached", "detached"}},
		"reseat_sessions_created_total":  {dto.MetricType_COUNTER, "", nil},
		"reseat_sessions_ended_total":    {dto.MetricType_COUNTER, "reason", reasons},
		"reseat_resumes_total":           {dto.MetricType_COUNTER, "result", results},
		"reseat_messages_total":          {dto.MetricType_COUNTER, "direction", []string{"to_upstream", "to_client"}},
		"reseat_message_bytes_total":     {dto.MetricType_COUNTER, "direction", []string{"to_upstream", "to_client"}},
		"reseat_replayed_messages_total": {dto.MetricType_COUNTER, "", nil},
		"reseat_dropped_messages_total":  {dto.MetricType_COUNTER, "", nil},
		"reseat_buffer_bytes":            {dto.MetricType_GAUGE, "", nil},
		"reseat_detached_seconds":        {dto.MetricType_HISTOGRAM, "", nil},
		"reseat_resume_seconds":          {dto.MetricType_HISTOGRAM, "", nil},
		"reseat_client_rtt_seconds":      {dto.MetricType_HISTOGRAM, "", nil},
	}
)

func (w *world) gather() []*dto.MetricFamily {
	w.t.Helper()
	synctest.Wait()
	families, err := w.gw.Watch().Metrics.Registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	return families
}

// metrics returns all series by name and label, `name` or `name{label}`; of a histogram the
// sum.
func (w *world) metrics() map[string]float64 {
	w.t.Helper()
	all := make(map[string]float64)
	for _, f := range w.gather() {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += "{" + l.GetValue() + "}"
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return all
}

// wantSince checks that a family's series changed by exactly these values since before.
func (w *world) wantSince(before map[string]float64, family string, want map[string]float64) {
	w.t.Helper()
	got := make(map[string]float64)
	for name, v := range w.metrics() {
		if label, ok := strings.CutPrefix(name, family); ok && (label == "" || label[0] == '{') && v != before[name] {
			got[strings.Trim(label, "{}")] = v - before[name]
		}
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("%s changed by %v, want %v", family, got, want)
	}
}

func TestMetricsAreThoseOfTheInterfaceFromTheStart(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		seen := make(map[string]bool)
		for _, f := range w.gather() {
			want, ok := promised[f.GetName()]
			if !ok {
				continue
			}
			seen[f.GetName()] = true
			var values []string
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if l.GetName() != want.label {
						t.Errorf("%s has a label %s", f.GetName(), l.GetName())
					}
					values = append(values, l.GetValue())
				}
			}
			if slices.Sort(values); f.GetType() != want.kind || !slices.Equal(values, slices.Sorted(slices.Values(want.values))) {
				t.Errorf("%s is a %v of %v, want a %v of %v", f.GetName(), f.GetType(), values, want.kind, want.values)
			}
		}
		for name := range promised {
			if !seen[name] {
				t.Errorf("there is no %s", name)
			}
		}
	})
}

// A resume lasts until the last byte of the replay is written: here the client stops reading
// for five seconds in the middle of it.
func TestResumeSecondsRunToLastReplayedMessage(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`detach; forget`)
		for range 10 {
			s.up.Binary(noise(32 << 10)) // more than the connection accepts
		}
		synctest.Wait()
		c, unread, _, err := s.Handshake("/", resumeOffer(s.client), "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		s.play(`game> live; 5s; counts reseat_resume_seconds`)
		go io.Copy(io.Discard, unread)
		s.play(`counts reseat_resume_seconds =5`)
	})
}

var refusedWith = regexp.MustCompile(`(?:(?:refuse|f)\.(?:http|busy)\(w, r, (?:[\w.]+, )?|Refused\.WithLabelValues\()"(\w+)"`)

// Each reason for a refused handshake is a series from the start.
func TestRefusalReasonsExistFromTheStart(t *testing.T) {
	used := make(map[string]bool)
	for _, f := range []string{"accept.go", "serve.go", "refusals.go", "cookie.go", "watch/refusals.go"} {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range refusedWith.FindAllStringSubmatch(string(source), -1) {
			used[m[1]] = true
		}
	}
	synctest.Test(t, func(t *testing.T) {
		shown := make(map[string]bool)
		for name := range newWorld(t, testPolicy()).metrics() {
			if label, ok := strings.CutPrefix(name, "reseat_handshakes_refused_total"); ok {
				shown[strings.Trim(label, "{}")] = true
			}
		}
		if !maps.Equal(used, shown) {
			t.Errorf("the code refuses for %v, the metrics show %v", fmt.Sprint(used), fmt.Sprint(shown))
		}
	})
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
		mode                   session.KeepaliveMode
		closes, detail, reason string
		resumed                string // what a client gets that resumes
	}{
		{session.KeepaliveHint, `game drops`, "reset by peer, 17s after the client was last heard; " + aliveFlag, "upstream_lost", `client< ^close 4502`},
		{session.KeepaliveHint, `game> Close 4000 timeout`, "timeout, 17s after the client was last heard; " + aliveFlag, "upstream_closed", `client< ^end 4000`},
		{session.KeepaliveOff, `game> Close 4000 timeout`, "timeout, 17s after the client was last heard", "upstream_closed", `client< ^end 4000`},
	} {
		var said bytes.Buffer
		inScene(t, keeps(tt.mode), func(s *scene) {
			l := s.listen()
			beats(s.client.Peer, s.up)
			s.play(`sync; 2s; client drops; 15s; ` + tt.closes)
			synctest.Wait()
			flag := map[bool]string{true: aliveFlag}[tt.mode == session.KeepaliveHint]
			closed := l.first(events.UpstreamClosed)
			if closed.Detail != flag || closed.SilentMS == nil || *closed.SilentMS != 17_000 {
				t.Errorf("event %+v", closed)
			}
			if !strings.Contains(said.String(), "session.upstream_closed") || !strings.Contains(said.String(), "silent=17s detached=15s") {
				t.Errorf("log %s", &said)
			}
			s.play(`info closed_after=17s; resume 0; ` + tt.resumed + `; client> Close 4000; info closed_after=17s`)
			ended := l.first(events.Ended)
			if ended.Reason != tt.reason || !strings.HasSuffix(ended.Detail, tt.detail) {
				t.Errorf("event %+v, want detail %q", ended, tt.detail)
			}
			if i, _ := s.gw.Control().Session(s.client.Hello.Session); !strings.HasSuffix(i.Detail, tt.detail) {
				t.Errorf("record %+v", i)
			}
			for range 2 { // the end itself, and a resume that comes later
				r := s.gw.Watch().Refusals()[0]
				if r.Code == nil || !strings.Contains(r.Why, "17s after the client was last heard") || !strings.Contains(r.Hint, flag) || !strings.HasPrefix(r.Hint, "--keepalive") {
					t.Errorf("refusal %+v", r)
				}
				s.client.TryResume(s.client.Hello.Token, "0")
				synctest.Wait()
			}
		}, logTo(&said))
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

// Each data message counts once, for both kinds of client. Replays, the gateway's own
// messages and configured texts do not count, and an ended session still does.
func TestMessagesAreCountedOncePerDirection(t *testing.T) {
	pol := testPolicy()
	pol.Notices = session.Notices{Detach: "away", Resume: "back"}
	pol.KeepaliveReplies = []session.KeepaliveReply{{In: "2", Out: "3"}}
	const counted = `counts reseat_messages_total to_upstream=3 to_client=3; `
	inScene(t, pol, func(s *scene) {
		s.play(`client> four`)
		s.client.Binary("12")
		s.play(`game< four, 12`)
		s.up.Text("\x10 begins with DLE")
		s.client.Want("\x10 begins with DLE")
		s.play(`sync; client drops; game< away; game> 2; game< 3; game> missed; resume 0; game< back`)
		s.client.Want("\x10 begins with DLE", "missed")
		s.play(`visit; plain> up; beside< up; beside> down!; plain< down!; ` + counted + `counts reseat_message_bytes_total to_upstream=8 to_client=28; ` +
			`counts reseat_replayed_messages_total =2; counts reseat_sessions attached=2; plain drops; ` + counted)
	})
}

func TestDroppedMessagesAreCounted(t *testing.T) {
	inScene(t, small(session.DropOldest), func(s *scene) {
		s.play(`detach; game> ` + numbers(1, 17) + `; counts reseat_dropped_messages_total =7`)
		if s.metrics()["reseat_buffer_bytes"] == 0 {
			t.Error("no memory is held by a full replay buffer")
		}
		s.play(`resume 0; counts reseat_replayed_messages_total =10`)
	})
}

// Neither a takeover nor a bye follows time away.
func TestDetachedSecondsRunFromDisconnectToResumeOrEnd(t *testing.T) {
	plays(t, testPolicy(), `detach; 7s; resume 0; counts reseat_detached_seconds =7; resume 0; sync; counts reseat_detached_seconds =7; `+
		`client drops; game< Close 1001; counts reseat_detached_seconds =37; begin; client> ^bye; client< Close 1000; counts reseat_detached_seconds =37`)
}

// endings are ways to end a session, by the reason that is counted.
var endings = map[string]scripted{
	"bye":                {testPolicy(), `client> ^bye; client< Close 1000`},
	"grace_over":         {testPolicy(), `detach; game< Close 1001`},
	"upstream_closed":    {testPolicy(), `game> Close 4007 over; client< ^end 4007 over; client> Close 4007`},
	"upstream_lost":      {testPolicy(), `game drops; client< ^close 4502; client> Close 4502`},
	"no_progress":        {testPolicy(), `detach; game> poison; ` + strings.Repeat(`resume 0; client> ^ack 0; client< poison; 3s; client drops; `, 5) + `ended`},
	"client_gone":        {testPolicy(), `visit; plain drops`},
	"window_exceeded":    {small(session.EndSession), `detach; game> ` + numbers(1, 11) + `; game< Close 1013`},
	"idle_timeout":       {changed(testPolicy(), func(p *policy.Policy) { p.IdleTimeout = time.Minute }), `client< ^close 4410`},
	"superseded":         {loggedIn(policy.Takeover), `begin /?player=ann; older< ^close 4409`},
	"protocol_error":     {testPolicy(), `client> "\xf1\x80\x00\x00\x00\x00"; client< ^close 1002`},
	"invalid_utf8":       {testPolicy(), "client> ^ping \xff; client< ^close 1007"},
	"message_too_big":    {testPolicy(), `client> x*1048577; client< ^close 1009`},
	"internal_error":     {testPolicy(), `fails; client< ^close 1011`},
	"protocol_violation": {testPolicy(), `client> ^ack 7; client< ^close 4400`},
	"ended":              {testPolicy(), `end; client< ^close 4410`},
	"draining":           {testPolicy(), `drain; client< ^close 4503`},
	"too_fast":           {rated(session.Rate{Messages: 1, End: true}), `client> ` + numbers(1, 10) + `; client< ^close 4429`},
}

// The event has the reason of the metric.
func TestEachEndIsCountedOnceByReason(t *testing.T) {
	for reason, c := range endings {
		t.Run(reason, func(t *testing.T) {
			inScene(t, c.policy, func(s *scene) {
				s.play(`sync; forget`)
				l := s.listen()
				s.play(c.script + `; counts reseat_sessions_ended_total ` + reason + `=1`)
				wstest.Equal(t, "reason of the event", l.first(events.Ended).Reason, reason)
				m := s.metrics()
				living := m["reseat_sessions{connecting}"] + m["reseat_sessions{attached}"] + m["reseat_sessions{detached}"]
				if created := m["reseat_sessions_created_total"]; created != living+1 {
					t.Errorf("%v sessions created, %v live, one has ended", created, living)
				}
			})
		})
	}
	elsewhere := map[string]bool{"bad_token": true, "no_session": true, "refused": true, // those only end a connection
		"node_lost": true} // that ends a session of another node
	for _, reason := range reasons {
		if _, ok := endings[reason]; !ok && !elsewhere[reason] {
			t.Errorf("nothing here ends a session for %s", reason)
		}
	}
}

func TestConcurrentResumesAreEachCounted(t *testing.T) {
	inScene(t, hard(), func(s *scene) {
		s.play(`sync; ` + strings.Repeat(`resume 0; `, 20) + `refused 4429; detach; server waits 5s`)
		first := s.client.TryResume(s.client.Hello.Token, "0")
		s.play(`1s; resume 0`)
		first.WantClosing(4409)
		s.play(`counts reseat_resumes_total ok=21 too_fast=1 superseded=1`)
	})
}

// A hard session has no upstream without its client, and a plain client's ends with its connection.
func TestKeepaliveOfSessionThatHasNoUseForItIsNotNoticed(t *testing.T) {
	inScene(t, changed(keeps(session.KeepaliveAuto), func(p *policy.Policy) { p.Hard = true }), func(s *scene) {
		beats(s.client.Peer, s.up)
		s.play(`info keepalive=`)
	})
	inWorld(t, keeps(session.KeepaliveAuto), func(t *testing.T, w *world) {
		beats(w.plain())
		wstest.Equal(t, "keepalive", w.onlySession().Keepalive, "")
	})
}

func TestUpstreamGetsConfiguredTexts(t *testing.T) {
	for name, hard := range map[string]bool{"soft": false, "hard": true} {
		t.Run(name, func(t *testing.T) {
			pol := testPolicy()
			pol.Hard = hard
			pol.Notices = session.Notices{Detach: `{"away":"{session}"}`, Resume: "back", Expire: "gone"}
			dialled, last := ``, `game< gone`
			if hard {
				dialled, last = `game< Close 1001; next; `, ``
			}
			inScene(t, pol, func(s *scene) {
				away := `game< {"away":"` + s.client.Hello.Session + `"}; `
				s.play(`client> before; sync; client drops; game< before; ` + away + `resume 0; ` + dialled + `client> after; game< back, after; sync; ` +
					`resume 0; older< ^close 4409; client> taken over; game< taken over; sync; client drops; ` + away + // a takeover is not a return
					`31s; ` + last + `; game< Close 1001; info received=3 written=3`) // configured texts don't count as the client's
			})
		})
	}
}
