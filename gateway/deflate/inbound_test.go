package deflate_test

import (
	"bytes"
	"compress/flate"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/deflate"
	"reseat/gateway/frame"
)

func concat(parts ...[]byte) []byte { return slices.Concat(parts...) }

func TestCompressedMessagesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a slow machine would get frames that say that a message continues
		for _, size := range []int{0, 1, 127, 128, 4095, 4096, 65535, 65536, 65537, 200000, limit} {
			for _, p := range []string{prose(size), noise(size), strings.Repeat("a", size)} {
				for _, n := range []int{1, 2, 7} {
					r := newRig(t)
					r.client.Write(concat(compressed(frame.Text, p), fragments(frame.Binary, p, n, nil)))
					frames := wantMessages(t, r.readAll(t), message{frame.Text, p}, message{frame.Binary, p})
					if most := 2 * (2 + size/(64<<10)); frames > most {
						t.Errorf("%d bytes arrived in %d frames, want at most %d", size, frames, most)
					}
				}
			}
		}
	})
}

// The examples of RFC 7692 section 7.2.3, except those with the window of an earlier
// message, and what section 7.2.1 allows after a final block.
func TestExamplesOfTheRFCAreRead(t *testing.T) {
	for name, c := range map[string]struct{ hex, want string }{
		"one block":                {"f248cdc9c90700", "Hello"},
		"no compression":           {"000500faff48656c6c6f00", "Hello"},
		"a final block":            {"f348cdc9c9070000", "Hello"},
		"two blocks":               {"f24805000000ffffcac9c90700", "Hello"},
		"nothing":                  {"00", ""},
		"more than a final block":  {"f348cdc9c907000acf2fca490100", "HelloWorld"},
		"final blocks alone":       {"f348cdc9c90700f348cdc9c9070000", "HelloHello"},
		"a final empty block last": {"f248cdc9c907000000ffff01", "Hello"},
	} {
		z := unhex(c.hex)
		for cut := range z {
			r := newRig(t)
			r.client.Write(concat(clientFrame(frame.Text, false, rsv1, z[:cut]), clientFrame(frame.Continuation, true, 0, z[cut:])))
			if got := uncompressed(r.readAll(t), limit); got.end != "none" || !slices.Equal(got.list, []message{{frame.Text, c.want}}) {
				t.Errorf("%s, cut at %d: %+v, want %q", name, cut, got, c.want)
			}
		}
	}
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// What a client does not compress passes byte for byte.
func TestUncompressedMessagesPassUnchanged(t *testing.T) {
	for name, b := range map[string][]byte{
		"messages":   concat(clientFrame(frame.Text, true, 0, []byte("one")), clientFrame(frame.Binary, false, 0, []byte("two")), clientFrame(frame.Continuation, true, 0, nil)),
		"a long one": clientFrame(frame.Binary, true, 0, []byte(noise(300000))),
		"control":    concat(clientFrame(frame.Ping, true, 0, []byte("ping")), clientFrame(frame.Pong, true, 0, nil), clientFrame(frame.Close, true, 0, frame.ClosePayload(4000, "bye"))),
		"no frames":  []byte("GET / HTTP/1.1\r\n\r\nwhat is this?"),
		"not masked": frame.Append(nil, frame.Text, []byte("hello")),
		"other bits": clientFrame(frame.Text, true, 0x20, []byte("x")),
		"cut short":  clientFrame(frame.Text, true, 0, []byte("hello"))[:8],
		// What section 6.1 forbids is for the reader to refuse.
		"RSV1 on control":                    clientFrame(frame.Ping, true, rsv1, nil),
		"RSV1 on a continuation":             concat(clientFrame(frame.Text, false, 0, nil), clientFrame(frame.Continuation, true, rsv1, []byte("x"))),
		"compressed within a message":        concat(clientFrame(frame.Text, false, 0, nil), compressed(frame.Text, "x")),
		"compressed and not masked":          {0xc1, 1, 0},
		"a length that is not in short form": {0xc1, 0xfe, 0, 1, 0, 0, 0, 0, 0},
	} {
		r := newRig(t)
		r.client.Write(b)
		// Empty Pongs are sent when bytes arrived and no frame did.
		if got := bytes.ReplaceAll(r.readAll(t), []byte("\x8a\x80\x00\x00\x00\x00"), nil); !bytes.Equal(got, b) {
			t.Errorf("%s: got % .80x, want % .80x", name, got, b)
		}
	}
}

// Control frames keep their place, which may be inside a message, and so do messages that are not compressed,
// wherever writes and reads are cut.
func TestFramesKeepTheirPlaceHoweverCut(t *testing.T) {
	closing := string(frame.ClosePayload(4001, "enough"))
	ping := message{frame.Ping, "17"}
	want := []message{
		{frame.Text, "one"}, {frame.Pong, "4"}, ping, ping, {frame.Binary, prose(5000)},
		{frame.Text, "plain"}, {frame.Binary, ""}, {frame.Text, prose(1000)}, {frame.Close, closing},
	}
	all := concat(
		compressed(frame.Text, "one"), clientFrame(frame.Pong, true, 0, []byte("4")),
		fragments(frame.Binary, prose(5000), 3, clientFrame(frame.Ping, true, 0, []byte("17"))),
		clientFrame(frame.Text, true, 0, []byte("plain")), compressed(frame.Binary, ""), compressed(frame.Text, prose(1000)),
		clientFrame(frame.Close, true, 0, []byte(closing)))
	for cut := range all {
		r := newRig(t)
		r.client.Write(all[:cut])
		first := make([]byte, 1<<16)
		n := 0
		if cut > 0 {
			n, _ = r.Read(first)
		}
		r.client.Write(all[cut:])
		wantMessages(t, append(first[:n], r.readAll(t)...), want...)
	}
	all, want = append(all, compressed(frame.Text, prose(70000))...), append(want, message{frame.Text, prose(70000)})
	for _, size := range []int{1, 2, 3, 5, 14, 1000, 4096, 1 << 17} {
		r := newRig(t)
		r.client.Write(all)
		r.client.CloseWrite()
		got, b := []byte(nil), make([]byte, size)
		for n, err := 0, error(nil); err == nil; got = append(got, b[:n]...) {
			n, err = r.Read(b)
		}
		wantMessages(t, got, want...)
	}
}

func TestBytesAfterTheHandshakeAreReadFirst(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	b := compressed(frame.Text, "early")
	for cut := range len(b) + 1 {
		c := deflate.NewConn(server, b[:cut], agreed(t, "permessage-deflate"), deflate.Options{Limit: limit})
		go client.Write(append(b[cut:len(b):len(b)], compressed(frame.Text, "late")...))
		var got []byte
		p := make([]byte, 512)
		for !bytes.Contains(got, []byte("late")) {
			n, err := c.Read(p)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p[:n]...)
		}
		wantMessages(t, got, message{frame.Text, "early"}, message{frame.Text, "late"})
	}
}

func wantVerdict(t *testing.T, want string, parts ...[]byte) {
	t.Helper()
	r := newRig(t)
	r.client.Write(concat(parts...))
	if got := uncompressed(r.readAll(t), limit).end; got != want {
		t.Fatalf("the reader says %s, want %s", got, want)
	}
}

func TestDataThatDoesNotInflateIsAProtocolError(t *testing.T) {
	for name, z := range map[string][]byte{
		"nothing":              nil,
		"a reserved block":     {0x07},
		"a bad stored block":   {0x00, 0x01, 0x00, 0x01, 0x00, 'x'},
		"too far back":         {0x02, 0x90, 0xff, 0x7f},
		"the window of before": {0xf2, 0x00, 0x11, 0x00, 0x00}, // RFC 7692 section 7.2.3.2
		"noise":                []byte(noise(500)),
		"with its tail":        append(squeeze("Hello"), "\x00\x00\xff"...),
		"another stream":       append(squeeze("Hello"), 0x07),
	} {
		t.Run(name, func(t *testing.T) {
			good := compressed(frame.Text, "good")
			wantVerdict(t, "1002", good, clientFrame(frame.Text, true, rsv1, z), good)
			wantVerdict(t, "1002", clientFrame(frame.Text, false, rsv1, z), clientFrame(frame.Continuation, true, 0, nil))
		})
	}
}

// DEFLATE has no checksum, but a truncated payload does not end as a message ends. It
// must not pass as a shorter message.
func TestTruncatedMessagesAreAProtocolError(t *testing.T) {
	for _, p := range []string{"Hello", prose(100), prose(5000), noise(300), strings.Repeat("a", 100000), strings.Repeat("\x00", 300)} {
		z := squeeze(p)
		for cut := range z {
			if z[0] == 0 && (cut == 1 || cut == len(z)-5) {
				continue // that is an empty message, or the tail completes a stored block
			}
			r := newRig(t)
			r.client.Write(clientFrame(frame.Text, true, rsv1, z[:cut]))
			if got := uncompressed(r.readAll(t), limit).end; got != "1002" {
				t.Errorf("%d of %d bytes of a message of %.10q: the reader says %s, want 1002", cut, len(z), p, got)
			}
		}
	}
}

func TestFramesOutOfPlaceAreAProtocolError(t *testing.T) {
	open := clientFrame(frame.Text, false, rsv1, squeeze("Hello")[:3])
	rest := clientFrame(frame.Continuation, true, 0, squeeze("Hello")[3:])
	wantVerdict(t, "none", open, rest)
	for name, b := range map[string][]byte{
		"a message within one":            clientFrame(frame.Text, true, 0, []byte("x")),
		"a compressed message within one": compressed(frame.Binary, "x"),
		"the rest as another message":     clientFrame(frame.Text, true, 0, squeeze("Hello")[3:]),
		"RSV1 on a continuation":          clientFrame(frame.Continuation, true, rsv1, squeeze("Hello")[3:]),
		"RSV1 on control":                 clientFrame(frame.Ping, true, rsv1, nil),
		"a long control frame":            {0x89, 0xfe, 0, 126},
		"other bits":                      clientFrame(frame.Continuation, true, 0x10, nil),
	} {
		t.Run(name, func(t *testing.T) { wantVerdict(t, "1002", open, b) }) // whatever follows
	}
}

// The reader judges a message of exactly limit bytes; a much larger one is not
// inflated.
func TestLimitAppliesToInflatedBytes(t *testing.T) {
	for _, p := range []string{prose(limit), noise(limit), strings.Repeat("a", limit)} {
		wantVerdict(t, "none", compressed(frame.Text, p))
		wantVerdict(t, "1009", compressed(frame.Text, p+"!"))
		wantVerdict(t, "1009", fragments(frame.Text, p+"!", 1000, nil))
	}
}

func TestMessageTooLargeOnTheWireIsRefusedByItsHeader(t *testing.T) {
	head := clientFrame(frame.Binary, false, rsv1, nil)
	huge := []byte{0x82 | rsv1, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4} // 1 GiB
	wantVerdict(t, "1009", huge)
	huge[0] = 0x80
	wantVerdict(t, "1009", head, huge)
	wantVerdict(t, "1009", head, clientFrame(frame.Continuation, false, 0, []byte(noise(limit))), clientFrame(frame.Continuation, false, 0, []byte(noise(limit))))
	last := []byte{0x80, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}
	wantVerdict(t, "1009", head, clientFrame(frame.Continuation, false, 0, []byte("x")), last)
}

func TestMessageOfTooManyFramesIsRefused(t *testing.T) {
	wantVerdict(t, "none", fragments(frame.Text, noise(2000), 1024, nil))
	wantVerdict(t, "too many frames", fragments(frame.Text, noise(2000), 1025, nil))
	wantVerdict(t, "too many frames", clientFrame(frame.Text, false, rsv1, nil), bytes.Repeat(clientFrame(frame.Continuation, false, 0, nil), 2000))
}

// A bomb is a message that inflates to a thousand times its size. The limit bounds what
// is returned and what is inflated.
func TestCompressionBombIsInflatedUpToTheLimit(t *testing.T) {
	const bomb = 1 << 30
	z := bombOf(bomb)
	if len(z) > limit*5/4 {
		t.Fatalf("%d bytes are too large a bomb", len(z))
	}
	r := newRig(t)
	r.client.Write(clientFrame(frame.Binary, true, rsv1, z))
	r.client.CloseWrite()
	n, err := io.Copy(io.Discard, r.Conn)
	if err != nil || n > limit+128<<10 {
		t.Fatalf("%d bytes came of it, %v; want no more than the limit of %d and a chunk", n, err, limit)
	}
	if r.maxLen > 4*limit {
		t.Errorf("%d bytes were held", r.maxLen)
	}
}

// bombOf returns n zeros, compressed.
func bombOf(n int) []byte {
	const part = 1 << 20
	z := append(squeezeAt(flate.BestCompression, strings.Repeat("\x00", part)), "\x00\x00\xff\xff"...) // whole blocks, which can be repeated
	return bytes.TrimSuffix(bytes.Repeat(z, n/part), []byte("\x00\x00\xff\xff"))
}

func TestMessageOfTooManyStreamsIsRefused(t *testing.T) {
	final := unhex("f348cdc9c90700")
	wantVerdict(t, "none", clientFrame(frame.Text, true, rsv1, append(bytes.Repeat(final, 1000), 0)))
	wantVerdict(t, "1002", clientFrame(frame.Text, true, rsv1, append(bytes.Repeat(final, 2000), 0)))
}

// The reader is notified of bytes that don't complete a frame, and of a message in
// flight, because heartbeats and the rule against stalled messages are its own.
func TestReaderIsNotifiedOfMessageInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		b := clientFrame(frame.Binary, true, rsv1, squeeze(noise(10000)))
		var got []byte
		p := make([]byte, 4096)
		read := func() string {
			n, err := r.Read(p)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p[:n]...)
			return hex.EncodeToString(p[:n])
		}
		const alive, begun, goesOn = "8a8000000000", "028000000000", "008000000000"
		for i, want := range []string{alive, begun, alive, alive} {
			r.client.Write(b[:1])
			if b = b[1:]; i == 0 {
				r.client.Write(b[:1]) // the second byte gives the header's length
				b = b[1:]
			}
			if i == 1 {
				r.client.Write(b[:100])
				b = b[100:]
			}
			if s := read(); s != want {
				t.Fatalf("step %d: got %s, want %s", i, s, want)
			}
		}
		words := 0
		for range 3600 { // a byte each half second for half an hour
			time.Sleep(500 * time.Millisecond)
			r.client.Write(b[:1])
			b = b[1:]
			if read() == goesOn {
				words++
			}
		}
		if words < 250 || words > 300 {
			t.Errorf("the reader was notified %d times", words)
		}
		r.client.Write(b)
		frames := wantMessages(t, append(got, r.readAll(t)...), message{frame.Binary, noise(10000)})
		if frames > 1024 {
			t.Errorf("%d frames", frames)
		}
	})
}

// A message of which a part arrived together with another is in flight too, even if
// nothing more ever arrives.
func TestReaderIsNotifiedOfStalledMessageImmediately(t *testing.T) {
	r := newRig(t)
	r.client.Write(clientFrame(frame.Pong, true, 0, []byte("1")))
	r.client.Write(compressed(frame.Text, prose(1000))[:50])
	p := make([]byte, 4096)
	n, err := r.Read(p)
	if err != nil || p[0]&0xf != frame.Pong {
		t.Fatalf("got % x, %v", p[:n], err)
	}
	n, err = r.Read(p)
	if want := "018000000000"; err != nil || hex.EncodeToString(p[:n]) != want {
		t.Fatalf("got % x, %v; want %s", p[:n], err, want)
	}
	r.SetReadDeadline(time.Unix(1, 0))
	if r.Read(p); r.held == 0 {
		t.Error("nothing is charged for it")
	}
}

func TestCollectedBytesAreAccounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *deflate.Options) { o.Limit = 8 << 20 })
		b := clientFrame(frame.Binary, true, rsv1, squeeze(noise(2<<20)))
		reading := make(chan []byte)
		go func() {
			got, _ := io.ReadAll(r.Conn)
			reading <- got
		}()
		r.client.Write(b[:1<<20])
		synctest.Wait()
		if r.held < 1<<20 || r.held > 3<<20 {
			t.Errorf("%d bytes are charged for 1 MiB", r.held)
		}
		r.client.Write(b[1<<20:])
		synctest.Wait()
		if r.held != 0 {
			t.Errorf("%d bytes are charged, and nothing is held", r.held)
		}
		r.client.Write(b[:1<<20])
		synctest.Wait()
		r.Close()
		if <-reading; r.held != 0 {
			t.Errorf("%d bytes are charged for a connection that is closed", r.held)
		}
	})
}

// The driver interrupts a read with a deadline in the past, and reads again later.
func TestInterruptedReadContinues(t *testing.T) {
	r := newRig(t)
	b := concat(fragments(frame.Text, prose(3000), 4, clientFrame(frame.Ping, true, 0, []byte("x"))), compressed(frame.Text, "end"))
	var got []byte
	p := make([]byte, 100)
	for i := range b {
		r.client.Write(b[i : i+1])
		r.SetReadDeadline(time.Unix(1, 0))
		for {
			n, err := r.Read(p)
			got = append(got, p[:n]...)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r.SetReadDeadline(time.Time{})
		n, err := r.Read(p[:1])
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p[:n]...)
	}
	ping := message{frame.Ping, "x"}
	wantMessages(t, append(got, r.readAll(t)...), ping, ping, ping, message{frame.Text, prose(3000)}, message{frame.Text, "end"})
}

func TestCloseInterruptsAReadAndIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.client.Write(compressed(frame.Text, prose(1000))[:50])
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, r.Conn)
			ended <- err
		}()
		synctest.Wait()
		r.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the read ends with %v", err)
		}
		r.Close()
	})
}

func ExampleNegotiate() {
	p, ok := deflate.Negotiate(map[string][]string{"Sec-Websocket-Extensions": {"permessage-deflate; client_max_window_bits"}}, 0)
	fmt.Println(p, ok)
	// Output: permessage-deflate; server_no_context_takeover; client_no_context_takeover true
}
