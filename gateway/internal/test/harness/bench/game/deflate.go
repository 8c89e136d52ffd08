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

// deflate is permessage-deflate with one session, for a client that offers it
// and whose proxy passes the offer on. No context is taken over either way.
type deflate struct {
	agreed     bool
	compressed bool   // the present message is,
	gathered   []byte // and this is what has come of it
}

// agree accepts what a client offers, and is the answer's header line for that.
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

// gather keeps b until its message is whole, if that is compressed.
func (d *deflate) gather(b []byte) bool {
	if d.compressed {
		d.gathered = append(d.gathered, b...)
	}
	return d.compressed
}

// A squeezer compresses and inflates whole messages, at the fastest level, as
// the gateway does. What it returns holds until the next call.
type squeezer struct {
	out   bytes.Buffer
	z     *flate.Writer
	in    bytes.Reader
	plain io.ReadCloser
}

func newSqueezer() (s squeezer) {
	s.z, _ = flate.NewWriter(nil, flate.BestSpeed) // it fails for bad levels
	s.plain = flate.NewReader(&bytes.Reader{})
	return s
}

// tail ends a flushed stream and is left away on the wire, RFC 7692 section
// 7.2.1; last is an empty block that is marked as the last.
const (
	tail = "\x00\x00\xff\xff"
	last = "\x01\x00\x00\xff\xff"
)

func (s *squeezer) compress(p []byte) []byte {
	s.out.Reset()
	s.z.Reset(&s.out)
	s.z.Write(p) // a bytes.Buffer takes all
	s.z.Flush()
	return bytes.TrimSuffix(s.out.Bytes(), []byte(tail))
}

// inflate gives what p holds, as far as that is any good: the rest is for the
// check of the message to find missing.
func (s *squeezer) inflate(p []byte) []byte {
	s.in.Reset(append(p, tail+last...))
	s.plain.(flate.Resetter).Reset(&s.in, nil) // its error is always nil
	s.out.Reset()
	s.out.ReadFrom(io.LimitReader(s.plain, message.MaxSize+1))
	return s.out.Bytes()
}
