package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"reseat/gateway/handshake"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens/login"
	"reseat/upstream"
)

func (g *Gateway) addRoute(r policy.Route) error {
	if r.Upstream.URL == nil {
		return fmt.Errorf("route %q: no upstream", r.Pattern)
	}
	rt := &route{Route: r, terms: &registry.Terms{Policy: r.Policy}, counts: new(routeCounts)}
	if !r.Policy.HTTPOff {
		rt.proxy = r.Upstream.Proxy(upstream.ProxyOptions{
			DialTimeout: r.Policy.DialTimeout, Trusted: g.cfg.TrustedProxies, Headers: g.headerRules(&r.Policy), Log: g.log, Edit: rt.Policy.Conceal,
			Own: func(r *http.Request) http.Header { return http.Header{ViaHeader: g.via(r)} },
		})
		g.proxies = append(g.proxies, rt.proxy)
	}
	if t := &rt.Upstream; t.DialContext == nil { // for sessions; the proxy keeps package net's
		if t.DialContext = g.driver.Dial; t.URL.Scheme == "wss" || t.URL.Scheme == "https" {
			t.DialContext = g.driver.DialLayered
		}
	}
	return g.table.add(rt)
}

// headerRules returns the rules for the headers of requests on a route with that policy.
func (g *Gateway) headerRules(p *policy.Policy) upstream.HeaderRules {
	return upstream.HeaderRules{Trusted: g.cfg.TrustedHeaders, Only: p.ClientHeaders}
}

// serve handles a request as an ordinary one, a resume or a new session. rt is the
// route that its path matches, nil if none does; unsafe says why the path is ambiguous.
// A faulty handshake is refused here, before the gateway dials anything.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, rt *route, unsafe error) {
	if !handshake.Requested(r) {
		g.serveHTTP(w, r, rt, unsafe)
		return
	}
	if bad := handshake.Check(r); bad != nil {
		switch bad.Status {
		case http.StatusUpgradeRequired: // RFC 6455 section 4.4
			w.Header().Set("Sec-WebSocket-Version", "13")
		case http.StatusMethodNotAllowed:
			w.Header().Set("Allow", http.MethodGet)
		}
		g.refuseHTTP(w, r, bad.Status, "bad_handshake", bad.Text)
		return
	}
	rules := &g.cfg.Default
	if rt != nil {
		rules = &rt.Policy
	}
	if !handshake.OriginAllowed(rules.Origins, r.Header, g.target(r)) {
		origin := clip(r.Header.Get("Origin"))
		g.refusals.warn("origin.refused", "text", hint("origin", origin), "origin", origin, "host", clip(r.Host))
		g.refuseHTTP(w, r, http.StatusForbidden, "origin", "this Origin is not allowed here", "origin", origin)
		return
	}
	ctx, v, ok := g.gate.enterInTurn(r.Context())
	if !ok {
		g.forward(w, r)
		return
	}
	defer v.leave()
	r = r.WithContext(ctx)
	offer := wire.ParseOffer(r.Header)
	if len(r.Header.Values("Origin")) == 0 && g.authenticatedByCookie(r, rt, offer) {
		g.refuseHTTP(w, r, http.StatusForbidden, "origin", "a handshake with a cookie needs an Origin", "origin", "missing, though a cookie authenticates")
		return
	}
	if !offer.Resumable && rt != nil {
		if token := g.cookieToken(r, rt); token != "" && (g.resumeByCookieElsewhere(w, r, rt, token) || g.resumeByCookie(w, r, rt, offer, token)) {
			return
		}
	}
	if g.notHereAnswer(w, r, offer) {
		return
	}
	switch {
	case offer.Resume && g.resumeElsewhere(w, r, rt, offer):
	case offer.Resume:
		g.resume(w, r, offer)
	case unsafe != nil:
		g.refuseHTTP(w, r, http.StatusBadRequest, "unsafe_path", unsafePath(unsafe), "path_fault", unsafe.Error())
	case rt == nil:
		g.refuseHTTP(w, r, http.StatusNotFound, "no_route", "nothing is served at this path")
	case g.draining.Load():
		g.refuseBusy(w, r, "draining", "this gateway is shutting down")
	case g.memoryLow():
		g.refuseBusy(w, r, "buffer_total", "no memory for new sessions")
	default:
		g.begin(w, r, rt, offer)
	}
}

func (g *Gateway) serveHTTP(w http.ResponseWriter, r *http.Request, rt *route, unsafe error) {
	from := registry.BlockOf(g.clientAddr(r))
	switch {
	case unsafe != nil:
		limitRefused(w)
		http.Error(w, unsafePath(unsafe), http.StatusBadRequest)
	case rt == nil:
		limitRefused(w)
		http.Error(w, "nothing is served at this path", http.StatusNotFound)
	case rt.proxy == nil:
		limitRefused(w)
		if r.ProtoMajor == 1 {
			upstream.RequireUpgrade(w.Header())
		}
		http.Error(w, "only WebSocket handshakes are served here", http.StatusUpgradeRequired)
	case !g.reg.AdmitRequest(from):
		g.logExhausted()
		g.metrics.requestsRefused.Inc()
		limitRefused(w)
		w.Header().Set("Retry-After", retryAfter)
		w.Header().Set("Connection", "close")
		http.Error(w, "no more requests now", http.StatusServiceUnavailable)
	default:
		defer g.reg.EndRequest(from)
		g.conns.MakeRoom()
		rt.proxy.ServeHTTP(w, r)
	}
}

// authenticatedByCookie reports whether a cookie authenticates this handshake. If so, it
// needs an Origin, since a browser sends cookies for any page. A resume is never
// authenticated by cookie, and only plain clients have the gateway's own cookie.
func (g *Gateway) authenticatedByCookie(r *http.Request, rt *route, offer wire.Offer) bool {
	switch {
	case rt == nil || offer.Resume:
		return false
	case !offer.Resumable && g.cookieToken(r, rt) != "":
		return true
	}
	return rt.Policy.Login != nil && rt.Policy.Login.InCookie(r)
}

// begin creates a session for a client. It dials the upstream before it answers the
// client, so that the client gets the upstream's refusal as its own.
func (g *Gateway) begin(w http.ResponseWriter, r *http.Request, rt *route, offer wire.Offer) {
	arrived := g.clock.Now()
	var player string
	var only *http.Request
	var err error
	away(r.Context(), func() { player, only, err = authenticate(rt.Policy.Login, r) })
	if err != nil {
		reason := login.Reason(err)
		g.metrics.logins.WithLabelValues(reason).Inc()
		w.Header().Set("WWW-Authenticate", login.Challenge(err))
		if offer.Refusals {
			c, _ := closing(http.StatusUnauthorized, "login: "+reason, "")
			g.noteRefused(r, http.StatusUnauthorized, c.Code, "unauthorized", "login", reason)
			g.refuseByClose(w, r, c)
			return
		}
		g.refuseHTTP(w, r, http.StatusUnauthorized, "unauthorized", "this game requires a login: "+err.Error(), "login", reason)
		return
	}
	r = only
	e := g.newRecord(rt, r.URL.EscapedPath(), player, offer.Resumable, g.clientAddr(r))
	e.Durable = g.durable(rt) && offer.SettledOK && offer.Settled == wire.Settled{}
	ctx, cancel := context.WithTimeout(r.Context(), rt.Policy.DialTimeout)
	defer cancel() // after a refusal's body has been read
	e.SetFirst(g.upstreamRequest(e, r, offer.Protocols, nil), cancel)
	switch g.admit(ctx, e) {
	case registry.Admitted:
	case registry.Duplicate:
		g.refuseHTTP(w, r, http.StatusConflict, "duplicate", "this player has a session already")
		return
	case registry.TooManySessions:
		g.refuseBusy(w, r, "max_sessions", "no more sessions now")
		return
	case registry.OutOfDescriptors:
		g.refuseExhausted(w, r)
		return
	case registry.TooManySessionsPerAddr:
		w.Header().Set("Retry-After", retryAfter)
		g.refuseHTTP(w, r, http.StatusTooManyRequests, "max_sessions_per_ip", "no more sessions from this address")
		return
	}
	var up *upstream.Conn
	away(ctx, func() { up, err = g.dials.dialFirst(ctx, e) })
	if err != nil {
		g.reg.Remove(e)
		leaveGate(ctx) // the refusal's body may take long
		g.refuseUpstream(w, r, e, err)
		return
	}
	g.accept(w, r, e, up, arrived, offer.Parts)
}

// admit reserves a place for e before its upstream is dialled, or says why it cannot.
func (g *Gateway) admit(ctx context.Context, e *registry.Record) registry.Admission {
	for {
		a, holder := g.reg.Add(e)
		switch {
		case a == registry.Admitted:
			g.conns.MakeRoom()
			return a
		case a != registry.Duplicate, g.answers(ctx, holder):
			return a
		}
		holder.Supersede()
	}
}

// commit makes e the player's session once its upstream has accepted it, and ends the
// sessions that it supersedes. It reports false if a newer session came first.
func (g *Gateway) commit(e *registry.Record) bool {
	older, ok := g.reg.Commit(e)
	for _, o := range older {
		o.Supersede()
	}
	return ok
}

// newRecord makes the record of a session on rt. path is percent-encoded; peer is the client's address, zero for
// a pre-created session.
func (g *Gateway) newRecord(rt *route, path, player string, resumable bool, peer netip.Addr) *registry.Record {
	s := registry.Spec{ID: g.newSessionID(), Route: rt.Pattern, Path: path, Player: player, Resumable: resumable, Peer: peer, Target: rt.Upstream, Terms: rt.terms}
	if rt.Policy.Login != nil {
		s.Realm = rt.Policy.Login.Realm()
	}
	return registry.NewRecord(g.clock, s)
}

// beginSession starts e's session once its upstream has answered. client is its first
// connection, nil for a pre-created session.
func (g *Gateway) beginSession(e *registry.Record, up *upstream.Conn, client net.Conn) *transport.Session {
	return e.Begin(g.driver, g.store, observer{g, e}, up, client)
}

// accept answers the client of a session whose upstream has accepted it. With parts, the client takes
// large messages in parts.
func (g *Gateway) accept(w http.ResponseWriter, r *http.Request, e *registry.Record, up *upstream.Conn, arrived session.Time, parts bool) {
	giveUp := func() {
		up.Close()
		g.reg.Remove(e)
		g.releasePlayer(e)
	}
	pass, directives := upstream.AnswerHeader(up.Header)
	g.direct(e, directives)
	if !g.commit(e) {
		giveUp()
		g.refuseHTTP(w, r, http.StatusConflict, "duplicate", "this player has begun a newer session")
		return
	}
	if !g.holdPlayer(r.Context(), e) {
		g.dismiss(e, up)
		g.refuseHTTP(w, r, http.StatusConflict, "duplicate", "this player has a session already")
		return
	}
	p, _, err := g.pass(e, 1, arrived)
	if err != nil {
		giveUp()
		g.log.Error("token.sign_failed", "session", e.ID, "err", err)
		g.refuseHTTP(w, r, http.StatusInternalServerError, "internal_error", "the gateway could not sign a token")
		return
	}
	if e.Kept() {
		g.setCookie(r, e, pass, p.Token)
	}
	defer e.BeginFirstAnswer()()
	answer := g.answer(e, up.Protocol, pass)
	answer.More = e.Resumable && !e.Durable // hello follows
	conn, early, err := answer.Switch(w, r)
	if err != nil { // nobody could ever resume this session
		giveUp()
		g.log.Info("client.disconnected_early", "session", e.ID, "err", err)
		return
	}
	p.Peer, p.Parts = e.Peer(), parts
	d := g.beginSession(e, up, conn)
	p.Durable = g.seats.settle(r.Context(), e)
	d.AttachFirst(conn, early, p)
	e.RunQueued()
}

// durable reports whether new sessions on rt outlive their node.
func (g *Gateway) durable(rt *route) bool { return rt.Policy.Durable && g.seats.store != nil }

// upstreamRequest builds the request that opens e's upstream for the client's handshake
// r. The gateway's own headers in more are added.
func (g *Gateway) upstreamRequest(e *registry.Record, r *http.Request, protocols []string, more http.Header) upstream.Request {
	own := http.Header{"Reseat-Session": {e.ID}, ViaHeader: g.via(r)}
	if e.Player != "" {
		own["Reseat-Player"] = []string{e.Player}
	}
	for name, values := range more {
		own[name] = values
	}
	ask := upstream.Request{
		Host: r.Host, Protocols: protocols,
		Header: upstream.RequestHeader(r.Header, upstream.NewPeer(r, g.cfg.TrustedProxies), g.headerRules(&e.Terms().Policy), own),
	}
	ask.Path, ask.RawQuery, ask.ForceQuery = upstream.ClientTarget(r)
	e.Terms().Conceal(&ask)
	return ask
}

// direct applies the directives in the upstream's answer, docs/sessions.md. It logs and
// ignores values that it cannot read.
func (g *Gateway) direct(e *registry.Record, d upstream.Directives) {
	if d == (upstream.Directives{}) {
		return
	}
	t := *e.Terms()
	if d.Grace != "" {
		if v, err := time.ParseDuration(d.Grace); err == nil && v >= 0 && v <= policy.MaxGrace {
			t.Grace = v
		} else {
			g.log.Warn("upstream.bad_grace", "session", e.ID, "value", clip(d.Grace), "want", "a duration from 0 to 8760h")
		}
	}
	if d.Overflow != "" {
		if v, ok := session.ParseOverflow(d.Overflow); ok {
			t.Overflow = v
		} else {
			g.log.Warn("upstream.bad_overflow", "session", e.ID, "value", clip(d.Overflow), "want", "an --overflow policy")
		}
	}
	t.Group = clip(strings.Clone(d.Group))
	e.SetTerms(&t)
}

// locate returns the route of a request, nil if none matches, and the request with the
// normal form of its path: the upstream gets the path that the route matched. A route is
// policy (who may connect, with which login), so a path that another program could read
// as another route's is refused with an error.
func (g *Gateway) locate(r *http.Request) (*http.Request, *route, error) {
	raw, query, force := upstream.ClientTarget(r)
	rt, path, err := g.table.match(raw)
	if err != nil {
		return r, nil, err
	}
	normal := new(http.Request)
	*normal = *r
	normal.URL = &url.URL{Path: path.Decoded, RawPath: path.Escaped, RawQuery: query, ForceQuery: force}
	normal.RequestURI = path.Escaped
	if query != "" || force {
		normal.RequestURI += "?" + query
	}
	return normal, rt, nil
}
