package demo

import "slices"

// A tally checks numbers that should run 1, 2, 3 and so on. Every number that
// comes is exactly one of: new, late (it was passed over before) or a double.
// Invariant: got + missed is the highest number seen, and missed is the sum of
// the gaps.
type tally struct {
	Got    uint64 `json:"got"`    // different numbers seen
	Missed uint64 `json:"missed"` // passed over and not seen since
	Twice  uint64 `json:"twice"`  // came again
	Late   uint64 `json:"late"`   // came after a higher one

	gaps []gap // in ascending order, at most maxGaps
}

// A gap is a run of numbers, first to last, that were passed over.
type gap struct{ first, last uint64 }

// maxGaps bounds what a client can make a tally hold. Past it the oldest gap
// stays missed for good, and a number from it counts as a double.
const maxGaps = 64

// note takes the next number that came. Zero is no number: it counts as a double.
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

// open remembers a gap above all the others.
func (t *tally) open(g gap) {
	if len(t.gaps) == maxGaps {
		t.gaps = slices.Delete(t.gaps, 0, 1)
	}
	t.gaps = append(t.gaps, g)
}

// fill takes s out of the gap it lies in and says whether there was one.
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
