package gateway

import (
	"reseat/gateway/session"
	"reseat/upstream"
)

// HoldSigning keeps every token of g from being signed until release is called.
func HoldSigning(g *Gateway) (release func()) {
	for range cap(g.signing) {
		g.signing <- struct{}{}
	}
	return func() {
		for range cap(g.signing) {
			<-g.signing
		}
	}
}

// KeptOfFirst is what is kept of a living session's first handshake.
func KeptOfFirst(g *Gateway, id string) upstream.Request {
	e := g.reg.find(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first
}

// Fail makes a fault in the code of a living session.
func Fail(g *Gateway, id string) {
	g.reg.find(id).do(func(*session.Session, session.Time) { panic("a fault") })
}
