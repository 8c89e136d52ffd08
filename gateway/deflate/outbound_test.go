package deflate_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/deflate"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
)

// sent returns what has arrived at the client, which accepts everything at once.
func (r *rig) sent(t testing.TB) []byte {
	t.Helper()
	r.CloseWrite()
	b, err := io.ReadAll(r.client)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantSent(t testing.TB, b []byte, want ...message) (squeezed []bool) {
	t.Helper()
	return wantSentTo(t, b, 0, want...)
}

// wantSentTo is wantSent for a client that keeps so many bytes.
func wantSentTo(t testing.TB, b []byte, keep int, want ...message) (squeezed []bool) {
	t.Helper()
	got := readFrames(b, false, 64<<20, keep)
	if got.end != "none" || got.open {
		t.Fatalf("%s, incomplete: %t, behind %v", got.end, got.open, got.list)
	}
	wantSame(t, got.list, want)
	return got.squeezed
}

func serverFrame(op byte, fin bool, payload string) []byte {
	b := frame.Append(nil, op, []byte(payload))
	if !fin {
		b[0] &^= 0x80
	}
	return b
}

// The driver splits writes anywhere.
func TestSplitWritesGiveTheSameResult(t *testing.T) {
	all := concat(
		serverFrame(frame.Text, true, prose(300)), serverFrame(frame.Ping, true, "1"),
		serverFrame(frame.Text, false, prose(10)), serverFrame(frame.Ping, true, "2"), serverFrame(frame.Continuation, false, ""), serverFrame(frame.Continuation, true, prose(200)),
		serverFrame(frame.Binary, true, prose(100)), serverFrame(frame.Binary, false, ""), serverFrame(frame.Continuation, true, ""),
		serverFrame(frame.Close, true, string(frame.ClosePayload(4001, "enough"))))
	want := []message{
		{frame.Text, prose(300)}, {frame.Ping, "1"}, {frame.Ping, "2"}, {frame.Text, prose(10) + prose(200)},
		{frame.Binary, prose(100)}, {frame.Binary, ""}, {frame.Close, string(frame.ClosePayload(4001, "enough"))},
	}
	var whole []byte
	for cut := range all {
		r := newRig(t)
		for _, b := range [][]byte{all[:cut], all[cut:]} {
			if n, err := r.Write(b); n != len(b) || err != nil {
				t.Fatalf("cut at %d: %d, %v", cut, n, err)
			}
		}
		b := r.sent(t)
		if whole == nil {
			whole = bytes.Clone(b)
		}
		if !bytes.Equal(b, whole) {
			t.Fatalf("cut at %d, other bytes are sent", cut)
		}
		wantSent(t, b, want...)
	}
	r := newRig(t)
	for i := range all {
		r.Write(all[i : i+1])
	}
	wantSent(t, r.sent(t), want...)
}

// A message of up to 1 MiB is one frame, wherever writes are split and however the game
// server fragmented it, because some browsers fail on compressed messages in several.
func TestMessageIsOneFrameUnlessItIsLarge(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		frames []string
		want   int
	}{
		"a piece":               {[]string{prose(16 << 10)}, 1},
		"a byte more":           {[]string{prose(16<<10 + 1)}, 1},
		"1 MiB":                 {[]string{prose(mib)}, 1},
		"1 MiB of noise":        {[]string{noise(mib)}, 1},
		"small fragments":       {[]string{prose(5), prose(100), "", prose(300)}, 1},
		"fragments":             {[]string{"", prose(16 << 10), noise(20000), prose(16 << 10), ""}, 1},
		"2 MiB, half of it one": {[]string{noise(mib), prose(mib)}, 2},
		"3 MiB of noise":        {[]string{noise(3 * mib)}, 3},
	} {
		r := newRig(t)
		whole := strings.Join(c.frames, "")
		for i, p := range c.frames {
			op := byte(frame.Continuation)
			if i == 0 {
				op = frame.Text
			}
			b := serverFrame(op, i == len(c.frames)-1, p)
			for len(b) > 0 {
				n := min(len(b), 5000)
				r.Write(b[:n])
				b = b[n:]
			}
		}
		got := readFrames(r.sent(t), false, 64<<20, 0)
		if len(got.list) != 1 || got.list[0].data != whole || got.frames != c.want {
			t.Errorf("%s: %d messages in %d frames, want one in %d", name, len(got.list), got.frames, c.want)
		}
	}
}

// What a slow client has not taken of a message is memory of that client's.
func TestUnwrittenBytesAreAccounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := 0
		client, server := wstest.Pipe(4 << 10)
		c := deflate.NewConn(server, nil, agreed(t, "permessage-deflate"), deflate.Options{Limit: limit, Charge: func(n int) { held += n }})
		b := serverFrame(frame.Binary, true, noise(300<<10))
		c.Write(b[:200<<10])
		if held < 150<<10 || held > 500<<10 {
			t.Errorf("%d bytes are charged for 200 KiB of a message", held)
		}
		go c.Write(b[200<<10:])
		synctest.Wait()
		if held < 300<<10 || held > 700<<10 {
			t.Errorf("%d bytes are charged for 300 KiB that the socket does not take", held)
		}
		go io.Copy(io.Discard, client)
		synctest.Wait()
		if held != 0 {
			t.Errorf("%d bytes are charged, and nothing is held", held)
		}
		c.Close()
	})
}

// When a deadline passes, the client may have received any part of what was written: it
// counts as written.
func TestInterruptedWriteCountsAsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := wstest.Pipe(4 << 10)
		defer client.Close()
		c := deflate.NewConn(server, nil, agreed(t, "permessage-deflate"), deflate.Options{Limit: limit})
		defer c.Close()
		c.SetWriteDeadline(time.Now().Add(time.Second))
		b := serverFrame(frame.Binary, true, noise(10<<10))
		if n, err := c.Write(b); n != len(b) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d, %v; want %d and the deadline", n, err, len(b))
		}
		if n, err := c.Write(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d, %v; want 0 and the deadline", n, err)
		}
	})
}

func TestInvalidFrameIsNotSent(t *testing.T) {
	r := newRig(t)
	if n, err := r.Write([]byte{0xff, 0xff, 0xff}); n != 0 || !errors.Is(err, frame.ErrReserved) {
		t.Errorf("%d, %v", n, err)
	}
	if b := r.sent(t); len(b) > 0 {
		t.Errorf("% x is sent", b)
	}
}
