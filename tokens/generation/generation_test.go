package generation

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestNoGenerationIsValidBeforeTheFirstIssue(t *testing.T) {
	var l Line
	for _, gen := range []uint64{0, 1, 2, math.MaxUint64} {
		if l.Good(gen) || l.Superseded(gen) || l.Confirm(gen) {
			t.Errorf("generation %d: good %v, superseded %v, want neither and no confirmation", gen, l.Good(gen), l.Superseded(gen))
		}
	}
	if l.Next() != 1 {
		t.Errorf("first generation is %d, want 1", l.Next())
	}
}

// A client that never received its latest hellos still holds an old token.
func TestUnconfirmedAttachesKeepLastConfirmedValid(t *testing.T) {
	l := issued(t, 5)
	mustConfirm(t, l, 2)
	for gen, want := range map[uint64]bool{0: false, 1: false, 2: true, 3: true, 4: true, 5: true, 6: false} {
		if l.Good(gen) != want {
			t.Errorf("generation %d good: %v, want %v", gen, l.Good(gen), want)
		}
	}
}

func TestConfirmingSupersedesEveryOlderGeneration(t *testing.T) {
	l := issued(t, 4)
	mustConfirm(t, l, 3)
	for gen, want := range map[uint64]bool{0: false, 1: true, 2: true, 3: false, 4: false, 5: false} {
		if l.Superseded(gen) != want {
			t.Errorf("generation %d superseded: %v, want %v", gen, l.Superseded(gen), want)
		}
	}
}

func TestLateConfirmationOfSupersededGenerationChangesNothing(t *testing.T) {
	l := issued(t, 3)
	mustConfirm(t, l, 3)
	if l.Confirm(1) || l.Confirmed() != 3 || l.Good(1) {
		t.Errorf("generation 1 was revived: confirmed %d, want 3", l.Confirmed())
	}
}

func TestConfirmationOfAnUnissuedGenerationChangesNothing(t *testing.T) {
	l := issued(t, 3)
	if l.Confirm(4) || l.Confirmed() != 0 || !l.Good(1) {
		t.Errorf("an unissued generation was confirmed: %d, want 0", l.Confirmed())
	}
}

// Two attaches reserve the same generation; only the first may issue it.
func TestOvertakenReservationIsRefused(t *testing.T) {
	l := issued(t, 1)
	first, second := l.Next(), l.Next()
	if first != second || l.Issued() != 1 {
		t.Fatalf("Next changed the line: %d then %d, issued %d", first, second, l.Issued())
	}
	if !l.Issue(first) || l.Issue(second) || l.Issued() != 2 {
		t.Errorf("issued %d, want 2 and the second reservation refused", l.Issued())
	}
}

// issued returns a Line that has issued generations 1 to n.
func issued(t *testing.T, n uint64) *Line {
	t.Helper()
	l := new(Line)
	for gen := uint64(1); gen <= n; gen++ {
		if !l.Issue(gen) {
			t.Fatalf("generation %d was not issued", gen)
		}
	}
	return l
}

func mustConfirm(t *testing.T, l *Line, gen uint64) {
	t.Helper()
	if !l.Confirm(gen) {
		t.Fatalf("generation %d was not confirmed", gen)
	}
}

// A model keeps a list of every generation and its state.
type model struct {
	superseded []bool // by generation, index 0 unused
	last       uint64
}

func (m *model) issue(gen uint64) bool {
	if gen != uint64(len(m.superseded)) {
		return false
	}
	m.superseded = append(m.superseded, false)
	return true
}

func (m *model) good(gen uint64) bool {
	return gen > 0 && gen < uint64(len(m.superseded)) && !m.superseded[gen]
}

func (m *model) confirm(gen uint64) bool {
	if !m.good(gen) {
		return false
	}
	for older := range gen {
		m.superseded[older] = true
	}
	m.last = gen
	return true
}

func TestLineAgreesWithAListOfGenerations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line
		m := model{superseded: make([]bool, 1)}
		near := func(t *rapid.T) uint64 { return rapid.Uint64Range(0, l.Issued()+2).Draw(t, "gen") }
		t.Repeat(map[string]func(*rapid.T){
			"next": func(t *rapid.T) {
				if gen := l.Next(); !l.Issue(gen) || !m.issue(gen) {
					t.Fatalf("Next returned %d, which cannot be issued", gen)
				}
			},
			"issue": func(t *rapid.T) {
				gen := near(t)
				if got, want := l.Issue(gen), m.issue(gen); got != want {
					t.Fatalf("Issue(%d) = %v, want %v", gen, got, want)
				}
			},
			"confirm": func(t *rapid.T) {
				gen := near(t)
				if got, want := l.Confirm(gen), m.confirm(gen); got != want {
					t.Fatalf("Confirm(%d) = %v, want %v", gen, got, want)
				}
			},
			"": func(t *rapid.T) { agree(t, &l, &m) },
		})
	})
}

// agree compares the line with the model for every generation, and some beyond the last.
func agree(t *rapid.T, l *Line, m *model) {
	if want := uint64(len(m.superseded) - 1); l.Issued() != want || l.Confirmed() != m.last {
		t.Fatalf("issued %d, confirmed %d, want %d and %d", l.Issued(), l.Confirmed(), want, m.last)
	}
	for gen := range l.Issued() + 3 {
		superseded := gen > 0 && gen < uint64(len(m.superseded)) && m.superseded[gen]
		if l.Good(gen) != m.good(gen) || l.Superseded(gen) != superseded {
			t.Fatalf("generation %d: good %v, superseded %v, want %v, %v", gen, l.Good(gen), l.Superseded(gen), m.good(gen), superseded)
		}
	}
	if l.Issued() > 0 && !l.Good(l.Issued()) {
		t.Fatalf("the newest generation %d is not good", l.Issued())
	}
}
