package deflate

import (
	"bytes"
	"compress/flate"
	"sync"
)

// A compressor is lent for the length of one call: it takes more than a
// megabyte.
type compressor struct {
	buf bytes.Buffer
	z   *flate.Writer
}

// The fastest level is the only one whose reset does not clear more than half a
// megabyte; on messages of up to a few KiB it gives up 2 to 5 % for that.
var compressors = sync.Pool{New: func() any {
	c := new(compressor)
	c.z, _ = flate.NewWriter(&c.buf, flate.BestSpeed) // it fails for bad levels
	return c
}}

// compress gives p as DEFLATE blocks that refer to nothing before p and no
// further back than window bytes, the last of them empty. The result holds until
// the next call.
func (c *compressor) compress(p []byte, window int) []byte {
	c.buf.Reset()
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), window)
		c.z.Reset(&c.buf)
		c.z.Write(p[:n]) // a bytes.Buffer takes all
		c.z.Flush()
		p = p[n:]
	}
	return c.buf.Bytes()
}
