package replay

import (
	"slices"
	"testing"
)

// A restored buffer may be large. Its memory is freed as its messages are acked, and it is the same buffer.
func TestRestoredBufferIsFreedInPieces(t *testing.T) {
	b := New(NewStore(1<<30, nil))
	const messages, size = 300, 1000
	for range messages {
		send(t, b, size)
	}
	s := NewStore(1<<30, nil)
	content := slices.Concat(b.Content()...)
	got, err := Restore(s, b.State(), content)
	if err != nil {
		t.Fatal(err)
	}
	if all := got.Copy(0, got.Last().Off); !slices.Equal(all, content[:len(all)]) || got.Base() != b.Base() || got.Last() != b.Last() || got.State() != b.State() {
		t.Fatalf("the copy is another buffer: %+v, want %+v", got.State(), b.State())
	}
	for n := range uint64(messages) {
		if !got.Ack(n+1, got.Last().Off) {
			t.Fatalf("ack %d", n+1)
		}
		if left := int64(messages-n-1) * (size + 4); s.Used() > left+2*bigChunk {
			t.Fatalf("%d bytes are held for %d after ack %d", s.Used(), left, n+1)
		}
	}
	got.Release()
	if s.Used() != 0 {
		t.Errorf("%d bytes are missing", s.Used())
	}
}

// Restart forgets what nobody has used the numbers of, and goes on from others.
func TestRestart(t *testing.T) {
	for n := range uint64(10) {
		s := NewStore(1<<30, nil)
		b := New(s)
		for range 5 {
			send(t, b, 1)
		}
		b.Restart(n)
		if b.Base().N != n || b.Last().N != n || b.Messages() != 0 || b.Bytes() != 0 || b.Base().Off != b.Last().Off {
			t.Errorf("restarted at %d: %+v to %+v", n, b.Base(), b.Last())
		}
		send(t, b, 1)
		if b.Last().N != n+1 || b.Messages() != 1 || b.Bytes() != 1 {
			t.Errorf("the next message is %d, want %d", b.Last().N, n+1)
		}
		b.Release()
		if s.Used() != 0 {
			t.Errorf("%d bytes are missing", s.Used())
		}
	}
}

// Renumber gives the same messages later numbers.
func TestRenumber(t *testing.T) {
	b := New(NewStore(1<<30, nil))
	for range 3 {
		send(t, b, 1)
	}
	b.Ack(1, b.Last().Off)
	b.Renumber(10)
	if b.Base().N != 11 || b.Last().N != 13 || b.Messages() != 2 || b.After(12) != b.Base().Off+3 {
		t.Errorf("%+v to %+v, message 12 ends at %d", b.Base(), b.Last(), b.After(12))
	}
}

func TestRestoreRefusesRunsThatDoNotFit(t *testing.T) {
	b := New(NewStore(1<<30, nil))
	for range 5 {
		send(t, b, 10)
	}
	b.Replace(2, 10)
	b.Replace(3, 10)
	b.Renumber(7)
	b.Compact(b.Base())
	content := slices.Concat(b.Content()...)
	for change, f := range map[string]func(st *State){
		"":                    func(*State) {},
		"no run":              func(st *State) { st.Runs = 0 },
		"two":                 func(st *State) { st.Runs = 2 },
		"of three messages":   func(st *State) { st.Replaced = 3 },
		"of none":             func(st *State) { st.Replaced, st.Runs = 0, 0 },
		"too few messages":    func(st *State) { st.Last.N-- },
		"a run of all":        func(st *State) { st.Last.N = 1 },
		"payload of the runs": func(st *State) { st.Held += 20 },
	} {
		st := b.State()
		f(&st)
		got, err := Restore(NewStore(1<<30, nil), st, content)
		if (err == nil) != (change == "") {
			t.Errorf("%s: %v", change, err)
		}
		if err == nil && (got.Messages() != 3 || got.Replaced() != 2 || got.ReplacedAfter(9) != 1) {
			t.Errorf("%d messages, %d replaced", got.Messages(), got.Replaced())
		}
	}
}

// Otherwise the list of them would grow beside a large buffer that is worth keeping.
func TestManySmallReplacedMessagesAreWasteful(t *testing.T) {
	b := New(NewStore(1<<30, nil))
	send(t, b, 70000)
	for n := range maxDead + 1 {
		if b.Wasteful() {
			t.Fatalf("after %d", n)
		}
		send(t, b, 1)
		b.Replace(b.Last().N, 1)
	}
	if !b.Wasteful() {
		t.Error("they are not")
	}
	if b.Compact(b.Base()); b.Wasteful() || b.Messages() != 1 || b.Replaced() != maxDead+1 {
		t.Errorf("%d messages, %d replaced", b.Messages(), b.Replaced())
	}
}
