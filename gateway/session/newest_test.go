package session_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/newest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// states declares messages as states: --newest.
func states(values ...string) option {
	return func(c *session.Config) {
		var err error
		if c.Newest, err = newest.Parse(values); err != nil {
			panic(err)
		}
	}
}

// skipping is attached for a client that takes `skip`. Messages that begin with S or T are states.
func skipping(t *testing.T, options ...option) *table {
	t.Helper()
	b := connecting(t, conf(append([]option{states("s=S", "t=T")}, options...)...), "")
	b.skips = true
	b.first()
	b.play(`client> ^ack 0; client reads`)
	return b
}

func TestNewerMessagesReplaceOlderOnesWhileTheClientIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		options []option
		script  string
	}{
		"only the newest of each key comes, in order, and what was replaced is told where it stood": {script: `
			drop; game> S1, a, T2, S3, b, S4, T5, c
			resume 0; client< ^hello, ^skip 1, a, ^skip 2, b, S4, T5, c; client> ^ack 8; counts 0 0 8 8; drop; free`},
		"hello says how many come, and how many were replaced": {script: `
			drop; game> S1, a, S2, S3; resume 0; hello lost=0 replay=2 skipped=2`},
		"one after another": {script: `drop; game> S1; game> a; game> S2; game> S3; resume 0; hello replay=2 skipped=2`},
		"messages from before the detach are replaced, too": {script: `game> S1, a; drop; game> S2; resume 0; client< ^hello, ^skip 1, a, S2`},
		"no later message is needed":                        {script: `game> S1, a, S2; drop; resume 0; client< ^hello, ^skip 1, a, S2`},
		"a client that has a part of a run is told the rest": {script: `
			game> S1, S2, S3; client reads; drop; game> S4, S5, a
			resume 2; client< ^hello, ^skip 2, S5, a; client> ^ack 6; counts 0 0 6 6`},
		"and again, as long as it has not heard of it": {script: `
			game> S1, S2, S3; client reads; drop; game> S4, S5, a
			resume 2; drop; resume 2; client< ^hello, ^skip 2, S5, a; drop; resume 4; client< ^hello, S5, a; drop; resume 6; client< ^hello`},
		"it acks a part of the run":       {script: `game> S1, S2; client reads; drop; game> S3; resume 0; client< ^hello, ^skip 2, S3; client> ^ack 0, ^ack 1, ^ack 2, ^ack 3; counts 0 0 3 3; drop; free`},
		"and resumes there":               {script: `drop; game> S1, S2, S3; resume 0; client< ^hello, ^skip 2, S3; client> ^ack 1; drop; resume 1; client< ^hello, ^skip 1, S3`},
		"a run that was sent is still it": {script: `drop; game> S1, S2, S3; resume 0; client reads; drop; resume 2; client< ^hello, S3`},
		"runs are joined":                 {script: `drop; game> S1, S2; resume 0; drop; game> S3, S4; resume 0; client< ^hello, ^skip 3, S4`},
		"a client that acks what was not sent": {script: `
			drop; game> S1, S2, S3; resume 0; client> ^ack 1; ended`},
		"a state in frames": {script: `drop; game> "\x01\x01S", "\x80\x01x", a, S2; resume 0; client< ^hello, ^skip 1, a, S2`},
		"text that begins with DLE is matched without the one that escapes": {options: []option{states("d=\x10S")}, script: `
			drop; game> ^S1, ^S2; resume 0; client< ^hello, ^skip 1, ^^S2`},
		"data that looks like a run is none": {script: `
			drop; game> S1, ^skip 5, S2, skip 5; resume 0; client< ^hello, ^skip 1, ^^skip, S2, skip 5; client> ^ack 4; counts 0 0 4 4`},
		"binary messages": {options: []option{states("b=hex:0a")}, script: `
			drop; game> "\x82\x02\x0a1", "\x82\x02\x0b1", "\x82\x02\x0a2", "\x81\x02\x0a3"; resume 0; hello replay=3 skipped=1`},
		"entities": {options: []option{states("e=json:/type=state&/entity")}, script: `
			drop; game> {"type":"state","entity":1}, {"type":"state","entity":2}, {"type":"shot","entity":1}, {"type":"state","entity":1,"x":2}
			resume 0; hello replay=3 skipped=1`},
		"a keepalive that waits is answered once": {options: []option{replies("S2", "pong")}, script: `
			game> S1, S2; drop; game< pong; game> S1, S2; game< pong; resume 0; client< ^hello, ^skip 2, S1`},
		"takeover": {script: `game> S1, a, S2; resume 0; client< ^hello, ^skip 1, a, S2`},
		"the game server's end comes after them": {script: `
			drop; game> S1, S2, Close 4000 won; resume 0; client< ^hello, ^skip 1, S2, ^end, Close 4000 won; client> ^ack 2, Close 4000; ended; game reads; free`},
		"redial": {options: []option{redial}, script: `
			drop; game> S1, S2; breaks; next S3, a; resume 0; client< ^hello, ^skip 2, S3, a`},
		"hard": {options: []option{hard}, script: `
			game> S1, S2; drop; dial S3; resume 0; client< ^hello, ^skip 2, S3`},
		"an upgrade in between": {script: `
			game> S1, S2, S3; client reads; drop; game> S4, a; upgrade; game> S5; upgrade; resume 2; upgrade; client< ^hello, ^skip 2, a, S5; upgrade
			drop; resume 2; client< ^hello, ^skip 2, a, S5; client> ^ack 6; drop; upgrade; free`},
		"a hand-off": {options: []option{durable}, script: `
			game> S1, S2, S3; client reads; drop; game> S4, a; forget; leave; game reads; game> Close 1001; move 1h
			states 2 0; join 1; client< ^hello, ^skip 1, S4, a`},
	} {
		t.Run(name, func(t *testing.T) { skipping(t, c.options...).play(c.script) })
	}
}

func TestOverflowCountsNoReplacedMessage(t *testing.T) {
	for name, c := range map[string]struct {
		policy session.Overflow
		script string
	}{
		"end": {session.EndSession, `drop
			9 times: game> S1, T1
			game> a; detached; game> b; ended`},
		"pause": {session.Pause, `drop
			8 times: game> S1; game> T1
			game> a; game read; game> b; game unread; resume 0; client< ^hello, ^skip 14, S1, T1, a, ^ping; client> ^ack 17; client< b`},
		"a dropped message is lost, one that was replaced before is skipped": {session.DropOldest, `
			drop; game> a, S1, b, S2, c; resume 0; client< ^hello, ^skip 1, b, S2, c`},
		"hello says so":            {session.DropOldest, `drop; game> a, S1, b, S2, c; resume 0; hello lost=1 replay=3 skipped=1`},
		"runs behind what is lost": {session.DropOldest, `drop; game> a, S1, b, S2, c, d, e, S3; resume 0; client< ^hello, ^skip 1, d, e, S3; drop; resume 0; hello lost=4 replay=3 skipped=1`},
		"until its hello was taken": {session.DropOldest, `
			drop; game> a, S1, b, S2, c, d, e, S3; resume 0; client reads; client> ^ack 4; drop; resume 4; hello lost=0 replay=3 skipped=1`},
		"by the token of that hello": {session.DropOldest, `
			drop; game> a, S1, b, S2, c, d, e, S3; resume 0; drop; resume 4; hello lost=0 replay=3 skipped=1`},
		"a hello that was taken has changed the numbers": {session.DropOldest, `
			game> S1, a; client reads; drop; game> S2, b, c; resume 0; client< ^hello, ^skip 1, S2, b, c; drop; resume 1; hello lost=0 replay=3 skipped=1`},
		"also where an ack has shown it": {session.DropOldest, `
			game> S1, a; client reads; drop; game> S2, b, c; resume 0; client reads; client> ^ack 1; drop; resume 1; hello lost=0 replay=3 skipped=1`},
		"one that was not has changed nothing": {session.DropOldest, `
			game> S1, a; client reads; client> ^ack 0; drop; game> S2, b, c; states 1 0; resume 0; drop; join; hello lost=1 replay=3 skipped=0`},
		"what was sent keeps its numbers": {session.DropOldest, `
			game> S1, a, S2; client reads; drop; game> S3, b, c, d; resume 2; hello lost=1 replay=3 skipped=1`},
		"replaced messages make room": {session.DropOldest, `drop
			9 times: game> S1
			game> a, b; resume 0; hello lost=0 replay=3 skipped=8`},
	} {
		t.Run(name, func(t *testing.T) { skipping(t, buffer(3, c.policy)).play(c.script) })
	}
}

func TestClientThatTakesNoSkipsGetsEveryMessage(t *testing.T) {
	for name, b := range map[string]*table{
		"without the offer": attached(t, states("s=S")),
		"cookie":            attached(t, states("s=S"), cookie),
	} {
		b.t = t
		b.play(`drop; game> S1, S2, a`)
		b.s.Events()
		b.attach(session.Resume{Gen: b.s.Generation()})
		if got := fmt.Sprint(b.hears()); !strings.Contains(got, "S1 S2 a") {
			t.Errorf("%s: the client gets %s", name, got)
		}
	}
	b := connecting(t, conf(states("s=S")), "")
	b.skips = true
	b.play(`reserve; game> S1, S2; resume 0; client< ^hello, ^skip 1, S2`)
}

func TestResumeWithoutTheOfferIsRefusedWhereMessagesWereReplaced(t *testing.T) {
	skipping(t).play(`drop; game> S1, S2; skips no; refused 4408; skips; refused 0; resume 0; client< ^hello, ^skip 1, S2; client> ^ack 2
		drop; skips no; resume 2; client< ^hello; drop; game> S3, S4; resume 2; client< ^hello, S3, S4`)
}

// An older process would take a run for a message, and dropped messages for lost ones.
func TestOlderProcessGetsNoReplacedMessages(t *testing.T) {
	for script, later := range map[string]bool{
		`game> S1; drop; game> a`:                                        false,
		`drop; game> S1, S2`:                                             true,
		`game> S1, S2; client reads; drop; game> S3; resume 1`:           true,
		`drop; game> S1, S2; resume 0; client reads; client> ^ack 2`:     false,
		`drop; game> S1, S2, S3; resume 0; client reads; client> ^ack 1`: true,
		`drop; game> S1, S2; resume 0; client reads; drop; resume 2`:     false,
	} {
		b := skipping(t)
		b.play(script)
		b.s.Events()
		for _, format := range session.Formats {
			want := error(nil)
			if later && format < 3 {
				want = session.ErrLater
			}
			if _, err := b.s.Freeze(format); err != want {
				t.Errorf("%s: format %d: %v, want %v", script, format, err, want)
			}
		}
	}
}

func TestRulesMayChange(t *testing.T) {
	b := skipping(t)
	change := func(values ...string) {
		c := conf(states(values...))
		b.s.SetTerms(b.now, c.Terms)
	}
	b.play(`drop; game> S1, U1, S2, U2`)
	change("u=U")
	b.play(`game> S3, U3`)
	change()
	b.play(`game> S4, U4; resume 0; client< ^hello, ^skip 2, S2, ^skip 1, S3, U3, S4, U4`)
}

// lag sends what the socket does not take: message number n of a size.
func (b *table) lag(size int, messages ...string) {
	for _, m := range messages {
		b.game(text(m + strings.Repeat("x", size)))
	}
}

// short takes all output, and cuts the messages of lag.
func (b *table) short() string {
	var list []string
	for _, m := range b.hears() {
		list = append(list, strings.TrimRight(m, "x"))
	}
	return strings.Join(list, " ")
}

func TestMessagesForSlowClientAreReplacedAboveABacklog(t *testing.T) {
	b := skipping(t)
	b.lag(10000, "S1", "S2", "S3", "a", "S4", "S5")
	if got := b.short(); got != "S1 S2 S3 a S4 S5" {
		t.Errorf("below 64 KiB the client gets %q", got)
	}
	b.lag(10000, "S1", "S2", "S3", "a", "S4", "S5", "S6", "T1", "S7")
	if got := b.short(); got != "^skip 3 a ^skip 3 T1 S7" {
		t.Errorf("above 64 KiB the client gets %q", got)
	}
	b.lag(10000, "S1", "S2", "a")
	if got := b.short(); got != "S1 S2 a" {
		t.Errorf("having caught up the client gets %q", got)
	}
	b.play(`client> ^ack 18; counts 0 0 18 18; drop; free`)
}

func TestWhatHasBegunToGoOutIsNotReplaced(t *testing.T) {
	b := skipping(t)
	b.lag(10000, "a", "S1", "b", "S2", "c", "d")
	n := 0
	for _, p := range b.s.Out(b.now, b.att, nil) { // a write takes all of it
		n += len(p)
	}
	b.lag(10000, "S3", "S4", "T1", "T2", "h", "i", "j", "k", "S5")
	b.s.Wrote(b.now, b.att, 15000, true) // and stops inside S1
	if n != 60032 {
		t.Fatalf("the write has %d bytes", n)
	}
	b.lag(10000, "T3")
	rest := frame.Append(nil, frame.Text, []byte("S1"+strings.Repeat("x", 10000)))[15000-10005:]
	out := b.output()
	if !strings.HasPrefix(string(out), string(rest)) {
		t.Fatalf("the write goes on with %.20q", out)
	}
	b.part[b.up] = nil
	list, _ := frames(t, out[len(rest):])
	var got []string
	for _, m := range list {
		got = append(got, strings.TrimRight(m, "x"))
	}
	if got := strings.Join(got, " "); got != "b S2 c d ^skip 4 h i j k S5 T3" {
		t.Errorf("the client gets %s", got)
	}
}

// A follower is a client with a random fate, and what the game server has sent it.
type follower struct {
	*table
	r    *rand.Rand
	sent []string // message n is sent[n-1]
	wire []byte   // what its connection has taken, and the client has not
	in   []byte   // not a whole frame yet
	busy int      // bytes of a write in flight

	n, lost, skipped uint64
	gen              uint64 // of the newest hello that it has heard
	drops            bool   // --overflow drop-oldest

	part []byte    // what it has of message n+1,
	of   wire.Part // which comes in parts; the next one begins at From
}

func (f *follower) send() {
	for range 1 + f.r.IntN(6) {
		m := string("STabc"[f.r.IntN(5)]) + string('0'+byte(f.r.IntN(3)))
		n := len(f.sent) + 1
		m += fmt.Sprint(" ", n, " ", strings.Repeat(string('a'+rune(n%26)), []int{0, 0, 3, 30, 300, 3000, 6000, 20000}[f.r.IntN(8)]))
		f.sent = append(f.sent, m)
		f.game(text(m))
	}
}

// newer reports whether the game server has sent a newer message of the key of message n.
func (f *follower) newer(n uint64) bool {
	key := f.sent[n-1][:2]
	for _, m := range f.sent[n:] {
		if m[:2] == key {
			return key[0] == 'S' || key[0] == 'T'
		}
	}
	return false
}

// hear has the client read n bytes.
func (f *follower) hear(n int) {
	f.t.Helper()
	f.in = append(f.in, f.wire[:n]...)
	f.wire = f.wire[n:]
	list, rest := frames(f.t, f.in)
	f.in = append([]byte(nil), rest...)
	for _, m := range list {
		verb, arg, _ := strings.Cut(m, " ")
		switch {
		case verb == "^hello":
			var h wire.Hello
			if err := json.Unmarshal([]byte(arg), &h); err != nil {
				f.t.Fatal(err)
			}
			f.gen, f.of = f.s.Generation(), wire.Part{}
			if f.parts {
				f.of.From = h.Partial.Down
				f.part = f.part[:f.of.From]
			}
			f.n += h.Lost
			f.lost += h.Lost
		case verb == "^skip":
			k := uint64(f.number(arg))
			for n := f.n + 1; n <= f.n+k; n++ {
				if !f.drops && !f.newer(n) {
					f.t.Fatalf("message %d is skipped, and no newer one replaces it", n)
				}
			}
			f.n += k
			f.skipped += k
		case verb == "^parts":
			from := f.of.From
			if err := json.Unmarshal([]byte(arg), &f.of); err != nil || f.of.From != from {
				f.t.Fatalf("parts %s, want them from %d: %v", arg, from, err)
			}
			f.of.From = 0
		case strings.HasPrefix(m, "^"):
		default:
			if f.of.Bytes > 0 {
				if f.part = append(f.part, m...); int64(len(f.part)) < f.of.Bytes {
					continue
				}
				m, f.part, f.of.Bytes = string(f.part), nil, 0
			}
			if f.n++; f.n > uint64(len(f.sent)) || m != f.sent[f.n-1] {
				f.t.Fatalf("message %d is %.20q, of %d bytes", f.n, m, len(m))
			}
		}
	}
}

func (f *follower) step() {
	f.t.Helper()
	attached := f.s.State() == session.Attached
	switch op := f.r.IntN(20); {
	case op < 7 && !(f.drops && attached): // an attached client's game server waits for room
		f.send()
	case op < 9 && f.busy == 0 && attached:
		for _, p := range f.s.Out(f.now, f.att, nil) {
			f.busy += len(p)
			f.wire = append(f.wire, p...)
		}
	case op < 13 && f.busy > 0 && attached:
		n := f.r.IntN(f.busy + 1)
		f.wire = f.wire[:len(f.wire)-f.busy+n]
		f.s.Wrote(f.now, f.att, n, n < f.busy)
		f.busy = 0
	case op < 16 && len(f.wire) > f.busy:
		f.hear(f.r.IntN(len(f.wire)-f.busy) + 1)
	case op == 16 && attached && f.gen == f.s.Generation():
		f.says(fmt.Sprint("\x10ack ", f.n))
		if f.of.Bytes > 0 {
			f.says(fmt.Sprint("\x10part ", len(f.part)))
		}
	case op == 17 && attached && f.busy == 0:
		f.play("drop")
	case op == 18 && f.r.IntN(3) == 0 && f.busy == 0:
		f.upgrade()
	case op == 19 && f.busy == 0 && f.gen > 0 && f.r.IntN(3) == 0:
		f.resume()
	}
	if s := f.s.State(); s == session.Ended {
		f.t.Fatalf("the session has ended: %+v", f.s.Info().Ending)
	}
}

// resume attaches the client, detached or not. What its older connection has still to bring is lost.
func (f *follower) resume() {
	f.t.Helper()
	f.wire, f.in, f.busy, f.held = nil, nil, 0, len(f.part)
	f.attach(session.Resume{Gen: f.gen, Received: f.n})
	for _, e := range f.s.Events() {
		if (e.Kind == session.Resumed || e.Kind == session.Superseded) && f.n+e.Lost+e.Replay+e.Skipped != uint64(len(f.sent)) {
			f.t.Fatalf("with %d of %d messages, %d are lost, %d replayed, %d skipped", f.n, len(f.sent), e.Lost, e.Replay, e.Skipped)
		}
	}
}

func TestNoMessageIsMissingWithoutCause(t *testing.T) {
	var lost, skipped uint64
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		options, drops := []option{states("s=S0", "s1=S1", "s2=S2", "t0=T0", "t=T1"), buffer(1<<20, session.Pause), grace(time.Hour), func(c *session.Config) { c.BufferBytes = 64 << 20 }}, r.IntN(3) == 0
		if drops {
			options = append(options, buffer(2+r.IntN(20), session.DropOldest))
		}
		b := connecting(t, conf(options...), "")
		b.skips, b.parts = true, r.IntN(2) == 0
		b.first()
		f := &follower{table: b, r: r, drops: drops}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			f.t = t
			for range 400 {
				if drops && f.s.State() == session.Attached && f.busy == 0 && r.IntN(2) == 0 {
					f.play("drop") // an attached client is not read from while its buffer is full
				}
				f.step()
			}
			if f.busy > 0 {
				f.s.Wrote(f.now, f.att, 0, true)
			}
			if f.gen == 0 {
				f.gen = f.s.Generation()
			}
			f.busy = 0
			f.resume()
			for begin := true; begin || f.of.Bytes > 0; begin = false {
				f.wire = f.output()
				f.hear(len(f.wire))
				if f.of.Bytes > 0 {
					f.says(fmt.Sprint("\x10part ", len(f.part)))
				}
			}
			if f.n != uint64(len(f.sent)) || f.s.Info().Stats.Skipped < f.skipped || f.s.Info().Stats.Dropped < f.lost {
				t.Fatalf("the client has %d of %d messages, %d lost of %d, %d skipped of %d", f.n, len(f.sent), f.lost, f.s.Info().Stats.Dropped, f.skipped, f.s.Info().Stats.Skipped)
			}
			f.says(fmt.Sprint("\x10ack ", f.n))
			f.play(`drop; free`)
		})
		lost, skipped = lost+f.lost, skipped+f.skipped
	}
	if lost < 1000 || skipped < 5000 {
		t.Errorf("%d messages were lost, %d skipped: the test shows nothing", lost, skipped)
	}
}

// The memory of a player who is away is that of the states, however long they are away.
func TestAbsenceOfHalfAnHourTakesTheMemoryOfTheStates(t *testing.T) {
	for name, c := range map[string]struct {
		rule string
		tick func(n int) []string // what the game server sends at tick n
		left int                  // messages
	}{
		"one state of 1.2 kB": {"s=tick ", func(n int) []string { return []string{fmt.Sprintf("tick %8d %s", n, strings.Repeat("x", 1186))} }, 1},
		"50 entities, and a chat line a minute": {"e=json:/type=state&/entity", func(n int) (list []string) {
			list = append(list, fmt.Sprintf(`{"type":"state","entity":%2d,"at":[%6d,%6d],"pad":"%s"}`, n%50, n, -n, strings.Repeat("x", 100)))
			if n%1200 == 0 {
				list = append(list, fmt.Sprintf(`{"type":"chat","text":"%-8d"}`, n))
			}
			return list
		}, 50 + 30},
	} {
		t.Run(name, func(t *testing.T) {
			b := connecting(t, conf(states(c.rule), grace(30*time.Minute), buffer(4096, session.EndSession)), "")
			b.skips = true
			b.first()
			b.play(`client> ^ack 0; client reads; drop`)
			most, sent := int64(0), 0
			for n := range 30*60*20 - 1 {
				b.sleep(50 * time.Millisecond)
				for _, m := range c.tick(n) {
					b.game(text(m))
					sent++
				}
				most = max(most, b.store.Used())
			}
			i := b.s.Info()
			b.play(`resume 0`)
			h := b.hello()
			t.Logf("at most %d bytes of memory, %d of payload in %d messages are left of %d", most, i.BufferBytes, i.BufferMessages, sent)
			if most > 100<<10 || i.BufferMessages != c.left || h.Lost > 0 || h.Replay+h.Skipped != uint64(sent) || h.Replay != uint64(i.BufferMessages) {
				t.Errorf("at most %d bytes of memory, %d messages are left; hello %+v", most, i.BufferMessages, h)
			}
		})
	}
}

// looking is attached. Its next resume looks whether what waits looks like states.
func looking(t *testing.T, options ...option) *table {
	t.Helper()
	b := connecting(t, conf(options...), "")
	b.first()
	b.play(`client> ^ack 0; client reads`)
	b.looks = true
	return b
}

func TestStatesAreNoticedWhereMostOfWhatWaitsLooksLikeThem(t *testing.T) {
	for name, c := range map[string]struct {
		options []option
		script  string
		want    string
	}{
		"most":                            {nil, "drop\n24 times: game> pos|1, pos|22\n20 times: game> chat\n10s", "state=pos|"},
		"too few":                         {nil, "drop\n19 times: game> pos|1\n10s", ""},
		"a short absence":                 {nil, "drop\n48 times: game> pos|1\n2s", ""},
		"less than one a second":          {nil, "drop\n30 times: game> pos|1\n40s", ""},
		"some that are too large to read": {nil, "drop\n24 times: game> pos|1\ngame> pos|" + strings.Repeat("x", 5000) + "\n10s", "state=pos|"},
		"all large":                       {nil, "drop\n24 times: game> pos|" + strings.Repeat("x", 5000) + "\n10s", "state=pos|"},
		"escaped":                         {nil, "drop\n24 times: game> ^pos|1\n10s", ""},
		"a rule is set":                   {[]option{states("s=chat")}, "drop\n24 times: game> pos|1\n10s", ""},
		"a takeover":                      {nil, "24 times: game> pos|1\n4s; client> ^pong; forget", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := looking(t, append(c.options, grace(time.Hour))...)
			b.play(c.script + "\nresume 0")
			got := ""
			for _, e := range b.s.Events() {
				if e.Kind == session.StatesNoticed {
					got = e.Detail
				}
			}
			if got != c.want || b.s.Info().States != c.want {
				t.Errorf("noticed %q, in the record %q, want %q", got, b.s.Info().States, c.want)
			}
		})
	}
}
