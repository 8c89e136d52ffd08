package demo

import "slices"

// A tally checks numbers that should run 1, 2, 3 and so on. Every number is exactly one
// of: new, late (skipped before) or repeated. Invariant: got + missed is the highest number
// seen, and missed is the sum of the gaps.
type tally struct {
	Got    uint64 `json:"got"`    // different numbers seen
	Missed uint64 `json:"missed"` // skipped and not seen since
	Twice  uint64 `json:"twice"`  // repeated
	Late   uint64 `json:"late"`   // arrived after a higher one

	gaps []gap // in ascending order, at most maxGaps
}

// A gap is a run of numbers, first to last, that were skipped.
type gap struct{ first, last uint64 }

// maxGaps limits the memory of a tally. Beyond it the oldest gap stays missed for good, and
// a number from it counts as repeated.
const maxGaps = 64

// note records a number. Zero counts as repeated.
func (t *tally) note(s uint64) {
	highest := t.Got + t.Missed
	switch {
	case s > highest+1:
		t.Missed += s - highest - 1
		t.Got++
		t.open(gap{highest + 1, s - 1})
	case s == highest+1:
		t.Got++
	case t.fill(s):
		t.Missed--
		t.Got++
		t.Late++
	default:
		t.Twice++
	}
}

// open adds a gap above all others.
func (t *tally) open(g gap) {
	if len(t.gaps) == maxGaps {
		t.gaps = slices.Delete(t.gaps, 0, 1)
	}
	t.gaps = append(t.gaps, g)
}

// fill removes s from its gap and reports whether there was one.
func (t *tally) fill(s uint64) bool {
	i := slices.IndexFunc(t.gaps, func(g gap) bool { return g.first <= s && s <= g.last })
	if i < 0 {
		return false
	}
	var rest []gap
	if g := t.gaps[i]; g.first < s {
		rest = append(rest, gap{g.first, s - 1})
	}
	if g := t.gaps[i]; s < g.last {
		rest = append(rest, gap{s + 1, g.last})
	}
	t.gaps = slices.Replace(t.gaps, i, i+1, rest...)
	return true
}
