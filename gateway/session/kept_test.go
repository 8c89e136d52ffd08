package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// Plain clients, protocol sections 1 and 9: their closing handshake is relayed, and some come back by a cookie.

// both plays a script for a plain client without and with a cookie.
func both(t *testing.T, script string) {
	t.Helper()
	for _, kind := range []option{plain, cookie} {
		attached(t, kind).play(script)
	}
}

func (b *table) wantReason(want string) {
	b.t.Helper()
	if got := b.s.Info().Ending.Reason; got != want {
		b.t.Errorf("it ended with reason %q, want %q", got, want)
	}
}

// ---- the closing handshake

func TestPlainCloseAndItsAnswerAreRelayed(t *testing.T) {
	for _, kind := range []option{plain, cookie} {
		b := attached(t, kind)
		b.play(`client> last`)
		b.read(append(masked(frame.Close, string(frame.ClosePayload(4001, "bye"))), masked(frame.Text, "behind it")...))
		b.play(`game< last, Close 4001 bye; attached
			game> one, two; client< one, two
			game> three, Close 4002 well played; client< three, Close 4002 well played
			ended; game<; free`)
		b.wantReason(session.ReasonBye)
	}
}

func TestUnansweredPlainCloseEndsAfterTenSeconds(t *testing.T) {
	both(t, `client> Close 4001 bye; game< Close 4001 bye
		9s; game> late; client< late
		1s-1ns; attached; client< // a client that has sent Close is asked nothing
		1ns; ended; client< Close 4001; game<`)
}

func TestPlainCloseEndsWhenUpstreamBreaks(t *testing.T) {
	for _, kind := range []option{plain, cookie} {
		b := attached(t, kind)
		b.play(`client> Close 1000; game> rest; breaks; client< rest; ended; client<`) // a disconnect, as on a direct connection
		if f := b.att.CloseMode(); f != session.Linger {
			t.Errorf("the client's connection meets %v, want to be closed in order", f)
		}
	}
}

func TestPlainClientMayDisconnectAfterItsClose(t *testing.T) {
	both(t, `client> Close 4001 bye; drop; ended; game< Close 4001 bye`)
}

func TestUpstreamCloseIsAnsweredByPlainClient(t *testing.T) {
	for _, kind := range []option{plain, cookie} {
		b := attached(t, kind)
		b.play(`game> one, Close 4000 over; client< one, Close 4000 over; game<
			client> but; 9s; client> wait; game< but, wait
			client> Pong 1 // so that a cookie client has everything
			client> Close 4009 well then; game< Close 4009 well then; ended`)
		b.wantReason(session.ReasonUpstreamClosed)
	}
}

func TestUnansweredUpstreamCloseIsAnsweredAfterTenSeconds(t *testing.T) {
	attached(t, plain).play(`game> Close 4000 over; client< Close 4000 over
		9 times: 1s; client> still here; game< still here // activity does not extend it
		1s-1ns; game<; 1ns; game< Close 4000; ended`)
}

func TestUpstreamCloseIsAnsweredAtOnceWithoutClient(t *testing.T) {
	attached(t, cookie).play(`game> Close 4000 over; game<; drop; game< Close 4000`)
	attached(t, cookie).play(`drop; game> Close 4000 over; game< Close 4000`)
}

func TestClosedSessionAcceptsNoCookie(t *testing.T) {
	b := attached(t, cookie)
	b.play(`client> Close 1000; refused 4404`)
	if b.s.Ping(b.now) {
		t.Error("a client that has said Close is asked for a sign of life")
	}
}

// A client that sent Close 1001 may return with its cookie. After another code it may not,
// once the upstream has closed too.
func TestCookieSessionSurvivesGoingAwayClose(t *testing.T) {
	attached(t, cookie).play(`client> Close 1001; detached; client< Close 1001; game<; game> Close 1001; detached`)
	attached(t, cookie).play(`client> Close 1000; game> Close 1000; ended`)
}

// Messages sent to a cookie client are not kept for a Pong that cannot arrive any more.
func TestCloseFreesBufferOfCookieClient(t *testing.T) {
	attached(t, cookie, buffer(1, session.Pause)).play(`game> one, two, Close 4000; client< one, Ping 1
		client> Close 1000; client< two, Close 4000; ended`)
}

// ---- frames, for every client

func TestEachPingIsAnswered(t *testing.T) {
	for _, o := range [][]option{nil, {plain}} {
		b := attached(t, o...)
		pings, up := []byte(nil), []byte(nil)
		var pongs []string
		for i := range 10 {
			pings = append(pings, masked(frame.Ping, fmt.Sprint(i))...)
			up = frame.Append(up, frame.Ping, fmt.Append(nil, i))
			pongs = append(pongs, fmt.Sprint("Pong ", i))
		}
		b.read(pings)
		b.game(string(up))
		want := strings.Join(pongs, ", ")
		b.play(`client< %s; game< %s`, want, want)
	}
}

// Answers to a side that reads nothing must not accumulate: beyond the limit only the
// newest Ping is answered.
func TestOnlyNewestPingIsAnsweredBeyondLimit(t *testing.T) {
	b := attached(t, plain)
	var up []byte
	for i := range 33 {
		b.play(`client> Ping %d`, i)
		up = frame.Append(up, frame.Ping, fmt.Append(nil, i))
	}
	b.game(string(up))
	b.play(`client< Pong 32; game< Pong 32`)
}

// An upstream that sends Pings and takes hardly any bytes must not use up memory.
func TestPongsWaitForStuckUpstream(t *testing.T) {
	b := attached(t, plain)
	before := b.store.Used()
	pings := strings.Repeat(string(frame.Append(nil, frame.Ping, []byte(strings.Repeat("p", 125)))), 32)
	for range 100 {
		b.game(pings)
		b.play(`game takes 1`)
	}
	if n := b.store.Used() - before; n > 128<<10 {
		t.Errorf("%d bytes are held for its Pongs", n)
	}
}

func TestCloseReasonThatIsNotUTF8Is1007(t *testing.T) {
	bad := "\x03\xe8\xff"
	b := attached(t, plain)
	b.read(masked(frame.Close, bad))
	b.play(`client< Close 1007 invalid_utf8: close reason is not UTF-8`)
	b = attached(t, plain)
	b.game(string(frame.Append(nil, frame.Close, []byte(bad))))
	b.play(`game< Close 1007 close reason is not UTF-8`)
}

// Writers of 4 KiB frames are common, so the limit grows with --max-message.
func TestFrameLimitScalesWithMaxMessage(t *testing.T) {
	for limit, most := range map[int64]int{30: 1024, 1 << 20: 1024, 4 << 20: 4096} {
		for n, want := range map[int]uint64{most: 1, most + 1: 0} {
			large := func(c *session.Config) { c.MaxMessage, c.BufferBytes = limit, 8<<20 }
			b, other := attached(t, plain, large), attached(t, plain, large)
			const masks, not = "\x80\x09\x09\x09\x09", "\x00" // of empty frames
			b.read([]byte("\x02" + masks + strings.Repeat("\x00"+masks, n-2) + "\x80" + masks))
			down := "\x02" + not + strings.Repeat("\x00"+not, n-2) + "\x80" + not
			for len(down) > 0 && !other.up.Over() {
				k := min(len(down), 1024)
				other.game(down[:k])
				down = down[k:]
			}
			if received, sent := b.s.Info().Received, other.s.Info().Sent; received != want || sent != want {
				t.Errorf("limit %d: of %d frames %d messages were received and %d numbered, want %d", limit, n, received, sent, want)
			}
		}
	}
}

// ---- cookies

func TestResumeReplaysOnlyWhatPongDoesNotCover(t *testing.T) {
	attached(t, cookie).play(`game> one, two; client< one, two
		1s; client< Ping 2; game> three; client< three; client> Pong 2; drop
		game> four; resume; client< three, four`)
}

// Several Pings may be unanswered, as when a heartbeat is due before an answer arrives.
// Each answer covers what its Ping carried, in any order.
func TestPongToOlderPingCoversItsCount(t *testing.T) {
	attached(t, cookie).play(`game> one; client< one; 1s; client< Ping 1; game> two; client< two; 15s; client< Ping 2
		client> Pong 1; drop; resume; client< two`)
}

// The upstream that was dialled for a client closes, and the client leaves before it is attached.
func TestUpstreamCloseIsAnsweredWhenWaitingClientLeaves(t *testing.T) {
	attached(t, cookie, hard).play(`client> waits; drop; begin; connect Close 1012; cancel; game< waits, Close 1012`)
}

// A broken upstream sends no Close that the client could answer. Only its Pong shows that
// it has received everything before. The wait for that is limited, even if the client sends other messages.
func TestBrokenUpstreamIsReportedOncePongCoversAll(t *testing.T) {
	attached(t, cookie).play(`game> one; breaks; client< one, Ping 1; drop; detached
		resume; client< one, Ping 1; attached; client> Pong 1; ended`)
	attached(t, cookie).play(`game> one; breaks; client< one, Ping 1
		7 times: attached; client> still here; 9s
		detached`)
}

// pongAwaited returns a session whose game server takes nothing, and waits for room that
// only the client's Pong can make.
func pongAwaited(t *testing.T) *table {
	t.Helper()
	b := attached(t, cookie, buffer(1, session.Pause))
	b.play(`client> hello`)
	if b.s.WantsRead(b.att) {
		t.Fatal("the client is read while the upstream is behind, and nothing waits for its Pong")
	}
	b.game(text("one") + text("two"))
	b.s.Wrote(b.now, b.att, len(b.s.Out(b.now, b.att, nil)[0]), false)
	if !b.s.WantsRead(b.att) {
		t.Fatal("the client is not read, whose Pong the upstream waits for")
	}
	return b
}

// fills has the client send as much as is read for the sake of its Pong.
func (b *table) fills() (n int) {
	for ; b.s.WantsRead(b.att) && n < 100; n++ {
		b.says(strings.Repeat("x", 64<<10))
	}
	return n
}

// A client must not fill the memory with messages that the game server does not take.
func TestReadingForPongIsBounded(t *testing.T) {
	b := pongAwaited(t)
	if n := b.fills(); n != 16 {
		t.Errorf("%d messages of 64 KiB are read, want 16: 1 MiB, as of a resumable client", n)
	}
	b.play(`30s-1ns; attached`) // its silence is ours
}

// A Pong beyond that limit is never read: a deadlock. A new connection breaks it, since the
// Pong comes first there.
func TestClientWithUnreachablePongIsDisconnected(t *testing.T) {
	b := pongAwaited(t)
	b.fills()
	b.play(`29s; attached
		game takes 1; 29s; attached // the game server took something after all
		2s; detached
		resume; client< one, Ping 1; client> Pong 1; client< two`)
}

// A write to the game server that takes no bytes proves nothing about the client.
func TestZeroByteWriteIsNoClientActivity(t *testing.T) {
	pongAwaited(t).play(`20s; game takes 0; 10s-1ns; attached; 1ns; detached`)
}

// No hello reports dropped messages to a plain client, so the event must.
func TestEventCountsMessagesLostToPlainClient(t *testing.T) {
	b := attached(t, cookie, buffer(2, session.DropOldest))
	b.play(`game> one; client< one; drop; game> two, three, four; forget; resume`)
	for _, e := range b.s.Events() {
		if e.Kind == session.Resumed && (e.Lost != 2 || e.Replay != 2) {
			t.Errorf("lost %d, replay %d, want 2 and 2", e.Lost, e.Replay)
		}
	}
	b.play(`client< three, four`)
}

// ---- exhausted memory

// While memory is exhausted, a client in the middle of a large message is not read, and its silence is not
// judged. Others are read as ever.
func TestLargeMessageWaitsWhileMemoryIsExhausted(t *testing.T) {
	for _, o := range [][]option{nil, {plain}} {
		b := attached(t, o...)
		free := b.leaveReserve()
		b.play(`client> small; game< small`)
		message := masked(frame.Binary, strings.Repeat("x", 20_000))
		b.read(message[:10_000:10_000])
		for range 4 * 60 {
			if b.s.WantsRead(b.att) {
				t.Fatal("it is read on though memory is exhausted")
			}
			if at := b.s.Next(); at <= b.now || at > b.now.Add(250*time.Millisecond) {
				t.Fatalf("it is looked at again at %d, it is %d", at, b.now)
			}
			b.play(`250ms; client reads`)
		}
		b.play(`attached`)
		free()
		if !b.s.WantsRead(b.att) {
			t.Error("it is not read though there is memory again")
		}
		b.read(message[10_000:])
		b.play(`game< %s`, strings.Repeat("x", 20_000))
		if i := b.s.Info(); i.Memory > 4<<10 {
			t.Errorf("%d bytes are still held", i.Memory)
		}
	}
}

// leaveReserve takes all memory, and leaves sessions the least reserve.
func (b *table) leaveReserve() (free func()) {
	n := int(b.store.Limit())
	b.store.ShareReserve(1 << 20)
	b.store.Charge(n)
	return func() { b.store.Charge(-n) }
}

// What a game server does not take counts like an unfinished message.
func TestClientIsNotReadWhileItsMessagesFillExhaustedMemory(t *testing.T) {
	b := attached(t)
	b.play(`client> x*8192`)
	free := b.leaveReserve()
	if b.s.WantsRead(b.att) {
		t.Error("it is read on")
	}
	free()
	if !b.s.WantsRead(b.att) {
		t.Error("it is not read though there is memory")
	}
}

// A session that has no memory for what its game server sends asks its client for an ack: that may make the
// reserve suffice.
func TestStarvedSessionAsksForAck(t *testing.T) {
	b := attached(t)
	free := b.leaveReserve()
	defer free()
	b.play(`game> x*3900; client reads`)
	if b.s.Room(b.up) != nil {
		t.Fatal("the reserve has no end")
	}
	b.play(`250ms; client< ^ping; client> ^ack 1`)
	if b.s.Room(b.up) == nil {
		t.Error("an ack makes no room")
	}
	b.s.Read(b.now, b.up, nil)
}

// Memory is known for what it is: how much, and for how long it has waited.
func TestInfoSaysWhatIsHeldSinceWhen(t *testing.T) {
	b := attached(t)
	holds := func(want int64, since session.Time) {
		t.Helper()
		if i := b.s.Info(); i.Memory != want || i.Unread != since {
			t.Errorf("%d bytes since %d, want %d since %d", i.Memory, i.Unread, want, since)
		}
	}
	holds(0, 0)
	first := b.now
	b.play(`game> x*3900; 1s; game> x*3000`)
	holds(8<<10, first) // two chunks
	b.play(`client reads; client> ^ack 2`)
	began := b.now
	b.read(masked(frame.Binary, strings.Repeat("x", 1000))[:500])
	b.play(`1s`)
	holds(1000, began) // an unfinished message
}

// An evicted session is gone with all that it holds, whatever its peers take of it.
func TestEvictionFreesAllMemory(t *testing.T) {
	half := fmt.Sprintf("%q", masked(frame.Binary, strings.Repeat("x", 200_000))[:100_000])
	for name, fill := range map[string]string{"unread": `50 times: game> x*3900`, "unfinished": `client> ` + half, "not taken": `client> x*100000`} {
		b := attached(t)
		b.play(fill)
		if b.s.Info().Memory < 100_000 {
			t.Fatalf("%s: only %d bytes are held", name, b.s.Info().Memory)
		}
		if !b.s.Evict(b.now, "much") {
			t.Fatal("not evicted")
		}
		b.play(`ended`)
		if n := b.store.Used(); n > 1000 {
			t.Errorf("%s: %d bytes are still held", name, n)
		}
		if got := b.s.Info().Ending; got.Code != 4408 || !strings.HasSuffix(got.Text, "exhausted: much") {
			t.Errorf("%s: it ended with %+v", name, got)
		}
	}
}

// An unsolicited Pong acks nothing: neither messages that no Ping asked about, nor messages
// that were never written.
func TestPongBeyondNewestPingCoversNothing(t *testing.T) {
	for _, count := range []string{"2", "3", "18446744073709551615", "-1", "", "1x"} {
		attached(t, cookie).play(`game> one; client< one; 1s; client< Ping 1; game> two; client< two
			client> Pong %s; attached; counts 0 0 2 0`, count)
	}
}
