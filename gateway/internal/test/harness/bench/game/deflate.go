//go:build linux

package game

import (
	"bytes"
	"compress/flate"
	"io"
	"net/textproto"
	"strings"

	"reseat/gateway/internal/test/harness/bench/frames"
	"reseat/gateway/internal/test/harness/bench/message"
)

// deflate is permessage-deflate for one session, if the client offers it and the proxy
// forwards the offer. There is no context takeover in either direction.
type deflate struct {
	agreed     bool
	compressed bool   // the current message is compressed,
	gathered   []byte // and this is its payload so far
}

// agree accepts a client's offer, and returns the response header line for it.
func (d *deflate) agree(h textproto.MIMEHeader) string {
	if !strings.Contains(h.Get("Sec-WebSocket-Extensions"), "permessage-deflate") {
		return ""
	}
	d.agreed = true
	return "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"
}

func (d *deflate) begin(op byte) {
	d.compressed, d.gathered = op&frames.RSV1 != 0, d.gathered[:0]
}

// gather collects b until its message is complete, if that is compressed.
func (d *deflate) gather(b []byte) bool {
	if d.compressed {
		d.gathered = append(d.gathered, b...)
	}
	return d.compressed
}

// A squeezer compresses and inflates whole messages, at the fastest level, as the
// gateway does. Its results are valid until the next call.
type squeezer struct {
	out   bytes.Buffer
	z     *flate.Writer
	in    bytes.Reader
	plain io.ReadCloser
}

func newSqueezer() (s squeezer) {
	s.z, _ = flate.NewWriter(nil, flate.BestSpeed) // only a bad level is an error
	s.plain = flate.NewReader(&bytes.Reader{})
	return s
}

// tail ends a flushed stream and is omitted on the wire, RFC 7692 section 7.2.1; last
// is an empty final block.
const (
	tail = "\x00\x00\xff\xff"
	last = "\x01\x00\x00\xff\xff"
)

func (s *squeezer) compress(p []byte) []byte {
	s.out.Reset()
	s.z.Reset(&s.out)
	s.z.Write(p) // writing to a bytes.Buffer never fails
	s.z.Flush()
	return bytes.TrimSuffix(s.out.Bytes(), []byte(tail))
}

// inflate returns the plain bytes of p, up to the first error: the message check finds
// the rest missing.
func (s *squeezer) inflate(p []byte) []byte {
	s.in.Reset(append(p, tail+last...))
	s.plain.(flate.Resetter).Reset(&s.in, nil) // its error is always nil
	s.out.Reset()
	s.out.ReadFrom(io.LimitReader(s.plain, message.MaxSize+1))
	return s.out.Bytes()
}
