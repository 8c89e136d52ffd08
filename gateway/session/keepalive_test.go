package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

func keepaliveConfig(m session.KeepaliveMode) session.Config {
	c := config()
	c.Keepalive, c.Heartbeat = m, time.Hour
	return c
}

// beats has the client send a frame now and after each gap.
func (b *table) beats(op byte, payload string, gaps ...time.Duration) {
	for i := range len(gaps) + 1 {
		if i > 0 {
			b.now = b.now.Add(gaps[i-1])
		}
		b.s.Read(b.now, b.att, frame.AppendMasked(nil, op, [4]byte{1, byte(b.now / 7), 3, byte(b.now / 1e9)}, []byte(payload)))
		b.s.Retain()
		b.takes(b.up, 1<<30)
		b.hears()
	}
}

const steady = 5 * time.Second

func TestSteadyMessageIsNoticed(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		op      byte
		payload string
		gaps    []time.Duration
		want    session.Keepalive
	}{
		{"three times", frame.Text, "alive", []time.Duration{steady, steady}, session.Keepalive{Every: steady, Text: "alive"}},
		{"bytes", frame.Binary, "\x00\x01", []time.Duration{2 * time.Second, 2 * time.Second}, session.Keepalive{Every: 2 * time.Second, Text: "\x00\x01", Kind: session.KeepaliveBinary}},
		{"Pings", frame.Ping, "", []time.Duration{30 * time.Second, 30 * time.Second}, session.Keepalive{Every: 30 * time.Second, Kind: session.KeepalivePing}},
		{"within a tenth", frame.Text, "alive", []time.Duration{steady, 5500 * ms}, session.Keepalive{Every: steady, Text: "alive"}},
		{"a second", frame.Text, "alive", []time.Duration{time.Second, 950 * ms}, session.Keepalive{Every: time.Second, Text: "alive"}},
		{"long", frame.Text, strings.Repeat("x", 256), []time.Duration{steady, steady}, session.Keepalive{Every: steady, Text: strings.Repeat("x", 256)}},
		{"after others", frame.Text, "alive", []time.Duration{time.Second, steady, 7 * time.Second, 7 * time.Second}, session.Keepalive{Every: 7 * time.Second, Text: "alive"}},

		{"twice", frame.Text, "alive", []time.Duration{steady}, session.Keepalive{}},
		{"at no pace", frame.Text, "alive", []time.Duration{steady, 6 * time.Second, steady, 4 * time.Second}, session.Keepalive{}},
		{"a held key", frame.Text, "fire", []time.Duration{500 * ms, 500 * ms, 500 * ms, 500 * ms}, session.Keepalive{}},
		{"rare", frame.Text, "alive", []time.Duration{3 * time.Minute, 3 * time.Minute}, session.Keepalive{}},
		{"too long", frame.Text, strings.Repeat("x", 257), []time.Duration{steady, steady}, session.Keepalive{}},
	} {
		for _, mode := range []session.KeepaliveMode{session.KeepaliveHint, session.KeepaliveAuto, session.KeepaliveOff} {
			b := started(t, keepaliveConfig(mode))
			b.beats(tt.op, tt.payload, tt.gaps...)
			want := tt.want
			if mode == session.KeepaliveOff {
				want = session.Keepalive{}
			}
			if got := b.s.Info().Keepalive; got != want {
				t.Errorf("%s, %v: noticed %+v, want %+v", tt.name, mode, got, want)
			}
			if n := len(b.noticed()); n != map[bool]int{true: 1}[want.Every > 0] {
				t.Errorf("%s, %v: %d events", tt.name, mode, n)
			}
		}
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

// A message that changes each time is none, and hides none.
func TestKeepaliveIsNoticedAmongOtherMessages(t *testing.T) {
	for name, other := range map[string]func(n int) string{
		"longer":        func(n int) string { return fmt.Sprintf(`{"type":"move","to":[%d,%d]}`, n, 2*n) },
		"shorter":       func(n int) string { return fmt.Sprint(n) },
		"of its length": func(n int) string { return fmt.Sprintf("%21d", n) },
	} {
		b := started(t, keepaliveConfig(session.KeepaliveHint))
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
	c := keepaliveConfig(session.KeepaliveHint)
	c.Keepalives = []session.Keepalive{{Every: time.Second, Text: "alive"}}
	c.KeepaliveReplies = []session.KeepaliveReply{{In: "2", Out: "3"}}
	b := started(t, c)
	for _, text := range []string{"alive", "3"} {
		b.beats(frame.Text, text, steady, steady, steady)
	}
	if got := b.noticed(); len(got) > 0 {
		t.Errorf("noticed %+v", got)
	}
}

func TestAutoGoesOnSendingWhatWasNoticed(t *testing.T) {
	for _, tt := range []struct {
		op   byte
		text string
		want string
	}{{frame.Text, "alive", "alive"}, {frame.Binary, "\x01", "\x01"}, {frame.Ping, "p", "ping p"}} {
		b := started(t, keepaliveConfig(session.KeepaliveAuto))
		b.beats(tt.op, tt.text, steady, steady)
		b.noticed()
		b.sleep(2 * time.Second)
		b.drop()
		b.wants(b.up)
		b.sleep(3*time.Second - 1)
		b.wants(b.up)
		b.sleep(1)
		b.wants(b.up, tt.want) // when the client would have sent it
		b.sleep(steady)
		b.wants(b.up, tt.want)
		sent := 0
		for _, e := range b.s.Events() {
			if e.Kind == session.KeepaliveSent && e.Own {
				sent++
			}
		}
		if sent != 2 {
			t.Errorf("%d events of 2", sent)
		}
		b.resume(0)
		b.sleep(time.Minute)
		b.wants(b.up)
	}
}

func TestHintSendsNothing(t *testing.T) {
	b := started(t, keepaliveConfig(session.KeepaliveHint))
	b.beats(frame.Text, "alive", steady, steady)
	b.drop()
	b.sleep(20 * time.Second)
	b.wants(b.up)
}

// A client that stopped sending it while it was connected had a reason.
func TestAutoDoesNotSendWhatClientHasStoppedSending(t *testing.T) {
	for stopped, want := range map[time.Duration][]string{10 * time.Second: {"alive"}, 10*time.Second + 1: nil} {
		b := started(t, keepaliveConfig(session.KeepaliveAuto))
		b.beats(frame.Text, "alive", steady, steady)
		b.now = b.now.Add(stopped)
		b.beats(frame.Text, "something else")
		b.drop()
		b.sleep(1)
		b.wants(b.up, want...)
	}
}

// A keepalive that has become another one is replaced; two that go on side by side are not told apart.
func TestNewerKeepaliveReplacesOne(t *testing.T) {
	b := started(t, keepaliveConfig(session.KeepaliveAuto))
	b.beats(frame.Text, "lobby", steady, steady)
	b.now = b.now.Add(steady)
	b.beats(frame.Text, "game", steady, steady, steady)
	if got := b.s.Info().Keepalive.Text; got != "game" {
		t.Errorf("noticed %q", got)
	}
}

func TestKeepaliveSurvivesUpgrade(t *testing.T) {
	b := started(t, keepaliveConfig(session.KeepaliveAuto))
	b.beats(frame.Text, "alive", steady, steady)
	b.noticed()
	b.move()
	b.drop()
	b.s.Events()
	b.sleep(steady)
	b.wants(b.up, "alive")
	b.s.Events()
	b.move()
	b.sleep(steady)
	b.wants(b.up, "alive")
}

// move freezes the session, and goes on with what is restored.
func (b *table) move() {
	b.t.Helper()
	b.s.Events()
	f, err := b.s.Freeze(session.Formats[0])
	if err != nil {
		b.t.Fatal(err)
	}
	key := byte(0)
	s, err := session.Restore(session.Formats[0], f.State, slices.Concat(f.Content...), b.store, func() [4]byte { key++; return [4]byte{key} })
	if err != nil {
		b.t.Fatal(err)
	}
	b.s.Discard()
	b.s, b.up, b.att = s, s.Upstream(), s.Attachment()
}

// A game server that closes the connection of a client who is away may have missed its keepalives.
func TestUpstreamThatClosesWhileClientIsAwayIsReported(t *testing.T) {
	for how, ends := range map[string]func(*table){
		"closed with 4000": func(b *table) { b.game(closing(4000, "timeout")) },
		"reset":            (*table).breaks,
	} {
		b := started(t, keepaliveConfig(session.KeepaliveHint))
		b.beats(frame.Text, "alive", steady, steady)
		b.sleep(3 * time.Second)
		b.drop()
		b.sleep(12 * time.Second)
		b.s.Events()
		ends(b)
		e := b.s.Events()
		want := session.Event{
			Kind: session.UpstreamClosed, Epoch: 1, Reason: how, Elapsed: 12 * time.Second, Silent: 15 * time.Second,
			Keepalive: session.Keepalive{Every: steady, Text: "alive"},
		}
		if len(e) != 1 || e[0] != want {
			t.Errorf("%s: events %+v, want %+v", how, e, want)
		}
		b = started(t, keepaliveConfig(session.KeepaliveHint))
		ends(b)
		for _, e := range b.s.Events() {
			if e.Kind == session.UpstreamClosed {
				t.Errorf("%s: %+v of an attached session", how, e)
			}
		}
	}
}

func TestNoticingAllocatesNothing(t *testing.T) {
	b := started(t, keepaliveConfig(session.KeepaliveHint))
	n := 0
	texts := [][]byte{masked(frame.Binary, "same"), masked(frame.Binary, "1"), masked(frame.Binary, "22"), masked(frame.Binary, "333"), masked(frame.Binary, "4444"), masked(frame.Binary, "55555")}
	read := make([]byte, 64)
	var out [][]byte
	turn := func() {
		b.now = b.now.Add(300 * time.Millisecond)
		n++
		b.s.Read(b.now, b.att, read[:copy(read, texts[n%len(texts)])])
		out = b.s.Out(b.now, b.up, out[:0])
		size := 0
		for _, p := range out {
			size += len(p)
		}
		b.s.Wrote(b.now, b.up, size, false)
		out = b.s.Out(b.now, b.att, out[:0])
		size = 0
		for _, p := range out {
			size += len(p)
		}
		b.s.Wrote(b.now, b.att, size, false)
	}
	for range 100 {
		turn()
		b.s.Events()
	}
	if got := testing.AllocsPerRun(1000, turn); got > 0 {
		t.Errorf("%v allocations for a message", got)
	}
}
