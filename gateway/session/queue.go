package session

// An upqueue holds what is to be written to the upstream, in order, whole
// frames only. Pieces that were pushed as borrowed lie in somebody's read
// buffer until Retain copies them.
type upqueue struct {
	pieces   [][]byte
	borrowed int // pieces[borrowed:] are borrowed

	pushed uint64 // bytes ever pushed
	gone   uint64 // bytes ever written
	marks  []upmark
	charge int // bytes of the pieces that are owned
}

// An upmark is the end of a data message in the queue.
type upmark struct {
	end   uint64
	bytes int64 // the message's payload
}

func (q *upqueue) empty() bool { return len(q.pieces) == 0 }

// borrow pushes p, which its owner may overwrite after retain.
func (q *upqueue) borrow(p []byte) {
	q.pushed += uint64(len(p))
	if n := len(q.pieces); n > q.borrowed && adjacent(q.pieces[n-1], p) {
		q.pieces[n-1] = q.pieces[n-1][:len(q.pieces[n-1])+len(p)]
		return
	}
	q.pieces = append(q.pieces, p)
}

// own pushes p, which belongs to the queue from now on.
func (q *upqueue) own(p []byte) {
	q.retain()
	q.pushed += uint64(len(p))
	q.charge += len(p)
	q.pieces = append(q.pieces, p)
	q.borrowed = len(q.pieces)
}

// mark says that the last byte pushed ends a data message.
func (q *upqueue) mark(payload int64) {
	q.marks = append(q.marks, upmark{q.pushed, payload})
}

// retain copies what is borrowed into memory of the queue's own.
func (q *upqueue) retain() {
	if q.borrowed == len(q.pieces) {
		return
	}
	n := 0
	for _, p := range q.pieces[q.borrowed:] {
		n += len(p)
	}
	all := make([]byte, 0, n)
	for _, p := range q.pieces[q.borrowed:] {
		all = append(all, p...)
	}
	q.charge += n
	q.pieces = append(q.pieces[:q.borrowed], all)
	q.borrowed = len(q.pieces)
}

// wrote takes n bytes off the front and adds the messages that are thereby
// written to t.
func (q *upqueue) wrote(n int, t *tally) {
	q.gone += uint64(n)
	done := 0
	for done < len(q.marks) && q.marks[done].end <= q.gone {
		t.add(q.marks[done].bytes)
		done++
	}
	q.marks = append(q.marks[:0], q.marks[done:]...)
	q.advance(n)
	if len(q.pieces) == 0 {
		q.pieces, q.borrowed = q.pieces[:0], 0
	}
}

func (q *upqueue) advance(n int) {
	i := 0
	for n > 0 {
		p := q.pieces[i]
		k := min(n, len(p))
		if i < q.borrowed {
			q.charge -= k
		}
		n -= k
		if k < len(p) {
			q.pieces[i] = p[k:]
			break
		}
		i++
	}
	rest := copy(q.pieces, q.pieces[i:])
	clear(q.pieces[rest:])
	q.pieces = q.pieces[:rest]
	q.borrowed = max(q.borrowed-i, 0)
}

// adjacent reports whether b lies right behind a in one array.
func adjacent(a, b []byte) bool {
	return len(b) > 0 && cap(a) > len(a) && &a[:len(a)+1][len(a)] == &b[0]
}
