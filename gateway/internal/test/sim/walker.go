package sim

// A walker follows a stream of frames without keeping it: it knows where each frame
// begins and ends, and how its payload begins. Its copy goes on by itself.
type walker struct {
	at    uint64 // bytes walked over
	begin uint64 // of the present frame
	head  [14]byte
	n     int // bytes of head
	rem   int // of the payload, to come
	whole bool
	lead  [40]byte // how the payload begins, as it was sent
	leadN int
	open  bool // a message has begun and not ended
}

// A walked is a frame that a walker has come to the end of.
type walked struct {
	op         byte
	fin        bool
	begin, end uint64
	lead       []byte // good until the next byte is walked over
}

// data reports whether it is a part of a message that is no control message of the
// protocol's.
func (f walked) data(resumable bool) bool {
	control := resumable && f.op == opText && len(f.lead) > 0 && f.lead[0] == dle && (len(f.lead) == 1 || f.lead[1] != dle)
	return f.op < opClose && !control
}

// between reports whether a frame has just ended, and no message is open.
func (w *walker) between() bool { return w.n == 0 && !w.open }

// present is the frame that the walker is in, as far as it is known; false: its
// payload has not begun.
func (w *walker) present() (f walked, ok bool) {
	if !w.whole {
		return f, false
	}
	return walked{op: w.head[0] & 15, fin: w.head[0] >= 0x80, begin: w.begin, lead: w.lead[:w.leadN]}, true
}

// walk goes on by b, and calls each at the end of every frame.
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

// header takes a byte of the header.
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
		w.n = 0 // no frame at all
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
