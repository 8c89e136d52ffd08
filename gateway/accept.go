package gateway

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/handshake"
	"reseat/gateway/newest"
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
	rt := front.NewRoute(r)
	if !r.Policy.HTTPOff {
		rt.Proxy = r.Upstream.Proxy(upstream.ProxyOptions{
			DialTimeout: r.Policy.DialTimeout, Trusted: g.cfg.TrustedProxies, TrustedHeaders: g.cfg.TrustedHeaders, Log: g.log, Edit: rt.Policy.Conceal,
			Own: func(r *http.Request) http.Header { return http.Header{front.ViaHeader: front.Via(r.Header, g.id)} },
		})
		g.proxies = append(g.proxies, rt.Proxy)
	}
	if t := &rt.Upstream; t.DialContext == nil { // for sessions; the proxy keeps package net's
		if t.DialContext = g.driver.Dial; t.URL.Scheme == "wss" || t.URL.Scheme == "https" {
			t.DialContext = transport.DialLayered
		}
	}
	return g.table.Add(rt)
}

// serve handles a request as an ordinary one, a resume or a new session. A faulty handshake is
// refused here, before the gateway dials anything.
func (g *Gateway) serve(w http.ResponseWriter, r *front.Request) {
	if !r.WebSocket {
		g.serveHTTP(w, r)
		return
	}
	if bad := handshake.Check(r.Request); bad != nil {
		switch bad.Status {
		case http.StatusUpgradeRequired: // RFC 6455 section 4.4
			w.Header().Set("Sec-WebSocket-Version", "13")
		case http.StatusMethodNotAllowed:
			w.Header().Set("Allow", http.MethodGet)
		}
		g.refuse.http(w, r, bad.Status, "bad_handshake", bad.Text)
		return
	}
	rules := &g.cfg.Default
	if r.Route != nil {
		rules = &r.Route.Policy
	}
	if !handshake.OriginAllowed(rules.Origins, r.Header, r.Target) {
		origin := front.Clip(r.Header.Get("Origin"))
		g.watch.OriginRefused(r, origin)
		g.refuse.http(w, r, http.StatusForbidden, "origin", "this Origin is not allowed here", "origin", origin)
		return
	}
	if r.Visit = g.gate.EnterInTurn(); r.Visit == nil {
		g.upgrade.Forward(w, r)
		return
	}
	defer r.Visit.Leave()
	if len(r.Header.Values("Origin")) == 0 && g.authenticatedByCookie(r) {
		g.refuse.http(w, r, http.StatusForbidden, "origin", "a handshake with a cookie needs an Origin", "origin", "missing, though a cookie authenticates")
		return
	}
	if !r.Offer.Resumable && r.Route != nil {
		if token := cookieToken(r); token != "" && (g.plainElsewhere(w, r, token) || g.resumeByCookie(w, r, token)) {
			return
		}
	}
	if g.owner.AnswerNode(w, r) {
		return
	}
	switch {
	case r.Offer.Resume && g.resumeElsewhere(w, r):
	case r.Offer.Resume:
		g.resume(w, r)
	case r.Unsafe != nil:
		g.refuse.http(w, r, http.StatusBadRequest, "unsafe_path", unsafePath(r), "path_fault", r.Unsafe.Error())
	case r.Route == nil:
		g.refuse.http(w, r, http.StatusNotFound, "no_route", "nothing is served at this path")
	case g.draining.Load():
		g.refuse.busy(w, r, "draining", "this gateway is shutting down")
	case g.memory.low():
		g.refuse.busy(w, r, "buffer_total", "no memory for new sessions")
	default:
		g.begin(w, r)
	}
}

// unsafePath is the message for a client whose path is ambiguous.
func unsafePath(r *front.Request) string { return "this path is ambiguous: " + r.Unsafe.Error() }

func (g *Gateway) serveHTTP(w http.ResponseWriter, r *front.Request) {
	from := registry.BlockOf(r.Addr)
	rt := r.Route
	switch {
	case r.Unsafe != nil:
		limitRefused(w)
		http.Error(w, unsafePath(r), http.StatusBadRequest)
	case rt == nil:
		limitRefused(w)
		http.Error(w, "nothing is served at this path", http.StatusNotFound)
	case rt.Proxy == nil:
		limitRefused(w)
		if r.ProtoMajor == 1 {
			upstream.RequireUpgrade(w.Header())
		}
		http.Error(w, "only WebSocket handshakes are served here", http.StatusUpgradeRequired)
	case !g.reg.AdmitRequest(from):
		g.watch.DescriptorsExhausted()
		g.watch.Metrics.RequestsRefused.Inc()
		limitRefused(w)
		w.Header().Set("Retry-After", retryAfter)
		w.Header().Set("Connection", "close")
		http.Error(w, "no more requests now", http.StatusServiceUnavailable)
	default:
		defer g.reg.EndRequest(from)
		g.conns.MakeRoom()
		rt.Proxy.ServeHTTP(w, r.Request)
	}
}

// authenticatedByCookie reports whether a cookie authenticates this handshake. If so, it
// needs an Origin, since a browser sends cookies for any page. A resume is never
// authenticated by cookie, and only plain clients have the gateway's own cookie.
func (g *Gateway) authenticatedByCookie(r *front.Request) bool {
	switch {
	case r.Route == nil || r.Offer.Resume:
		return false
	case !r.Offer.Resumable && cookieToken(r) != "":
		return true
	}
	l := r.Route.Policy.Login
	return l != nil && l.InCookie(r.Request)
}

// begin creates a session for a client. It dials the upstream before it answers the
// client, so that the client gets the upstream's refusal as its own.
func (g *Gateway) begin(w http.ResponseWriter, r *front.Request) {
	arrived, rt := g.clock.Now(), r.Route
	player, only, err := authenticate(rt.Policy.Login, r)
	if err != nil {
		reason := login.Reason(err)
		g.watch.Metrics.Logins.WithLabelValues(reason).Inc()
		w.Header().Set("WWW-Authenticate", login.Challenge(err))
		if r.Offer.Refusals {
			c, _ := closing(http.StatusUnauthorized, "login: "+reason, "")
			g.watch.Refused(r, http.StatusUnauthorized, c.Code, "unauthorized", "login", reason)
			g.refuse.byClose(w, r, c)
			return
		}
		g.refuse.http(w, r, http.StatusUnauthorized, "unauthorized", "this game requires a login: "+err.Error(), "login", reason)
		return
	}
	r = only
	e := g.newRecord(rt, r.URL.EscapedPath(), player, r.Offer.Resumable, r.Addr)
	e.Durable = g.owner.Durable(rt) && r.Offer.SettledOK && r.Offer.Settled == wire.Settled{}
	ctx, cancel := context.WithTimeout(r.Context(), rt.Policy.DialTimeout)
	defer cancel() // after a refusal's body has been read
	e.SetFirst(g.upstreamRequest(e, r, r.Offer.Protocols, nil), cancel)
	switch g.admit(ctx, r.Visit, e) {
	case registry.Admitted:
	case registry.Duplicate:
		g.refuse.http(w, r, http.StatusConflict, "duplicate", "this player has a session already")
		return
	case registry.TooManySessions:
		g.refuse.busy(w, r, "max_sessions", "no more sessions now")
		return
	case registry.OutOfDescriptors:
		g.refuse.exhausted(w, r)
		return
	case registry.TooManySessionsPerAddr:
		w.Header().Set("Retry-After", retryAfter)
		g.refuse.http(w, r, http.StatusTooManyRequests, "max_sessions_per_ip", "no more sessions from this address")
		return
	}
	up, err := g.dialer.First(ctx, r.Visit, e)
	if err != nil {
		g.reg.Remove(e)
		r.Visit.Leave() // the refusal's body may take long
		g.refuse.upstream(w, r, e, err)
		return
	}
	g.accept(w, r, e, up, arrived)
}

// admit reserves a place for e before its upstream is dialled, or says why it cannot.
func (g *Gateway) admit(ctx context.Context, v *gate.Visit, e *registry.Record) registry.Admission {
	for {
		a, holder := g.reg.Add(e)
		switch {
		case a == registry.Admitted:
			g.conns.MakeRoom()
			return a
		case a != registry.Duplicate, g.answers(ctx, v, holder):
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

// dismiss removes a session that its game server has accepted and that is not to begin: the
// game server gets 1001. It does not wait for the answer.
func (g *Gateway) dismiss(e *registry.Record, up *upstream.Conn) {
	g.reg.Remove(e)
	bye := frame.AppendMasked(nil, frame.Close, registry.MaskingKey(), frame.ClosePayload(wire.CodeGoingAway, "duplicate"))
	g.running.Go(func() { transport.Farewell(up.Conn, bye) })
}

// giveUp forgets a session that its game server has accepted, and closes its connection.
func (g *Gateway) giveUp(e *registry.Record, up *upstream.Conn) {
	up.Close()
	g.reg.Remove(e)
	g.owner.ReleasePlayer(e)
}

// newRecord makes the record of a session on rt. path is percent-encoded; peer is the client's address, zero for
// a pre-created session.
func (g *Gateway) newRecord(rt *front.Route, path, player string, resumable bool, peer netip.Addr) *registry.Record {
	s := registry.Spec{ID: g.owner.NewSessionID(), Route: rt.Pattern, Path: path, Player: player, Resumable: resumable, Peer: peer, Target: rt.Upstream, Terms: rt.Terms, Realm: rt.Realm()}
	return registry.NewRecord(g.clock, s)
}

// beginSession starts e's session once its upstream has answered. client is its first
// connection, nil for a pre-created session.
func (g *Gateway) beginSession(e *registry.Record, up *upstream.Conn, client net.Conn) *transport.Session {
	return e.Begin(g.driver, g.store, observer{g, e}, up, client)
}

// accept answers the client of a session whose upstream has accepted it.
func (g *Gateway) accept(w http.ResponseWriter, r *front.Request, e *registry.Record, up *upstream.Conn, arrived session.Time) {
	pass, directives := upstream.AnswerHeader(up.Header)
	g.direct(e, directives)
	if !g.commit(e) {
		g.giveUp(e, up)
		g.refuse.http(w, r, http.StatusConflict, "duplicate", "this player has begun a newer session")
		return
	}
	if !g.owner.HoldPlayer(r.Context(), r.Visit, e) {
		g.dismiss(e, up)
		g.refuse.http(w, r, http.StatusConflict, "duplicate", "this player has a session already")
		return
	}
	p, _, err := g.issuer.pass(e, 1, arrived)
	if err != nil {
		g.giveUp(e, up)
		g.log.Error("token.sign_failed", "session", e.ID, "err", err)
		g.refuse.http(w, r, http.StatusInternalServerError, "internal_error", "the gateway could not sign a token")
		return
	}
	if e.Kept() {
		setCookie(r, e, pass, p.Token)
	}
	defer e.BeginFirstAnswer()()
	answer := g.answer(e, up.Protocol, pass)
	answer.More = e.Resumable && !e.Durable // hello follows
	conn, early, err := answer.Switch(w, r.Request)
	if err != nil { // nobody could ever resume this session
		g.giveUp(e, up)
		g.log.Info("client.disconnected_early", "session", e.ID, "err", err)
		return
	}
	p.Peer, p.Skips = e.Peer(), r.Offer.Skips
	p.TakeOffer(r.Offer)
	d := g.beginSession(e, up, conn)
	p.Durable = g.owner.Settle(r.Context(), r.Visit, e)
	d.AttachFirst(conn, early, p)
	e.RunQueued()
}

// upstreamRequest builds the request that opens e's upstream for the client's handshake
// r. The gateway's own headers in more are added.
func (g *Gateway) upstreamRequest(e *registry.Record, r *front.Request, protocols []string, more http.Header) upstream.Request {
	own := http.Header{"Reseat-Session": {e.ID}, front.ViaHeader: front.Via(r.Header, g.id)}
	if e.Player != "" {
		own["Reseat-Player"] = []string{e.Player}
	}
	maps.Copy(own, more)
	ask := upstream.Request{
		Host: r.Host, Protocols: protocols,
		Header: upstream.RequestHeader(r.Header, r.Peer, g.cfg.TrustedHeaders, own),
	}
	ask.Path, ask.RawQuery, ask.ForceQuery = upstream.ClientTarget(r.Request)
	e.Terms().Conceal(&ask)
	return ask
}

// direct applies the directives in the upstream's answer, docs/sessions.md. It logs and
// ignores values that it cannot read.
func (g *Gateway) direct(e *registry.Record, d upstream.Directives) {
	if d.Grace+d.Overflow+d.Group == "" && d.Newest == nil {
		return
	}
	t := *e.Terms()
	if d.Grace != "" {
		if v, err := time.ParseDuration(d.Grace); err == nil && v >= 0 && v <= policy.MaxGrace {
			t.Grace = v
		} else {
			g.log.Warn("upstream.bad_grace", "session", e.ID, "value", front.Clip(d.Grace), "want", "a duration from 0 to 8760h")
		}
	}
	if d.Overflow != "" {
		if v, ok := session.ParseOverflow(d.Overflow); ok {
			t.Overflow = v
		} else {
			g.log.Warn("upstream.bad_overflow", "session", e.ID, "value", front.Clip(d.Overflow), "want", "an --overflow policy")
		}
	}
	if d.Newest != nil {
		if v, err := newest.Parse(d.Newest); err == nil {
			t.Newest = v
		} else {
			g.log.Warn("upstream.bad_newest", "session", e.ID, "value", front.Clip(strings.Join(d.Newest, ", ")), "want", newest.Want)
		}
	}
	t.Group = front.Clip(strings.Clone(d.Group))
	e.SetTerms(&t)
}

// Locate returns the route of c that a path matches, nil if none does, and the path's
// normal form. The error says why a path is ambiguous; its clients get 400.
func Locate(c *Config, path string) (*policy.Route, string, error) {
	t := front.NewTable()
	for _, r := range c.Routes {
		if err := t.Add(front.NewRoute(r)); err != nil {
			return nil, "", err
		}
	}
	rt, normal, err := t.Match(path)
	if rt == nil || err != nil {
		return nil, normal.Escaped, err
	}
	return &rt.Route, normal.Escaped, nil
}
