package gateway

import (
	"net/http"

	"reseat/gateway/cluster"
	"reseat/gateway/dial"
	"reseat/gateway/front"
	"reseat/gateway/handshake"
	"reseat/gateway/owner"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/watch"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/tokens/generation"
)

// resume answers 101 before it verifies: a browser hides HTTP errors from the page, so a
// refusal is sent as a close (protocol section 2).
func (g *Gateway) resume(w http.ResponseWriter, r *front.Request) {
	if a, ok := g.answerResume(w, r, g.resumed(r)); ok {
		g.finishResume(a)
	}
}

// arrivalOf begins the arrival of a returning client.
func (g *Gateway) arrivalOf(r *front.Request) dial.Arrival {
	a := dial.Arrival{Request: r, At: g.clock.Now()}
	if r.From != nil {
		a.At -= session.Time(r.From.Age)
	}
	return a
}

// resumeElsewhere serves a resume of another node's session, or refuses it. It reports false if this
// node must resume the session.
func (g *Gateway) resumeElsewhere(w http.ResponseWriter, r *front.Request) bool {
	found := g.owner.Find(w, r)
	return g.elsewhere(w, r, found, func() {
		if a, ok := g.answerResume(w, r, nil); ok {
			g.refuseResume(a, found.Refusal)
			g.watch.RefusedElsewhere(r, found.Refusal.Code, found.Evidence)
		}
	})
}

// elsewhere acts on the result of a search: refuse refuses the client. It reports false if this node must
// serve the client.
func (g *Gateway) elsewhere(w http.ResponseWriter, r *front.Request, found owner.Found, refuse func()) bool {
	switch {
	case found.Refusal == nil:
		return found.Served
	case g.upgrade.Forward(w, r):
		return true
	}
	g.watch.NotForwarded(r, found.Session, found.Session[:cluster.IDLen], found.Evidence)
	refuse()
	return true
}

// answerResume answers 101 to a resume of e, nil if there is no such session. It reports false
// if the client has gone.
func (g *Gateway) answerResume(w http.ResponseWriter, r *front.Request, e *registry.Record) (*dial.Arrival, bool) {
	a := g.arrivalOf(r)
	var err error
	a.Conn, a.Early, err = (&handshake.Answer{Protocol: wire.Subprotocol, Deflate: g.deflate(e)}).Switch(w, r.Request)
	if err != nil {
		g.log.Debug("client.disconnected_early", "err", err)
		return nil, false
	}
	return &a, true
}

// finishResume attaches a client that has its 101, or refuses it by a close.
func (g *Gateway) finishResume(a *dial.Arrival) {
	r := a.Request
	of, refusal := g.resumeByToken(a)
	if refusal != nil && g.upgrade.ForwardAnswered(r, a, of.ID) {
		return
	}
	if refusal == nil {
		r.Visit.Leave()
		g.watch.Resumed()
		return
	}
	g.watch.ResumeRefused(r, of, refusal)
	g.refuseResume(a, refusal)
}

// refuseResume refuses a client that has its 101 by a close.
func (g *Gateway) refuseResume(a *dial.Arrival, refusal *session.Refusal) {
	a.Request.Visit.Leave() // the close takes up to six seconds
	g.watch.Metrics.Resumes.WithLabelValues(wire.Name(refusal.Code)).Inc()
	g.refuse.sendClose(a.Conn, wire.Closing{
		Code: refusal.Code, Reason: refusal.Text,
		Retry: refusal.Retry > 0, RetryAfter: refusal.Retry.Milliseconds(),
	})
}

// resumeByToken verifies token, session and received, in the order of protocol section 2,
// and attaches the client. It returns the session as far as known, for the log line of a
// refusal.
func (g *Gateway) resumeByToken(a *dial.Arrival) (registry.Snapshot, *session.Refusal) {
	offer := a.Request.Offer
	claims, err := g.keys.VerifyKnown(offer.Token, g.reg.Memo)
	if err != nil {
		return registry.Snapshot{}, session.Refuse(wire.CodeBadToken, "%s", tokens.Reason(err))
	}
	e := g.reg.Find(claims.Session)
	if e == nil || e.Driver() == nil { // it may be on its way from a predecessor
		e = g.upgrade.Late.Await(g.ctx, a.Request.Visit, g.reg, claims.Session)
	}
	if e == nil {
		return g.refuseMissing(claims)
	}
	only, same := sameLogin(g.ctx, e, a.Request)
	if !e.Resumable || e.Subject() != claims.Subject || !same || !handshake.OriginAllowed(e.Terms().Origins, a.Request.Header, a.Request.Target) {
		return e.Identity(), session.Refuse(wire.CodeBadToken, watch.OtherPlayer)
	}
	d := e.Driver()
	if d == nil { // it has just ended, or its first attach is in flight and its token not yet sent
		return g.refuseMissing(claims)
	}
	a.Request = only
	a.Want = session.Resume{Gen: claims.Gen, Received: offer.Received, Malformed: !offer.ReceivedOK}
	if e.Durable && offer.SettledOK {
		a.Want.Settled = owner.SettledOf(e.Terms().Redeliver, offer)
	}
	return e.Identity(), g.attach(e, d, a)
}

// refuseMissing refuses a resume of a session that is not here. It was when the handshake began, or another
// node has passed the client on: if it has not ended here, it may have gone to another node meanwhile, which
// its seat tells the next handshake.
func (g *Gateway) refuseMissing(c tokens.Claims) (registry.Snapshot, *session.Refusal) {
	if g.owner.HasSeat(c.Session) {
		return registry.Snapshot{ID: c.Session}, session.RefuseMoved()
	}
	return g.reg.Refusal(c)
}

// attach attaches a returning client to e once the session has an upstream. It signs the
// new token outside the session's lock. If another attach overtakes it, or the upstream
// disconnects meanwhile, it starts again.
func (g *Gateway) attach(e *registry.Record, d *transport.Session, a *dial.Arrival) *session.Refusal {
	finish := func() {}
	defer func() { finish() }()
	for {
		var gen uint64
		var needs bool
		var refusal *session.Refusal
		d.Do(func(core *session.Session, now session.Time) {
			gen, needs, refusal = core.NextGen(), core.NeedsUpstream(), core.Check(now, a.Want)
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
		p, kid := session.Pass{Arrived: a.At}, g.keys.SigningKeyID()
		if e.Resumable {
			var err error
			if p, kid, err = g.issuer.pass(e, gen, a.At); err != nil {
				return session.Refuse(wire.CodeInternalError, "")
			}
		}
		p.Peer, p.Parts, p.Durable = a.Request.Addr.String(), a.Request.Offer.Parts, e.Durable && e.Seat().Covered
		if refusal := g.owner.Confirm(a.Request.Context(), a.Request.Visit, e); refusal != nil {
			return refusal
		}
		refusal = d.Attach(a.Conn, a.Early, a.Want, p)
		switch {
		case refusal == nil:
			if e.Seat().Moved == wire.MovedFailover && gen == generation.FirstOf(e.Seat().Epoch) {
				g.watch.Metrics.Failover.Observe(g.clock.Now().Sub(a.At).Seconds())
			}
			if kid != g.keys.SigningKeyID() { // rotated since the token was signed
				g.issuer.renew(e)
			}
			if e.Terms().Redial && e.Resumable {
				e.SetAgain(g.dialer.FirstAgain(e, a.Request, nil), g.store)
			}
			return nil
		case refusal.Code != 0:
			return refusal
		}
	}
}

// redial dials a new upstream for a waiting client, or returns why it could not.
// finish is never nil.
func (g *Gateway) redial(e *registry.Record, d *transport.Session, a *dial.Arrival) (finish func(), refusal *session.Refusal) {
	finish, err := g.dialer.Reconnect(e, a)
	if err == nil {
		return finish, nil
	}
	d.Do(func(core *session.Session, now session.Time) { refusal = core.Check(now, a.Want) })
	if refusal == nil {
		g.watch.Limited.Info("upstream.redial_failed", "session", e.ID, "err", err)
		refusal = dial.Refusal(err)
	}
	return func() {}, refusal
}
