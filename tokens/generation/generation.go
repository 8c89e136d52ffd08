// Package generation decides which of a session's resume tokens are valid. It implements
// only the rule of protocol section 7, without tokens, clock or locks.
package generation

// A Line is the sequence of generations of one session. Every attach issues the next one; a
// client that resumes with a token confirms its generation. All issued generations from the
// last confirmed one on are valid, so that a session survives attaches whose hello never
// arrives (protocol section 7).
//
// Generations count from 1. The zero Line has issued none.
// Invariant: confirmed <= issued, and neither ever decreases.
// A Line does no locking: its session owns it.
type Line struct {
	issued    uint64
	confirmed uint64
}

// The lowest epochBits of a generation count attaches at one node. The bits above are the epoch
// of the session's seat, which grows when another node takes the session: a token of an older epoch
// is never newer than one of a later epoch.
const epochBits = 20

// Epoch returns the epoch in which gen was issued; 0: by the node where the session began.
func Epoch(gen uint64) uint64 { return gen >> epochBits }

// FirstOf returns the first generation of an epoch.
func FirstOf(epoch uint64) uint64 { return epoch<<epochBits + 1 }

// Next returns the generation that the next attach would issue. It reserves
// nothing: two callers get the same result until one of them calls Issue.
func (l *Line) Next() uint64 { return l.issued + 1 }

// Issue records that gen has been issued and reports whether it could be: gen
// must be Next. If another attach has issued gen meanwhile it returns false and
// changes nothing; the caller starts over with a new Next.
func (l *Line) Issue(gen uint64) bool {
	if gen != l.Next() {
		return false
	}
	l.issued = gen
	return true
}

// Issued returns the newest generation issued, 0 before the first.
func (l *Line) Issued() uint64 { return l.issued }

// Confirm records that the client holds gen, which supersedes every older one, and
// reports whether gen was valid. For an invalid one it changes nothing, so a late or
// invented confirmation can neither revive nor supersede anything.
func (l *Line) Confirm(gen uint64) bool {
	if !l.Good(gen) {
		return false
	}
	l.confirmed = gen
	return true
}

// Confirmed returns the last generation confirmed, 0 before the first.
func (l *Line) Confirmed() uint64 { return l.confirmed }

// Good reports whether a token of generation gen may resume the session.
func (l *Line) Good(gen uint64) bool {
	return gen >= 1 && gen >= l.confirmed && gen <= l.issued
}

// Restore sets l to the state with these generations. It reports false, and changes nothing,
// if no Line can have it.
func (l *Line) Restore(issued, confirmed uint64) bool {
	if confirmed > issued {
		return false
	}
	*l = Line{issued, confirmed}
	return true
}
