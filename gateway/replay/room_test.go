package replay

import (
	"bytes"
	"testing"

	"reseat/gateway/frame"
)

// readFull fills a room with a message's bytes, as a read does that finds more than
// enough.
func readFull(t *testing.T, b *Buffer, frugal bool) int {
	t.Helper()
	room := b.Room(frugal)
	if room == nil {
		t.Fatal("no room")
	}
	b.Fill(len(room))
	b.Take(len(room))
	b.Settle()
	return len(room)
}

func TestFullReadMakesTheNextChunkBig(t *testing.T) {
	b := New(NewStore(ampleLimit, nil))
	for i, want := range []int{smallChunk, bigChunk, bigChunk} {
		if got := readFull(t, b, false); got != want {
			t.Errorf("read %d has %d bytes of room, want %d", i, got, want)
		}
	}
	if got := len(b.Room(false)); got != bigChunk {
		t.Fatalf("%d bytes of room", got)
	}
	b.Fill(bigChunk - minRoom + 1) // not full, but too little is left
	b.Take(len(b.Raw()))
	b.Settle()
	if got := len(b.Room(false)); got != smallChunk {
		t.Errorf("%d bytes of room after a read that was not full, want %d", got, smallChunk)
	}
}

func TestFrugalRoomStaysSmall(t *testing.T) {
	b := New(NewStore(ampleLimit, nil))
	for range 5 {
		if got := readFull(t, b, true); got != smallChunk {
			t.Errorf("%d bytes of room, want %d", got, smallChunk)
		}
	}
}

// Room is never too small to be worth a read, or to hold a control frame in one piece.
func TestRoomHasAMinSize(t *testing.T) {
	for used := 1; used <= smallChunk; used++ {
		b := New(NewStore(ampleLimit, nil))
		b.Room(false)
		b.Fill(used)
		b.Take(used)
		b.Settle()
		want := smallChunk - used
		switch {
		case used == smallChunk:
			want = bigChunk
		case want < minRoom:
			want = smallChunk
		}
		if got := len(b.Room(false)); got != want {
			t.Fatalf("%d bytes of room behind %d, want %d", got, used, want)
		}
	}
	if minRoom < 2+8+4+frame.MaxControl {
		t.Error("a control frame may not find room in one piece")
	}
}

// What a scan leaves moves into the next chunk in one piece.
func TestRawPartStaysInOnePiece(t *testing.T) {
	ping := frame.Append(nil, frame.Ping, noise[:frame.MaxControl])
	for at := smallChunk - 700; at < smallChunk; at++ {
		b := New(NewStore(ampleLimit, nil))
		take(t, b, noise[:at])
		for i := range ping {
			b.Fill(copy(mustRoom(t, b), ping[i:i+1]))
			b.Settle() // nothing of it can be taken over yet
			if !bytes.Equal(b.Raw(), ping[:i+1]) {
				t.Fatalf("%d bytes of a ping at %d: % .20x", i+1, at, b.Raw())
			}
		}
		b.Skip(len(ping))
		b.Settle()
		if got := content(b, 0, uint64(at)); !bytes.Equal(got, noise[:at]) || len(b.Raw()) > 0 {
			t.Fatalf("a ping at %d left its traces", at)
		}
	}
}

// While the buffer is full a scan may leave much.
func TestLargeRawPartFindsRoom(t *testing.T) {
	for _, n := range []int{smallChunk - minRoom, smallChunk, bigChunk - minRoom, bigChunk, bigChunk + 1, 3 * bigChunk} {
		s := NewStore(ampleLimit, nil)
		b := New(s)
		var want []byte
		for len(want) < n {
			room := mustRoom(t, b)
			k := copy(room, noise[len(want)%100:][:min(n-len(want), len(room))])
			want = append(want, room[:k]...)
			b.Fill(k)
			b.Settle()
		}
		if room := mustRoom(t, b); len(room) < minRoom || !bytes.Equal(b.Raw(), want) {
			t.Errorf("%d raw bytes: %d after %d bytes of room", n, len(b.Raw()), len(room))
		}
		b.Fill(0)
		b.Take(n)
		b.EndMessage(int64(n))
		b.Settle()
		if got := content(b, 0, uint64(n)); !bytes.Equal(got, want) {
			t.Errorf("%d raw bytes were taken over otherwise", n)
		}
		if b.Ack(1, uint64(n)); s.Used() != 0 {
			t.Errorf("%d bytes of memory are still held", s.Used())
		}
	}
}

// An escaping DLE is inserted and a control frame is cut out; the bytes around them
// stay unchanged.
func TestStreamIsRewrittenInPlace(t *testing.T) {
	text := frame.Append(nil, frame.Text, []byte("\x10data"))
	ping := frame.Append(nil, frame.Ping, []byte("now"))
	plain := frame.Append(nil, frame.Binary, []byte("plain"))
	b := New(NewStore(ampleLimit, nil))
	for range 200 {
		b.Fill(copy(mustRoom(t, b), bytes.Join([][]byte{plain, text, ping, plain}, nil)))
		b.Take(len(plain))
		b.EndMessage(5)
		b.Insert([]byte{0x81, 6, 0x10})
		b.Skip(2)
		b.Take(5)
		b.EndMessage(6)
		b.Skip(len(ping))
		b.Take(len(plain))
		b.EndMessage(5)
		b.Settle()
	}
	one := append(append(bytes.Clone(plain), "\x81\x06\x10\x10data"...), plain...)
	if got := content(b, 0, b.Last().Off); !bytes.Equal(got, bytes.Repeat(one, 200)) || b.Bytes() != 200*16 || b.Messages() != 600 {
		t.Errorf("%d bytes in %d messages, %d of payload: % .60x", len(got), b.Messages(), b.Bytes(), got)
	}
}
