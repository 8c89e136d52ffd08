package demo

// A tally checks numbers that should run 1, 2, 3 and so on. Every number is exactly one
// of: new, late (skipped before) or repeated. Invariant: got + missed is the highest number
// seen.
type tally struct {
	Got    uint64 `json:"got"`    // different numbers seen
	Missed uint64 `json:"missed"` // skipped and not seen since
	Twice  uint64 `json:"twice"`  // repeated
	Late   uint64 `json:"late"`   // arrived after a higher one

	skipped map[uint64]bool // and not seen since, at most maxSkipped
}

// maxSkipped limits the memory of a tally. What is skipped beyond it stays missed for good, and
// counts as repeated if it arrives.
const maxSkipped = 1000

// note records a number. Zero counts as repeated.
func (t *tally) note(s uint64) {
	next := t.Got + t.Missed + 1
	switch {
	case s >= next:
		if t.skipped == nil {
			t.skipped = make(map[uint64]bool)
		}
		for n := next; n < s && len(t.skipped) < maxSkipped; n++ {
			t.skipped[n] = true
		}
		t.Missed += s - next
		t.Got++
	case t.skipped[s]:
		delete(t.skipped, s)
		t.Missed--
		t.Got++
		t.Late++
	default:
		t.Twice++
	}
}
