package frame

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A message is what an application gets from a stream of frames.
type message struct {
	op      byte
	payload string
}

// errLenient marks where a stream breaks a rule that the other implementation does not
// check: the rest is not compared.
var errLenient = errors.New("refused by this package alone")

// readStream reads a client's frames with this package, as RFC 6455 section 5 requires
// of a server: the messages, and the code of the Close frame after them, or an error.
func readStream(b []byte) (list []message, code int, err error) {
	var open message
	fragmented := false
	for {
		h, err := Parse(b)
		switch {
		case errors.Is(err, ErrLength):
			return list, 0, errLenient
		case err != nil:
			return list, 0, err
		case h.Size == 0, h.Length > int64(len(b)-h.Size):
			return list, 0, io.ErrUnexpectedEOF
		case !h.Masked:
			return list, 0, errors.New("not masked")
		}
		payload := bytes.Clone(b[h.Size : h.Size+int(h.Length)])
		b = b[h.Size+int(h.Length):]
		XOR(payload, h.Key)
		switch {
		case h.Op == Close:
			code, err := readClose(payload)
			return list, code, err
		case h.Control():
			continue
		case (h.Op == Continuation) != fragmented:
			return list, 0, errors.New("continuation out of place")
		case !fragmented:
			open = message{op: h.Op}
		}
		open.payload += string(payload)
		if fragmented = !h.Fin; !fragmented {
			list = append(list, open)
		}
	}
}

func readClose(payload []byte) (int, error) {
	code, _, err := ParseClose(payload)
	if err != nil && len(payload) > 2 && ValidCode(int(payload[0])<<8|int(payload[1])) {
		return 0, errLenient // the reason is not UTF-8
	}
	return code, err
}

// A tape is a connection that plays b and discards what is written.
type tape struct{ b *bytes.Reader }

// Read ends with an error other than io.EOF, which the other implementation would
// return within a message, as that message's end.
func (c tape) Read(p []byte) (int, error) {
	n, err := c.b.Read(p)
	if err != nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (c tape) Write(p []byte) (int, error)      { return len(p), nil }
func (c tape) Close() error                     { return nil }
func (c tape) LocalAddr() net.Addr              { return nil }
func (c tape) RemoteAddr() net.Addr             { return nil }
func (c tape) SetDeadline(time.Time) error      { return nil }
func (c tape) SetReadDeadline(time.Time) error  { return nil }
func (c tape) SetWriteDeadline(time.Time) error { return nil }

type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// readOracle reads the same with coder/websocket.
func readOracle(t *testing.T, b []byte) (list []message, code int) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	c, err := websocket.Accept(hijackable{httptest.NewRecorder(), tape{bytes.NewReader(b)}}, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for {
		op, p, err := c.Read(t.Context())
		if err != nil {
			return list, max(int(websocket.CloseStatus(err)), 0)
		}
		list = append(list, message{byte(op), string(p)})
	}
}

func compare(t *testing.T, b []byte) {
	t.Helper()
	got, code, err := readStream(b)
	want, wantCode := readOracle(t, b)
	if errors.Is(err, errLenient) {
		want, wantCode = want[:min(len(got), len(want))], 0
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || code != wantCode {
		t.Errorf("stream % x:\nread     %q, Close %d, %v\nexpected %q, Close %d", b, got, code, err, want, wantCode)
	}
}

// streams returns what clients send, valid and invalid.
func streams() [][]byte {
	key := [4]byte{7, 0, 0xAA, 0x55}
	f := func(op byte, p string) []byte { return AppendMasked(nil, op, key, []byte(p)) }
	part := func(op byte, p string) []byte { b := f(op, p); b[0] &= 0x7F; return b }
	text := f(Text, "hello")
	list := [][]byte{
		nil, text, text[:3], text[:len(text)-1], Append(nil, Text, []byte("not masked")),
		f(Binary, ""), f(Continuation, "alone"), part(Text, "begun"),
		f(Text, string(make([]byte, 126))), f(Text, string(make([]byte, 65536))),
		bytes.Join([][]byte{part(Text, "a"), f(Ping, "between"), part(Continuation, ""), f(Pong, ""), f(Continuation, "b"), text}, nil),
		bytes.Join([][]byte{part(Text, "a"), f(Text, "b")}, nil),
		bytes.Join([][]byte{part(Binary, ""), f(Continuation, ""), f(Close, "\x03\xe8")}, nil),
		bytes.Join([][]byte{text, f(Close, ""), text}, nil),
		bytes.Join([][]byte{text, f(Close, "\x03")}, nil),
		bytes.Join([][]byte{text, f(Close, "\x0f\xa0gone"), text}, nil),
		bytes.Join([][]byte{text, part(Ping, "x")}, nil),
		f(Ping, string(make([]byte, 125))), f(Ping, string(make([]byte, 126))),
	}
	for bit := range 8 { // each bit of the first byte, flipped
		b := append(bytes.Clone(text), text...)
		b[len(text)] ^= 1 << bit
		list = append(list, b)
	}
	for code := 990; code < 1020; code++ {
		list = append(list, f(Close, string([]byte{byte(code >> 8), byte(code)})))
	}
	return list
}

func TestStreamReadsAlikeInAnotherImplementation(t *testing.T) {
	for _, b := range streams() {
		compare(t, b)
	}
}

// FuzzStream: two implementations read a client's bytes alike.
func FuzzStream(f *testing.F) {
	for _, b := range streams() {
		if len(b) < 1000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) { compare(t, b) })
}
