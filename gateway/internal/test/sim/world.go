// Package sim is a seeded simulation of the session core: clients, network, upstreams
// and drivers are models, the core is the real one, and the clock is a number. A seed
// decides everything that happens: which bytes arrive when, which connections break
// where, who resumes, whether there is an upstream to resume to, and what operators and
// game servers do meanwhile. After each step the invariants of the resume protocol are
// checked. A failing seed fails again in the same way.
//
// The models share no parsing with the gateway, so that its mistakes do not cancel out.
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

// Options configure a run.
type Options struct {
	Seed  uint64
	Steps int
	Trace io.Writer // nil: only the end of a failure's trace is kept

	Moves int // of 1000 steps, this many freeze a session and restore it
}

// command returns what plays it again.
func (o Options) command() string {
	return fmt.Sprintf("go test ./gateway/internal/test/sim -run TestSimulation -sim.seed %d -sim.steps %d -sim.moves %d -v", o.Seed, o.Steps, o.Moves)
}

// A Result is the outcome of a run.
type Result struct {
	Failure  string  // empty: every invariant held
	Sum      uint64  // hash of the trace, and of every byte that was written: two runs of one seed have the same
	Moves    int     // sessions that were frozen and restored
	MovesOut int     // of these, during an outage of the upstream
	MovesFar int     // or of a durable session that was claimed, handed over, or is being
	Scarce   bool    // the store was so small that its layout decided who got memory
	Offers   []offer // how much each read from an upstream could take
	Steps    int
	Sessions int
	Coverage Coverage
}

// An offer is how much a read from an upstream could take, after a trace with this sum.
type offer struct {
	sum uint64
	n   int
}

// layoutDiffers reports whether two runs of a seed differ first in the room for a read: where messages lie in the
// replay buffer is no part of a frozen session.
func layoutDiffers(a, b Result) bool {
	for i := range min(len(a.Offers), len(b.Offers)) {
		if x, y := a.Offers[i], b.Offers[i]; x != y {
			return x.sum == y.sum
		}
	}
	return false
}

// A world is the whole state of one seed.
type world struct {
	rng    *rand.Rand
	seed   uint64
	now    session.Time
	games  []*game
	older  []*game // former owners of durable sessions, as long as anything of them exists: see owners.go
	trace  trace
	bytes  uint32 // a checksum of all that was written
	offers []offer
	cov    Coverage
	steps  int
	calm   bool // no more faults: everything must finish

	moveRNG  *rand.Rand
	perMove  int // of 1000 steps
	moves    int
	movesOut int // during an outage
	movesFar int // of durable sessions with another owner, or soon

	store     *replay.Store
	exhausted bool // a room was refused
	used      int64
	sessions  int
	conns     int

	// Drawn once.
	pipes      int
	beat       time.Duration // heartbeat of most sessions
	answer     time.Duration // answer_ms of every session
	pace       time.Duration
	jumps      int // of 1000 clock moves, this many go to the next due time
	sizes      sizes
	maxMessage int64
	parts      int  // of 1000 connections, this many offer to take parts
	partial    bool // clients go on inside messages, and many messages are large and states
	hard       int  // of 1000 sessions, this many are under --disconnect hard
	redial     int  // and this many under --upstream-lost redial
	durable    int  // and this many of the resumable ones are durable
	limit      int64
	scarce     bool // the store is small: upstreams pause, so that one that reads only while it can write may wait forever
	weights    []int
	total      int

	scratch []byte
	block   []byte // garbage
}

// broken is the panic value of a violated invariant.
type broken struct{ why string }

// Run runs one seed to its end.
func Run(o Options) (r Result) {
	w := newWorld(o)
	defer func() {
		r = Result{Sum: mix(w.trace.sum, uint64(w.bytes)), Moves: w.moves, MovesOut: w.movesOut, MovesFar: w.movesFar, Scarce: w.scarce, Offers: w.offers, Steps: w.steps, Sessions: w.sessions, Coverage: w.cov}
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
		seed: o.Seed, cov: Coverage{},
		rng: rand.New(rand.NewPCG(o.Seed, 0x5EA7)), moveRNG: rand.New(rand.NewPCG(o.Seed, 0x3013)), perMove: o.Moves, now: session.Time(time.Second),
		trace: trace{out: o.Trace}, weights: make([]int, len(actions)), block: make([]byte, 64<<10),
	}
	for i := range w.block {
		w.block[i] = 0xE0 | byte(i&3) // as a frame header: reserved bits set
	}
	if o.Seed%5 == 2 {
		w.durable = 800
	}
	w.draw()
	if w.partial = o.Seed%5 == 3; w.partial {
		w.parts, w.sizes, w.maxMessage = 1000, sizes{medium: 100, parted: 500}, 1<<20
	}
	w.store = replay.NewStore(w.limit, func() { w.exhausted = true })
	most := 3
	if w.scarce {
		most = 2 // an idle reader may hold 64 KiB
	}
	for i := range 1 + w.rng.IntN(most) {
		w.games = append(w.games, newGame(w, i))
	}
	return w
}

// failure returns the report of a failed run.
func (w *world) failure(o Options, why string) string {
	s := fmt.Sprintf("seed %d, step %d: %s\n\nstore limit %d, pace %v, pipes %d\n", o.Seed, w.steps, why, w.limit, w.pace, w.pipes)
	for _, g := range w.games {
		if g != nil && g.cli != nil {
			s += fmt.Sprintf("g%d: %s\n", g.id, g.describe())
		}
	}
	return strings.ToValidUTF8(s, "?") + "\n" + w.trace.last() + "\nto replay: " + o.command() + "\n"
}

// chance returns true in n of 1000 cases.
func (w *world) chance(n int) bool { return n > 0 && w.rng.IntN(1000) < n }

// piece returns how many of n bytes are moved at once.
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

// garbage overwrites memory that the core must no longer read, or has returned.
func (w *world) garbage(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, w.block):]
	}
}

// step does one thing that is possible now.
func (w *world) step() {
	w.steps++
	for range 20 {
		g := w.games[w.rng.IntN(len(w.games))]
		if len(w.older) > 0 && w.chance(300) {
			g = w.older[w.rng.IntN(len(w.older))]
		}
		a := w.choose()
		if (w.durable == 0 || a.of(g)) && a.do(g) {
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

// look checks the invariants after a step, and replaces a finished session by a new
// one.
func (w *world) look(g *game) {
	if g.dead {
		g.buried()
		return
	}
	g.check()
	w.recycle()
	switch {
	case !g.over():
	case g.line.owner != g:
		g.checkEnded()
		w.forget(g)
	case g.line.haunted():
	case g.cli.done || w.chance(100):
		g.checkEnded()
		if !w.calm {
			w.games[g.id] = newGame(w, g.id)
		}
	}
}

// recycle overwrites memory that was returned to the store, so that a further use
// shows.
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
	w.exhausted = false
}
