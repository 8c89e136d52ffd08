package sim

import (
	"encoding/json"
	"fmt"
	"time"

	"reseat/gateway/session"
)

// What the gateway does around a core: handshakes and tokens. Signing a token
// takes time, in which anything may happen.

// An attempt is a handshake that the gateway is serving.
type attempt struct {
	link     *link // nil: somebody else's
	conn     *conn
	token    token
	received uint64
	badN     bool
	gen      uint64 // the generation that is being signed; 0: not begun
	came     session.Time
}

func (t token) String() string { return fmt.Sprintf("%d.%d", t.gen, t.expires) }

func parseToken(s string) (t token) {
	if _, err := fmt.Sscanf(s, "%d.%d", &t.gen, &t.expires); err != nil {
		panic(fmt.Sprintf("token %q: %v", s, err))
	}
	return t
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// pass signs a token.
func (g *game) pass(gen uint64, came session.Time) session.Pass {
	t := token{gen, g.w.now.Add(g.ttl)}
	return session.Pass{Gen: gen, Token: t.String(), Renew: g.ttl / time.Duration(4+g.w.rng.IntN(2000)), Arrived: came}
}

// attachFirst gives the session its first client.
func (g *game) attachFirst() bool {
	if g.first == nil {
		return false
	}
	if g.core.Info().Sent > 0 || len(g.up.hand) > 0 || g.early {
		g.w.cov.hit(R17)
	}
	l := g.first
	g.first = nil
	g.seen.sent = g.core.Info().Sent
	before := g.snapshot()
	g.seen.attach = session.Event{Kind: session.Created}
	a := g.core.AttachFirst(g.w.now, g.pass(g.core.NextGen(), g.w.now))
	if before.info.State == session.Ended {
		g.unchanged(before, "a first attach after the end")
	}
	g.log("attach first", int64(l.id), 0)
	g.seat(&attempt{link: l, conn: l.conn}, a)
	return true
}

// seat makes the leg of a connection that has been attached.
func (g *game) seat(t *attempt, a *session.Attachment) {
	old := g.down
	l := &leg{g: g, conn: t.conn, att: a, buf: make([]byte, 1+g.w.rng.IntN(g.readSize)), lastIn: g.w.now, lastOut: g.w.now}
	l.tap, l.gen = newTap(l, t.received), g.core.Generation()
	g.down = l
	g.legs = append(g.legs, l)
	g.seated(t, old)
	if old != nil {
		g.flush(old)
	}
	g.settle()
}

// serve goes on with one of the handshakes.
func (g *game) serve() bool {
	if len(g.tries) == 0 {
		return false
	}
	i := g.w.rng.IntN(len(g.tries))
	t := g.tries[i]
	if t.gen == 0 {
		g.examine(t, i)
	} else {
		g.attach(t, i)
	}
	return true
}

func (t *attempt) resume() session.Resume {
	return session.Resume{Gen: t.token.gen, Received: t.received, Malformed: t.badN}
}

// examine looks at an attempt and reserves the generation that it would issue.
func (g *game) examine(t *attempt, i int) {
	if g.w.now > t.token.expires && g.core.State() != session.Ended && g.honest() && t.live() && !g.slept {
		g.fail("I4", "the token of generation %d has expired while its session lives", t.token.gen)
	}
	before := g.snapshot()
	gen, ref := g.core.NextGen(), g.core.Check(g.w.now, t.resume())
	g.unchanged(before, "Check")
	g.noteInstant()
	if ref != nil {
		g.refuse(t, i, ref)
		return
	}
	t.gen = gen
	for _, other := range g.tries {
		if other != t && other.token.gen == t.token.gen && other.gen > 0 {
			g.w.cov.hit(R1)
		}
	}
}

// attach is what follows when the token is signed.
func (g *game) attach(t *attempt, i int) {
	before := g.snapshot()
	g.noteInstant()
	g.seen.sent = g.core.Info().Sent
	a, ref := g.core.Attach(g.w.now, t.resume(), g.pass(t.gen, t.came))
	if ref != nil {
		g.unchanged(before, "a refused Attach")
		if ref.Code == 0 {
			g.log("overtaken", int64(t.gen), 0)
			g.w.cov.hit(Overtaken)
			t.gen = 0
			return
		}
		g.refuse(t, i, ref)
		return
	}
	g.tries = append(g.tries[:i], g.tries[i+1:]...)
	g.log("attach", int64(t.conn.id), int64(t.received))
	g.attached(t, before)
	g.seat(t, a)
}

// live reports whether the client still waits for t.
func (t *attempt) live() bool { return t.link != nil && t.link.c.trying == t.link }

// refuse answers an attempt with close, as a gateway does.
func (g *game) refuse(t *attempt, i int, ref *session.Refusal) {
	g.tries = append(g.tries[:i], g.tries[i+1:]...)
	g.log("refused", int64(ref.Code), int64(t.token.gen), ref.Text)
	g.checkRefusal(t, ref)
	g.w.cov.refused(ref.Code)
	retry := ref.Retry > 0
	arg, err := json.Marshal(closeArg{Code: ref.Code, Reason: ref.Text, Retry: &retry, After: ref.Retry.Milliseconds()})
	g.must(err)
	b := appendFrame(nil, 0x80|opText, nil, append([]byte("\x10close "), arg...))
	b = appendFrame(b, 0x80|opClose, nil, closeFrame(ref.Code, ""))
	if !t.conn.out.rst {
		t.conn.out.write(b)
	}
	t.conn.closeGateway(false)
}

// steal is somebody else's resume with the client's token.
func (g *game) steal() bool {
	c := g.cli
	if c.token.gen == 0 || len(g.tries) > 3 || !g.cfg.Resumable {
		return false
	}
	g.stolen = true
	g.w.conns++
	n := newConn(g.w.conns, g.w.capacity())
	g.tries = append(g.tries, &attempt{conn: n, token: c.token, received: c.count, came: g.w.now})
	if g.w.chance(500) { // it speaks, and confirms the generation
		key := g.w.key()
		n.in.write(appendFrame(nil, 0x80|opText, &key, []byte("\x10ping")))
	}
	g.log("steal", int64(c.token.gen), int64(c.count))
	return true
}

// storm is more takeovers than are allowed in a while.
func (g *game) storm() bool {
	if g.core.State() != session.Attached || len(g.tries) > 0 {
		return false
	}
	for range 23 {
		if !g.steal() {
			return false
		}
		for len(g.tries) > 0 {
			g.serve()
		}
	}
	return true
}

// lie is a resume that states what cannot be.
func (g *game) lie() bool {
	c := g.cli
	if c.token.gen == 0 || len(g.tries) > 3 || !g.cfg.Resumable {
		return false
	}
	g.w.conns++
	t := &attempt{conn: newConn(g.w.conns, g.w.capacity()), token: c.token, received: c.count, came: g.w.now}
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
	g.core.SendToken(g.w.now, g.pass(g.renewing, 0))
	g.renewing = 0
	g.settle()
	return true
}
