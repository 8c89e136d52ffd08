package session_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// ---- downward

// newPartial is a client that goes on inside messages. It says no `part` by itself.
func newPartial(t *testing.T, options ...option) *parted {
	b := &parted{table: connecting(t, conf(options...), ""), partial: true}
	b.att = b.s.AttachFirst(b.now, b.pass())
	b.says("\x10ack 0")
	b.takesAll()
	b.got = nil
	return b
}

// answers says how much of the message has come.
func (b *parted) answers() { b.says(fmt.Sprint("\x10part ", len(b.msg))) }

// wantMessages is wantGot without the pings that ask for an answer.
func (b *parted) wantMessages(want ...string) {
	b.t.Helper()
	b.got = slices.DeleteFunc(b.got, func(s string) bool { return s == wire.VerbPing })
	b.wantGot(want...)
}

// takesOn takes everything, and answers whenever the window is full.
func (b *parted) takesOn() {
	for n := -1; len(b.msg) != n || b.takes(1<<30); b.answers() {
		n = len(b.msg)
		b.takesAll()
	}
}

// cut loses the connection, and resumes with n messages and so many bytes of the next. It takes hello.
func (b *parted) cut(n uint64, held int) wire.Hello {
	b.t.Helper()
	if b.s.State() == session.Attached {
		b.s.Disconnected(b.now, b.att, "cut")
	}
	p := b.pass()
	p.Held = uint64(held)
	a, ref := b.s.Attach(b.now, session.Resume{Gen: b.s.Generation(), Received: n, Skips: b.skips}, p)
	if ref != nil {
		b.t.Fatal(ref)
	}
	b.att, b.in, b.left, b.h = a, nil, 0, nil
	for b.h == nil {
		b.takes(1)
	}
	b.got = nil
	return *b.h
}

// A message that is cut anywhere, again and again, comes together from what each connection brought.
func TestMessageGoesOnWhereItWasCut(t *testing.T) {
	for _, shape := range [][]int{{100000}, {4097}, {30000, 0, 50000, 1}} {
		for write := 4000; write < 40000; write += 1234 {
			b := newPartial(t)
			sent := b.message(frame.Text, "\x10", shape...)
			small := b.message(frame.Text, "small", 10)
			for round := 0; len(b.got) == 0; round++ {
				if round > 100 {
					t.Fatalf("%d bytes after 100 cuts", len(b.msg))
				}
				b.takes(write + 100*round)
				if len(b.got) > 0 {
					break
				}
				if round%2 == 0 {
					b.answers()
				}
				if h := b.cut(0, len(b.msg)); h.Partial.Down != int64(len(b.msg)) {
					t.Fatalf("down %d, want %d", h.Partial.Down, len(b.msg))
				}
			}
			b.takesOn()
			b.wantGot("true \x10"+sent, "true "+small)
		}
	}
}

// What a client holds of a message that was replaced is no beginning of the one behind it, also where it has a part
// of the run.
func TestReplacedMessageIsNotGoneOnWith(t *testing.T) {
	b := newPartial(t, states("s=S"))
	b.skips = true
	b.cut(0, 0)
	b.message(frame.Text, "S1", 3)
	b.takesAll()
	b.message(frame.Text, "S2", 9000)
	b.takes(5000)
	held := len(b.msg)
	b.s.Disconnected(b.now, b.att, "cut")
	sent := b.message(frame.Text, "S3", 9000)
	if h := b.cut(1, held); held == 0 || h.Partial.Down != 0 || h.Skipped != 1 {
		t.Fatalf("held %d: down %d, skipped %d, want 0 and 1", held, h.Partial.Down, h.Skipped)
	}
	b.msg = nil
	b.takesOn()
	b.wantMessages("skip", "true "+sent)
}

// A message of which a write has stopped inside the first part is not replaced while its connection lives.
func TestMessageBegunInPartsIsNotReplaced(t *testing.T) {
	b := newPartial(t, states("s=S"), func(c *session.Config) { c.BufferBytes = 1 << 20 })
	b.skips = true
	b.cut(0, 0)
	first := b.message(frame.Text, "S1", 9000)
	b.takes(1000)
	other := b.message(frame.Text, "a", 80000)
	second := b.message(frame.Text, "S2", 10)
	b.takesOn()
	b.wantMessages("true "+first, "true "+other, "true "+second)
}

// A drain, or the next takeover, may come before anything went on; a drain sends all of it, whatever the window is.
func TestMessageThatHasNotGoneOnIsEndedInOrder(t *testing.T) {
	for name, end := range map[string]func(b *parted){
		"drain":    func(b *parted) { b.s.Drain(b.now, time.Second) },
		"takeover": func(b *parted) { b.cut(0, len(b.msg)) },
	} {
		for _, written := range []int{0, 5, 1000, 6000} {
			b := newPartial(t)
			sent := b.message(frame.Text, "", 200000)
			b.takes(7000)
			b.cut(0, len(b.msg))
			b.takes(written)
			if end(b); name == "drain" {
				b.takesAll()
				b.wantMessages("true "+sent, "close", "Close")
				continue
			}
			b.takesOn()
			b.wantMessages("true " + sent)
		}
	}
}

// The end of the game server follows the last part.
func TestEndFollowsLastPart(t *testing.T) {
	b := newPartial(t)
	sent := b.message(frame.Binary, "", 100000)
	b.play(`game> Close 4000`)
	b.takesOn()
	b.wantMessages("false "+sent, "end", "Close")
}

// A message that fits into the window is not cut smaller than before.
func TestPartsAreAsLargeAsTheWindowAllows(t *testing.T) {
	for size, first := range map[int]int64{8192: 4096, 8193: 1024} {
		b := newPartial(t)
		b.message(frame.Binary, "", size)
		out := slices.Concat(b.s.Out(b.now, b.att, nil)...)
		h, _ := frame.Parse(out)
		if h, _ = frame.Parse(out[h.Size+int(h.Length):]); h.Length != first {
			t.Errorf("the first part of %d bytes has %d, want %d", size, h.Length, first)
		}
	}
}

// What a client cannot hold of the message that comes first is not left out.
func TestPartialIsRefusedForAnotherMessage(t *testing.T) {
	for name, c := range map[string]struct {
		play string
		held int
		n    uint64
		down int64
	}{
		"held":            {"game> x*10000", 5000, 0, 5000},
		"all but one":     {"game> x*10000", 9999, 0, 9999},
		"all of it":       {"game> x*10000", 10000, 0, 0},
		"more":            {"game> x*10000", 10001, 0, 0},
		"a small message": {"game> x*4096", 1000, 0, 0},
		"small, large":    {"game> x*100, x*10000", 50, 0, 0},
		"large, and had":  {"game> x*100, x*10000; client reads", 50, 1, 50},
		"nothing":         {"", 50, 0, 0},
		"not whole":       {`game> "\x82\x7e\x27\x10abc"`, 1, 0, 0},
	} {
		b := newPartial(t)
		b.play(c.play)
		if h := b.cut(c.n, c.held); h.Partial == nil || h.Partial.Down != c.down {
			t.Errorf("%s: %+v, want %d", name, h.Partial, c.down)
		}
	}
}

// The oldest message was dropped: what the client holds is of none that comes.
func TestPartialOfLostMessageIsDiscarded(t *testing.T) {
	b := newPartial(t, buffer(2, session.DropOldest))
	b.play(`game> x*10000`)
	b.takes(6000)
	b.play(`drop; game> y*10000, z*10000`)
	if h := b.cut(0, 4096); h.Lost != 1 || h.Partial.Down != 0 {
		t.Errorf("lost %d, down %d", h.Lost, h.Partial.Down)
	}
}

// A session that was claimed numbers the messages of another game server connection.
func TestPartialFromLostNodeIsDiscarded(t *testing.T) {
	b := &parted{table: claimed(t), partial: true}
	b.play(`dial x*10000`)
	p := b.pass()
	p.Held = 5000
	a, ref := b.s.Attach(b.now, b.states, p)
	if ref != nil {
		t.Fatal(ref)
	}
	b.att = a
	if h := b.table.hello(); h.Moved != wire.MovedFailover || h.Replay != 1 || h.Partial.Down != 0 {
		t.Errorf("%+v, %+v", h, h.Partial)
	}
}

// The first message of the client's is then one that waits for the game server, and not the unfinished one.
func TestUnfinishedMessageBehindRepeatsIsGivenUp(t *testing.T) {
	b := newPartial(t, durable)
	b.play(`client> one, ^parts {"bytes":9000}`)
	b.part('a', 4096)
	if h := b.cut(0, 0); h.Received != 0 || h.Partial.Up != 0 {
		t.Errorf("received %d, up %d", h.Received, h.Partial.Up)
	}
	b.play(`client> one, two; game< one, two; counts 2 2 0 0`)
}

// Once the game server has closed, the client's messages are not counted: one of which a part has come is not the next.
func TestUnfinishedMessageBehindEndOfGameServerIsGivenUp(t *testing.T) {
	b := newPartial(t)
	b.message(frame.Binary, "", 20000)
	b.takes(1000)
	b.play(`game> Close 4000; client> one, ^parts {"bytes":9000}`)
	b.part('a', 4096)
	if h := b.cut(0, 0); h.Received != 0 || h.Partial.Up != 0 {
		t.Errorf("received %d, up %d, want 0 and 0", h.Received, h.Partial.Up)
	}
}

// No more than a window is sent without an answer, and an answer brings the next.
func TestWindowLimitsUnansweredParts(t *testing.T) {
	b := newPartial(t)
	b.message(frame.Binary, "", 1<<20)
	b.takesAll()
	if n := len(b.msg); n != 8<<10 {
		t.Fatalf("%d bytes without an answer", n)
	}
	b.wantGot("ping") // whose answer brings a part
	b.play(`10 times: 100ms`)
	b.takesAll()
	if n := len(b.msg); n != 8<<10 {
		t.Fatalf("%d bytes without an answer, a second later", n)
	}
	b.says("\x10ping here")
	b.got = nil
	b.takesAll()
	b.wantGot("pong")
	b.answers()
	b.takesAll()
	if n := len(b.msg); n <= 8<<10 || n > 40<<10 {
		t.Errorf("%d bytes after one answer", n)
	}
}

// Answers that waited on their way, and come together, are no sign of a fast line.
func TestAnswersThatComeTogetherDoNotWidenTheWindow(t *testing.T) {
	b := newPartial(t)
	b.message(frame.Binary, "", 1<<20)
	b.takesAll()
	for held, wait := 0, 4*time.Second; held < 20000; wait = time.Second {
		b.play(fmt.Sprintf("%d times: 1s; client> ^ping", wait/time.Second))
		for step := (len(b.msg) - held) / 8; held < len(b.msg); b.says(fmt.Sprint("\x10part ", held)) {
			held += step
		}
		b.takesAll()
		if n := len(b.msg) - held; n != 2<<10 {
			t.Errorf("%d bytes without an answer behind %d, want 2 KiB", n, held)
		}
	}
}

// A client that dies inside a message is noticed as soon as one that dies behind it.
func TestDeathInsideMessageIsNoticedByAnswerTimeout(t *testing.T) {
	b := newPartial(t, answer(2*time.Second))
	b.message(frame.Binary, "", 1<<20)
	b.takesAll()
	b.play(`300ms; client> ^pong 1`)
	b.answers()
	b.takesAll() // and then there is silence
	b.play(`1990ms`)
	b.takesAll()
	b.play(`attached; 1s; detached`)
}

// Five connections on which a large message only grew are progress; five that end where the one before did are none.
func TestAnsweredPartsAreProgress(t *testing.T) {
	for grows, state := range map[int]session.State{4096: session.Attached, 0: session.Ended} {
		b := newPartial(t, grace(time.Hour))
		b.message(frame.Binary, "", 1<<20)
		have := 4096
		for range 8 {
			if b.s.Disconnected(b.now, b.att, "cut"); b.s.State() == session.Ended {
				break
			}
			b.msg = make([]byte, have)
			b.cut(0, have)
			b.says("\x10ack 0")
			b.takesAll()
			b.play(`3s`)
			have += grows
			b.says(fmt.Sprint("\x10part ", have))
		}
		if b.s.State() != state {
			t.Errorf("by %d bytes: %v, want %v", grows, b.s.State(), state)
		}
	}
}

// A client whose every answer is lost with its connection says by what it holds that it makes progress.
func TestHoldingMoreOfMessageIsProgress(t *testing.T) {
	b := newPartial(t, grace(time.Hour))
	b.message(frame.Binary, "", 1<<20)
	for n := range 8 {
		b.msg = make([]byte, 4096*n+4096)
		b.cut(0, len(b.msg))
		b.says("\x10ack 0")
		b.takesAll()
		b.play(`3s; attached`)
	}
}

// `part` excuses a missing ack for as long as it grows.
func TestAnsweredPartsPostponeOverdueAck(t *testing.T) {
	b := newPartial(t)
	b.message(frame.Binary, "", 100)
	b.message(frame.Binary, "", 900000)
	b.takesAll()
	for n := range 10 {
		b.play(`10s; client> ^pong %d`, n+1)
		b.says("\x10part " + strconv.Itoa(1000*n+1000))
		b.takesAll()
	}
	b.play(`attached`)
	for range 7 {
		b.play(`10s; client> ^pong 99, ^part 10000`)
		b.takesAll()
	}
	b.play(`ended`)
}

// A client that answers pings alone would be waited for for ever.
func TestMissingPartIsViolationAfterOneMinute(t *testing.T) {
	b := newPartial(t)
	b.message(frame.Binary, "", 900000)
	b.takesAll()
	b.says("\x10pong 1")
	b.play(`59 times: 1s; client> ^ping
		attached; 1s; ended`)
}

// A message goes on in the next process where it was.
func TestUpgradeKeepsWindowAndPlace(t *testing.T) {
	b := newPartial(t)
	sent := b.message(frame.Text, "", 200000)
	for n := 1; len(b.got) < 2 && n < 20000; n += 17 {
		if !b.takes(n) {
			b.answers()
		}
		b.upgrade()
	}
	b.wantMessages("true " + sent)
}

// An older process refuses what the client may say: the client must come to it by itself.
func TestClientWithPartialIsNotFrozenForOlderProcess(t *testing.T) {
	b := newPartial(t)
	b.s.Events()
	for format, want := range map[int]error{3: nil, 2: session.ErrLater, 1: session.ErrLater} {
		if _, err := b.s.Freeze(format); err != want {
			t.Errorf("format %d: %v, want %v", format, err, want)
		}
	}
	b.play(`client> ^parts {"bytes":10000}; drop; forget`)
	if _, err := b.s.Freeze(1); err != nil {
		t.Errorf("detached: %v", err)
	}
}

// ---- upward

// part is a binary message of n bytes.
func (b *parted) part(fill byte, n int) {
	b.read(masked(frame.Binary, strings.Repeat(string(fill), n)))
}

// What comes in parts reaches the game server as one message, with its type and its bytes.
func TestClientMessageInPartsReachesGameServerWhole(t *testing.T) {
	for _, text := range []bool{true, false} {
		for _, first := range []string{"x", "\x10\x10"} {
			for _, n := range []int{1, 100, 125, 126, 127, 4096, 65535, 65536, 65537, 100000} {
				if n < len(first) {
					continue
				}
				b := newPartial(t)
				payload := first + strings.Repeat("y", n-len(first))
				b.says(fmt.Sprintf("\x10parts {\"bytes\":%d,\"text\":%v}", n, text))
				for p := []byte(payload); len(p) > 0; {
					k := min(len(p), 1+len(p)%session.PartBytes)
					b.read(masked(frame.Binary, string(p[:k])))
					p = p[k:]
				}
				b.lend(b.up)
				raw := slices.Clone(b.lent[b.up])
				h, err := frame.Parse(raw)
				if err != nil || !h.Fin || !h.Masked || len(raw) != h.Size+int(h.Length) || (h.Op == frame.Text) != text {
					t.Fatalf("%d bytes: %+v, %v", n, h, err)
				}
				frame.XOR(raw[h.Size:], h.Key)
				want := payload
				if text {
					want = strings.TrimPrefix(payload, "\x10")
				}
				if string(raw[h.Size:]) != want {
					t.Errorf("%d bytes: the game server gets %d, %.20q, want %d, %.20q", n, len(raw)-h.Size, raw[h.Size:], len(want), want)
				}
				b.wrote(b.up, 1<<30)
				b.play(`counts 1 1 0 0`)
			}
		}
	}
}

// The gateway keeps whole parts across connections, and counts the message only when it is whole.
func TestClientMessageGoesOnWhereItWasCut(t *testing.T) {
	b := newPartial(t)
	b.play(`client> before, ^parts {"bytes":9000}; game< before`)
	want := ""
	for i, n := range []int{4096, 4000, 900} {
		b.part('a'+byte(i), n)
		want += strings.Repeat(string('a'+byte(i)), n)
		b.read(masked(frame.Binary, "torn")[:7]) // of the next part
		h := b.cut(0, 0)
		if h.Partial.Up != int64(len(want)) || h.Received != 1 {
			t.Fatalf("up %d, received %d, want %d and 1", h.Partial.Up, h.Received, len(want))
		}
		b.play(`game<; client> ^ack 0, ^parts {"bytes":9000,"text":false,"from":%d}, ^ack 0`, len(want))
	}
	b.part('z', 4)
	b.play(`game< %s; client> behind; game< behind; counts 3 3 0 0`, want+"zzzz")
}

func TestUpgradeInsideClientMessage(t *testing.T) {
	b := newPartial(t)
	b.play(`client> ^parts {"bytes":9000}`)
	b.part('a', 4096)
	b.play(`upgrade`)
	b.part('a', 904)
	b.play(`drop; upgrade`)
	if h := b.cut(0, 0); h.Partial.Up != 5000 {
		t.Fatalf("up %d", h.Partial.Up)
	}
	b.play(`client> ^parts {"bytes":9000,"from":5000}`)
	b.part('a', 4000)
	b.play(`game< %s; drop; terminate; free`, strings.Repeat("a", 9000))
}

// The schedule of `part`: after 32 KiB, after 250 ms, and before a pong.
func TestGatewaySaysWhatHasComeOfMessage(t *testing.T) {
	b := newPartial(t)
	said := func() string {
		list, _ := frames(t, b.output())
		return strings.Join(slices.DeleteFunc(list, func(s string) bool { return strings.HasPrefix(s, "^ping") }), ", ")
	}
	want := func(want string) {
		t.Helper()
		if got := said(); got != want {
			t.Errorf("the gateway says %q, want %q", got, want)
		}
	}
	b.play(`client> ^parts {"bytes":100000}`)
	want("")
	b.part('a', 100)
	want("")
	b.sleep(249 * time.Millisecond)
	want("")
	b.sleep(time.Millisecond)
	want("^part 100")
	b.sleep(time.Second)
	want("")
	b.part('a', 50)
	b.play(`client> ^ping x`)
	want("^part 150, ^pong x")
	for range 8 {
		want("")
		b.part('a', 4096)
	}
	want("^part " + strconv.Itoa(150+8*4096))
	b.part('a', 1)
	b.cut(0, 0)
	b.sleep(time.Second)
	want("") // hello has said it
}

// Anything but the parts that were announced ends the session.
func TestFaultyPartsAreRefused(t *testing.T) {
	const begin = `^parts {"bytes":9000,"text":true}`
	huge := 1<<20 + 1
	for sends, why := range map[string]string{
		`^parts`:                                   "protocol_violation: bad argument",
		`^parts {}`:                                "protocol_violation: bad argument",
		`^parts {"bytes":0}`:                       "protocol_violation: bad argument",
		`^parts {"bytes":-1}`:                      "protocol_violation: bad argument",
		`^parts {"bytes":9,"from":-1}`:             "protocol_violation: bad argument",
		`^parts {"bytes":9,"from":9}`:              "protocol_violation: bad argument",
		`^parts {"bytes":1e3}`:                     "protocol_violation: bad argument",
		`^parts {"bytes":9,"bytes":9}`:             "protocol_violation: bad argument",
		`^part`:                                    "protocol_violation: bad argument",
		`^part -1`:                                 "protocol_violation: bad argument",
		`^parts {"bytes":9000,"from":1}`:           "protocol_violation: parts from 1 of 9000 bytes",
		fmt.Sprintf(`^parts {"bytes":%d}`, huge+1): "message_too_big",
		begin + `; ` + begin:                       "protocol_violation: parts out of place",
		begin + `; text`:                           "protocol_violation: data inside a message in parts",
		begin + `; ^^text`:                         "protocol_violation: data inside a message in parts",
		begin + `; B*4097`:                         "protocol_violation: part too large",
		begin + `; B*4096; B*4096; B*809`:          "protocol_violation: part too large",
		begin + `; B*0`:                            "protocol_violation: empty part",
		begin + `; B^b`:                            "protocol_violation: control message in parts",
		begin + `; B^; Bb`:                         "protocol_violation: control message in parts",
		`^parts {"bytes":1,"text":true}; B^`:       "protocol_violation: control message in parts",
		fmt.Sprintf(`^parts {"bytes":%d,"text":true}; Ba`, huge): "message_too_big",
		fmt.Sprintf(`^parts {"bytes":%d}; B^`, huge):             "message_too_big",
	} {
		b := newPartial(t)
		for item := range strings.SplitSeq(sends, "; ") {
			binary, ok := strings.CutPrefix(item, "B")
			switch {
			case !ok:
				b.read(b.bytes(item, true))
			case strings.HasPrefix(binary, "*"):
				b.part('b', b.number(binary[1:]))
			default:
				b.read(masked(frame.Binary, strings.ReplaceAll(binary, "^", "\x10")))
			}
		}
		list := b.table.hears()
		got := ""
		if len(list) > 0 {
			_, got, _ = strings.Cut(strings.TrimPrefix(list[len(list)-1], "Close "), " ")
		}
		if got != why || b.s.State() != session.Ended {
			t.Errorf("%.60s: %v, %q, want %q", sends, b.s.State(), got, why)
		}
	}
}

// A client goes on exactly where hello says, with the message that it had begun.
func TestClientMessageGoesOnNowhereElse(t *testing.T) {
	for goesOn, state := range map[string]string{
		`{"bytes":9000,"from":4096}`: "attached", `{"bytes":9000,"from":4095}`: "ended", `{"bytes":9000,"from":4097}`: "ended",
		`{"bytes":9001,"from":4096}`: "ended", `{"bytes":9000,"text":true,"from":4096}`: "ended",
	} {
		b := newPartial(t)
		b.play(`client> ^parts {"bytes":9000}`)
		b.part('a', 4096)
		b.cut(0, 0)
		b.read(masked(frame.Text, "\x10parts "+goesOn))
		b.play(state)
	}
}

// Without the offer `parts` is what only a gateway says.
func TestPartsWithoutOfferAreRefused(t *testing.T) {
	attached(t).play(`client> ^parts {"bytes":9000}; ended`)
}

// A client that does not go on with what it had begun has lost it: nothing of it reaches the game server.
func TestOtherDataForgetsUnfinishedMessage(t *testing.T) {
	for begins, gets := range map[string]string{"other": "other", "^^x": "^x", `^parts {"bytes":5,"text":true}`: "aaaaa"} {
		b := newPartial(t)
		b.play(`client> ^parts {"bytes":9000}`)
		b.part('q', 4096)
		b.cut(0, 0)
		b.play(`client reads; client> %s`, begins)
		if strings.Contains(begins, "parts") {
			b.part('a', 5)
		}
		b.play(`game< %s; counts 1 1 0 0; drop`, gets)
		if m := b.s.Info().Memory; m != 0 {
			t.Errorf("%s: %d bytes are held", begins, m)
		}
	}
}

// An unfinished message that does not grow costs the connection, and not what has come.
func TestStalledClientMessageIsKept(t *testing.T) {
	b := newPartial(t)
	b.play(`client> ^parts {"bytes":9000}`)
	b.part('a', 4096)
	b.play(`25s; client> ^ping; 4s; client> ^ping; 999ms; attached; 1ms; detached`)
	if h := b.cut(0, 0); h.Partial.Up != 4096 {
		t.Errorf("up %d", h.Partial.Up)
	}
}

// What is held of a message is charged, and given up where memory is short.
func TestUnfinishedClientMessageIsGivenUpBeforeItsSession(t *testing.T) {
	b := newPartial(t)
	b.play(`client> ^parts {"bytes":9000}`)
	b.part('a', 4096)
	b.play(`drop`)
	if i := b.s.Info(); i.Memory < 4096 || i.Unread == 0 || b.store.Used() != i.Memory {
		t.Fatalf("%d bytes held since %d, %d charged", i.Memory, i.Unread, b.store.Used())
	}
	if b.s.Evict(b.now, "1 byte") || b.s.State() != session.Detached {
		t.Fatal("the session was ended")
	}
	b.play(`free`)
	if h := b.cut(0, 0); h.Partial.Up != 0 {
		t.Errorf("up %d", h.Partial.Up)
	}
}

// While the client sends a message in parts, memory that is short keeps it from being read.
func TestClientWithLargeMessageInPartsIsCrowded(t *testing.T) {
	b := newPartial(t)
	b.play(`client> ^parts {"bytes":200000}`)
	for range 25 {
		b.part('a', 4096)
	}
	b.store.Charge(1 << 30)
	if b.s.WantsRead(b.att) {
		t.Error("it is read")
	}
}

// A node that another one has replaced, or that hands off, keeps nothing of the client's unfinished message.
func TestHandOffGivesUpUnfinishedClientMessage(t *testing.T) {
	b := newPartial(t, durable)
	b.play(`client> ^parts {"bytes":9000}`)
	b.part('a', 4096)
	b.play(`drop; leave; game> Close 1001; forget; move 1h`)
	a, ref := b.s.Attach(b.now, session.Resume{Gen: b.states.Gen}, b.pass())
	for ref != nil && ref.Code == 0 {
		b.s.BeginRedial(b.now)
		b.told(session.Resume{})
		b.reconnect("")
		a, ref = b.s.Attach(b.now, session.Resume{Gen: b.states.Gen}, b.pass())
	}
	if ref != nil {
		t.Fatal(ref)
	}
	b.att = a
	if h := b.table.hello(); h.Partial == nil || h.Partial.Up != 0 {
		t.Errorf("%+v", h.Partial)
	}
}
