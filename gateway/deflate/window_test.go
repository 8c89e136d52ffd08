package deflate_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"strings"
	"testing"

	"reseat/gateway/deflate"
	"reseat/gateway/frame"
)

const window = 4 << 10

func withWindow(o *deflate.Options) { o.Window = window }

// tick is a message as game servers send them: the figures of the one before have moved.
func tick(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"type":"tick","t":%d,"players":[`, 100000+50*n)
	for i := range 6 {
		fmt.Fprintf(&b, `{"id":%d,"x":%d.%02d,"y":%d.%02d,"hp":%d,"anim":"run"},`, 17*i, 100*i+n, 31*n%100, 90*i+2*n, 57*n%100, 100-n/9)
	}
	return b.String() + "]}"
}

func serverFrames(list []message) (b []byte) {
	for _, m := range list {
		b = append(b, serverFrame(m.op, true, m.data)...)
	}
	return b
}

func TestAnswerOffersWhatTheWindowAllows(t *testing.T) {
	const p = "permessage-deflate"
	for _, c := range []struct {
		window      int
		offer, want string
	}{
		{4096, p, p + "; client_no_context_takeover"}, // Safari, Firefox: they may refer back 32 KiB
		{4096, p + "; client_max_window_bits", p + "; client_max_window_bits=12"},
		{4096, p + "; client_max_window_bits=15", p + "; client_max_window_bits=12"},
		{4096, p + "; client_max_window_bits=10", p + "; client_max_window_bits=10"},
		{4096, p + "; client_max_window_bits=8", p + "; client_max_window_bits=8"},
		{4096, p + "; client_no_context_takeover", p + "; client_no_context_takeover"},
		{4096, p + "; client_no_context_takeover; client_max_window_bits", p + "; client_no_context_takeover"},
		{4096, p + "; server_no_context_takeover; client_max_window_bits", p + "; server_no_context_takeover; client_max_window_bits=12"},
		{4096, p + "; server_max_window_bits=9; client_max_window_bits", p + "; server_max_window_bits=9; client_max_window_bits=12"},
		{4096, p + "; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=15", yes + "; server_max_window_bits=15"},
		{32768, p, p},
		{32768, p + "; client_max_window_bits", p + "; client_max_window_bits=15"},
		{1024, p + "; client_max_window_bits", p + "; client_max_window_bits=10"},
		{0, p + "; client_max_window_bits", yes},
	} {
		if got := agreedWith(t, c.offer, c.window).String(); got != c.want {
			t.Errorf("window %d, %q: answered %q, want %q", c.window, c.offer, got, c.want)
		}
	}
}

// Whatever a client gets, it must be able to inflate with what it keeps.
func TestMessagesReferNoFurtherThanTheWindow(t *testing.T) {
	var list []message
	for i, size := range []int{200, 5000, 300, 100, 40000, 127, 128, 4000, 600, 16 << 10, 16<<10 + 1, 900} {
		list = append(list, message{frame.Text, prose(size)}, message{frame.Binary, noise(size)}, message{frame.Text, tick(i)})
	}
	for offer, keep := range map[string]int{
		"permessage-deflate":                            window,
		"permessage-deflate; server_max_window_bits=15": window,
		"permessage-deflate; server_max_window_bits=10": 512,
		"permessage-deflate; server_max_window_bits=8":  128,
	} {
		r := newRigFor(t, offer, withWindow)
		r.Write(serverFrames(list))
		wantSentTo(t, r.sent(t), keep, list...)
	}
}

// A repetition that begins in the window may end further back than the client's own reaches.
func TestRequestedWindowSpansMessages(t *testing.T) {
	part, filler := noise(400)[:200], noise(1500)[400:]
	list := []message{{frame.Text, prose(300) + part}, {frame.Binary, filler + part}}
	for bits, want := range map[int]bool{10: false, 15: true} {
		r := newRigFor(t, fmt.Sprintf("permessage-deflate; server_max_window_bits=%d", bits), withWindow)
		r.Write(serverFrames(list))
		b := r.sent(t)
		found := len(b) < len(filler)+450
		if wantSentTo(t, b, window, list...); found != want {
			t.Errorf("%d bits: the repetition is found: %t, want %t", bits, found, want)
		}
	}
}

// What the client cannot inflate against is not in our window either: an uncompressed message
// leaves both as they were.
func TestUncompressedMessagesAreInNoWindow(t *testing.T) {
	secret := noise(200)
	for name, m := range map[string]message{
		"incompressible":        {frame.Binary, secret},
		"a control message":     {frame.Text, "\x10hello " + secret},
		"a small message":       {frame.Binary, secret[:100]},
		"an incompressible DLE": {frame.Text, "\x10\x10" + secret},
	} {
		r := newRig(t, withWindow)
		list := []message{{frame.Text, prose(500)}, m, {frame.Binary, secret + prose(500)}}
		r.Write(serverFrames(list))
		b := r.sent(t)
		if squeezed := wantSentTo(t, b, window, list...); squeezed[1] || !squeezed[2] {
			t.Errorf("%s: compressed: %v", name, squeezed)
		}
		if !bytes.Contains(b, []byte(m.data)) {
			t.Errorf("%s is not sent as it is", name)
		}
	}
}

// hello has the resume token. If it were in a window, the size of a message of which an
// attacker chooses a part would tell whether they guessed the token.
func TestControlMessagesAreNotCompressed(t *testing.T) {
	hello := "\x10hello " + prose(500)
	for name, c := range map[string]struct {
		m    message
		want bool
	}{
		"control":                     {message{frame.Text, hello}, false},
		"data that begins with a DLE": {message{frame.Text, "\x10" + hello}, true},
		"binary":                      {message{frame.Binary, hello}, true},
	} {
		for _, w := range []int{0, window} {
			r := newRig(t, func(o *deflate.Options) { o.Window = w })
			r.Write(serverFrames([]message{c.m, {frame.Text, prose(500)}}))
			b := r.sent(t)
			if squeezed := wantSentTo(t, b, w, c.m, message{frame.Text, prose(500)}); squeezed[0] != c.want {
				t.Errorf("%s: compressed: %t, want %t", name, squeezed[0], c.want)
			}
		}
	}
}

// A squeezer compresses a client's messages with context takeover.
type squeezer struct {
	b bytes.Buffer
	z *flate.Writer
}

func newSqueezer() *squeezer {
	s := new(squeezer)
	s.z, _ = flate.NewWriter(&s.b, flate.BestCompression)
	return s
}

func (s *squeezer) frame(m message) []byte {
	s.b.Reset()
	s.z.Write([]byte(m.data))
	s.z.Flush()
	return clientFrame(m.op, true, rsv1, bytes.TrimSuffix(s.b.Bytes(), []byte("\x00\x00\xff\xff")))
}

// The example of RFC 7692 section 7.2.3.2, and the same after a final block.
func TestExampleOfTheRFCWithTakeoverIsRead(t *testing.T) {
	for _, first := range []string{"f248cdc9c90700", "f348cdc9c9070000"} {
		r := newRigFor(t, "permessage-deflate; client_max_window_bits", withWindow)
		for _, s := range []string{first, "f200110000"} {
			r.client.Write(clientFrame(frame.Text, true, rsv1, unhex(s)))
		}
		wantMessages(t, r.readAll(t), message{frame.Text, "Hello"}, message{frame.Text, "Hello"})
	}
}

// A client that refers further back than it said is refused: its message cannot be known.
func TestReferenceBeyondTheWindowIsAProtocolError(t *testing.T) {
	s := newSqueezer() // 32 KiB
	r := newRigFor(t, "permessage-deflate; client_max_window_bits", withWindow)
	for _, p := range []string{noise(300), prose(6000), noise(300)} {
		r.client.Write(s.frame(message{frame.Binary, p}))
	}
	if got := uncompressed(r.readAll(t), limit).end; got != "1002" {
		t.Errorf("the reader says %s", got)
	}
}

// Windows grow with what passes: a connection that is silent has none.
func TestWindowsAreAccounted(t *testing.T) {
	r := newRigFor(t, "permessage-deflate; client_max_window_bits", withWindow)
	want := func(n int) {
		t.Helper()
		if r.windows != n {
			t.Errorf("%d bytes are charged, want %d", r.windows, n)
		}
	}
	p := make([]byte, 1<<16)
	up := newSqueezer()
	send := func(s string) {
		r.client.Write(up.frame(message{frame.Text, s}))
		if _, err := r.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	want(0)
	r.Write(serverFrame(frame.Text, true, prose(127)))
	want(0)
	r.Write(serverFrame(frame.Text, true, prose(300)))
	want(512)
	send("x")
	want(1024)
	for range 9 {
		r.Write(serverFrame(frame.Text, true, prose(3000)))
		send(prose(2000))
	}
	want(2 * window)
	r.Close()
	want(0)
}
