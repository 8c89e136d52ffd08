package gateway

import (
	"net"
	"net/http"
	"strings"
	"time"

	"reseat/gateway/handshake"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/wire"
	"reseat/tokens"
)

// renewAtMost bounds how often a token is renewed.
const renewAtMost = 500 * time.Millisecond

// resume answers 101 first: a browser hides HTTP errors from the page, so a refusal
// travels as close, protocol section 2.
func (g *Gateway) resume(w http.ResponseWriter, r *http.Request, offer wire.Offer) {
	a := arrival{r: r, at: g.clock.Now(), peer: g.clientAddr(r).String()}
	var err error
	a.conn, a.early, err = (&handshake.Answer{Protocol: wire.Subprotocol, Deflate: g.deflate(g.named(r.Header, offer))}).Switch(w, r)
	if err != nil {
		g.log.Debug("client.disconnected_early", "err", err)
		return
	}
	of, refusal := g.resumeByToken(&a, offer)
	if refusal == nil {
		g.metrics.resumes.WithLabelValues("ok").Inc()
		return
	}
	g.metrics.resumes.WithLabelValues(wire.Name(refusal.Code)).Inc()
	g.logRefusal(r, of, refusal)
	g.farewell(a.conn, wire.Closing{
		Code: refusal.Code, Reason: refusal.Text,
		Retry: refusal.Retry > 0, RetryAfter: refusal.Retry.Milliseconds(),
	})
}

// farewell sends close to a client that is attached to no session, and waits a while for
// its Close frame. The connection is tracked meanwhile: it only waits.
func (g *Gateway) farewell(conn net.Conn, c wire.Closing) {
	below := rawconn.Lowest(conn)
	g.conns.Track(below)
	defer g.conns.Forget(below)
	transport.Farewell(conn, wire.AppendClosing(nil, c))
}

// resumeByToken verifies in the order of protocol section 2, token, session, received,
// and attaches. It returns the session that the resume was for, as far as known, for the
// log line of a refusal.
func (g *Gateway) resumeByToken(a *arrival, offer wire.Offer) (registry.Snapshot, *session.Refusal) {
	claims, err := g.keys.VerifyKnown(offer.Token, g.reg.Memo)
	if err != nil {
		return registry.Snapshot{}, session.Refuse(wire.CodeBadToken, "%s", tokens.Reason(err))
	}
	e := g.reg.Find(claims.Session)
	if e == nil {
		return g.reg.Refusal(claims)
	}
	if !e.Resumable || e.Subject() != claims.Subject || !sameLogin(g.ctx, e, a.r) || !handshake.OriginAllowed(e.Terms().Origins, a.r.Header, g.target(a.r)) {
		return e.Name(), session.Refuse(wire.CodeBadToken, otherPlayer)
	}
	d := e.Driver()
	if d == nil { // it has ended just now; or its first attach is in flight, and nobody can hold a token
		return g.reg.Refusal(claims)
	}
	a.want = session.Resume{Gen: claims.Gen, Received: offer.Received, Malformed: !offer.ReceivedOK}
	return e.Name(), g.attach(e, d, a)
}

// attach attaches a client that may have e, by its token or its cookie, once the session
// has an upstream. The token that it gets is signed outside the session; where another
// attach overtakes that, or the upstream is lost meanwhile, the session is asked again.
func (g *Gateway) attach(e *registry.Record, d *transport.Session, a *arrival) *session.Refusal {
	finish := func() {}
	defer func() { finish() }()
	for {
		var gen uint64
		var needs bool
		var refusal *session.Refusal
		d.Do(func(core *session.Session, now session.Time) {
			gen, needs, refusal = core.NextGen(), core.NeedsUpstream(), core.Check(now, a.want)
		})
		switch {
		case refusal != nil:
			return refusal
		case needs:
			finish() // what was dialled before is lost again
			if finish, refusal = g.redial(e, d, a); refusal != nil {
				return refusal
			}
			continue
		}
		p, kid := session.Pass{Arrived: a.at}, g.keys.SigningKeyID()
		if e.Resumable {
			var err error
			if p, kid, err = g.pass(e, gen, a.at); err != nil {
				return session.Refuse(wire.CodeInternalError, "")
			}
		}
		p.Peer = a.peer
		refusal = d.Attach(a.conn, a.early, a.want, p)
		switch {
		case refusal == nil:
			if kid != g.keys.SigningKeyID() { // rotated since the token was signed
				g.renew(e)
			}
			return nil
		case refusal.Code != 0:
			return refusal
		}
	}
}

// redial has the session's upstream dialled again for a client that waits, or says why
// there is none. finish is never nil.
func (g *Gateway) redial(e *registry.Record, d *transport.Session, a *arrival) (finish func(), refusal *session.Refusal) {
	finish, err := g.redials.reconnect(e, a)
	if err == nil {
		return finish, nil
	}
	d.Do(func(core *session.Session, now session.Time) { refusal = core.Check(now, a.want) })
	if refusal == nil {
		g.refusals.info("upstream.redial_failed", "session", e.ID, "err", err)
		refusal = unreached(err)
	}
	return func() {}, refusal
}

// pass makes what an attach gives to the client: a token of generation gen. No
// more are signed at once than there are processors, so that relaying goes on
// beside a storm of resumes.
func (g *Gateway) pass(e *registry.Record, gen uint64, arrived session.Time) (p session.Pass, kid string, err error) {
	g.signing <- struct{}{}
	defer func() { <-g.signing }()
	t := e.Terms()
	life := max(g.cfg.TokenTTL, 2*t.LongestGrace())
	if e.Kept() {
		life = cookieLife
	}
	claims := tokens.Claims{Session: e.ID, Subject: e.Subject(), Gen: gen, Expires: time.Now().Add(life)}
	token, kid, err := g.keys.Issue(claims)
	if err == nil {
		e.SetMemo(tokens.Remember(token, kid, claims))
	}
	return session.Pass{
		Gen: gen, Token: token, Expires: g.clock.Now().Add(life),
		Renew: renewal(life, t.Heartbeat, t.LongestGrace()), Arrived: arrived,
	}, kid, err
}

// renewal is when a token of so long a life must be replaced: at half of it,
// or earlier, so that the old one still outlives twice the heartbeat of silence
// and the grace period; protocol section 7. A life too short for that is
// halved all the same.
func renewal(life, heartbeat, grace time.Duration) time.Duration {
	spare := life - 2*heartbeat - grace
	if spare <= 0 {
		return life / 2
	}
	return min(life/2, max(spare*3/4, renewAtMost))
}

// renew gives an attached client a token of its generation that lives longer,
// or is by the key that signs now.
func (g *Gateway) renew(e *registry.Record) {
	d := e.Driver()
	if d == nil || !e.Resumable || d.Info().State != session.Attached {
		return
	}
	var gen uint64
	d.Do(func(core *session.Session, _ session.Time) { gen = core.Generation() })
	p, _, err := g.pass(e, gen, 0)
	if err != nil {
		g.log.Error("token.renew_failed", "session", e.ID, "err", err)
		return
	}
	d.Do(func(core *session.Session, now session.Time) { core.SendToken(now, p) })
}

// logRefusal keeps and logs why a resume was refused, and of which session, if that is
// known.
func (g *Gateway) logRefusal(r *http.Request, of registry.Snapshot, refusal *session.Refusal) {
	name := wire.Name(refusal.Code)
	detail := strings.TrimPrefix(refusal.Text, name+": ")
	switch {
	case refusal.Superseded:
		detail = "superseded"
	case of.Reason != "":
		detail = of.Reason
	}
	g.keepRefusal(r, http.StatusSwitchingProtocols, refusal.Code, name, detail, detail)
	args := []any{"code", refusal.Code, "why", refusal.Text, "path", requestPath(r), "peer", g.clientAddr(r)}
	if of.ID != "" {
		args = append(args, "session", of.ID)
	}
	if refusal.Superseded {
		g.noteReplayed(of)
		g.refusals.warn("token.replayed", append(args, "held_by", of.Peer)...)
		return
	}
	g.refusals.info("resume.refused", args...)
}
