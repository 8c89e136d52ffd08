package session_test

import (
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// exhausted takes all memory, and leaves sessions the least reserve.
func (b *table) exhausted() (undo func()) {
	n := int(b.store.Limit())
	b.store.ShareReserve(1 << 20)
	b.store.Charge(n)
	return func() { b.store.Charge(-n) }
}

// While memory is exhausted, a client in the middle of a large message is not read, and its silence is not
// judged. Others are read as ever.
func TestLargeMessageWaitsWhileMemoryIsExhausted(t *testing.T) {
	for name, resumable := range map[string]bool{"resumable": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			c := config()
			c.Resumable = resumable
			b := newTable(t, c)
			b.reads()
			undo := b.exhausted()
			b.says("small")
			if resumable {
				b.wants(b.up, "small")
			} else {
				b.wants(b.up, "\x10ack 0", "small")
			}
			message := frame.AppendMasked(nil, frame.Binary, [4]byte{}, []byte(strings.Repeat("x", 20_000)))
			b.s.Read(b.now, b.att, message[:10_000:10_000])
			b.s.Retain()
			for range 4 * 60 {
				if b.s.WantsRead(b.att) {
					t.Fatal("it is read on though memory is exhausted")
				}
				if at := b.s.Next(); at <= b.now || at > b.now.Add(250*time.Millisecond) {
					t.Fatalf("it is looked at again at %d, it is %d", at, b.now)
				}
				b.sleep(250 * time.Millisecond)
				b.reads()
			}
			b.wantState(session.Attached)
			undo()
			if !b.s.WantsRead(b.att) {
				t.Error("it is not read though there is memory again")
			}
			b.s.Read(b.now, b.att, message[10_000:])
			b.s.Retain()
			b.wants(b.up, strings.Repeat("x", 20_000))
			if i := b.s.Info(); i.Memory > 4<<10 {
				t.Errorf("%d bytes are still held", i.Memory)
			}
		})
	}
}

// What a game server does not take counts like an unfinished message.
func TestClientIsNotReadWhileItsMessagesFillExhaustedMemory(t *testing.T) {
	b := newTable(t, config())
	b.reads()
	b.says(strings.Repeat("x", 8<<10))
	b.s.Retain()
	undo := b.exhausted()
	if b.s.WantsRead(b.att) {
		t.Error("it is read on")
	}
	undo()
	if !b.s.WantsRead(b.att) {
		t.Error("it is not read though there is memory")
	}
}

// A session that has no memory for what its game server sends asks its client for an ack: that may make the
// reserve suffice.
func TestStarvedSessionAsksForAck(t *testing.T) {
	b := newTable(t, config())
	b.reads()
	undo := b.exhausted()
	defer undo()
	b.game(text(strings.Repeat("x", 3900)))
	b.reads()
	if b.s.Room(b.up) != nil {
		t.Fatal("the reserve has no end")
	}
	b.sleep(250 * time.Millisecond)
	b.wantHears("ping")
	b.says("\x10ack 1")
	if b.s.Room(b.up) == nil {
		t.Error("an ack makes no room")
	}
	b.s.Read(b.now, b.up, nil)
}

// Memory is known for what it is: how much, and for how long it has waited.
func TestInfoSaysWhatIsHeldSinceWhen(t *testing.T) {
	b := newTable(t, config())
	b.reads()
	if i := b.s.Info(); i.Memory != 0 || i.Unread != 0 {
		t.Errorf("an idle session holds %d bytes since %d", i.Memory, i.Unread)
	}
	first := b.now
	b.game(text(strings.Repeat("x", 3900)))
	b.sleep(time.Second)
	b.game(text(strings.Repeat("x", 3000)))
	if i := b.s.Info(); i.Memory != 8<<10 || i.Unread != first {
		t.Errorf("%d bytes since %d, want two chunks since %d", i.Memory, i.Unread, first)
	}
	b.reads()
	b.says("\x10ack 2")
	began := b.now
	b.s.Read(b.now, b.att, frame.AppendMasked(nil, frame.Binary, [4]byte{}, make([]byte, 1000))[:500])
	b.s.Retain()
	b.sleep(time.Second)
	if i := b.s.Info(); i.Memory != 1000 || i.Unread != began {
		t.Errorf("%d bytes since %d, want those of an unfinished message since %d", i.Memory, i.Unread, began)
	}
}

// An evicted session is gone with all that it holds, whatever its peers take of it.
func TestEvictionFreesAllMemory(t *testing.T) {
	for name, fill := range map[string]func(b *table){
		"unread": func(b *table) {
			for range 50 {
				b.game(text(strings.Repeat("x", 3900)))
			}
		},
		"unfinished": func(b *table) {
			b.s.Read(b.now, b.att, frame.AppendMasked(nil, frame.Binary, [4]byte{}, make([]byte, 200_000))[:100_000])
			b.s.Retain()
		},
		"not taken": func(b *table) {
			b.says(strings.Repeat("x", 100_000))
			b.s.Retain()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTable(t, config())
			b.reads()
			fill(b)
			if b.s.Info().Memory < 100_000 {
				t.Fatalf("only %d bytes are held", b.s.Info().Memory)
			}
			if !b.s.Evict(b.now, "much") {
				t.Fatal("not evicted")
			}
			b.wantState(session.Ended)
			if n := b.store.Used(); n > 1000 {
				t.Errorf("%d bytes are still held", n)
			}
			if got := b.s.Info().Ending; got.Code != wire.CodeWindowExceeded || !strings.HasSuffix(got.Text, "exhausted: much") {
				t.Errorf("it ended with %+v", got)
			}
		})
	}
}
