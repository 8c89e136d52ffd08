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
	from     int64 // answered at began
	began    session.Time
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
		l.game("") // its writes are taken at once
		l.gameGets(l.up2())
		if l.s.State() != session.Attached {
			l.t.Fatalf("at %.0f B/s: %v after %d bytes here, %d there", l.rate, l.s.State(), l.parts.From, l.sends.From)
		}
	}
}

func (l *slowLine) up2() *session.Upstream { return l.table.up }

// pump gives the network what either side has to say.
func (l *slowLine) pump() {
	l.down.send(l.now, l.rate, l.output())
	for s := &l.sends; s.Bytes > s.From; {
		size := min(l.window/8, session.PartBytes, s.Bytes-s.From)
		if open := s.From - l.answered; open > 0 && open+size > l.window {
			if !l.asked {
				l.asked = true
				l.say(fmt.Sprintf("ping %d", l.now))
			}
			break
		}
		if l.began == 0 {
			l.began = l.now
		}
		l.up.send(l.now, l.rate, masked(frame.Binary, strings.Repeat("u", int(size))))
		s.From += size
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
		h, err := frame.Parse(l.in)
		end := h.Size + int(h.Length)
		if err != nil {
			l.t.Fatal(err)
		}
		if h.Size == 0 || end > len(l.in) {
			return
		}
		p := l.in[h.Size:end]
		l.in = l.in[end:]
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
			l.answered = n
			took := l.now.Sub(l.began)
			if took < 250*time.Millisecond+l.up.delay+l.down.delay && 2*(n-l.from) < l.window {
				continue
			}
			fits := int64(float64(n-l.from) / max(took, time.Millisecond).Seconds() * (750*time.Millisecond + l.up.delay + l.down.delay).Seconds())
			if fits > l.window+l.window/4 {
				fits = max(fits, 2*l.window)
			}
			l.window = min(max(fits, l.window*3/4, 2<<10), 4*l.window, 1<<20)
			l.began, l.from = l.now, n
		}
	}
}

// native is the time that the message takes without anything around it.
func (l *slowLine) native(size int) time.Duration {
	return time.Duration(float64(size)/l.rate*1e9) + l.down.delay
}

// A large message takes the time of its line, and pings wait behind no more than about a second of it.
func TestLargeMessageTakesTheTimeOfItsLine(t *testing.T) {
	for _, rate := range []float64{2e3, 12e3, 100e3, 1e6} {
		for _, trip := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond} {
			size := int(min(max(rate*20, 100<<10), 4<<20))
			l := newSlowLine(t, rate, trip)
			never := func() bool { return l.whole > 0 }
			l.run(20*time.Second, func() bool { return l.pings > 3 })
			l.table.game(string(frame.Append(nil, frame.Binary, make([]byte, size))))
			begun := l.now
			l.run(time.Second*4, func() bool { return l.whole > 0 || l.now >= begun.Add(3*time.Second) })
			l.worst = 0
			l.run(4*l.native(size), never)
			took, native := l.whole.Sub(begun), l.native(size)
			t.Logf("down %.0f B/s, %v: %d bytes in %v, %.3f of native %v; worst pong %v, longest silence %v", rate, trip, size, took, took.Seconds()/native.Seconds(), native, l.worst, l.silence)

			l = newSlowLine(t, rate, trip)
			l.run(20*time.Second, func() bool { return l.pings > 3 })
			l.say(fmt.Sprintf(`parts {"bytes":%d}`, size))
			l.sends.Bytes = int64(size)
			begun = l.now
			l.run(time.Second*4, func() bool { return l.acked > 0 || l.now >= begun.Add(3*time.Second) })
			l.worst = 0
			l.run(4*l.native(size), func() bool { return l.acked > 0 })
			took = l.acked.Sub(begun)
			t.Logf("up %.0f B/s, %v: %d bytes in %v, %.3f of native %v; worst pong %v, longest silence %v", rate, trip, size, took, took.Seconds()/native.Seconds(), native, l.worst, l.silence)
		}
	}
}
