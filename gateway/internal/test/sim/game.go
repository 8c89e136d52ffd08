package sim

import (
	"fmt"
	"time"

	"reseat/gateway/session"
)

// A game is one session with its whole environment: its core, the models of both peers,
// the driver's legs, the handshakes in flight, and the state of the invariants.
type game struct {
	w   *world
	id  int
	cfg session.Config

	core  *session.Session
	state session.State // at the last sync
	cli   *client
	ups   *upstream // the current one, or the last

	// Durable sessions: see owners.go.
	line       *lineage
	epoch      uint64       // of the seat, as this node has it
	moved      string       // how the session came to this node
	dead       bool         // the node is: nothing of it is called any more
	ownedUntil session.Time // the node is certain to have the session,
	asked      bool         // or has asked
	waitEnd    session.Time // the session's time is over, and it ends then at the latest
	silentEnd  bool         // it has ended without a word
	leaving    session.Time // since when it is being handed over
	upDone     bool         // its upstream is done with
	push       push         // what has become of it since
	gives      bool         // the core gives up its upstream, since the session goes on elsewhere
	forgoes    bool         // or since no client waits for it any more
	roomy      bool         // the buffer may hold more than its limit
	bursts     int          // how often the rate limit began anew
	base       counts       // numbers that were used before this node had the session
	did        tally        // what this node has numbered or received since

	// What has been received and is owed, in both directions.
	expected backlog
	nums     *numbers

	// The driver.
	style      style
	readSize   int
	blind      bool // the driver can't read the client's socket state
	up, down   *leg
	legs       []*leg // client legs that are not closed
	uplegs     []*leg // upstream legs that are not closed
	first      *link  // not attached yet
	precreated bool   // pre-created, and not reserved yet

	// The gateway.
	tries              []*attempt
	ponged             uint64 // the newest message that a Pong has covered, or that was dropped before a resume
	dial               *dial  // --disconnect hard: the dial of the next upstream
	out                interruption
	ttl                time.Duration
	wantsToken         bool
	renewing           uint64
	early              bool
	outOfMemoryAtStart bool // memory was exhausted for the upstream's first bytes
	silent             bool // the upstream answers no Ping
	partial            bool // its client goes on inside messages
	beating            int  // this many of 1000 messages are application heartbeats

	// How long the session is kept.
	terms           session.Terms
	started         bool
	detached        absence
	expires         session.Time // of the newest token
	confirmedExpiry session.Time // or of the one before, if the client may not have received it
	lengthened      bool         // the grace period was extended: it may outlive the client's token

	// A plain client's closing handshake.
	closesAt session.Time // when the core read its Close; zero: it has not
	between  bool         // a proxy has sent a Close, too

	// Faults.
	stolen bool // another client has used the client's token
	slept  bool // the process was suspended
	upLate bool // the upstream's closing handshake timed out
	cutOff bool // the session was evicted, and too much waited for its upstream to send it a Close
	cause  cause

	// of the newest client connection; nil: there was none
	life      *pulse // of the newest client's connection; nil: there was none
	trip      trip
	knowsTrip bool // TCP does
	futile    futility
	silenced  bool // a line was silent for a while
	lineDown  bool // the client's network is down: all its connections, old and new, pass nothing

	keys map[[4]byte]struct{} // handed out and not used yet

	seen memory
}

// A cause is the expected reason for a session's end, and the Close for its upstream.
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

// fail ends the run: rule was violated.
func (g *game) fail(rule, format string, args ...any) {
	panic(broken{fmt.Sprintf("%s, session %d: ", rule, g.id) + fmt.Sprintf(format, args...)})
}

func (g *game) must(err error) {
	if err != nil {
		g.fail("protocol", "%v", err)
	}
}

// honest reports whether the client follows the protocol, and nobody else has its
// token.
func (g *game) honest() bool { return !g.stolen && g.cli.rogue == 0 }

// newKey supplies the core's masking keys.
func (g *game) newKey() [4]byte {
	for {
		k := g.w.key()
		if _, twice := g.keys[k]; !twice { // four random bytes may repeat
			g.keys[k] = struct{}{}
			return k
		}
	}
}

// freshKey checks that a frame to the upstream has a masking key of its own.
func (g *game) freshKey(k [4]byte) bool {
	_, ok := g.keys[k]
	delete(g.keys, k)
	return ok
}

// maxEarly bounds what follows an upstream's handshake response in the same read
// buffer.
const maxEarly = 4 << 10

// newGame makes a session with a connected upstream. A client attaches at once, or
// later.
func newGame(w *world, id int) *game {
	g := &game{w: w, id: id, keys: map[[4]byte]struct{}{}, nums: newNumbers()}
	w.sessions++
	g.line = newLineage(g)
	g.configure()
	g.cli = newClient(g)
	g.ups = newUpstream(g, g.line.promises(1, 1))
	g.voices()
	early := g.ups.early(g.redials() && w.chance(30))
	g.early = len(early) > 0
	g.core = session.New(g.cfg, w.now, early)
	g.ownedUntil = w.now.Add(ownedFor)
	g.connect(g.ups, g.core.Upstream())
	g.seen.data = w.now
	g.sync(true)
	if g.precreated = g.cfg.Resumable && g.keep() > 0 && w.chance(120); !g.precreated {
		g.first = g.cli.connect()
	}
	g.seen.info = g.core.Info()
	g.log("new", int64(len(early)), int64(g.style), g.describe())
	return g
}

// connect makes u the current upstream.
func (g *game) connect(u *upstream, ten *session.Upstream) {
	u.ten = ten
	g.ups, g.up = u, u.leg
	g.uplegs = append(g.uplegs, u.leg)
	since, _ := g.core.Outage()
	g.outOfMemoryAtStart = g.upOver() && since == 0
	g.seen.upOver, g.seen.wasSilent, g.seen.upWanted, g.seen.upHeard = false, false, g.core.WantsRead(ten), g.w.now
}

// describe returns the configuration, for a failure's report.
func (g *game) describe() string {
	c := g.cfg
	c.Store, c.Key = nil, nil
	return fmt.Sprintf("%+v epoch=%d redeliver=%v counting=%v ttl=%v style=%d read=%d lazy=%d echo=%v up=%+v down=%+v", c, g.epoch, g.line.redeliver, g.line.counting, g.ttl, g.style, g.readSize, g.cli.lazy, g.ups.echo, g.cli.says.sizes, g.ups.says.sizes)
}

// over reports whether nothing more can happen to the session.
func (g *game) over() bool {
	if g.dead {
		return g.cli.done
	}
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

// allLegs returns the legs of upstreams and clients.
func (g *game) allLegs() []*leg {
	return append(append(make([]*leg, 0, 8), g.uplegs...), g.legs...)
}

// idle reports whether the leg is closed and nothing lent by the core is in use.
func (l *leg) idle() bool {
	return l.closed && !l.flying.up && l.room == nil && l.hand == nil && !l.owes
}

// reap removes idle legs.
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
			l.ups.checkEnded()
		}
	}
	clear(legs[len(kept):])
	return kept
}
