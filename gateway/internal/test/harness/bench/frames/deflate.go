package frames

import (
	"bytes"
	"compress/flate"
	"io"

	"reseat/gateway/internal/test/harness/bench/message"
)

// Deflate is permessage-deflate without context takeover in either direction, as it is
// offered and accepted.
const Deflate = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"

// RSV1 is set with the opcode of a compressed message, RFC 7692 section 6.
const RSV1 = 0x40

// A Deflater compresses and inflates whole messages, at the fastest level, as the
// gateway does. Its results are valid until the next call.
type Deflater struct {
	out   bytes.Buffer
	z     *flate.Writer
	in    bytes.Reader
	plain io.ReadCloser
}

// NewDeflater makes one.
func NewDeflater() *Deflater {
	z, _ := flate.NewWriter(nil, flate.BestSpeed) // only a bad level is an error
	return &Deflater{z: z, plain: flate.NewReader(&bytes.Reader{})}
}

// tail ends a flushed stream and is omitted on the wire, RFC 7692 section 7.2.1; last
// is an empty final block.
const (
	tail = "\x00\x00\xff\xff"
	last = "\x01\x00\x00\xff\xff"
)

// Compress returns a message as it is sent with RSV1.
func (d *Deflater) Compress(p []byte) []byte {
	d.out.Reset()
	d.z.Reset(&d.out)
	d.z.Write(p) // writing to a bytes.Buffer never fails
	d.z.Flush()
	return bytes.TrimSuffix(d.out.Bytes(), []byte(tail))
}

// inflate returns the plain bytes of p, up to the first error: the message check finds
// the rest missing.
func (d *Deflater) inflate(p []byte) []byte {
	d.in.Reset(append(p, tail+last...))
	d.plain.(flate.Resetter).Reset(&d.in, nil) // its error is always nil
	d.out.Reset()
	d.out.ReadFrom(io.LimitReader(d.plain, message.MaxSize+1))
	return d.out.Bytes()
}
