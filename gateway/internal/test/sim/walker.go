package sim

// A walker follows a stream of frames without storing it: it knows where each frame
// begins and ends, and how its payload begins. A copy continues independently.
type walker struct {
	at    uint64 // bytes walked over
	begin uint64 // of the present frame
	head  [14]byte
	n     int // bytes of head
	rem   int // remaining bytes of the payload
	whole bool
	lead  [40]byte // first bytes of the payload, as sent
	leadN int
	open  bool // a message has begun and not ended
}

// A walked is a frame whose end a walker has reached.
type walked struct {
	op         byte
	fin        bool
	begin, end uint64
	lead       []byte // valid until the next byte is walked over
}

// data reports whether it belongs to a data message, not to a control message of the
// protocol.
func (f walked) data(resumable bool) bool {
	return f.op < opClose && !(resumable && isControl(f.op, f.lead))
}

// between reports whether a frame has just ended and no message is incomplete.
func (w *walker) between() bool { return w.n == 0 && !w.open }

// present returns the frame that the walker is in, as far as known; false if its
// payload has not begun.
func (w *walker) present() (f walked, ok bool) {
	if !w.whole {
		return f, false
	}
	return walked{op: w.head[0] & 15, fin: w.head[0] >= 0x80, begin: w.begin, lead: w.lead[:w.leadN]}, true
}

// walk continues over b, and calls each at the end of every frame.
func (w *walker) walk(b []byte, each func(walked)) {
	for len(b) > 0 {
		if !w.whole {
			b = w.header(b)
		} else {
			k := min(w.rem, len(b))
			w.leadN += copy(w.lead[w.leadN:], b[:k])
			b = b[k:]
			w.rem -= k
			w.at += uint64(k)
		}
		if w.whole && w.rem == 0 {
			w.end(each)
		}
	}
}

// header processes a byte of the header.
func (w *walker) header(b []byte) []byte {
	if w.n == 0 {
		w.begin = w.at
	}
	w.head[w.n] = b[0]
	w.n++
	w.at++
	if h, ok, _ := parseHead(w.head[:w.n]); ok {
		w.whole, w.rem = true, max(h.size, 0)
	} else if w.n == len(w.head) {
		w.n = 0 // invalid frame
	}
	return b[1:]
}

func (w *walker) end(each func(walked)) {
	f, _ := w.present()
	f.end = w.at
	if f.op < opClose {
		w.open = !f.fin
	}
	w.whole, w.n = false, 0
	if each != nil {
		each(f)
	}
	w.leadN = 0
}
