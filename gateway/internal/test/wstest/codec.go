package wstest

import (
	"bytes"
	"compress/flate"
	"io"
)

// A codec is a peer's permessage-deflate, RFC 7692, without context takeover.
type codec struct{ on bool }

// deflate compresses the payload of a message.
func deflate(s string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	io.WriteString(w, s)
	w.Flush()
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\x00\x00\xff\xff")))
}

// inflate is the inverse of deflate.
func inflate(p []byte) ([]byte, error) {
	whole := append(bytes.Clone(p), "\x00\x00\xff\xff\x01\x00\x00\xff\xff"...)
	return io.ReadAll(flate.NewReader(bytes.NewReader(whole)))
}
