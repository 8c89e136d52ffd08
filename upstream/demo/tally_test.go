package demo

import (
	"math/rand/v2"
	"testing"
)

func TestTallyCountsMissedRepeatedAndLate(t *testing.T) {
	for name, c := range map[string]struct {
		numbers                  []uint64
		got, missed, twice, late uint64
	}{
		"nothing":                    {nil, 0, 0, 0, 0},
		"in order":                   {[]uint64{1, 2, 3}, 3, 0, 0, 0},
		"one missing":                {[]uint64{1, 3}, 2, 1, 0, 0},
		"the first two missing":      {[]uint64{3}, 1, 2, 0, 0},
		"one doubled":                {[]uint64{1, 2, 2, 3}, 3, 0, 1, 0},
		"an old one doubled":         {[]uint64{1, 2, 3, 1}, 3, 0, 1, 0},
		"two exchanged":              {[]uint64{1, 3, 2, 4}, 4, 0, 0, 1},
		"late, then doubled":         {[]uint64{1, 3, 2, 2}, 3, 0, 1, 1},
		"out of the middle of a gap": {[]uint64{1, 9, 5, 4, 5}, 4, 5, 1, 2},
		"out of two gaps":            {[]uint64{3, 6, 1, 4, 5, 2}, 6, 0, 0, 4},
		"zero":                       {[]uint64{0, 1, 0}, 1, 0, 2, 0},
	} {
		var l tally
		for _, s := range c.numbers {
			l.note(s)
		}
		if l.Got != c.got || l.Missed != c.missed || l.Twice != c.twice || l.Late != c.late {
			t.Errorf("%s: got %d missed %d twice %d late %d, want %d %d %d %d",
				name, l.Got, l.Missed, l.Twice, l.Late, c.got, c.missed, c.twice, c.late)
		}
	}
}

// The tally is compared with a plain set of all numbers seen.
func TestTallyAgreesWithASetOfAllNumbers(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var l tally
		seen := map[uint64]bool{}
		var highest, twice, late uint64
		for range 200 {
			s := 1 + rng.Uint64N(120)
			switch {
			case seen[s]:
				twice++
			case s < highest:
				late++
			}
			seen[s] = true
			highest = max(highest, s)
			l.note(s)
			if l.Got != uint64(len(seen)) || l.Missed != highest-uint64(len(seen)) || l.Twice != twice || l.Late != late {
				t.Fatalf("seed %d, after %d: %+v, want got %d missed %d twice %d late %d",
					seed, s, l, len(seen), highest-uint64(len(seen)), twice, late)
			}
		}
	}
}

func TestClientCannotMakeATallyGrow(t *testing.T) {
	var l tally
	for s := uint64(2); s < 20_000; s += 2 {
		l.note(s)
	}
	if len(l.gaps) > maxGaps {
		t.Errorf("%d gaps are held, want at most %d", len(l.gaps), maxGaps)
	}
	if l.Missed != 9_999 {
		t.Errorf("missed %d, want 9999", l.Missed)
	}
}
