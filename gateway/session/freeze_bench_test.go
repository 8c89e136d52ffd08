package session

import (
	"slices"
	"testing"

	"reseat/gateway/replay"
)

// An upgrade freezes and restores all sessions while nobody is served.
func BenchmarkFreezeAndRestore(b *testing.B) {
	store := replay.NewStore(1<<30, nil)
	key := func() [4]byte { return [4]byte{} }
	s := New(Config{ID: "0123456789abcdef0123456789abcdef", Resumable: true, Heartbeat: 1, BufferBytes: 1 << 20, BufferMessages: 10, MaxMessage: 1 << 20, Store: store, Key: key}, 1, nil)
	s.AttachFirst(2, Pass{Gen: 1, Token: "x"})
	for _, a := range []Leg{s.Attachment(), s.Upstream()} {
		for out := s.Out(3, a, nil); len(out) > 0; out = s.Out(3, a, nil) {
			n := 0
			for _, o := range out {
				n += len(o)
			}
			s.Wrote(3, a, n, false)
		}
	}
	s.Events()
	var f Frozen
	b.Run("freeze", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var err error
			if f, err = s.Freeze(Formats[0]); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(f.State)), "bytes/session")
	})
	b.Run("restore", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Restore(Formats[0], f.State, slices.Concat(f.Content...), store, key); err != nil {
				b.Fatal(err)
			}
		}
	})
}
