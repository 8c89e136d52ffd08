package session

import (
	"bytes"
	"slices"
)

// This file is the queue for the upstream. It has no limit of its own: the client's window
// (protocol section 5.3) limits what a resumable client puts into it, and a plain client is
// not read while a message of its own waits (but see pongWanted).

// An upqueue holds the output for the upstream in order, as units of one or more whole
// frames. It belongs to the session, not to a connection: a unit leaves it only when all
// of it has been written, so a unit that one connection has taken in part can go to the
// next connection whole (--disconnect hard).
//
// Units that were pushed by borrow lie in the driver's read buffer until retain copies
// them. In the common case they are written before, and never copied.
type upqueue struct {
	pieces   [][]byte // each begins and ends at a unit's boundary
	borrowed int      // pieces[borrowed:] are borrowed
	units    []unit
	part     int // bytes of the first unit that have been written
	charge   int // bytes of the pieces that the queue owns

	// The rate limit holds back the last units: units[len(units)-held:], of heldBytes.
	held      int
	heldBytes int
}

// A unit is written whole or not at all.
type unit struct {
	size    int
	payload int64     // of a data message; negative: the unit is none
	at      Time      // when the rate limit lets it go
	to      *Upstream // the only upstream it is for, if it is no data message
}

// notCounted is the payload of a unit that is not a client's message.
const notCounted = -1

// empty reports whether the queue holds nothing, not even a held unit.
func (q *upqueue) empty() bool { return len(q.pieces) == 0 }

// messages reports whether the queue holds a client's message.
func (q *upqueue) messages() bool {
	return slices.ContainsFunc(q.units, func(u unit) bool { return u.payload >= 0 })
}

// ready reports whether anything may be written now.
func (q *upqueue) ready() bool { return len(q.units) > q.held }

// slices appends to dst what may be written now: everything but the held units, and of
// the first unit only what is not written yet.
func (q *upqueue) slices(dst [][]byte) [][]byte {
	n := len(dst)
	dst = append(dst, q.pieces...)
	// Held units are the last ones: cut their bytes off the end, which may lie in several
	// pieces.
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

// hold keeps the last pushed unit back until at. Units behind a held one wait as well,
// whatever their time: the order of messages must not change.
func (q *upqueue) hold(now, at Time) {
	if q.held == 0 && at <= now {
		return
	}
	last := &q.units[len(q.units)-1]
	last.at = at
	q.held++
	q.heldBytes += last.size
}

// release lets the units go whose time has come.
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

// next returns when release has something to do; zero: never.
func (q *upqueue) next() Time {
	if q.held == 0 {
		return 0
	}
	return max(q.units[len(q.units)-q.held].at, 1)
}

// borrow pushes the unit p, which the caller may overwrite after retain.
func (q *upqueue) borrow(p []byte, payload int64) {
	q.units = append(q.units, unit{size: len(p), payload: payload})
	// Messages read at once lie side by side. One piece for all of them makes one entry of
	// the vectored write.
	if n := len(q.pieces); n > q.borrowed && adjacent(q.pieces[n-1], p) {
		q.pieces[n-1] = q.pieces[n-1][:len(q.pieces[n-1])+len(p)]
		return
	}
	q.pieces = append(q.pieces, p)
}

// own pushes the unit p, which now belongs to the queue.
func (q *upqueue) own(p []byte, payload int64) {
	q.retain()
	q.units = append(q.units, unit{size: len(p), payload: payload})
	q.charge += len(p)
	q.pieces = append(q.pieces, p)
	q.borrowed = len(q.pieces)
}

// takeBack prepares the queue for the next upstream: it copies every unit whole into the
// queue's own memory, and drops those meant for a released upstream alone. No write of
// the queue may be in flight.
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

// retain copies borrowed units into memory of the queue.
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

// wrote records that n more bytes were written, removes the units that are now complete,
// and counts the messages among them in t.
func (q *upqueue) wrote(n int, t *tally) {
	q.part += n
	done, bytes := 0, 0
	for done < len(q.units) && q.units[done].size <= q.part {
		u := q.units[done]
		q.part -= u.size
		bytes += u.size
		if u.payload >= 0 {
			t.add(u.payload)
		}
		done++
	}
	q.units = append(q.units[:0], q.units[done:]...)
	q.advance(bytes)
}

// advance removes n bytes, whole units, from the front.
func (q *upqueue) advance(n int) {
	i := 0
	for n > 0 {
		// Memory of the driver is not charged: it is freed by the next read anyway.
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

// adjacent reports whether b follows a directly in the same array, so that both can be
// written as one piece.
func adjacent(a, b []byte) bool {
	return len(b) > 0 && cap(a) > len(a) && &a[:len(a)+1][len(a)] == &b[0]
}
