package deflate_test

import (
	"bytes"
	"compress/flate"
	"crypto/tls"
	"errors"
	"io"
	"net"
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

func TestMessagesAreCompressed(t *testing.T) {
	for _, size := range []int{128, 1000, 16384, 16385, 100000, 1 << 20} {
		r := newRig(t)
		p := prose(size)
		if n, err := r.Write(concat(serverFrame(frame.Text, true, p), serverFrame(frame.Binary, true, p))); err != nil || n < 2*size {
			t.Fatal(n, err)
		}
		b := r.sent(t)
		wire := len(b)
		for i, c := range wantSent(t, b, message{frame.Text, p}, message{frame.Binary, p}) {
			if !c {
				t.Errorf("message %d of %d bytes is not compressed", i, size)
			}
		}
		if wire >= 2*size {
			t.Errorf("two messages of %d bytes take %d", size, wire)
		}
	}
}

func TestSmallAndIncompressibleMessagesAreSentUncompressed(t *testing.T) {
	want := []message{{frame.Text, ""}, {frame.Text, prose(127)}, {frame.Binary, noise(128)}, {frame.Text, noise(16384)}}
	r := newRig(t)
	var all []byte
	for _, m := range want {
		all = append(all, serverFrame(m.op, true, m.data)...)
	}
	r.Write(all)
	if b := r.sent(t); !bytes.Equal(b, all) {
		t.Fatalf("%d bytes became %d", len(all), len(b))
	}
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

// If the window is smaller than the pieces compressed at once, the pieces become
// smaller, and none refers to another.
func TestRequestedWindowIsUsed(t *testing.T) {
	p := strings.Repeat(noise(600), 20) // the repetition lies 600 bytes back
	sizes := map[string]int{}
	for _, offer := range []string{"permessage-deflate; server_max_window_bits=9", "permessage-deflate; server_max_window_bits=10", "permessage-deflate"} {
		r := newRigFor(t, offer)
		r.Write(serverFrame(frame.Text, true, p))
		b := r.sent(t)
		sizes[offer] = len(b)
		wantSent(t, b, message{frame.Text, p})
	}
	if n := sizes["permessage-deflate; server_max_window_bits=9"]; n < len(p) {
		t.Errorf("%d bytes: something refers further back than 512 bytes", n)
	}
	if n := sizes["permessage-deflate"]; n > len(p)/5 {
		t.Errorf("%d bytes without a limit: the test shows nothing", n)
	}
}

func TestFullSocketBlocksTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := wstest.Pipe(4 << 10)
		c := deflate.NewConn(server, nil, agreed(t, "permessage-deflate"), deflate.Options{Limit: limit})
		b := serverFrame(frame.Binary, true, noise(10<<10))
		wrote := make(chan int, 1)
		go func() {
			n, _ := c.Write(b)
			wrote <- n
		}()
		time.Sleep(time.Minute)
		select {
		case n := <-wrote:
			t.Fatalf("%d bytes were taken by a socket that holds 4096", n)
		default:
		}
		go io.Copy(io.Discard, client)
		if n := <-wrote; n != len(b) {
			t.Errorf("%d bytes were taken, want %d", n, len(b))
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

// No layer is skipped: the one below may be what somebody looks for.
func TestNetConnReturnsTheConnectionBelow(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	below := tls.Server(a, nil)
	c := deflate.NewConn(below, nil, agreed(t, "permessage-deflate"), deflate.Options{})
	defer c.Close()
	if c.NetConn() != below {
		t.Error("the connection below is not found")
	}
}

func TestCloseWriteWithoutSupportIsNoError(t *testing.T) {
	a, _ := net.Pipe()
	c := deflate.NewConn(a, nil, agreed(t, "permessage-deflate"), deflate.Options{})
	if err := errors.Join(c.CloseWrite(), c.Close()); err != nil {
		t.Error(err)
	}
}
