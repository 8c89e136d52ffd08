package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"reseat/gateway/dial"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/upstream"
)

// Resuming plain clients by cookie, --plain-resume cookie: protocol section 9.

// cookieName is the name of a route's cookie. Over TLS it has the __Host- prefix:
// neither another host nor a page without TLS can set it.
func cookieName(pattern string, secure bool) string {
	sum := sha256.Sum256([]byte(pattern))
	name := upstream.OwnCookie + hex.EncodeToString(sum[:4])
	if secure {
		return "__Host-" + name
	}
	return name
}

// cookieToken is the token in a plain client's handshake, "" if there is none. If
// several cookies have the name, none is used.
func cookieToken(r *front.Request) string {
	rt := r.Route
	if !rt.Policy.PlainResume {
		return ""
	}
	found := r.CookiesNamed(cookieName(rt.Pattern, r.Secure))
	if len(found) != 1 {
		return ""
	}
	return found[0].Value
}

// setCookie adds a session's cookie to the header of its 101.
func setCookie(r *front.Request, e *registry.Record, h http.Header, token string) {
	c := http.Cookie{
		Name: cookieName(e.Route, r.Secure), Value: token, Path: "/",
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.Secure,
	}
	h.Add("Set-Cookie", c.String())
}

// resumeByCookie attaches a plain client to the session that its cookie names. It reports
// false, and the client gets a new session, if that session has ended, belongs to another
// player, or has a client that still answers.
func (g *Gateway) resumeByCookie(w http.ResponseWriter, r *front.Request, token string) bool {
	a := g.arrivalOf(r)
	e, claims, ok := g.sessionOfCookie(&a, token)
	if !ok || g.busy(r, e, a.Want) {
		return false
	}
	var err error
	a.Conn, a.Early, err = g.answer(e, e.Protocol(), g.freshCookie(r, e, claims, a.At)).Switch(w, r.Request)
	if err != nil {
		g.log.Debug("client.disconnected_early", "err", err)
		return true
	}
	g.finishByCookie(r, &a, e)
	return true
}

// plainElsewhere is resumeElsewhere for a plain client. It reports false if this node must
// serve the client.
func (g *Gateway) plainElsewhere(w http.ResponseWriter, r *front.Request, token string) bool {
	return g.elsewhere(w, r, g.owner.FindPlain(w, r, token), func() {
		w.Header().Set("Retry-After", "1")
		g.refuse.http(w, r, http.StatusServiceUnavailable, "node_unreachable", "the node of this session does not answer")
	})
}

// sessionOfCookie returns the session that a plain client's cookie names, if the client may
// resume it, and completes a.
func (g *Gateway) sessionOfCookie(a *dial.Arrival, token string) (*registry.Record, tokens.Claims, bool) {
	claims, err := g.keys.VerifyKnown(token, g.reg.Memo)
	if err != nil {
		return nil, claims, false
	}
	e := g.reg.Find(claims.Session)
	if e == nil || e.Driver() == nil { // it may be on its way from a predecessor
		e = g.upgrade.Late.Await(g.ctx, a.Request.Visit, g.reg, claims.Session)
	}
	if e == nil || !e.Kept() || e.Route != a.Request.Route.Pattern || e.Subject() != claims.Subject {
		return nil, claims, false
	}
	only, same := sameLogin(g.ctx, e, a.Request)
	if !same || e.Driver() == nil || !e.Offered(a.Request.Offer.Protocols) {
		return nil, claims, false
	}
	a.Request, a.Want = only, session.Resume{Gen: claims.Gen}
	return e, claims, true
}

// finishByCookie attaches a plain client that has its 101.
func (g *Gateway) finishByCookie(r *front.Request, a *dial.Arrival, e *registry.Record) {
	refusal := session.Refuse(wire.CodeNoSession, "")
	if d := e.Driver(); d != nil {
		refusal = g.attach(e, d, a)
	}
	if refusal == nil {
		g.watch.Resumed()
		return
	}
	if g.upgrade.ForwardAnswered(r, a, e.ID) {
		return
	}
	g.watch.Metrics.Resumes.WithLabelValues(wire.Name(refusal.Code)).Inc()
	g.watch.ResumeRefused(r, e.Identity(), refusal)
	a.Conn.Close() // a plain client reconnects, and gets a new session if this one has ended
}

// freshCookie returns a header with a new cookie if the client's was signed by a key that
// no longer signs: an operator may remove that key while the session lives. A plain
// client's token can be renewed only in a 101.
func (g *Gateway) freshCookie(r *front.Request, e *registry.Record, claims tokens.Claims, arrived session.Time) http.Header {
	if claims.KeyID == g.keys.SigningKeyID() {
		return nil
	}
	p, _, err := g.issuer.pass(e, claims.Gen, arrived)
	if err != nil {
		g.log.Error("cookie.renew_failed", "session", e.ID, "err", err)
		return nil
	}
	h := make(http.Header)
	setCookie(r, e, h, p.Token)
	return h
}

// busy reports whether e's session refuses want, or has a client that still answers a
// Ping.
func (g *Gateway) busy(r *front.Request, e *registry.Record, want session.Resume) bool {
	d := e.Driver()
	if d == nil {
		return true
	}
	var refusal *session.Refusal
	d.Do(func(core *session.Session, now session.Time) { refusal = core.Check(now, want) })
	return refusal != nil || g.answers(r.Context(), r.Visit, e)
}

// answers is registry.Answers, which takes up to two seconds.
func (g *Gateway) answers(ctx context.Context, v *gate.Visit, e *registry.Record) (ok bool) {
	v.Away(func() { ok = g.reg.Answers(ctx, e) })
	return ok
}
