package session_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// noticing is a session that only what the client sends keeps alive.
func noticing(t *testing.T, m session.KeepaliveMode, options ...option) *table {
	t.Helper()
	return attached(t, append(options, heartbeat(time.Hour), func(c *session.Config) { c.Keepalive = m })...)
}

// beats has the client send a frame now and after each gap.
func (b *table) beats(op byte, payload string, gaps ...time.Duration) {
	for _, gap := range append([]time.Duration{0}, gaps...) {
		b.now = b.now.Add(gap)
		b.read(frame.AppendMasked(nil, op, [4]byte{1, byte(b.now / 7), 3, byte(b.now / 1e9)}, []byte(payload)))
		b.play(`game reads; client reads`)
	}
}

// noticed returns what the events say about keepalives.
func (b *table) noticed() (list []session.Keepalive) {
	for _, e := range b.s.Events() {
		if e.Kind == session.KeepaliveNoticed {
			list = append(list, e.Keepalive)
		}
	}
	return list
}

const steady = 5 * time.Second

func TestSteadyMessageIsNoticed(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	long := fmt.Sprintf("%0256d", 0)
	for _, tt := range []struct {
		name    string
		op      byte
		payload string
		gaps    []time.Duration
		want    session.Keepalive
	}{
		{"three times", frame.Text, "alive", []time.Duration{steady, steady}, session.Keepalive{Every: steady, Text: "alive"}},
		{"bytes", frame.Binary, "\x00\x01", []time.Duration{2 * s, 2 * s}, session.Keepalive{Every: 2 * s, Text: "\x00\x01", Kind: session.KeepaliveBinary}},
		{"Pings", frame.Ping, "", []time.Duration{30 * s, 30 * s}, session.Keepalive{Every: 30 * s, Kind: session.KeepalivePing}},
		{"within a tenth", frame.Text, "alive", []time.Duration{steady, 5500 * ms}, session.Keepalive{Every: steady, Text: "alive"}},
		{"a second", frame.Text, "alive", []time.Duration{s, 950 * ms}, session.Keepalive{Every: s, Text: "alive"}},
		{"long", frame.Text, long, []time.Duration{steady, steady}, session.Keepalive{Every: steady, Text: long}},
		{"after others", frame.Text, "alive", []time.Duration{s, steady, 7 * s, 7 * s}, session.Keepalive{Every: 7 * s, Text: "alive"}},

		{"twice", frame.Text, "alive", []time.Duration{steady}, session.Keepalive{}},
		{"at no pace", frame.Text, "alive", []time.Duration{steady, 6 * s, steady, 4 * s}, session.Keepalive{}},
		{"a held key", frame.Text, "fire", []time.Duration{500 * ms, 500 * ms, 500 * ms, 500 * ms}, session.Keepalive{}},
		{"rare", frame.Text, "alive", []time.Duration{3 * time.Minute, 3 * time.Minute}, session.Keepalive{}},
		{"too long", frame.Text, long + "x", []time.Duration{steady, steady}, session.Keepalive{}},
	} {
		for mode, want := range map[session.KeepaliveMode]session.Keepalive{session.KeepaliveHint: tt.want, session.KeepaliveAuto: tt.want, session.KeepaliveOff: {}} {
			b := noticing(t, mode)
			b.beats(tt.op, tt.payload, tt.gaps...)
			if got := b.s.Info().Keepalive; got != want {
				t.Errorf("%s, %v: noticed %+v, want %+v", tt.name, mode, got, want)
			}
			if n := len(b.noticed()); n != map[bool]int{true: 1}[want.Every > 0] {
				t.Errorf("%s, %v: %d events", tt.name, mode, n)
			}
		}
	}
}

// A message that changes each time is none, and hides none.
func TestKeepaliveIsNoticedAmongOtherMessages(t *testing.T) {
	for name, other := range map[string]func(n int) string{
		"longer":        func(n int) string { return fmt.Sprintf(`{"type":"move","to":[%d,%d]}`, n, 2*n) },
		"shorter":       func(n int) string { return fmt.Sprint(n) },
		"of its length": func(n int) string { return fmt.Sprintf("%21d", n) },
	} {
		b := noticing(t, session.KeepaliveHint)
		var got []session.Keepalive
		for n := 0; n < 6000 && len(got) == 0; n++ {
			b.now = b.now.Add(200 * time.Millisecond)
			b.beats(frame.Text, other(n))
			if n%25 == 0 {
				b.beats(frame.Text, `{"type":"keep-alive"}`)
			}
			b.says("\x10pong")
			got = b.noticed()
		}
		want := []session.Keepalive{{Every: steady, Text: `{"type":"keep-alive"}`}}
		if !slices.Equal(got, want) {
			t.Errorf("%s: noticed %+v, want %+v", name, got, want)
		}
	}
}

// What the operator has said already is no news.
func TestKeepaliveOfOperatorIsNotNoticed(t *testing.T) {
	b := noticing(t, session.KeepaliveHint, repeats(time.Second, "alive"), replies("2", "3"))
	for _, text := range []string{"alive", "3"} {
		b.beats(frame.Text, text, steady, steady, steady)
	}
	if got := b.noticed(); len(got) > 0 {
		t.Errorf("noticed %+v", got)
	}
}

func TestAutoGoesOnSendingWhatWasNoticed(t *testing.T) {
	for _, tt := range []struct {
		op         byte
		text, want string
	}{{frame.Text, "alive", "alive"}, {frame.Binary, "\x01", "\x01"}, {frame.Ping, "p", "Ping p"}} {
		b := noticing(t, session.KeepaliveAuto)
		b.beats(tt.op, tt.text, steady, steady)
		b.play(`forget; 2s; drop; game<; 3s-1ns; game<; 1ns; game< %s // when the client would have sent it
			5s; game< %[1]s; happens sent=2`, tt.want)
		for _, e := range b.events {
			if e.Kind == session.KeepaliveSent && !e.Own {
				t.Errorf("%+v, want it to be the client's own", e)
			}
		}
		b.play(`resume 0; 1m; game<`)
	}
	b := noticing(t, session.KeepaliveHint)
	b.beats(frame.Text, "alive", steady, steady)
	b.play(`drop; 20s; game<`)
}

// A client that stopped sending it while it was connected had a reason.
func TestAutoDoesNotSendWhatClientHasStoppedSending(t *testing.T) {
	for stopped, want := range map[time.Duration]string{10 * time.Second: "alive", 10*time.Second + 1: ""} {
		b := noticing(t, session.KeepaliveAuto)
		b.beats(frame.Text, "alive", steady, steady)
		b.now = b.now.Add(stopped)
		b.beats(frame.Text, "something else")
		b.play(`drop; 1ns; game< %s`, want)
	}
}

// A keepalive that has become another one is replaced; two that go on side by side are not distinguished.
func TestNewerKeepaliveReplacesOne(t *testing.T) {
	b := noticing(t, session.KeepaliveAuto)
	b.beats(frame.Text, "lobby", steady, steady)
	b.now = b.now.Add(steady)
	b.beats(frame.Text, "game", steady, steady, steady)
	if got := b.s.Info().Keepalive.Text; got != "game" {
		t.Errorf("noticed %q", got)
	}
}

func TestKeepaliveSurvivesUpgrade(t *testing.T) {
	b := noticing(t, session.KeepaliveAuto)
	b.beats(frame.Text, "alive", steady, steady)
	b.play(`upgrade; drop; forget; 5s; game< alive; upgrade; 5s; game< alive`)
}

// A game server that closes the connection of a client who is away may have missed its keepalives.
func TestUpstreamThatClosesWhileClientIsAwayIsReported(t *testing.T) {
	for how, ends := range map[string]string{"closed with 4000": `game> Close 4000 timeout`, "reset": `breaks`} {
		b := noticing(t, session.KeepaliveHint)
		b.beats(frame.Text, "alive", steady, steady)
		b.play(`3s; drop; 12s; forget; ` + ends)
		want := session.Event{
			Kind: session.UpstreamClosed, Epoch: 1, Reason: how, Elapsed: 12 * time.Second, Silent: 15 * time.Second,
			Keepalive: session.Keepalive{Every: steady, Text: "alive"},
		}
		if e := b.s.Events(); len(e) != 1 || e[0] != want {
			t.Errorf("%s: events %+v, want %+v", how, e, want)
		}
		noticing(t, session.KeepaliveHint).play(ends + `; happens closed=0`) // its client is there
	}
}

func TestNoticingAllocatesNothing(t *testing.T) {
	b := noticing(t, session.KeepaliveHint)
	n := 0
	texts := [][]byte{masked(frame.Binary, "same"), masked(frame.Binary, "1"), masked(frame.Binary, "22"), masked(frame.Binary, "333"), masked(frame.Binary, "4444"), masked(frame.Binary, "55555")}
	read := make([]byte, 64)
	var out [][]byte
	turn := func() {
		b.now = b.now.Add(300 * time.Millisecond)
		n++
		b.s.Read(b.now, b.att, read[:copy(read, texts[n%len(texts)])])
		for _, l := range []session.Leg{b.up, b.att} {
			out = b.s.Out(b.now, l, out[:0])
			size := 0
			for _, p := range out {
				size += len(p)
			}
			b.s.Wrote(b.now, l, size, false)
		}
	}
	for range 100 {
		turn()
		b.s.Events()
	}
	if got := testing.AllocsPerRun(1000, turn); got > 0 {
		t.Errorf("%v allocations for a message", got)
	}
}
