package generation

import (
	"testing"

	"pgregory.net/rapid"
)

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
		if l.Good(gen) != m.good(gen) {
			t.Fatalf("generation %d: good %v, want %v", gen, l.Good(gen), m.good(gen))
		}
	}
	var restored Line
	if !restored.Restore(l.Issued(), l.Confirmed()) || restored != *l || restored.Restore(l.Issued(), l.Issued()+1) || restored != *l {
		t.Fatalf("restored as %+v, want %+v", restored, *l)
	}
	if l.Issued() > 0 && !l.Good(l.Issued()) {
		t.Fatalf("the newest generation %d is not good", l.Issued())
	}
}
