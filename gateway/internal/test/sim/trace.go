package sim

import (
	"fmt"
	"io"
	"strings"

	"reseat/gateway/session"
)

// The trace is what a run did, one line for each event. Only the last lines are kept,
// unformatted. All of them are hashed, so that two runs can be compared. With an out
// they are printed at once.
type trace struct {
	out  io.Writer
	ring [60]line
	n    int
	sum  uint64
}

type line struct {
	step int
	now  session.Time
	game int
	what string
	a, b int64
	note string
}

func (l line) String() string {
	s := fmt.Sprintf("%7d %12.6f g%d %-18s %8d %8d", l.step, float64(l.now)/1e9, l.game, l.what, l.a, l.b)
	if l.note != "" {
		s += "  " + strings.ToValidUTF8(l.note, "?")
	}
	return s
}

func (t *trace) add(l line) {
	t.ring[t.n%len(t.ring)] = l
	t.n++
	t.sum = mix(t.sum, uint64(l.now))
	t.sum = mix(t.sum, uint64(l.game)<<32|uint64(len(l.what)))
	for i := 0; i < len(l.what); i += 3 {
		t.sum = t.sum*31 + uint64(l.what[i])
	}
	t.sum = mix(t.sum, uint64(l.a))
	t.sum = mix(t.sum, uint64(l.b))
	if t.out != nil {
		fmt.Fprintln(t.out, l)
	}
}

// last returns the end of the trace, oldest line first.
func (t *trace) last() string {
	var b strings.Builder
	for i := max(0, t.n-len(t.ring)); i < t.n; i++ {
		fmt.Fprintln(&b, t.ring[i%len(t.ring)])
	}
	return b.String()
}

// mix is one round of splitmix64 over a and b.
func mix(a, b uint64) uint64 {
	z := a + b*0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
