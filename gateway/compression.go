package gateway

import (
	"net/http"
	"slices"

	"reseat/gateway/deflate"
	"reseat/gateway/front"
	"reseat/gateway/handshake"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/wire"
)

// answer is the 101 for a client of e, whose upstream chose protocol and sent header.
func (g *Gateway) answer(e *registry.Record, protocol string, header http.Header) *handshake.Answer {
	if e.Resumable {
		protocol = wire.Subprotocol
	}
	return &handshake.Answer{Protocol: protocol, Header: header, Deflate: g.deflate(e)}
}

// deflate returns the compression options of e's connections, nil if there is no e, or no compression.
// Windows are what memory pressure takes first, long before new sessions are refused: a
// connection that begins then has none.
func (g *Gateway) deflate(e *registry.Record) *deflate.Options {
	if e == nil || !e.Terms().Compression.On {
		return nil
	}
	charge := e.ChargeLayer(g.store)
	o := &deflate.Options{Limit: e.Terms().MaxMessage, Window: e.Terms().Compression.Window, Charge: charge}
	o.ChargeWindow = func(n int) {
		g.windows.Add(int64(n))
		charge(n)
	}
	if g.store.Used() >= g.store.Limit()/4*3 {
		o.Window = 0
	}
	return o
}

// resumed returns the session that a resume names. It is used only for the
// 101, and nil if compression does not matter or there is no such session. The resume
// itself is verified after the 101, in the order of protocol section 2.
func (g *Gateway) resumed(r *front.Request) *registry.Record {
	if !slices.ContainsFunc(g.cfg.Routes, func(r policy.Route) bool { return r.Policy.Compression.On }) {
		return nil
	}
	if _, offered := deflate.Negotiate(r.Header, 0); !offered {
		return nil
	}
	claims, err := g.keys.VerifyKnown(r.Offer.Token, g.reg.Memo)
	if err != nil {
		return nil
	}
	return g.reg.Find(claims.Session)
}
