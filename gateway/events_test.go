package gateway_test

import (
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
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
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

// Each data message counts once, for both kinds of client. Replays, the gateway's own
// messages and configured texts do not count.
func TestMessagesAreCountedOncePerDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.Notices = session.Notices{Detach: "away", Resume: "back"}
		pol.KeepaliveReplies = []session.KeepaliveReply{{In: "2", Out: "3"}}
		w := newWorld(t, pol)
		before := w.metrics()
		p, game := w.play()
		p.Text("four")
		p.Binary("12")
		game.Want("four", "12")
		game.Pass(p, "\x10 begins with DLE")
		p.Sync()
		p.Drop()
		game.Want("away")
		game.Text("2")
		game.Want("3")
		game.Text("missed")
		synctest.Wait()
		p = p.Resume(0)
		game.Want("back")
		p.Want("\x10 begins with DLE", "missed")
		plain := w.Plain("/")
		other := w.game.Next()
		plain.Pass(other, "up")
		other.Pass(plain, "down!")
		w.wantSince(before, "reseat_messages_total", map[string]float64{"to_upstream": 3, "to_client": 3})
		w.wantSince(before, "reseat_message_bytes_total", map[string]float64{"to_upstream": 4 + 2 + 2, "to_client": 17 + 6 + 5})
		w.wantSince(before, "reseat_replayed_messages_total", map[string]float64{"": 2})
		w.wantSince(before, "reseat_sessions", map[string]float64{"attached": 2})
		plain.Drop() // an ended session still counts
		w.wantSince(before, "reseat_messages_total", map[string]float64{"to_upstream": 3, "to_client": 3})
	})
}

func TestDroppedMessagesAreCounted(t *testing.T) {
	inWorld(t, small(session.DropOldest), func(t *testing.T, w *world) {
		before := w.metrics()
		p, game := w.play()
		w.detach(p)
		sendAll(game, numbered(1, 17))
		w.wantSince(before, "reseat_dropped_messages_total", map[string]float64{"": 7})
		if w.metrics()["reseat_buffer_bytes"] == 0 {
			t.Error("no memory is held by a full replay buffer")
		}
		p.Resume(0)
		w.wantSince(before, "reseat_replayed_messages_total", map[string]float64{"": 10})
	})
}

func TestDetachedSecondsRunFromDisconnectToResumeOrEnd(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		before := w.metrics()
		p, game := w.play()
		w.detach(p)
		time.Sleep(7 * time.Second)
		p = p.Resume(0)
		w.wantSince(before, "reseat_detached_seconds", map[string]float64{"": 7})
		p = p.Resume(0) // a takeover: never detached
		p.Sync()
		w.wantSince(before, "reseat_detached_seconds", map[string]float64{"": 7})
		p.Drop()
		game.WantClose(wire.CodeGoingAway)
		w.wantSince(before, "reseat_detached_seconds", map[string]float64{"": 7 + 30})
		p, _ = w.play()
		p.Control("bye") // it was never detached
		p.WantClose(wire.CodeNormal)
		w.wantSince(before, "reseat_detached_seconds", map[string]float64{"": 7 + 30})
	})
}

// A resume lasts until the last byte of the replay is written: here the client stops reading
// for five seconds in the middle of it.
func TestResumeSecondsRunToLastReplayedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, game := newDetached(t, testPolicy())
		w.wantState(p, session.Detached)
		before := w.metrics()
		for range 10 {
			game.Binary(noise(32 << 10)) // more than the connection accepts
		}
		synctest.Wait()
		c, unread, _, err := w.Handshake("/", []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}, "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		game.Text("live")
		time.Sleep(5 * time.Second)
		w.wantSince(before, "reseat_resume_seconds", map[string]float64{})
		go io.Copy(io.Discard, unread)
		w.wantSince(before, "reseat_resume_seconds", map[string]float64{"": 5})
	})
}

func TestDrainIsReportedInMetrics(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.gw.BeginDrain()
		before := w.metrics()
		if before["reseat_draining"] != 1 {
			t.Error("the drain is not in the metrics")
		}
		w.refused("/")
		w.wantSince(before, "reseat_handshakes_refused_total", map[string]float64{"draining": 1})
		w.gw.CallOffDrain()
		if w.metrics()["reseat_draining"] != 0 {
			t.Error("a cancelled drain is in the metrics")
		}
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

// inCounted runs f with a session of a player, and checks by how much a family of metrics has grown then.
func inCounted(t *testing.T, p policy.Policy, family string, want map[string]float64, f func(*world, *wstest.Player, *wstest.Peer)) {
	t.Helper()
	inWorld(t, p, func(t *testing.T, w *world) {
		p, game := w.loginAs("ann")
		p.Sync()
		before := w.metrics()
		f(w, p, game)
		w.wantSince(before, family, want)
	})
}

// An act on a session of a player.
type act func(*world, *wstest.Player, *wstest.Peer)

// closedWith is an act that closes the client's connection with a code.
func closedWith(code int, cause func(*world, *wstest.Player)) act {
	return func(w *world, p *wstest.Player, _ *wstest.Peer) {
		cause(w, p)
		p.WantClosing(code)
	}
}

// endings are ways to end a session, by the reason that is counted.
var endings = map[string]struct {
	policy policy.Policy
	end    act
}{
	"bye": {testPolicy(), func(_ *world, p *wstest.Player, _ *wstest.Peer) {
		p.Control("bye")
		p.WantClose(wire.CodeNormal)
	}},
	"grace_over": {testPolicy(), func(w *world, p *wstest.Player, game *wstest.Peer) {
		w.detach(p)
		game.WantClose(wire.CodeGoingAway)
	}},
	"upstream_closed": {testPolicy(), func(w *world, p *wstest.Player, game *wstest.Peer) {
		game.Close(4007, "over")
		wantEnd(w.t, p.Peer, 4007, "over")
		p.Close(4007, "")
	}},
	"upstream_lost": {testPolicy(), func(_ *world, p *wstest.Player, game *wstest.Peer) {
		game.Drop()
		p.WantClosing(wire.CodeUpstreamLost)
		p.Close(wire.CodeUpstreamLost, "")
	}},
	"no_progress": {testPolicy(), func(w *world, p *wstest.Player, game *wstest.Peer) {
		game.Text("poison")
		for range 6 {
			p.Ack(0)
			p.Want("poison")
			time.Sleep(3 * time.Second)
			p.Drop()
			if w.state(p) == session.Ended.String() {
				break
			}
			p = p.Resume(0)
		}
	}},
	"client_gone": {testPolicy(), func(w *world, _ *wstest.Player, _ *wstest.Peer) {
		plain, _ := w.plain()
		plain.Drop()
	}},
	"window_exceeded": {small(session.EndSession), func(w *world, p *wstest.Player, game *wstest.Peer) {
		w.detach(p)
		sendAll(game, numbered(1, 11))
		game.WantClose(wire.CodeTryAgainLater)
	}},
	"idle_timeout":       {changed(testPolicy(), func(p *policy.Policy) { p.IdleTimeout = time.Minute }), closedWith(wire.CodeEnded, func(*world, *wstest.Player) {})},
	"superseded":         {loggedIn(policy.Takeover), closedWith(wire.CodeSuperseded, func(w *world, _ *wstest.Player) { w.loginAs("ann") })},
	"protocol_error":     {testPolicy(), closedWith(wire.CodeProtocolError, func(_ *world, p *wstest.Player) { p.Raw([]byte{0xf1, 0x80, 0, 0, 0, 0}) })},
	"invalid_utf8":       {testPolicy(), closedWith(wire.CodeInvalidUTF8, func(_ *world, p *wstest.Player) { p.Control("ping \xff") })},
	"message_too_big":    {testPolicy(), closedWith(wire.CodeMessageTooBig, func(_ *world, p *wstest.Player) { p.Text(strings.Repeat("x", 1<<20+1)) })},
	"internal_error":     {testPolicy(), closedWith(wire.CodeInternalError, func(w *world, p *wstest.Player) { gateway.Fail(w.gw, p.Hello.Session) })},
	"protocol_violation": {testPolicy(), closedWith(wire.CodeProtocolViolation, func(_ *world, p *wstest.Player) { p.Ack(7) })},
	"ended":              {testPolicy(), closedWith(wire.CodeEnded, func(w *world, p *wstest.Player) { w.gw.Control().End("", p.Hello.Session, wire.CodeNormal, "") })},
	"draining":           {testPolicy(), closedWith(wire.CodeDraining, func(w *world, _ *wstest.Player) { w.gw.BeginDrain() })},
	"too_fast":           {rated(session.Rate{Messages: 1, End: true}), closedWith(wire.CodeTooFast, func(_ *world, p *wstest.Player) { sendAll(p.Peer, numbered(1, 10)) })},
}

// The event has the reason of the metric.
func TestEachEndIsCountedOnceByReason(t *testing.T) {
	for reason, c := range endings {
		t.Run(reason, func(t *testing.T) {
			inCounted(t, c.policy, "reseat_sessions_ended_total", map[string]float64{reason: 1}, func(w *world, p *wstest.Player, game *wstest.Peer) {
				l := w.listen()
				c.end(w, p, game)
				wstest.Equal(w.t, "reason of the event", l.first(events.Ended).Reason, reason)
				m := w.metrics()
				living := m["reseat_sessions{connecting}"] + m["reseat_sessions{attached}"] + m["reseat_sessions{detached}"]
				if created := m["reseat_sessions_created_total"]; created != living+1 {
					w.t.Errorf("%v sessions created, %v live, one has ended", created, living)
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
	want := map[string]float64{"ok": 21, "too_fast": 1, "superseded": 1}
	inCounted(t, hard(), "reseat_resumes_total", want, func(w *world, p *wstest.Player, _ *wstest.Peer) {
		for range 20 {
			p = p.Resume(0)
		}
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeTooFast)
		w.detach(p)
		w.game.Refuse = after(5 * time.Second)
		first := p.TryResume(p.Hello.Token, "0")
		time.Sleep(time.Second)
		p.Resume(0)
		first.WantClosing(wire.CodeSuperseded)
	})
}
