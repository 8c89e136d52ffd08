package sim

import (
	"fmt"
	"time"

	"reseat/gateway/session"
)

// A game is one session and everything around it: its core, the models of both
// its peers, the driver's legs, the handshakes that are under way, and what the
// invariants remember.
type game struct {
	w   *world
	id  int
	cfg session.Config

	core *session.Session
	cli  *client
	ups  *upstream

	// The driver.
	style    style
	readSize int
	up, down *leg
	legs     []*leg // every client leg that is not closed
	first    *link  // not attached yet

	// The gateway.
	tries      []*attempt
	ttl        time.Duration
	wantsToken bool
	renewing   uint64
	early      bool
	stillborn  bool // there was no memory for what its upstream said first
	silent     bool // the upstream answers no Ping

	// Faults.
	stolen bool // somebody else has used the client's token
	slept  bool // the process was suspended
	upLate bool // the upstream took its leave for too long
	cause  cause

	keys map[[4]byte]struct{} // handed out and not seen yet

	seen memory
}

// A cause is why a session is expected to end, and what its upstream is told.
type cause struct {
	reason string
	code   int
}

func (g *game) log(what string, a, b int64, note ...string) {
	l := line{step: g.w.steps, now: g.w.now, game: g.id, what: what, a: a, b: b}
	if len(note) > 0 {
		l.note = note[0]
	}
	g.w.trace.add(l)
}

// fail ends the run: rule is what was broken.
func (g *game) fail(rule, format string, args ...any) {
	panic(broken{fmt.Sprintf("%s, session %d: ", rule, g.id) + fmt.Sprintf(format, args...)})
}

func (g *game) must(err error) {
	if err != nil {
		g.fail("protocol", "%v", err)
	}
}

// honest reports whether the client has kept to the protocol, and has its
// token for itself.
func (g *game) honest() bool { return !g.stolen && g.cli.rogue == 0 }

// newKey is the core's source of masking keys.
func (g *game) newKey() [4]byte {
	k := g.w.key()
	g.keys[k] = struct{}{}
	return k
}

// freshKey: a frame to the upstream must have a key that was made for it alone.
func (g *game) freshKey(k [4]byte) bool {
	_, ok := g.keys[k]
	delete(g.keys, k)
	return ok
}

// maxEarly is how much can lie behind an upstream's answer, in the buffer that
// the answer was read through.
const maxEarly = 4 << 10

// newGame makes a session whose upstream has just been reached, and which a
// client is about to be attached to.
func newGame(w *world, id int) *game {
	g := &game{w: w, id: id, keys: map[[4]byte]struct{}{}}
	w.sessions++
	g.configure()
	g.cli, g.ups = newClient(g), newUpstream(g)
	g.voices()
	g.up = &leg{g: g, conn: g.ups.conn, lastIn: w.now, lastOut: w.now}
	var early []byte
	if w.chance(200) {
		for range 1 + w.rng.IntN(5) {
			g.ups.send()
		}
		early = g.ups.out[:w.rng.IntN(min(len(g.ups.out), maxEarly)+1)]
		g.ups.conn.in.put, g.ups.conn.in.got = uint64(len(early)), uint64(len(early))
		g.early = len(early) > 0
	}
	g.core = session.New(g.cfg, w.now, early)
	g.ups.out = g.ups.out[len(early):]
	g.stillborn = g.upOver()
	g.first = g.cli.connect()
	g.seen.info = g.core.Info()
	g.log("new", int64(len(early)), int64(g.style), fmt.Sprintf("%+v", g.describe()))
	return g
}

// describe is the configuration, for whoever reads a failure.
func (g *game) describe() string {
	c := g.cfg
	return fmt.Sprintf("resumable=%v grace=%v heartbeat=%v upstream-heartbeat=%v buffer=%dB/%d overflow=%v max-message=%d style=%d read=%d lazy=%d echo=%v up=%+v down=%+v",
		c.Resumable, c.Grace, c.Heartbeat, c.UpstreamHeartbeat, c.BufferBytes, c.BufferMessages, c.Overflow, c.MaxMessage,
		g.style, g.readSize, g.cli.lazy, g.ups.echo, g.cli.says.sizes, g.ups.says.sizes)
}

// over reports whether nothing is left to happen to the session.
func (g *game) over() bool {
	if g.core.State() != session.Ended || len(g.tries) > 0 || !g.up.idle() {
		return false
	}
	for _, l := range g.legs {
		if !l.idle() {
			return false
		}
	}
	return true
}

// idle: the leg is closed and nobody has anything of the core's.
func (l *leg) idle() bool {
	return l.closed && !l.flying.up && l.room == nil && l.hand == nil && !l.owes
}

// reap forgets legs that are done with.
func (g *game) reap() {
	kept := g.legs[:0]
	for _, l := range g.legs {
		if !l.idle() || l == g.down {
			kept = append(kept, l)
		}
	}
	clear(g.legs[len(kept):])
	g.legs = kept
}
