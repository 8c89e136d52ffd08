// Package sim is a seeded simulation of the session core: clients, network,
// upstreams and drivers are models, the core is the real one, and the clock is
// a number. A seed decides everything that happens: which bytes arrive when,
// which connections break where, who resumes, whether there is an upstream to
// resume to, and what operators and game servers do meanwhile. After each step
// the invariants of the resume protocol are checked; a failing seed fails again
// in the same way.
//
// The models share no parsing with the gateway, so that its own mistakes do
// not cancel out.
package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"reseat/gateway/replay"
	"reseat/gateway/session"
)

// Options say what to run.
type Options struct {
	Seed  uint64
	Steps int
	Trace io.Writer // nil: only the end of a failure's trace is kept
	Fault Fault     // of the model driver, to see that it is found

	Moves int // of 1000 steps so many freeze a session and restore it

	Without []int // actions that never happen, by their number
}

// A Fault is a way for the driver to break its contract.
type Fault uint8

// The faults.
const (
	NoFault Fault = iota
	NoRetain
	Overreport
	Underreport
	Corrupt
	NoTick
	NoAwait
	NoForgo
	Misdirect
)

// A Result is what came of it.
type Result struct {
	Failure  string // empty: every invariant held
	Sum      uint64 // of the trace, and of every byte that was written: two runs of one seed have the same
	Moves    int    // sessions that were frozen and restored
	Scarce   bool   // memory was so little that who got it depended on how it lay
	Steps    int
	Sessions int
	Coverage Coverage
}

// A world is everything of one seed.
type world struct {
	rng   *rand.Rand
	now   session.Time
	games []*game
	trace trace
	bytes uint32 // a checksum of all that was written

	moveRNG *rand.Rand
	perMove int // of 1000 steps
	moves   int
	cov     Coverage
	steps   int
	fault   Fault
	calm    bool // no more faults: everything has to come to its end

	store    *replay.Store
	spent    bool // a room was refused
	used     int64
	sessions int
	conns    int

	// Drawn once.
	pipes      int
	beat       time.Duration // heartbeat of most sessions
	answer     time.Duration // answer_ms of every session
	pace       time.Duration
	jumps      int // of 1000 moves of the clock so many go to what is due next
	sizes      sizes
	maxMessage int64
	hard       int // of 1000 sessions so many are under --disconnect hard
	limit      int64
	scarce     bool // the store is small: upstreams pause, so that one that reads only while it can write may wait for ever
	weights    []int
	total      int

	scratch []byte
	block   []byte // garbage
}

// A broken invariant is a panic with one of these.
type broken struct{ why string }

// Run plays one seed to its end.
func Run(o Options) (r Result) {
	w := newWorld(o)
	defer func() {
		r = Result{Sum: mix(w.trace.sum, uint64(w.bytes)), Moves: w.moves, Scarce: w.scarce, Steps: w.steps, Sessions: w.sessions, Coverage: w.cov}
		switch v := recover().(type) {
		case nil:
		case broken:
			r.Failure = w.failure(o, v.why)
		default:
			r.Failure = w.failure(o, fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	for w.steps < o.Steps {
		if w.moveRNG.IntN(1000) < w.perMove {
			w.move()
		}
		w.step()
	}
	w.settle()
	return r
}

func newWorld(o Options) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(o.Seed, 0x5EA7)), moveRNG: rand.New(rand.NewPCG(o.Seed, 0x3013)), perMove: o.Moves, now: session.Time(time.Second),
		fault: o.Fault, trace: trace{out: o.Trace}, weights: make([]int, len(actions)), block: make([]byte, 64<<10),
	}
	for i := range w.block {
		w.block[i] = 0xE0 | byte(i&3) // as a frame header: reserved bits set
	}
	w.draw()
	w.leaveOut(o.Without)
	w.store = replay.NewStore(w.limit, func() { w.spent = true })
	most := 3
	if w.scarce {
		most = 2 // an idle reader may hold 64 KiB
	}
	for i := range 1 + w.rng.IntN(most) {
		w.games = append(w.games, newGame(w, i))
	}
	return w
}

// failure is what is printed of a failed run.
func (w *world) failure(o Options, why string) string {
	s := fmt.Sprintf("seed %d, step %d: %s\n\nstore limit %d, pace %v, pipes %d\n", o.Seed, w.steps, why, w.limit, w.pace, w.pipes)
	for _, g := range w.games {
		if g != nil && g.cli != nil {
			s += fmt.Sprintf("g%d: %s\n", g.id, g.describe())
		}
	}
	return strings.ToValidUTF8(s, "?") + "\n" + w.trace.last() + fmt.Sprintf("\nto replay: go test ./gateway/internal/test/sim -run TestSimulation -sim.seed %d -sim.steps %d -v\n", o.Seed, o.Steps)
}

// chance is true in n of 1000 cases.
func (w *world) chance(n int) bool { return n > 0 && w.rng.IntN(1000) < n }

// piece is how much of n bytes goes at once.
func (w *world) piece(n int) int {
	switch w.rng.IntN(8) {
	case 0:
		return 1
	case 1, 2:
		return 1 + w.rng.IntN(n)
	case 3:
		return min(n, 1+w.rng.IntN(16))
	}
	return n
}

func (w *world) key() [4]byte {
	k := w.rng.Uint32()
	return [4]byte{byte(k), byte(k >> 8), byte(k >> 16), byte(k >> 24)}
}

// garbage overwrites memory that the core may not look at any more, or that it
// has given away.
func (w *world) garbage(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, w.block):]
	}
}

// step does one thing that can happen now.
func (w *world) step() {
	w.steps++
	for range 20 {
		g := w.games[w.rng.IntN(len(w.games))]
		a := w.choose()
		if a.do(g) {
			w.look(g)
			return
		}
	}
	w.advance()
}

func (w *world) choose() *action {
	n := w.rng.IntN(w.total)
	for i := range w.weights {
		if n -= w.weights[i]; n < 0 {
			return &actions[i]
		}
	}
	return &actions[0]
}

// look checks what can be checked after a step, and makes a new session of one
// that is over.
func (w *world) look(g *game) {
	g.check()
	w.recycle()
	if g.over() && (g.cli.done || w.chance(100)) {
		g.bury()
		if !w.calm {
			w.games[g.id] = newGame(w, g.id)
		}
	}
}

// recycle writes into memory that was given back to the store, so that whoever
// still uses it shows.
func (w *world) recycle() {
	used := w.store.Used()
	freed := w.used - used
	w.used = used
	if freed < 4<<10 || w.calm {
		return
	}
	if freed >= 64<<10 {
		b := replay.New(w.store)
		if room := b.Room(true); room != nil {
			b.Fill(len(room))
			w.garbage(b.Room(false))
		}
		b.Release()
	}
	var bufs [3]*replay.Buffer
	for i := range bufs {
		bufs[i] = replay.New(w.store)
		w.garbage(bufs[i].Room(true))
	}
	for _, b := range bufs {
		b.Release()
	}
	w.spent = false
}
