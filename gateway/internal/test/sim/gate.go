package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"reseat/gateway/session"
)

// What the gateway does around a core: handshakes and tokens. Signing a token takes
// time, in which anything may happen.

// An attempt is a handshake that the gateway serves.
type attempt struct {
	link     *link // nil: another client's
	conn     *conn
	token    token
	received uint64
	settled  uint64 // A, or with redelivery off C
	badN     bool
	lies     bool // about anything that it states
	stage    stage
	gen      uint64 // the generation that is being signed
	dial     *dial  // the dial whose outcome it uses and must finish
	arrived  session.Time
	inquiry  inquiry
}

// A stage is the progress of an attempt.
type stage uint8

const (
	handshaking stage = iota // its handshake is in flight
	checking                 // it was answered with 101 and must be checked
	asking                   // its cookie is valid, and the attached client was pinged
	joining                  // the session has no upstream: one must be dialed
	waiting                  // waits for that dial
	queuing                  // waits until another attempt is attached, or not
	signing                  // its token is being signed
)

func (t token) String() string { return fmt.Sprintf("%d.%d", t.gen, t.expires) }

func parseToken(s string) (t token) {
	if _, err := fmt.Sscanf(s, "%d.%d", &t.gen, &t.expires); err != nil {
		panic(fmt.Sprintf("token %q: %v", s, err))
	}
	return t
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// pass signs a token: protocol section 7 says how long it is valid and when to renew
// it.
func (g *game) pass(gen uint64, came session.Time) session.Pass {
	grace := max(g.terms.Grace, g.terms.GraceBeforeStart)
	life := max(g.ttl, 2*grace)
	if g.cfg.PlainResume {
		life = cookieLife
	}
	renew := min(life/2, max((life-2*g.cfg.Heartbeat-grace)*3/4, life/100))
	if g.w.chance(500) {
		renew /= time.Duration(1 + g.w.rng.IntN(1000))
	}
	t := token{gen, max(g.w.now.Add(life), g.expires)}
	return session.Pass{Gen: gen, Token: t.String(), Expires: t.expires, Renew: max(renew, time.Millisecond), Arrived: came}
}

// issued records that the core has accepted p.
func (g *game) issued(p session.Pass) { g.expires, g.confirmedExpiry = p.Expires, p.Expires }

// attachFirst attaches the session's first client.
func (g *game) attachFirst() bool {
	if g.first == nil || g.first.in.hole {
		return false
	}
	if g.core.Info().Sent > 0 || len(g.up.hand) > 0 || g.early {
		g.w.cov.hit("R17")
	}
	l := g.first
	g.first, l.conn.upgraded = nil, true
	g.seen.sent, g.seen.outage = g.core.Info().Sent, g.out.since > 0
	before := g.snapshot()
	g.seen.attach = session.Event{Kind: session.Created}
	p := g.pass(g.core.NextGen(), g.w.now)
	p.Durable, p.Parts, p.Partial, p.Skips = g.cfg.Durable, l.takesParts, l.partial, true
	a := g.core.AttachFirst(g.w.now, p)
	if before.info.State == session.Ended {
		g.unchanged(before, "a first attach after the end")
	} else {
		g.issued(p)
		g.cookie(p)
	}
	g.sync(false)
	g.log("attach first", int64(l.id), 0)
	g.attachLeg(&attempt{link: l, conn: l.conn}, a)
	return true
}

// attachLeg makes the leg of an attached connection.
func (g *game) attachLeg(t *attempt, a *session.Attachment) {
	old := g.down
	if t.link != nil {
		t.link.g, t.link.nums = g, g.nums
	}
	l := &leg{g: g, conn: t.conn, att: a, buf: make([]byte, 1+g.w.rng.IntN(g.readSize)), lastIn: g.w.now, lastOut: g.w.now}
	l.tap, l.gen = newTap(l, t.received), g.core.Generation()
	l.tap.takesParts = t.link != nil && t.link.takesParts
	g.down = l
	g.legs = append(g.legs, l)
	g.noteAttached(t, old)
	if old != nil {
		g.flush(old)
	}
	g.settle()
}

// serve advances one of the handshakes.
func (g *game) serve() bool {
	if len(g.tries) == 0 {
		return false
	}
	t := g.tries[len(g.tries)-1]
	if g.w.calm || g.w.chance(500) { // otherwise the newest first
		t = g.tries[g.w.rng.IntN(len(g.tries))]
	}
	switch t.stage {
	case handshaking:
		return g.shake(t)
	case checking:
		g.examine(t)
	case joining:
		if !g.w.calm && g.w.chance(500) {
			return false // another may arrive first
		}
		g.join(t)
	case waiting:
		return g.watch(t)
	case queuing:
		if g.dial != nil {
			return g.dialEnds()
		}
		t.stage = checking
	case asking:
		return g.learn(t)
	case signing:
		g.attach(t)
	}
	return true
}

// shake answers a handshake that has arrived: always with 101, because a browser learns
// nothing from other statuses.
func (g *game) shake(t *attempt) bool {
	switch {
	case !t.conn.in.hole:
		t.conn.upgraded, t.stage = true, checking
		return true
	case t.conn.deaf: // abandoned, so it will never arrive
		g.drop(t)
		return true
	}
	return false
}

// resume returns what an attempt states. A cookie states no count.
func (t *attempt) resume() session.Resume {
	return session.Resume{Gen: t.token.gen, Received: t.received, Malformed: t.badN, Settled: t.settled, Skips: true}
}

// examine checks an attempt, and reserves the generation that it would issue if the
// session has an upstream.
func (g *game) examine(t *attempt) {
	if g.line.epoch == 0 && g.w.now > t.token.expires && g.core.State() != session.Ended && g.honest() && t.live() && !t.conn.silenced && !g.slept && !g.outlasts() && !g.missed(t) && t.token.gen == g.core.Generation() {
		g.fail("I4", "the token of generation %d has expired while its session lives", t.token.gen)
	}
	if epochOf(t.token.gen) > g.epoch { // F4
		g.fence()
		return
	}
	before := g.snapshot()
	gen, ref := g.core.NextGen(), g.core.Check(g.w.now, t.resume())
	needs := g.core.NeedsUpstream()
	g.unchanged(before, "Check")
	g.noteInstant()
	switch {
	case ref != nil:
		g.refuse(t, ref)
		return
	case g.inquire(t):
		return
	case needs:
		g.hangUpDial(t) // it was disconnected again
		t.stage = joining
		return
	}
	t.gen, t.stage = gen, signing
	for _, other := range g.tries {
		if other != t && other.token.gen == t.token.gen && other.stage == signing {
			g.w.cov.hit("R1")
		}
	}
}

// outlasts reports whether the session may outlive the client's token, because its
// grace period was extended or the timer was stopped.
func (g *game) outlasts() bool { return g.detached.rested > 0 || g.detached.waits > 0 || g.lengthened }

// missed reports whether the client may lack the newest token, because its line was
// silent, because it was detached for longer than a token is valid, or because nobody has looked at
// its attempt for so long.
func (g *game) missed(t *attempt) bool {
	valid := 2*g.cfg.Heartbeat + g.keep()
	away := g.cli.disconnectedAt > 0 && t.arrived.Sub(g.cli.disconnectedAt) > valid
	return away || g.w.now.Sub(t.arrived) > valid || g.silenced && t.token.expires < g.expires
}

// attach continues once the token is signed.
func (g *game) attach(t *attempt) {
	before := g.snapshot()
	g.noteInstant()
	g.seen.sent, g.seen.outage = g.core.Info().Sent, g.out.since > 0
	if g.cfg.Durable && epochOf(t.gen) != g.epoch {
		g.fail("O2", "an owner of epoch %d issues generation %d", g.epoch, t.gen)
	}
	p := g.pass(t.gen, t.arrived)
	if p.Durable = g.cfg.Durable; t.link != nil {
		p.Parts, p.Partial, p.Held = t.link.takesParts, t.link.partial, uint64(len(t.link.holds))
	}
	if g.cfg.PlainResume {
		p = session.Pass{Arrived: t.arrived} // it has its cookie
	}
	needs, end, further := g.core.NeedsUpstream(), g.graceEnd(), g.gotFurther(t)
	if further && !needs && g.core.Check(g.w.now, t.resume()) == nil && p.Gen == g.core.NextGen() {
		g.startsAgain(t)
	}
	a, ref := g.core.Attach(g.w.now, t.resume(), p)
	if g.gives {
		g.startedAgain(t, ref)
		return
	}
	if ref != nil {
		g.unchanged(before, "a refused Attach")
		g.unattached(t, ref, needs)
		return
	}
	if needs || further && !g.upOver() {
		g.fail("hard", "a client is attached, and there is no upstream for it")
	}
	g.drop(t)
	g.log("attach", int64(t.conn.id), int64(t.received))
	if further {
		g.movesNumbers(t, &before)
	}
	g.attached(t, before, end)
	if !g.cfg.PlainResume {
		g.issued(p)
	}
	g.sync(false)
	g.clientAttached()
	if t.dial != nil {
		t.dial.over = true
	}
	g.attachLeg(t, a)
}

// unattached continues after a late refusal, or starts again.
func (g *game) unattached(t *attempt, ref *session.Refusal, needs bool) {
	if ref.Code != 0 {
		g.refuse(t, ref)
		return
	}
	g.log("overtaken", int64(t.gen), 0)
	if !needs {
		g.w.cov.hit("overtaken")
	}
	t.stage = checking
}

// drop removes t, which has been served.
func (g *game) drop(t *attempt) {
	if i := slices.Index(g.tries, t); i >= 0 {
		g.tries = slices.Delete(g.tries, i, i+1)
	}
}

// live reports whether the client still waits for t.
func (t *attempt) live() bool { return t.link != nil && t.link.c.trying == t.link }

// refuse answers an attempt with close, as a gateway does.
func (g *game) refuse(t *attempt, ref *session.Refusal) {
	g.checkRefusal(t, ref)
	if name := fmt.Sprint("refused ", ref.Code); slices.Contains(interleavings, name) { // 4502 is no refusal of the core's
		g.w.cov.hit(name)
	}
	g.turnAway(t, ref)
	if g.cfg.PlainResume && (g.core.State() == session.Ended || g.closesAt > 0) {
		g.cli.finish("a session of its own")
	}
}

func (g *game) turnAway(t *attempt, ref *session.Refusal) {
	g.drop(t)
	g.log("refused", int64(ref.Code), int64(t.token.gen), ref.Text)
	if !g.cfg.PlainResume { // it gets a new session without an error
		t.tell(ref)
	}
	t.conn.closeGateway(false)
	if t.dial != nil {
		t.dial.over = true
	}
}

// tell makes a client know why it was refused.
func (t *attempt) tell(ref *session.Refusal) {
	retry := ref.Retry > 0
	arg, err := json.Marshal(closeArg{Code: ref.Code, Reason: ref.Text, Retry: &retry, After: ref.Retry.Milliseconds()})
	if err != nil {
		panic(err)
	}
	b := appendFrame(nil, 0x80|opText, nil, append([]byte("\x10close "), arg...))
	b = appendFrame(b, 0x80|opClose, nil, closeFrame(ref.Code, ""))
	if !t.conn.out.rst {
		t.conn.out.write(b)
	}
}

// steal makes another client resume with the client's token.
func (g *game) steal() bool {
	c := g.cli
	if c.token.gen == 0 || len(g.tries) > 3 || !g.keeps() {
		return false
	}
	g.stolen = g.stolen || g.cfg.Resumable // a second tab takes over only if it is attached
	n := g.connection()
	g.tries = append(g.tries, &attempt{conn: n, token: c.token, received: c.count, settled: c.settled(), arrived: g.w.now})
	if g.cfg.Resumable && g.w.chance(500) { // it sends something, which confirms the generation
		key := g.w.key()
		n.in.write(appendFrame(nil, 0x80|opText, &key, []byte("\x10ping")))
	}
	g.log("steal", int64(c.token.gen), int64(c.count))
	return true
}

// storm makes more takeovers than allowed in a while.
func (g *game) storm() bool {
	if g.core.State() != session.Attached || len(g.tries) > 0 || g.cfg.PlainResume {
		return false
	}
	for range 23 {
		if !g.steal() {
			return false
		}
		for range 20 {
			g.serve()
		}
	}
	return true
}

// lie makes a resume that states something impossible.
func (g *game) lie() bool {
	c := g.cli
	if c.token.gen == 0 || len(g.tries) > 3 || !g.cfg.Resumable || g.moved != "" { // what it states would count
		return false
	}
	t := &attempt{conn: g.connection(), token: c.token, received: c.count, settled: c.settled(), arrived: g.w.now, lies: true}
	switch g.w.rng.IntN(4) {
	case 0:
		t.received = g.core.Info().Sent + 1 + uint64(g.w.rng.IntN(9))
	case 1:
		t.badN = true
	case 2:
		t.token.gen += 1 + uint64(g.w.rng.IntN(1000))
		if t.token.gen < g.core.NextGen() {
			return false
		}
	case 3:
		if t.received = c.count / 2; t.received >= g.core.Info().Acked {
			return false
		}
	}
	g.tries = append(g.tries, t)
	g.log("lie", int64(t.token.gen), int64(t.received))
	return true
}

// renew signs the token that the core asked for, some time later.
func (g *game) renew() bool {
	switch {
	case g.renewing == 0 && !g.wantsToken:
		return false
	case g.renewing == 0:
		g.wantsToken = false
		g.renewing = g.core.Generation()
		return true
	}
	g.log("renew", int64(g.renewing), 0)
	p := g.pass(g.renewing, 0)
	g.core.SendToken(g.w.now, p)
	g.renewed(p)
	g.sync(false)
	g.renewing = 0
	g.settle()
	return true
}

// renewed records that p was sent, if a client is still attached.
func (g *game) renewed(p session.Pass) {
	if l := g.down; l == nil || l.stale() || l.gen != p.Gen {
		return
	}
	if g.confirmedExpiry = g.expires; !g.upOver() { // otherwise nothing may follow the announced end
		g.confirmedExpiry = p.Expires
	}
	g.expires = p.Expires
}
