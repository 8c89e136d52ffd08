package deflate_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"reseat/gateway/deflate"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
)

const (
	rsv1  = 0x40
	limit = 1 << 20
)

var key = [4]byte{0xde, 0xad, 0xbe, 0xef}

// agreed returns the parameters negotiated for an offer, without context takeover.
func agreed(t testing.TB, offer string) deflate.Params { return agreedWith(t, offer, 0) }

func agreedWith(t testing.TB, offer string, window int) deflate.Params {
	t.Helper()
	p, ok := deflate.Negotiate(http.Header{"Sec-Websocket-Extensions": {offer}}, window)
	if !ok {
		t.Fatalf("%s is declined", offer)
	}
	return p
}

// A rig is a Conn and the client at its other end. Its sockets hold everything that the
// tests write.
type rig struct {
	*deflate.Conn
	client  *wstest.Conn
	held    int // charged now
	maxLen  int // the maximum so far
	windows int // charged now for windows
}

func newRig(t testing.TB, options ...func(*deflate.Options)) *rig {
	return newRigFor(t, "permessage-deflate", options...)
}

func newRigFor(t testing.TB, offer string, options ...func(*deflate.Options)) *rig {
	t.Helper()
	client, server := wstest.Pipe(64 << 20)
	r := &rig{client: client}
	o := deflate.Options{Limit: limit, Charge: func(n int) { r.held += n; r.maxLen = max(r.maxLen, r.held) }, ChargeWindow: func(n int) { r.windows += n }}
	for _, f := range options {
		f(&o)
	}
	r.Conn = deflate.NewConn(server, nil, agreedWith(t, offer, o.Window), o)
	t.Cleanup(func() {
		r.Close()
		if r.held != 0 || r.windows != 0 {
			t.Errorf("%d bytes are still charged, and %d for windows", r.held, r.windows)
		}
	})
	return r
}

// squeeze compresses a message's payload as a client would.
func squeeze(p string) []byte {
	if len(p) > 1<<16 { // the best level is slow under the race detector
		return squeezeAt(flate.BestSpeed, p)
	}
	return squeezeAt(flate.BestCompression, p)
}

func squeezeAt(level int, p string) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, level)
	io.WriteString(w, p)
	w.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte("\x00\x00\xff\xff"))
}

// clientFrame returns a client's frame; bits are set in its first byte.
func clientFrame(op byte, fin bool, bits byte, payload []byte) []byte {
	b := frame.AppendMasked(nil, op, key, payload)
	if !fin {
		b[0] &^= 0x80
	}
	b[0] |= bits
	return b
}

// compressed returns a client's compressed message in one frame.
func compressed(op byte, p string) []byte { return clientFrame(op, true, rsv1, squeeze(p)) }

// fragments returns the same in n frames, with between after each but the last.
func fragments(op byte, p string, n int, between []byte) []byte {
	z := squeeze(p)
	var b []byte
	for i := range n {
		part, bits, o := z[i*len(z)/n:(i+1)*len(z)/n], byte(0), byte(frame.Continuation)
		if i == 0 {
			bits, o = rsv1, op
		}
		b = append(b, clientFrame(o, i == n-1, bits, part)...)
		if i < n-1 {
			b = append(b, between...)
		}
	}
	return b
}

// A message is what a reader makes of frames. Control frames are messages.
type message struct {
	op   byte
	data string
}

func (m message) String() string {
	return fmt.Sprintf("opcode %d, %d bytes %.20q", m.op, len(m.data), m.data)
}

// A reading is what is made of frames: the messages, without the empty Pongs, which only show
// activity, and whether each was compressed; how many frames they had; and how it ends: "none", or
// what the last frame is refused for. open means that the last message or frame is incomplete.
type reading struct {
	list     []message
	squeezed []bool
	frames   int
	end      string
	open     bool
}

// readFrames reads frames in the simplest way, as RFC 6455 and RFC 7692 have it. A message has at most maxLen
// bytes, and may refer to the last keep bytes of those before it.
func readFrames(b []byte, masked bool, maxLen, keep int) (r reading) {
	var cur *message
	var kept string
	squeezed, frames := false, 0
	refuse := func(why string) reading {
		r.end = why
		return r
	}
	for r.end = "none"; len(b) > 0; {
		var head [frame.MaxHeader]byte
		n := copy(head[:], b)
		bit := head[0]&rsv1 != 0
		head[0] &^= rsv1
		h, err := frame.Parse(head[:n])
		switch {
		case err != nil:
			return refuse("1002")
		case h.Size == 0:
			r.open = true
			return r
		case h.Masked != masked, bit && (h.Control() || h.Op == frame.Continuation), !h.Control() && (h.Op == frame.Continuation) != (cur != nil):
			return refuse("1002")
		}
		if !h.Control() {
			if cur == nil {
				cur, squeezed, frames = &message{op: h.Op}, bit, 0
			}
			frames++
			r.frames++
		}
		switch {
		case frames > 1024:
			return refuse("too many frames")
		case !h.Control() && (h.Length > int64(maxLen) || !squeezed && int64(len(cur.data))+h.Length > int64(maxLen)):
			return refuse("1009")
		case int64(len(b)-h.Size) < h.Length:
			r.open = true
			return r
		}
		p := bytes.Clone(b[h.Size : h.Size+int(h.Length)])
		frame.XOR(p, h.Key)
		b = b[h.Size+int(h.Length):]
		if h.Control() {
			if h.Op != frame.Pong || len(p) > 0 {
				r.list, r.squeezed = append(r.list, message{h.Op, string(p)}), append(r.squeezed, false)
			}
			continue
		}
		cur.data += string(p)
		if !h.Fin {
			continue
		}
		if squeezed {
			plain, err := inflate(cur.data, maxLen, kept, keep)
			if err != "none" {
				return refuse(err)
			}
			cur.data = plain
			kept = lastBytes(kept+plain, keep)
		}
		r.list, r.squeezed, cur = append(r.list, *cur), append(r.squeezed, squeezed), nil
	}
	r.open = cur != nil
	return r
}

// uncompressed reads what a Conn made of a client's frames.
func uncompressed(b []byte, maxLen int) reading {
	r := readFrames(b, true, maxLen, 0)
	if slices.Contains(r.squeezed, true) {
		r.end = "1002" // RSV1 is set
	}
	return r
}

// inflate reads one stream after another until nothing is left.
func inflate(z string, maxLen int, kept string, keep int) (plain, end string) {
	r := strings.NewReader(z + "\x00\x00\xff\xff\x01\x00\x00\xff\xff")
	for r.Len() > 0 {
		p, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(r, []byte(lastBytes(kept+plain, keep))), int64(maxLen)+2))
		plain += string(p)
		if len(plain) > maxLen {
			return "", "1009"
		}
		if err != nil {
			return "", "1002"
		}
	}
	return plain, "none"
}

func lastBytes(s string, n int) string { return s[max(0, len(s)-n):] }

// readAll returns everything left to read from a client that has closed.
func (r *rig) readAll(t testing.TB) []byte {
	t.Helper()
	r.client.CloseWrite()
	b, err := io.ReadAll(r.Conn)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantMessages(t testing.TB, b []byte, want ...message) (frames int) {
	t.Helper()
	got := uncompressed(b, 64<<20)
	if got.end != "none" || got.open {
		t.Fatalf("%s, incomplete: %t, behind %v", got.end, got.open, got.list)
	}
	wantSame(t, got.list, want)
	return got.frames
}

func wantSame(t testing.TB, got, want []message) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d messages %v, want %d", len(got), got, len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("message %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

// prose returns n bytes that compress, noise n bytes that don't. Both are
// deterministic.
func prose(n int) string {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `{"id":%d,"x":%d,"name":"player%d"}`, i, i*i%977, i%13)
	}
	return b.String()[:n]
}

func noise(n int) string {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return string(b)
}
