package gateway

import (
	"time"

	"reseat/gateway/listen"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/tokens"
	"reseat/upstream"
)

// HoldSigning keeps every token of g from being signed until release is called.
func HoldSigning(g *Gateway) (release func()) {
	for range cap(g.issuer.signing) {
		g.issuer.signing <- struct{}{}
	}
	return func() {
		for range cap(g.issuer.signing) {
			<-g.issuer.signing
		}
	}
}

// Clock returns the clock of g's sessions.
func (g *Gateway) Clock() *transport.Clock { return g.clock }

// Turns is how many handshakes g works on at a time.
func Turns(g *Gateway) int { return g.gate.Turns() }

// Inside is how many handshakes and calls it works on.
func Inside(g *Gateway) int {
	inside, _ := g.gate.Visits()
	return inside
}

// KeptOfFirst returns what is kept of a living session's first handshake.
func KeptOfFirst(g *Gateway, id string) upstream.Request {
	return g.reg.Find(id).First()
}

// Fail panics in the code of a living session.
func Fail(g *Gateway, id string) {
	g.reg.Find(id).Do(func(*session.Session, session.Time) { panic("a fault") })
}

// HoldSession locks a living session until release is called.
func HoldSession(g *Gateway, id string) (release func()) {
	held, over := make(chan struct{}), make(chan struct{})
	go g.reg.Find(id).Driver().Do(func(*session.Session, session.Time) {
		close(held)
		<-over
	})
	<-held
	return func() { close(over) }
}

// Signed returns the Memo of a living session's newest token, nil if there is none.
func Signed(g *Gateway, id string) *tokens.Memo { return g.reg.Find(id).Memo() }

// DrainTimer returns the timer of an operator's drain, nil if none is running.
func DrainTimer(g *Gateway) *time.Timer {
	g.drain.mu.Lock()
	defer g.drain.mu.Unlock()
	return g.drain.timer
}

// Leftovers counts what the Gateway still holds for sessions, dials and connections, by
// kind.
func Leftovers(g *Gateway) map[string]int {
	left := map[string]int{}
	count := func(what string, n int) {
		if n != 0 {
			left[what] = n
		}
	}
	for what, n := range g.reg.Usage() {
		count(what, n)
	}
	redials, queues := g.dialer.Usage()
	count("redials", redials)
	count("dial queues", queues)
	for what, t := range map[string]*listen.ConnTracker{"": g.conns, "admin ": g.adminConns} {
		conns, waiting := t.Counts()
		count(what+"connections that wait", waiting)
		count(what+"connections", conns)
	}
	count("bytes of replay buffers", int(g.store.Used()))
	count("tokens being signed", len(g.issuer.signing))
	return left
}

// Answering puts a session into the state in which its first client is being answered, until
// done is called.
func (g *Gateway) Answering(id string) (done func()) { return g.reg.Find(id).BeginFirstAnswer() }
