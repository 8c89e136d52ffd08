package session

import (
	"bytes"
	"slices"
)

// An upqueue holds what must be written to the upstream, in order: units, each
// of one or more whole frames. It is the session's, not a connection's: a unit
// leaves it when all of it has been written, so that what a connection has
// taken half of can go to the next one whole.
//
// Units that were pushed as borrowed lie in somebody's read buffer until retain
// copies them.
type upqueue struct {
	pieces   [][]byte // each begins and ends with a unit
	borrowed int      // pieces[borrowed:] are borrowed
	units    []unit
	part     int // bytes of the first unit that have been written
	charge   int // bytes of the pieces that are owned

	// Units whose turn has not come are units[len(units)-held:], of heldBytes.
	held      int
	heldBytes int
}

// A unit is what is written whole or not at all.
type unit struct {
	size    int
	payload int64     // of the data message that it is; negative: it is none
	at      Time      // when its turn comes
	to      *Upstream // where it is none, whom alone it is for
}

// notCounted is the payload of a unit that is no message of the client's.
const notCounted = -1

func (q *upqueue) empty() bool { return len(q.pieces) == 0 }

// messages reports whether a message of the client's is among them.
func (q *upqueue) messages() bool {
	return slices.ContainsFunc(q.units, func(u unit) bool { return u.payload >= 0 })
}

// ready reports whether there is anything to be written now.
func (q *upqueue) ready() bool { return len(q.units) > q.held }

// slices appends to dst what must be written now.
func (q *upqueue) slices(dst [][]byte) [][]byte {
	n := len(dst)
	dst = append(dst, q.pieces...)
	for late := q.heldBytes; late > 0; {
		last := len(dst) - 1
		k := min(late, len(dst[last]))
		dst[last] = dst[last][:len(dst[last])-k]
		late -= k
		if len(dst[last]) == 0 {
			dst = dst[:last]
		}
	}
	if len(dst) > n {
		dst[n] = dst[n][q.part:]
	}
	return dst
}

// hold keeps what was pushed last back until its turn, and all that comes
// behind it.
func (q *upqueue) hold(now, at Time) {
	if q.held == 0 && at <= now {
		return
	}
	last := &q.units[len(q.units)-1]
	last.at = at
	q.held++
	q.heldBytes += last.size
}

// release lets those go whose turn has come.
func (q *upqueue) release(now Time) {
	for q.held > 0 {
		u := q.units[len(q.units)-q.held]
		if u.at > now {
			return
		}
		q.held--
		q.heldBytes -= u.size
	}
}

// next is when release has something to let go; zero: never.
func (q *upqueue) next() Time {
	if q.held == 0 {
		return 0
	}
	return max(q.units[len(q.units)-q.held].at, 1)
}

// borrow pushes the unit p, which its owner may overwrite after retain.
func (q *upqueue) borrow(p []byte, payload int64) {
	q.units = append(q.units, unit{size: len(p), payload: payload})
	if n := len(q.pieces); n > q.borrowed && adjacent(q.pieces[n-1], p) {
		q.pieces[n-1] = q.pieces[n-1][:len(q.pieces[n-1])+len(p)]
		return
	}
	q.pieces = append(q.pieces, p)
}

// own pushes the unit p, which belongs to the queue from now on.
func (q *upqueue) own(p []byte, payload int64) {
	q.retain()
	q.units = append(q.units, unit{size: len(p), payload: payload})
	q.charge += len(p)
	q.pieces = append(q.pieces, p)
	q.borrowed = len(q.pieces)
}

// takeBack begins again with what is queued, in memory of the queue's own and
// each unit whole, but without those for an upstream that is gone. Nothing of it
// may be lent.
func (q *upqueue) takeBack() {
	old := *q
	*q = upqueue{}
	b := bytes.Join(old.pieces, nil)
	all := b[:0]
	for i, u := range old.units {
		p := b[:u.size]
		b = b[u.size:]
		if u.to != nil && u.to.released {
			continue
		}
		all = append(all, p...)
		q.units = append(q.units, u)
		if i >= len(old.units)-old.held {
			q.held++
			q.heldBytes += u.size
		}
	}
	if len(all) > 0 {
		q.pieces, q.borrowed, q.charge = [][]byte{all}, 1, len(all)
	}
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

// wrote notes that n bytes more were written, lets the units go that thereby
// are, and adds the messages among them to t.
func (q *upqueue) wrote(n int, t *tally) {
	q.part += n
	done, gone := 0, 0
	for done < len(q.units) && q.units[done].size <= q.part {
		u := q.units[done]
		q.part -= u.size
		gone += u.size
		if u.payload >= 0 {
			t.add(u.payload)
		}
		done++
	}
	q.units = append(q.units[:0], q.units[done:]...)
	q.advance(gone)
}

// advance takes n bytes, whole units, off the front.
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
