package session

import (
	"slices"
	"testing"

	"reseat/gateway/internal/test/fields"
	"reseat/gateway/replay"
	"reseat/gateway/tlv"
)

// notInState names the fields that the state omits, and why.
var notInState = map[string]string{
	"cfg.Store":        "the new process has its own",
	"cfg.Key":          "a function",
	"events":           "Freeze refuses while there are any",
	"ring":             "replay.State and its content",
	"up":               "always first afterwards",
	"writer":           "Freeze refuses while a write is in flight",
	"charged":          "Restore counts again",
	"gen":              "by Issued and Confirmed",
	"att.flight":       "Freeze refuses while a write is in flight",
	"att.rest":         "of released connections, which stay with their process",
	"first.flight":     "Freeze refuses while a write is in flight",
	"first.final":      "only while a write is in flight",
	"q.pieces":         "joined",
	"q.borrowed":       "Freeze retains what is borrowed",
	"q.charge":         "the length of the pieces",
	"q.units[].to":     "a pointer: present or not",
	"outcome":          "an ended session is not restored",
	"keepalives.seen":  "the new process learns them again, within three keepalives",
	"att.parts.next":   "only while a write is in flight",
	"replacing":        "follows from takesSkips and the rules",
	"cfg.Terms.Newest": "by its values: TestNewerMessagesReplaceOlderOnesWhileTheClientIsAway has an upgrade",
	"states.noticed":   "noticed again at the next resume",
	"states.newest":    "made anew from the replay buffer",
	"states.size":      "of the index, which is made anew",
	"states.sent":      "of the index, which is made anew",
	"states.payload":   "reused memory",
	"states.key":       "reused memory",
	"att.parts.handed": "only while a write is in flight",
}

// everyField returns a session whose fields are all nonzero, and as different from each
// other as their types allow.
func everyField(t *testing.T) *Session {
	t.Helper()
	s := new(Session)
	fields.Fill(t, s, notInState)
	s.up = &s.first
	s.q.pieces = [][]byte{[]byte("queued "), []byte("frames")}
	s.q.units[1].to = s.up
	s.gen.Restore(7, 5)
	return s
}

// A forgotten field would be lost in an upgrade.
func TestStateHasEveryFieldOrNamesReason(t *testing.T) {
	s := everyField(t)
	ring := replay.State{Base: replay.Mark{Off: 1, N: 2}, Last: replay.Mark{Off: 3, N: 4}, End: 5, Held: 6, Raw: 7, Free: 8, Burst: true}
	out := tlv.Write(func(c *tlv.Codec) { s.walk(c) })
	rings := tlv.Write(func(c *tlv.Codec) { walkRing(&ring, c) })

	got := &Session{}
	got.up = &got.first
	if err := tlv.Read(out, func(c *tlv.Codec) { got.walk(c) }); err != nil {
		t.Fatal(err)
	}
	fields.Same(t, s, got, notInState)
	if got.gen != s.gen || got.q.units[0].to != nil || got.q.units[1].to != got.up {
		t.Errorf("generations %+v, want %+v; units for %p and %p", got.gen, s.gen, got.q.units[0].to, got.q.units[1].to)
	}
	if all := slices.Concat(got.q.pieces...); string(all) != "queued frames" || got.q.charge != len(all) || got.q.borrowed != 1 {
		t.Errorf("queue %q, charge %d, borrowed %d", all, got.q.charge, got.q.borrowed)
	}
	var ringGot replay.State
	if err := tlv.Read(rings, func(c *tlv.Codec) { walkRing(&ringGot, c) }); err != nil {
		t.Fatal(err)
	}
	if ringGot != ring {
		t.Errorf("ring %+v, want %+v", ringGot, ring)
	}
}

// Input from a socket may be truncated anywhere, or come from another program.
func FuzzRestore(f *testing.F) {
	store := replay.NewStore(1<<30, nil)
	s := New(Config{ID: "s", Resumable: true, Heartbeat: 1, BufferBytes: 1 << 20, BufferMessages: 10, MaxMessage: 1 << 20, Store: store, Key: func() [4]byte { return [4]byte{} }}, 1, []byte{0x82, 1, 'x', 0x82})
	frozen, err := s.Freeze(Formats[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frozen.State, slices.Concat(frozen.Content...))
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0xff}, []byte{1})
	f.Fuzz(func(t *testing.T, state, content []byte) {
		s, err := Restore(Formats[0], state, content, store, func() [4]byte { return [4]byte{} })
		if err != nil {
			return
		}
		now := Time(1 << 50)
		s.Tick(now)
		s.Out(now, s.Upstream(), nil)
		if a := s.Attachment(); a != nil {
			s.Out(now, a, nil)
		}
		s.Fail(now)
	})
}
