package client

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reseat/gateway/wire"
)

// The outbox against a plain list: for any order of acks, rewinds and sends, each
// connection gets every message after the received count, in order, within the window.
func TestOutboxResendsUnacknowledgedMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o outbox
		var all []message
		w := wire.Limits{UnackedMessages: int64(rapid.IntRange(1, 5).Draw(t, "messages")), UnackedBytes: int64(rapid.IntRange(1, 50).Draw(t, "bytes"))}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				if !o.room(w) {
					if len(o.kept) == 0 {
						t.Fatal("no room in an empty box")
					}
					t.Skip()
				}
				m := message{typ: MessageText, data: []byte(fmt.Sprintf("%*d", rapid.IntRange(1, 20).Draw(t, "size"), len(all)))}
				all = append(all, m)
				o.add(m)
			},
			"send": func(t *rapid.T) {
				e, ok := o.next(w)
				unacked := o.cursor - o.acked
				if !ok {
					if unacked == 0 && o.cursor < uint64(len(all)) {
						t.Fatal("one message alone did not fit")
					}
					return
				}
				if string(e.data) != string(all[o.cursor-1].data) {
					t.Fatalf("number %d is %q, want %q", o.cursor, e.data, all[o.cursor-1].data)
				}
				var bytes int64
				for _, m := range all[o.acked:o.cursor] {
					bytes += int64(len(m.data))
				}
				if unacked > 1 && (int64(unacked) > w.UnackedMessages || bytes > w.UnackedBytes) {
					t.Fatalf("%d messages, %d bytes without an ack; the window is %+v", unacked, bytes, w)
				}
			},
			"ack": func(t *rapid.T) {
				n := uint64(rapid.IntRange(0, len(all)+1).Draw(t, "n"))
				if cursor := o.cursor; o.ack(n) != (n <= cursor) {
					t.Fatalf("ack %d with the cursor at %d", n, cursor)
				}
			},
			"resume": func(t *rapid.T) {
				n := uint64(rapid.IntRange(0, len(all)+1).Draw(t, "received"))
				part := rapid.Int64Range(0, 20).Draw(t, "part")
				sent := n < o.handed && part <= int64(len(all[n].data))
				if good := n >= o.received && n <= o.handed && (part == 0 || sent); o.admits(n, part) != good {
					t.Fatalf("admits %d and %d bytes of the next: %v, want %v", n, part, !good, good)
				} else if good {
					o.rewind(n)
				}
			},
			"": func(t *rapid.T) {
				if !(o.acked <= o.received && o.received <= o.cursor && o.cursor <= o.last() && o.received <= o.handed && o.handed <= o.last()) || o.last() != uint64(len(all)) {
					t.Fatalf("%+v of %d", o, len(all))
				}
			},
		})
	})
}

// The window becomes what was answered in time, but not less than what is asked for.
func TestWindowFollowsAnswers(t *testing.T) {
	for least, want := range map[int64]int64{minWindow: minWindow, firstWindow: firstWindow} {
		var u upload
		now := time.Now()
		u.start(0)
		u.begin(MessageBinary, make([]byte, 100_000))
		for ok := true; ok; {
			_, ok, _ = u.next(4096, now)
		}
		u.answer(1024, now.Add(2*time.Second), time.Second, least)
		if u.window != want {
			t.Errorf("at least %d: the window is %d, want %d", least, u.window, want)
		}
	}
}
