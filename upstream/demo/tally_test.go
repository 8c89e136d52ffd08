package demo

import (
	"math/rand/v2"
	"testing"
)

// The tally is compared with a plain set of all numbers seen.
func TestTallyAgreesWithASetOfAllNumbers(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var l tally
		seen := map[uint64]bool{}
		var count, highest, twice, late uint64
		for range 200 {
			s := rng.Uint64N(120)
			switch {
			case seen[s] || s == 0: // numbers begin with 1
				twice++
			default:
				count++
				if s < highest {
					late++
				}
			}
			seen[s] = s > 0
			highest = max(highest, s)
			l.note(s)
			if l.Got != count || l.Missed != highest-count || l.Twice != twice || l.Late != late {
				t.Fatalf("seed %d, after %d: %+v, want got %d missed %d twice %d late %d",
					seed, s, l, count, highest-count, twice, late)
			}
		}
	}
}

func TestClientCannotMakeATallyGrow(t *testing.T) {
	var l tally
	for s := uint64(2); s < 20_000; s += 2 {
		l.note(s)
	}
	if len(l.skipped) > maxSkipped {
		t.Errorf("%d numbers are held, want at most %d", len(l.skipped), maxSkipped)
	}
	if l.Missed != 9_999 {
		t.Errorf("missed %d, want 9999", l.Missed)
	}
}
