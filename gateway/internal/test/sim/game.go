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
	ups  *upstream // the present one, or the last

	// What has come and what is owed, upward and downward.
	owed debts
	nums numbers

	// The driver.
	style    style
	readSize int
	blind    bool // it cannot look into the client's socket
	up, down *leg
	legs     []*leg // every client leg that is not closed
	uplegs   []*leg // and every upstream's
	first    *link  // not attached yet
	ahead    bool   // it is made ahead of its client, and not reserved yet

	// The gateway.
	tries      []*attempt
	ponged     uint64 // the newest message that a Pong has covered, or that was dropped before a return
	dial       *dial  // --disconnect hard: the next upstream's
	ttl        time.Duration
	wantsToken bool
	renewing   uint64
	early      bool
	stillborn  bool // there was no memory for what its upstream said first
	silent     bool // the upstream answers no Ping
	beating    int  // of 1000 messages so many are heartbeats of the game's own

	// What the session is kept for.
	terms      session.Terms
	started    bool
	away       absence
	expires    session.Time // of the newest token
	told       session.Time // or of the one before, where the client may not have been told
	lengthened bool         // the grace period: a token that is held may not outlive it

	// A plain client's closing handshake.
	closesAt session.Time // the core has read its Close; zero: it has not
	between  bool         // something in between has sent a Close, too

	// Faults.
	stolen bool // somebody else has used the client's token
	slept  bool // the process was suspended
	upLate bool // the upstream took its leave for too long
	cause  cause

	// Liveness.
	life     *pulse // of the newest client's connection; nil: there was none
	trip     trip
	futile   futility
	silenced bool // a line was silent for a while
	lineDown bool // the client's network: nothing passes on its connections, whichever

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
	for {
		k := g.w.key()
		if _, twice := g.keys[k]; !twice { // four bytes chosen at random do meet
			g.keys[k] = struct{}{}
			return k
		}
	}
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
// client is about to be attached to, or is to come for some time later.
func newGame(w *world, id int) *game {
	g := &game{w: w, id: id, keys: map[[4]byte]struct{}{}, nums: newNumbers()}
	w.sessions++
	g.configure()
	g.cli = newClient(g)
	g.ups = newUpstream(g)
	g.voices()
	early := g.ups.early()
	g.early = len(early) > 0
	g.core = session.New(g.cfg, w.now, early)
	g.connect(g.ups, g.core.Upstream())
	g.seen.data = w.now
	g.sync(true)
	if g.ahead = g.cfg.Resumable && g.keep() > 0 && w.chance(120); !g.ahead {
		g.first = g.cli.connect()
	}
	g.seen.info = g.core.Info()
	g.log("new", int64(len(early)), int64(g.style), g.describe())
	return g
}

// connect makes u the present upstream.
func (g *game) connect(u *upstream, ten *session.Upstream) {
	u.ten = ten
	g.ups, g.up = u, u.leg
	g.uplegs = append(g.uplegs, u.leg)
	g.stillborn = g.upOver()
	g.seen.upOver, g.seen.wasSilent, g.seen.upWanted, g.seen.upHeard = false, false, g.core.Wants(ten), g.w.now
}

// describe is the configuration, for whoever reads a failure.
func (g *game) describe() string {
	c := g.cfg
	s := fmt.Sprintf("resumable=%v kept=%v hard=%v terms=%+v rate=%+v idle=%v heartbeat=%v upstream-heartbeat=%v buffer=%dB/%d max-message=%d words=%q replies=%.60q beats=%q ttl=%v ",
		c.Resumable, c.Kept, c.Hard, c.Terms, c.Rate, c.Idle, c.Heartbeat, c.UpstreamHeartbeat, c.BufferBytes, c.BufferMessages, c.MaxMessage, c.Words, c.Replies, c.Beats, g.ttl)
	return s + fmt.Sprintf("style=%d read=%d lazy=%d echo=%v up=%+v down=%+v", g.style, g.readSize, g.cli.lazy, g.ups.echo, g.cli.says.sizes, g.ups.says.sizes)
}

// over reports whether nothing is left to happen to the session.
func (g *game) over() bool {
	if g.core.State() != session.Ended || len(g.tries) > 0 || g.dial != nil {
		return false
	}
	for _, l := range g.allLegs() {
		if !l.idle() {
			return false
		}
	}
	return true
}

// allLegs are the upstreams' and the clients'.
func (g *game) allLegs() []*leg {
	return append(append(make([]*leg, 0, 8), g.uplegs...), g.legs...)
}

// idle: the leg is closed and nobody has anything of the core's.
func (l *leg) idle() bool {
	return l.closed && !l.flying.up && l.room == nil && l.hand == nil && !l.owes
}

// reap forgets legs that are done with.
func (g *game) reap() {
	g.legs = reaped(g.legs, g.down)
	g.uplegs = reaped(g.uplegs, g.up)
}

func reaped(legs []*leg, present *leg) []*leg {
	kept := legs[:0]
	for _, l := range legs {
		if !l.idle() || l == present {
			kept = append(kept, l)
		} else if l.ups != nil {
			l.ups.bury()
		}
	}
	clear(legs[len(kept):])
	return kept
}
