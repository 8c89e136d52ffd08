package wstest

import (
	"bytes"
	"compress/flate"
	"io"
	"strings"
)

// A codec is a peer's permessage-deflate, RFC 7692, as agreed by the answer to its offer.
type codec struct {
	on       bool
	sent     history // guarded by the Peer's write
	received history // of the reading goroutine
}

// newCodec returns the codec of a client whose offer, which allows any window, got the answer.
func newCodec(answer string) codec {
	c := codec{on: answer != ""}
	if !strings.Contains(answer, "client_no_context_takeover") {
		c.sent.size = codecWindow
	}
	if !strings.Contains(answer, "server_no_context_takeover") {
		c.received.size = 32 << 10
	}
	return c
}

// codecWindow is what a client's messages may refer to of earlier ones, if anything: the
// smallest window that a test's gateway grants.
const codecWindow = 1 << 10

// A history is the end of one direction's messages, up to size bytes.
type history struct {
	size int
	b    []byte
}

func (h *history) add(p []byte) { h.b = append(h.b, p...); h.b = h.b[max(0, len(h.b)-h.size):] }

// deflate compresses the payload of a message.
func (h *history) deflate(s string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriterDict(&b, flate.BestCompression, h.b)
	io.WriteString(w, s)
	w.Flush()
	h.add([]byte(s))
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\x00\x00\xff\xff")))
}

// inflate is the inverse of deflate.
func (h *history) inflate(p []byte) ([]byte, error) {
	whole := append(bytes.Clone(p), "\x00\x00\xff\xff\x01\x00\x00\xff\xff"...)
	plain, err := io.ReadAll(flate.NewReaderDict(bytes.NewReader(whole), h.b))
	h.add(plain)
	return plain, err
}
