// Package generation decides which of a session's resume tokens are good.
// It is the rule of protocol section 7 and nothing else: no token, clock or lock.
package generation

// A Line is the sequence of generations of one session. Every attach issues the
// next one; a client proves that it holds one by confirming it. Good is every
// issued generation not below the last confirmed one, so that attaches whose
// hello never arrives do not lose the session (protocol section 7).
//
// Generations count from 1. The zero Line has issued none.
// Invariant: confirmed <= issued, and neither ever falls.
// A Line does no locking: it belongs to its session.
type Line struct {
	issued    uint64
	confirmed uint64
}

// Next returns the generation that the next attach would issue. It reserves
// nothing: two callers get the same answer until one of them calls Issue.
func (l *Line) Next() uint64 { return l.issued + 1 }

// Issue records that gen has been issued and reports whether it could be: gen
// must be Next. When an attach in between has taken gen it returns false and
// changes nothing; the caller begins again with a fresh Next.
func (l *Line) Issue(gen uint64) bool {
	if gen != l.Next() {
		return false
	}
	l.issued = gen
	return true
}

// Issued returns the newest generation issued, 0 before the first.
func (l *Line) Issued() uint64 { return l.issued }

// Confirm records that the client holds gen, which spends every older one, and
// reports whether gen was good. For one that was not it changes nothing, so a
// late or invented confirmation can neither revive nor spend anything.
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

// Spent reports whether gen was issued and has been overtaken by a confirmed
// one: whoever shows it shows a copy. A generation never issued is neither good
// nor spent.
func (l *Line) Spent(gen uint64) bool {
	return gen >= 1 && gen < l.confirmed
}
