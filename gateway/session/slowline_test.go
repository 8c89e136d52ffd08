package session_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A slowLine is a client as protocol section 3.1 describes it behind a network that takes everything at once, and
// delivers it at a rate: whatever is given to it waits there.
type slowLine struct {
	*table
	rate     float64 // bytes a second
	down, up pipe

	in       []byte
	parts    wire.Part // that come: From counts what has
	told     int64
	since    session.Time // of the oldest part that no `part` covers
	whole    session.Time // when the message was
	pings    int
	pinged   session.Time
	worst    time.Duration // the longest time that a pong took
	silence  time.Duration // and the longest that nothing came
	heard    session.Time
	sends    wire.Part // that go: From counts what has
	answered int64
	window   int64
	full     int64        // the window was full when so much was sent; zero: it was not since it was last measured,
	fullAt   session.Time // then,
	before   int64        // and so much was answered before
	acked    session.Time
	asked    bool
}

// A pipe is one direction: bytes that are on their way, and when they arrive.
type pipe struct {
	delay time.Duration
	free  session.Time // when the last byte will have left
	list  []arriving
}

type arriving struct {
	at session.Time
	p  []byte
}

func (p *pipe) send(now session.Time, rate float64, b []byte) {
	for len(b) > 0 {
		n := min(len(b), 200)
		p.free = max(p.free, now).Add(time.Duration(float64(n) / rate * 1e9))
		p.list = append(p.list, arriving{p.free.Add(p.delay), bytes.Clone(b[:n])})
		b = b[n:]
	}
}

func (p *pipe) take(now session.Time) (b []byte) {
	for len(p.list) > 0 && p.list[0].at <= now {
		b = append(b, p.list[0].p...)
		p.list = p.list[1:]
	}
	return b
}

func newSlowLine(t *testing.T, rate float64, trip time.Duration) *slowLine {
	l := &slowLine{table: connecting(t, conf(answer(3*time.Second), heartbeat(15*time.Second), func(c *session.Config) {
		c.BufferBytes, c.MaxMessage = 17<<20, 16<<20
	}), ""), rate: rate, window: 8 << 10}
	l.down.delay, l.up.delay = trip/2, trip/2
	p := l.pass()
	p.Parts, p.Partial = true, true
	l.att = l.s.AttachFirst(l.now, p)
	l.heard = l.now
	return l
}

func (l *slowLine) say(text string) {
	l.up.send(l.now, l.rate, masked(frame.Text, "\x10"+text))
}

// run lets time pass until done, or for so long.
func (l *slowLine) run(limit time.Duration, done func() bool) {
	l.t.Helper()
	for end := l.now.Add(limit); !done(); {
		l.pump()
		next := end
		soon := func(t session.Time) {
			if t > 0 {
				next = min(next, max(t, l.now))
			}
		}
		soon(l.s.Next())
		for _, p := range []*pipe{&l.down, &l.up} {
			if len(p.list) > 0 {
				soon(p.list[0].at)
			}
		}
		if l.since > 0 {
			soon(l.since.Add(250 * time.Millisecond))
		}
		soon(l.pinged.Add(time.Second))
		if l.now = next; l.now >= end {
			l.t.Fatalf("at %.0f B/s: not done after %v; %v, %d bytes here, %d there", l.rate, limit, l.s.State(), l.parts.From, l.sends.From)
		}
		if t := l.s.Next(); t > 0 && t <= l.now {
			l.s.Tick(l.now)
		}
		if b := l.up.take(l.now); len(b) > 0 {
			l.read(b)
		}
		if b := l.down.take(l.now); len(b) > 0 {
			l.silence, l.heard = max(l.silence, l.now.Sub(l.heard)), l.now
			l.hears(b)
		}
		l.clocks()
		l.gameGets(l.table.up)
		if l.s.State() != session.Attached {
			l.t.Fatalf("at %.0f B/s: %v after %d bytes here, %d there", l.rate, l.s.State(), l.parts.From, l.sends.From)
		}
	}
}

// pump gives the network what either side has to say.
func (l *slowLine) pump() {
	l.down.send(l.now, l.rate, l.output())
	for s := &l.sends; s.Bytes > s.From; {
		size := min(l.window/8, session.PartBytes)
		if open := s.From - l.answered; open > 0 && open+min(size, s.Bytes-s.From) > l.window {
			break
		}
		n := min(size, s.Bytes-s.From)
		l.up.send(l.now, l.rate, masked(frame.Binary, strings.Repeat("u", int(n))))
		if s.From += n; l.full == 0 && s.From-l.answered+min(size, s.Bytes-s.From) > l.window {
			if l.full, l.fullAt, l.before = s.From, l.now, l.answered; !l.asked {
				l.asked = true
				l.say(fmt.Sprintf("ping %d", l.now))
			}
		}
	}
}

func (l *slowLine) clocks() {
	if l.since > 0 && (l.now >= l.since.Add(250*time.Millisecond) || l.parts.From-l.told >= 32<<10) {
		l.answer()
	}
	if l.now >= l.pinged.Add(time.Second) {
		l.pinged = l.now
		l.pings++
		l.say(fmt.Sprintf("ping %d", l.now))
	}
}

func (l *slowLine) answer() {
	if l.since > 0 {
		l.told, l.since = l.parts.From, 0
		l.say("part " + strconv.FormatInt(l.told, 10))
	}
}

func (l *slowLine) hears(p []byte) {
	l.in = append(l.in, p...)
	for {
		h, p, ok := nextFrame(l.t, &l.in)
		if !ok {
			return
		}
		if h.Op == frame.Binary {
			if l.parts.From += h.Length; l.parts.From == l.parts.Bytes {
				l.whole, l.since = l.now, 0
				l.say("ack 1")
			} else if l.since == 0 {
				l.since = l.now
			}
			continue
		}
		verb, arg, _ := strings.Cut(string(p[1:]), " ")
		n, _ := strconv.ParseInt(arg, 10, 64)
		switch verb {
		case "hello":
			l.say("ack 0")
		case "ping":
			l.answer()
			l.say("pong " + arg)
		case "pong":
			l.worst = max(l.worst, l.now.Sub(session.Time(n)))
		case "parts":
			if err := json.Unmarshal([]byte(arg), &l.parts); err != nil {
				l.t.Fatal(err)
			}
		case "ack":
			if n > 0 && l.acked == 0 {
				l.acked = l.now
			}
		case "part":
			if l.answered = n; n > l.sends.From {
				l.t.Fatalf("part %d of %d", n, l.sends.From)
			}
			took, within, least := l.now.Sub(l.fullAt), 750*time.Millisecond+2*(l.up.delay+l.down.delay), int64(2<<10)
			if l.parts.From < l.parts.Bytes {
				within, least = within+750*time.Millisecond, l.window
			}
			if l.full == 0 || n < l.full && took < within {
				continue
			}
			fits := int64(float64(n-l.before) * float64(within) / float64(max(took, time.Millisecond)))
			l.window, l.full = min(max(fits, least), 4*l.window, 1<<20), 0
		}
	}
}

// A large message takes the time of its line, and pings wait behind no more than about a second of it, once the line
// has been measured. On a line of 12 kB/s that is a message of 16 MiB, in 24 minutes.
func TestLargeMessageTakesTheTimeOfItsLine(t *testing.T) {
	for _, c := range []struct {
		rate float64
		trip time.Duration
		size int
	}{
		{2e3, 20 * time.Millisecond, 60e3}, {2e3, 200 * time.Millisecond, 60e3}, {2e3, 600 * time.Millisecond, 60e3},
		{50e3, 600 * time.Millisecond, 1 << 20},
		{12e3, 20 * time.Millisecond, 16 << 20}, {12e3, 200 * time.Millisecond, 300e3}, {12e3, 600 * time.Millisecond, 300e3},
		{100e3, 20 * time.Millisecond, 1e6}, {100e3, 200 * time.Millisecond, 2e6}, {100e3, 300 * time.Millisecond, 2e6},
		{1e6, 20 * time.Millisecond, 10e6}, {1e6, 100 * time.Millisecond, 10e6},
	} {
		for _, dir := range []string{"down", "up"} {
			l := newSlowLine(t, c.rate, c.trip)
			l.run(20*time.Second, func() bool { return l.pings > 3 })
			begun, done := l.now, func() bool { return l.whole > 0 || l.acked > 0 }
			if dir == "down" {
				l.table.game(string(frame.Append(nil, frame.Binary, make([]byte, c.size))))
			} else {
				l.say(fmt.Sprintf(`parts {"bytes":%d}`, c.size))
				l.sends.Bytes = int64(c.size)
			}
			native := time.Duration(float64(c.size)/c.rate*1e9) + c.trip/2
			l.run(2*native, func() bool { return l.now >= begun.Add(native/2) })
			l.worst, l.silence = 0, 0
			l.run(2*native, done)
			took := max(l.whole, l.acked).Sub(begun)
			t.Logf("%s at %.0f kB/s, round trip %v: %d bytes in %v, %.3f of native; a pong took %v at most, the longest silence %v",
				dir, c.rate/1e3, c.trip, c.size, took.Round(time.Millisecond), took.Seconds()/native.Seconds(), l.worst.Round(time.Millisecond), l.silence.Round(time.Millisecond))
			if took > native+native/10 {
				t.Errorf("it took %v, want at most a tenth more than %v", took, native)
			}
			if most := 1200*time.Millisecond + 2*c.trip; l.worst > most || l.silence > most {
				t.Errorf("a pong took %v, and nothing came for %v; want at most %v", l.worst, l.silence, most)
			}
		}
	}
}

// With large messages both ways the answers of each side wait behind its own parts, and arrive together: that is no sign
// of a fast line, nor, while one of them starves, of a slower one. At 2 kB/s the first windows of both take four seconds.
func TestLargeMessagesBothWaysShareTheLine(t *testing.T) {
	for _, c := range []struct {
		rate float64
		trip time.Duration
		size int
		most float64 // of native
	}{
		{2e3, 20 * time.Millisecond, 60e3, 1.1}, {2e3, 600 * time.Millisecond, 60e3, 1.1}, {12e3, 20 * time.Millisecond, 600e3, 1.1},
		{12e3, 200 * time.Millisecond, 600e3, 1.3}, {100e3, 100 * time.Millisecond, 4e6, 1.4}, {1e6, 100 * time.Millisecond, 16e6, 1.1},
	} {
		l := newSlowLine(t, c.rate, c.trip)
		l.run(20*time.Second, func() bool { return l.pings > 3 })
		l.worst = 0
		begun := l.now
		l.table.game(string(frame.Append(nil, frame.Binary, make([]byte, c.size))))
		l.say(fmt.Sprintf(`parts {"bytes":%d}`, c.size))
		l.sends.Bytes = int64(c.size)
		native := time.Duration(float64(c.size)/c.rate*1e9) + c.trip/2
		l.run(3*native, func() bool { return l.whole > 0 && l.acked > 0 })
		down, up := l.whole.Sub(begun), l.acked.Sub(begun)
		t.Logf("both at %.0f kB/s, round trip %v: %d bytes down in %.3f of native, up in %.3f; a pong took %v at most",
			c.rate/1e3, c.trip, c.size, down.Seconds()/native.Seconds(), up.Seconds()/native.Seconds(), l.worst.Round(time.Millisecond))
		if took := max(down, up); took.Seconds() > native.Seconds()*c.most {
			t.Errorf("it took %v, want at most %.2f times %v", took, c.most, native)
		}
		if most := 4600*time.Millisecond + c.trip; l.worst > most {
			t.Errorf("a pong took %v, want at most %v", l.worst, most)
		}
	}
}
