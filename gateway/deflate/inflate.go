package deflate

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"

	"reseat/gateway/frame"
)

const (
	// chunkSize bounds the part of a message that is inflated at once, in bytes.
	chunkSize = 64 << 10
	// inflaterMemory approximates the memory of a flate reader.
	inflaterMemory = 48 << 10
	// maxStreams bounds how often a message may end a DEFLATE stream and begin another,
	// which costs a flate reader as much as many bytes do.
	maxStreams = 1024
)

// end completes a message's payload to a whole DEFLATE stream: the tail, and a final
// block. It tells a truncated payload from a whole one, as far as that is possible
// without a checksum.
const end = tail + "\x01" + tail

var errStreams = errors.New("more DEFLATE streams than a message may have")

// An inflater returns the plain bytes of one message, chunk by chunk.
type inflater struct {
	src     bytes.Reader
	z       io.Reader // a flate.Resetter
	window  *window
	buf     []byte // room for a header and a chunk
	streams int
}

var inflaters = sync.Pool{New: func() any {
	f := &inflater{buf: make([]byte, frame.MaxHeader+chunkSize)}
	f.z = flate.NewReader(&f.src)
	return f
}}

// newInflater inflates payload, that of a whole message with end appended, in pieces of
// up to chunk bytes. It may refer to what is in w, and is added to it.
func newInflater(payload []byte, w *window, chunk int) *inflater {
	f := inflaters.Get().(*inflater)
	f.src.Reset(payload)
	f.streams, f.window = 0, w
	f.next()
	if chunk+frame.MaxHeader > len(f.buf) {
		f.buf = make([]byte, frame.MaxHeader+chunk)
	}
	return f
}

func (f *inflater) next() {
	f.streams++
	f.z.(flate.Resetter).Reset(&f.src, f.window.b) // its error is always nil
}

// free returns f to its pool.
func (f *inflater) free() {
	f.src.Reset(nil)
	f.window = nil
	if len(f.buf) == frame.MaxHeader+chunkSize {
		inflaters.Put(f)
	}
}

// chunk inflates the next chunk. last means that nothing follows.
func (f *inflater) chunk() (p []byte, last bool, err error) {
	p = f.buf[frame.MaxHeader:]
	n := 0
	for n < len(p) {
		k, err := f.z.Read(p[n:])
		f.window.add(p[n : n+k])
		n += k
		switch {
		case err == nil:
		case err != io.EOF:
			return p[:n], false, err
		case f.src.Len() == 0:
			return p[:n], true, nil
		case f.streams == maxStreams:
			return p[:n], false, errStreams
		default: // the client's block is marked final: section 7.2.1 lets others follow
			f.next()
		}
	}
	return p, false, nil
}
