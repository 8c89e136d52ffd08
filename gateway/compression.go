package gateway

import (
	"net"
	"net/http"
	"slices"

	"reseat/gateway/deflate"
	"reseat/gateway/drive/sock"
	"reseat/gateway/wire"
)

// An answer is what a handshake's 101 says beside the key.
type answer struct {
	protocol string
	pass     http.Header // of the upstream's
	policy   *Policy     // of the session; nil where none is known
}

// answer is what a client of e's is answered, of whose upstream protocol and
// pass come.
func (e *entry) answer(protocol string, pass http.Header) answer {
	if e.Resumable {
		protocol = wire.Subprotocol
	}
	return answer{protocol: protocol, pass: pass, policy: &e.terms().Policy}
}

// deflates answers the client's offer of permessage-deflate, as far as the
// session's policy has it.
func (a *answer) deflates(h http.Header) (deflate.Params, bool) {
	if a.policy == nil || !a.policy.Compression {
		return deflate.Params{}, false
	}
	return deflate.Negotiate(h)
}

// inflated is conn less the compression that was agreed on.
func (g *Gateway) inflated(conn net.Conn, early []byte, p deflate.Params, a *answer) net.Conn {
	return deflate.NewConn(sock.Quiet(conn), early, p, deflate.Options{Limit: a.policy.MaxMessage, Charge: g.store.Charge})
}

// named is the policy of the session that a resume names, for its 101 alone: nil
// where it does not matter or there is none. Whether the resume is good is found
// out behind the 101, in the order of protocol section 2.
func (g *Gateway) named(h http.Header, offer wire.Offer) *Policy {
	if !slices.ContainsFunc(g.cfg.Routes, func(r Route) bool { return r.Policy.Compression }) {
		return nil
	}
	if _, offered := deflate.Negotiate(h); !offered {
		return nil
	}
	claims, err := g.keys.VerifyKnown(offer.Token, g.reg.memo)
	if err != nil {
		return nil
	}
	if e := g.reg.find(claims.Session); e != nil {
		return &e.terms().Policy
	}
	return nil
}
