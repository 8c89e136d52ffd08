package deflate_test

import (
	"bytes"
	"compress/flate"
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

// inflated reads b as a client does that keeps so many bytes of earlier messages. It returns
// the messages, for each whether it was compressed, and the number of frames.
func inflated(t testing.TB, b []byte, keep int) (list []message, squeezed []bool, frames int) {
	t.Helper()
	open, compressed := false, false
	var cur message
	var kept string
	for len(b) > 0 {
		bit := b[0]&rsv1 != 0
		b[0] &^= rsv1
		h, err := frame.Parse(b)
		if err != nil || h.Masked || h.Size == 0 || int64(len(b)-h.Size) < h.Length {
			t.Fatalf("a bad frame % .20x: %v", b, err)
		}
		p := b[h.Size : h.Size+int(h.Length)]
		b = b[h.Size+int(h.Length):]
		if h.Control() {
			list, squeezed = append(list, message{h.Op, string(p)}), append(squeezed, bit)
			continue
		}
		if (h.Op == frame.Continuation) != open || bit && open {
			t.Fatalf("frame of opcode %d out of place, RSV1 %t", h.Op, bit)
		}
		if !open {
			cur, compressed = message{op: h.Op}, bit
		}
		cur.data += string(p)
		frames++
		open = !h.Fin
		if open {
			continue
		}
		if compressed {
			z := io.MultiReader(strings.NewReader(cur.data), strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff"))
			plain, err := io.ReadAll(flate.NewReaderDict(z, []byte(kept)))
			if err != nil {
				t.Fatalf("message %d does not inflate: %v", len(list), err)
			}
			cur.data = string(plain)
			kept = lastBytes(kept+cur.data, keep)
		}
		list, squeezed = append(list, cur), append(squeezed, compressed)
	}
	if open {
		t.Fatal("a message is not finished")
	}
	return list, squeezed, frames
}

func lastBytes(s string, n int) string { return s[max(0, len(s)-n):] }

func wantSent(t testing.TB, b []byte, want ...message) (squeezed []bool) {
	t.Helper()
	return wantSentTo(t, b, 0, want...)
}

// wantSentTo is wantSent for a client that keeps so many bytes.
func wantSentTo(t testing.TB, b []byte, keep int, want ...message) (squeezed []bool) {
	t.Helper()
	got, squeezed, _ := inflated(t, b, keep)
	wantSame(t, got, want)
	return squeezed
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
		got, _, frames := inflated(t, r.sent(t), 0)
		if len(got) != 1 || got[0].data != whole || frames != c.want {
			t.Errorf("%s: %d messages in %d frames, want one in %d", name, len(got), frames, c.want)
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
