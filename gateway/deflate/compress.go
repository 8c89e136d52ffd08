package deflate

import (
	"bytes"
	"compress/flate"
	"sync"
)

// A compressor is borrowed for one call only, because it takes more than a megabyte.
type compressor struct {
	buf bytes.Buffer
	z   *flate.Writer
}

// Only the fastest level has a reset that doesn't clear more than half a megabyte. On
// messages of up to a few KiB it compresses 2 to 5 % less.
var compressors = sync.Pool{New: func() any {
	c := new(compressor)
	c.z, _ = flate.NewWriter(&c.buf, flate.BestSpeed) // only a bad level is an error
	return c
}}

// compress returns p as DEFLATE blocks, the last of them empty, that refer to nothing
// before p and no further back than window bytes. The result is valid until the next
// call.
func (c *compressor) compress(p []byte, window int) []byte {
	c.buf.Reset()
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), window)
		c.z.Reset(&c.buf)
		c.z.Write(p[:n]) // writing to a bytes.Buffer never fails
		c.z.Flush()
		p = p[n:]
	}
	return c.buf.Bytes()
}
