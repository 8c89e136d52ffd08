package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/upstream"
)

// Plain clients that are kept, --plain-resume cookie: protocol section 9.

// cookieLife is the life of a cookie's token: that of its session.
const cookieLife = 10 * 365 * 24 * time.Hour

// cookieName is the name of a route's cookie. Under TLS it has the prefix that
// lets no other host, and no page without TLS, set it.
func cookieName(pattern string, secure bool) string {
	sum := sha256.Sum256([]byte(pattern))
	name := upstream.OwnCookie + hex.EncodeToString(sum[:4])
	if secure {
		return "__Host-" + name
	}
	return name
}

// secure reports whether the client speaks TLS, with us or with a trusted proxy.
func (g *Gateway) secure(r *http.Request) bool {
	if proto := g.forwarded(r, "X-Forwarded-Proto"); proto != "" {
		return strings.EqualFold(proto, "https")
	}
	return r.TLS != nil
}

// cookieToken is the token that a plain handshake brings, "" for none. Of
// several cookies of the name none is believed.
func (g *Gateway) cookieToken(r *http.Request, rt *route) string {
	if !rt.Policy.PlainResume {
		return ""
	}
	found := r.CookiesNamed(cookieName(rt.Pattern, g.secure(r)))
	if len(found) != 1 {
		return ""
	}
	return found[0].Value
}

// setCookie puts a session's cookie among the headers of its 101.
func (g *Gateway) setCookie(r *http.Request, e *registry.Record, h http.Header, token string) {
	c := http.Cookie{
		Name: cookieName(e.Route, g.secure(r)), Value: token, Path: "/",
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: g.secure(r),
	}
	h.Add("Set-Cookie", c.String())
}

// resumeByCookie gives a plain client the session that its cookie names. It reports
// false where that is over, is another's, or has a client that is there: then this one
// gets a session of its own.
func (g *Gateway) resumeByCookie(w http.ResponseWriter, r *http.Request, rt *route, offer wire.Offer, token string) bool {
	a := arrival{r: r, at: g.clock.Now(), peer: g.clientAddr(r).String()}
	claims, err := g.keys.VerifyKnown(token, g.reg.Memo)
	if err != nil {
		return false
	}
	e := g.reg.Find(claims.Session)
	if e == nil || !e.Kept() || e.Route != rt.Pattern || e.Subject() != claims.Subject || !sameLogin(g.ctx, e, r) {
		return false
	}
	d := e.Driver()
	a.want = session.Resume{Gen: claims.Gen}
	if d == nil || !e.Offered(offer.Protocols) || g.busy(r.Context(), e, d, a.want) {
		return false
	}
	a.conn, a.early, err = g.answer(e, e.Protocol(), g.freshCookie(r, e, claims, a.at)).Switch(w, r)
	if err != nil {
		g.log.Debug("client.disconnected_early", "err", err)
		return true
	}
	refusal := g.attach(e, d, &a)
	if refusal == nil {
		g.metrics.resumes.WithLabelValues("ok").Inc()
		return true
	}
	g.metrics.resumes.WithLabelValues(wire.Name(refusal.Code)).Inc()
	g.logRefusal(r, e.Name(), refusal)
	a.conn.Close() // a plain client comes again, and gets a session of its own where this one is over
	return true
}

// freshCookie is a cookie for the 101 of a client that comes back with one by a
// key that does not sign any more: that key may be taken away while the session
// lives. Nobody can renew a plain client's token but here.
func (g *Gateway) freshCookie(r *http.Request, e *registry.Record, claims tokens.Claims, arrived session.Time) http.Header {
	if claims.KeyID == g.keys.SigningKeyID() {
		return nil
	}
	p, _, err := g.pass(e, claims.Gen, arrived)
	if err != nil {
		g.log.Error("cookie.renew_failed", "session", e.ID, "err", err)
		return nil
	}
	h := make(http.Header)
	g.setCookie(r, e, h, p.Token)
	return h
}

// busy reports whether e's session has a client that answers a Ping, or will
// not have this one.
func (g *Gateway) busy(ctx context.Context, e *registry.Record, d *transport.Session, want session.Resume) bool {
	var refusal *session.Refusal
	d.Do(func(core *session.Session, now session.Time) { refusal = core.Check(now, want) })
	return refusal != nil || g.reg.Answers(ctx, e)
}
