package gateway

import (
	"net/http"
	"strings"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/events"
	"reseat/gateway/handshake"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/tokens/generation"
)

// settledOf is the newest of a client's messages that is not to be written again, after the loss of a
// node.
func settledOf(redeliver bool, o wire.Offer) uint64 {
	if redeliver {
		return o.Settled.Acked
	}
	return o.Settled.Sent
}

// minRenewInterval is the minimum interval between two renewals of a token.
const minRenewInterval = 500 * time.Millisecond

// resume answers 101 before it verifies: a browser hides HTTP errors from the page, so a
// refusal is sent as a close (protocol section 2).
func (g *Gateway) resume(w http.ResponseWriter, r *http.Request, offer wire.Offer) {
	if a, ok := g.answerResume(w, r, g.resumed(r.Header, offer)); ok {
		g.finishResume(a, offer)
	}
}

// answerResume answers 101 to a resume of e, nil if there is no such session. It reports false
// if the client has gone.
func (g *Gateway) answerResume(w http.ResponseWriter, r *http.Request, e *registry.Record) (*arrival, bool) {
	a := arrival{r: r, at: g.arrivedAt(r), peer: g.clientAddr(r).String()}
	var err error
	a.conn, a.early, err = (&handshake.Answer{Protocol: wire.Subprotocol, Deflate: g.deflate(e)}).Switch(w, r)
	if err != nil {
		g.log.Debug("client.disconnected_early", "err", err)
		return nil, false
	}
	return &a, true
}

// finishResume attaches a client that has its 101, or refuses it by a close.
func (g *Gateway) finishResume(a *arrival, offer wire.Offer) {
	r := a.r
	of, refusal := g.resumeByToken(a, offer)
	if refusal != nil && g.forwardAnswered(r, a, of.ID) {
		return
	}
	if refusal == nil {
		leaveGate(r.Context())
		g.metrics.resumes.WithLabelValues("ok").Inc()
		return
	}
	g.logRefusal(r, of, refusal)
	g.refuseResume(a, refusal)
}

// refuseResume refuses a client that has its 101 by a close.
func (g *Gateway) refuseResume(a *arrival, refusal *session.Refusal) {
	leaveGate(a.r.Context()) // the close takes up to six seconds
	g.metrics.resumes.WithLabelValues(wire.Name(refusal.Code)).Inc()
	g.sendClose(a.conn, wire.Closing{
		Code: refusal.Code, Reason: refusal.Text,
		Retry: refusal.Retry > 0, RetryAfter: refusal.Retry.Milliseconds(),
	})
}

// resumeByToken verifies token, session and received, in the order of protocol section 2,
// and attaches the client. It returns the session as far as known, for the log line of a
// refusal.
func (g *Gateway) resumeByToken(a *arrival, offer wire.Offer) (registry.Snapshot, *session.Refusal) {
	claims, err := g.keys.VerifyKnown(offer.Token, g.reg.Memo)
	if err != nil {
		return registry.Snapshot{}, session.Refuse(wire.CodeBadToken, "%s", tokens.Reason(err))
	}
	e := g.reg.Find(claims.Session)
	if e == nil || e.Driver() == nil { // it may be on its way from a predecessor
		away(a.r.Context(), func() { e = g.late.await(g.ctx, g.reg, claims.Session) })
	}
	if e == nil {
		return g.refuseMissing(claims)
	}
	var only *http.Request
	var same bool
	away(a.r.Context(), func() { only, same = sameLogin(g.ctx, e, a.r) })
	if !e.Resumable || e.Subject() != claims.Subject || !same || !handshake.OriginAllowed(e.Terms().Origins, a.r.Header, g.target(a.r)) {
		return e.Identity(), session.Refuse(wire.CodeBadToken, otherPlayer)
	}
	d := e.Driver()
	if d == nil { // it has just ended, or its first attach is in flight and its token not yet sent
		return g.refuseMissing(claims)
	}
	a.r, a.parts = only, offer.Parts
	a.want = session.Resume{Gen: claims.Gen, Received: offer.Received, Malformed: !offer.ReceivedOK}
	if e.Durable && offer.SettledOK {
		a.want.Settled = settledOf(e.Terms().Redeliver, offer)
	}
	return e.Identity(), g.attach(e, d, a)
}

// refuseMissing refuses a resume of a session that is not here. It was when the handshake began, or another
// node has passed the client on: if it has not ended here, it may have gone to another node meanwhile, which
// its seat tells the next handshake.
func (g *Gateway) refuseMissing(c tokens.Claims) (registry.Snapshot, *session.Refusal) {
	if g.hasSeats(c.Session) {
		return registry.Snapshot{ID: c.Session}, session.RefuseMoved()
	}
	return g.reg.Refusal(c)
}

// hasSeats reports whether a session may have a seat that says where it is.
func (g *Gateway) hasSeats(id string) bool {
	return g.seats.store != nil && len(id) == cluster.IDLen+SessionIDLen && !g.reg.Ended(id)
}

// attach attaches a returning client to e once the session has an upstream. It signs the
// new token outside the session's lock. If another attach overtakes it, or the upstream
// disconnects meanwhile, it starts again.
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
			finish() // the upstream dialled before has disconnected
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
		p.Peer, p.Parts, p.Durable = a.peer, a.parts, e.Durable && e.Seat().Covered
		if refusal := g.seats.confirm(a.r.Context(), e); refusal != nil {
			return refusal
		}
		refusal = d.Attach(a.conn, a.early, a.want, p)
		switch {
		case refusal == nil:
			if e.Seat().Moved == wire.MovedFailover && gen == generation.FirstOf(e.Seat().Epoch) {
				g.metrics.failover.Observe(g.clock.Now().Sub(a.at).Seconds())
			}
			if kid != g.keys.SigningKeyID() { // rotated since the token was signed
				g.renew(e)
			}
			if e.Terms().Redial && e.Resumable {
				e.SetAgain(g.redials.firstAgain(e, a.r, nil), g.store)
			}
			return nil
		case refusal.Code != 0:
			return refusal
		}
	}
}

// redial dials a new upstream for a waiting client, or returns why it could not.
// finish is never nil.
func (g *Gateway) redial(e *registry.Record, d *transport.Session, a *arrival) (finish func(), refusal *session.Refusal) {
	finish, err := g.redials.reconnect(e, a)
	if err == nil {
		return finish, nil
	}
	d.Do(func(core *session.Session, now session.Time) { refusal = core.Check(now, a.want) })
	if refusal == nil {
		g.refusals.info("upstream.redial_failed", "session", e.ID, "err", err)
		refusal = redialRefusal(err)
	}
	return func() {}, refusal
}

// pass makes the credentials of an attach: a token of generation gen. It limits the tokens
// signed at once to the number of processors, so that a storm of resumes does not delay
// messages.
func (g *Gateway) pass(e *registry.Record, gen uint64, arrived session.Time) (p session.Pass, kid string, err error) {
	g.signing <- struct{}{}
	defer func() { <-g.signing }()
	t := e.Terms()
	life := max(g.cfg.TokenTTL, 2*t.LongestGrace())
	if e.Kept() {
		life = cookieLife
	}
	claims := tokens.Claims{Session: e.ID, Subject: e.Subject(), Gen: gen, Expires: time.Now().Add(life)}
	if e.Durable && e.Seat().Epoch > 0 {
		claims.Owner = g.cfg.Cluster.ID()
	}
	token, kid, err := g.keys.Issue(claims)
	if err == nil {
		e.SetMemo(tokens.Remember(token, kid, claims))
	}
	return session.Pass{
		Gen: gen, Token: token, Expires: g.clock.Now().Add(life),
		Renew: renewal(life, t.Heartbeat, t.LongestGrace()), Arrived: arrived, Route: g.route(),
	}, kid, err
}

// route is the route of hello, "" for none.
func (g *Gateway) route() string {
	if g.cfg.Cluster == nil || !wire.ValidRoute(g.cfg.NodeName) {
		return ""
	}
	return g.cfg.NodeName
}

// renewal is when a token with this lifetime must be replaced: after half of it, or
// earlier if the old token would not outlive twice the heartbeat plus the grace period
// (protocol section 7). If the lifetime is too short for that, it is half of it.
func renewal(life, heartbeat, grace time.Duration) time.Duration {
	spare := life - 2*heartbeat - grace
	if spare <= 0 {
		return life / 2
	}
	return min(life/2, max(spare*3/4, minRenewInterval))
}

// renew sends an attached client a token of its present generation with a later expiry,
// signed by the present key.
func (g *Gateway) renew(e *registry.Record) {
	d := e.Driver()
	if d == nil || !e.Resumable || d.Info().State != session.Attached {
		return
	}
	var gen uint64
	d.Do(func(core *session.Session, _ session.Time) { gen = core.Generation() })
	if gen == 0 { // a successor has the session: see Rest.Renewing
		return
	}
	p, _, err := g.pass(e, gen, 0)
	if err != nil {
		g.log.Error("token.renew_failed", "session", e.ID, "err", err)
		return
	}
	d.Do(func(core *session.Session, now session.Time) { core.SendToken(now, p) })
}

// logRefusal keeps and logs why a resume was refused, and the session if it is known.
func (g *Gateway) logRefusal(r *http.Request, of registry.Snapshot, refusal *session.Refusal) {
	name := wire.Name(refusal.Code)
	detail := strings.TrimPrefix(refusal.Text, name+": ")
	switch {
	case refusal.Superseded:
		detail = "superseded"
	case of.Reason != "":
		detail = of.Reason
	}
	advice := hint(name, detail)
	if of.ClosedAfter != "" && !refusal.Superseded {
		detail, advice = afterSilence(detail, of), g.keepaliveHint(of)
	}
	g.keepRefusal(r, http.StatusSwitchingProtocols, refusal.Code, name, detail, advice)
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

// noteReplayed reports that a resume brought a token of a superseded generation, a bug or
// a theft. The session may have ended.
func (g *Gateway) noteReplayed(of registry.Snapshot) {
	g.metrics.replayed.Inc()
	if !g.replays.Allow() {
		return
	}
	if e := g.reg.Find(of.ID); e != nil {
		e.Note(events.Replayed, session.Event{})
	} else {
		g.reg.NoteLate(of.ID, registry.NewMoment(events.Replayed, session.Event{}))
	}
	g.publishEvent(events.Event{Type: events.Replayed, Session: of.ID, Player: of.Player, Group: of.Group, Path: of.Path})
}

// cookieLife is the lifetime of a cookie's token. The session's end is its real limit.
const cookieLife = 10 * 365 * 24 * time.Hour

// Limits of token.replayed in the event stream, which a thief or a faulty client can cause
// at will. The metric counts all.
const (
	replaysPerSecond = 10
	replaysAtOnce    = 50
)
