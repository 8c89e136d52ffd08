package deflate_test

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
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

// messages reads all the frames in b, which must be complete. It skips empty Pongs,
// which only show activity. What RFC 6455 forbids is an error.
func messages(b []byte, masked bool) (list []message, frames int, err error) {
	var open *message
	for len(b) > 0 {
		h, err := frame.Parse(b)
		switch {
		case err != nil:
			return list, frames, err
		case h.Size == 0 || int64(len(b)-h.Size) < h.Length:
			return list, frames, fmt.Errorf("%d bytes of a frame that is not whole", len(b))
		case h.Masked != masked:
			return list, frames, errors.New("masked as it must not be")
		}
		p := bytes.Clone(b[h.Size : h.Size+int(h.Length)])
		frame.XOR(p, h.Key)
		b = b[h.Size+int(h.Length):]
		switch {
		case h.Op == frame.Pong && len(p) == 0:
			continue
		case h.Control():
			list = append(list, message{h.Op, string(p)})
			continue
		case (h.Op == frame.Continuation) != (open != nil):
			return list, frames, errors.New("continuation out of place")
		case open == nil:
			open = &message{op: h.Op}
		}
		frames++
		open.data += string(p)
		if h.Fin {
			list = append(list, *open)
			open = nil
		}
	}
	if open != nil {
		return list, frames, errors.New("a message is not finished")
	}
	return list, frames, nil
}

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

func wantMessages(t testing.TB, b []byte, masked bool, want ...message) (frames int) {
	t.Helper()
	got, frames, err := messages(b, masked)
	if err != nil {
		t.Fatalf("%v, behind %v", err, got)
	}
	wantSame(t, got, want)
	return frames
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
