package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/handshake"
	"reseat/gateway/listen"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens/login"
	"reseat/upstream"
)

const (
	// refusedBody is how long the body of a refused request is waited for.
	refusedBody = time.Second
)

// A route is a Route made ready to serve.
type route struct {
	policy.Route
	terms  *registry.Terms // that its sessions begin with
	proxy  *upstream.Proxy // nil where ordinary requests are off
	counts *routeCounts
}

func (g *Gateway) addRoute(r policy.Route) {
	rt := &route{Route: r, terms: &registry.Terms{Policy: r.Policy}, counts: new(routeCounts)}
	if !r.Policy.HTTPOff {
		rt.proxy = r.Upstream.Proxy(upstream.ProxyOptions{
			DialTimeout: r.Policy.DialTimeout, Trusted: g.cfg.TrustedProxies, Keep: g.cfg.TrustedHeaders, Log: g.log, Edit: rt.Policy.Conceal,
			Own: func(r *http.Request) http.Header { return http.Header{ViaHeader: g.via(r)} },
		})
		g.proxies = append(g.proxies, rt.proxy)
	}
	g.table.add(rt)
}

// serve decides what a request is: an ordinary one, a resume, or a new session.
// rt is the route that its path matches, nil for none; unsafe says why a path
// matches none that could be read as another. What is wrong with a handshake itself
// is answered here, before anything is dialled.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, rt *route, unsafe error) {
	if !handshake.Requested(r) {
		g.serveHTTP(w, r, rt, unsafe)
		return
	}
	if bad := handshake.Check(r); bad != nil {
		switch bad.Status {
		case http.StatusUpgradeRequired: // RFC 6455 section 4.4, RFC 9110 section 15.5.22
			w.Header().Set("Sec-WebSocket-Version", "13")
			w.Header().Set("Upgrade", "websocket")
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
		g.refusals.warn("origin.refused", "text", "see --origin", "origin", clip(r.Header.Get("Origin")), "host", clip(r.Host))
		g.refuseHTTP(w, r, http.StatusForbidden, "origin", "this Origin is not allowed here", "origin", clip(r.Header.Get("Origin")))
		return
	}
	offer := wire.ParseOffer(r.Header)
	if len(r.Header.Values("Origin")) == 0 && g.byCookie(r, rt, offer) {
		g.refuseHTTP(w, r, http.StatusForbidden, "origin", "a cookie counts for pages alone, and a page says its Origin", "origin", "missing, though a cookie authenticates")
		return
	}
	if !offer.Resumable && rt != nil {
		if token := g.cookieToken(r, rt); token != "" && g.resumeByCookie(w, r, rt, offer, token) {
			return
		}
	}
	switch {
	case offer.Resume:
		g.resume(w, r, offer)
	case unsafe != nil:
		g.refuseHTTP(w, r, http.StatusBadRequest, "unsafe_path", unsafePath(unsafe), "path_fault", unsafe.Error())
	case rt == nil:
		g.refuseHTTP(w, r, http.StatusNotFound, "no_route", "nothing is served at this path")
	case g.draining.Load():
		g.refuseBusy(w, r, "draining", "this gateway is going away")
	case g.crowded():
		g.refuseBusy(w, r, "buffer_total", "no memory for new sessions")
	default:
		g.begin(w, r, rt, offer)
	}
}

// crowded reports whether the replay buffers leave no memory for new sessions.
func (g *Gateway) crowded() bool { return g.store.Used() >= g.store.Limit()/10*9 }

func (g *Gateway) serveHTTP(w http.ResponseWriter, r *http.Request, rt *route, unsafe error) {
	from := registry.BlockOf(g.clientAddr(r))
	switch {
	case unsafe != nil:
		letGo(w)
		http.Error(w, unsafePath(unsafe), http.StatusBadRequest)
	case rt == nil:
		letGo(w)
		http.Error(w, "nothing is served at this path", http.StatusNotFound)
	case rt.proxy == nil:
		letGo(w)
		if r.ProtoMajor == 1 { // HTTP/2 has no such field, RFC 9113 section 8.2.2
			w.Header().Set("Upgrade", "websocket")
		}
		http.Error(w, "only WebSocket handshakes are served here", http.StatusUpgradeRequired)
	case !g.reg.Pass(from):
		g.logExhausted()
		g.metrics.requestsRefused.Inc()
		letGo(w)
		w.Header().Set("Retry-After", retryAfter)
		w.Header().Set("Connection", "close")
		http.Error(w, "no more requests now", http.StatusServiceUnavailable)
	default:
		defer g.reg.Passed(from)
		g.conns.MakeRoom()
		rt.proxy.ServeHTTP(w, r)
	}
}

// byCookie reports whether a cookie says whose handshake this is. It never says
// whose a resume is, and the gateway's own is a plain client's alone.
func (g *Gateway) byCookie(r *http.Request, rt *route, offer wire.Offer) bool {
	switch {
	case rt == nil || offer.Resume:
		return false
	case !offer.Resumable && g.cookieToken(r, rt) != "":
		return true
	}
	return rt.Policy.Login != nil && rt.Policy.Login.InCookie(r)
}

// target is the host that r is for.
func (g *Gateway) target(r *http.Request) handshake.Target {
	return handshake.Target{Host: cmp.Or(g.forwarded(r, "X-Forwarded-Host"), r.Host), Secure: g.secure(r)}
}

// forwarded is what a trusted proxy says in a header that each proxy on the way may
// have added to, the one next to the client first; "" where none does.
func (g *Gateway) forwarded(r *http.Request, header string) string {
	if !upstream.NewPeer(r, g.cfg.TrustedProxies).Trusted {
		return ""
	}
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}

// refuseHTTP answers a handshake by HTTP, or where the client reads refusals by a
// close (protocol section 2), counts it, and has the connection closed, so that nothing behind it is taken for another request. The line in the
// log has more behind it.
func (g *Gateway) refuseHTTP(w http.ResponseWriter, r *http.Request, status int, label, text string, more ...any) {
	c, ok := closing(status, shownReasons[label], w.Header().Get("Retry-After"))
	if !ok || c.Reason == "" || !wire.ParseOffer(r.Header).Refusals {
		c = wire.Closing{}
	}
	g.noteRefused(r, status, c.Code, label, more...)
	if c.Code != 0 && g.sayRefusal(w, r, c) {
		return
	}
	letGo(w)
	w.Header().Set("Connection", "close")
	http.Error(w, text, status)
}

// noteRefused counts, keeps and logs a refused handshake. code is that of the close that
// says so, 0 where HTTP answers. more is a detail and its name in the log, if there is one.
func (g *Gateway) noteRefused(r *http.Request, status, code int, label string, more ...any) {
	g.metrics.refused.WithLabelValues(label).Inc()
	detail := ""
	if len(more) > 1 {
		detail = fmt.Sprint(more[1])
	}
	g.keepRefusal(r, status, code, label, detail, detail)
	args := []any{"status", status, "why", label, "path", requestPath(r), "peer", g.clientAddr(r)}
	g.refusals.info("handshake.refused", append(args, more...)...)
}

// letGo has a refused request's body waited for no longer than refusedBody:
// net/http reads it before it closes the connection, and one that never comes
// would keep it for ever.
func letGo(w http.ResponseWriter) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBody))
	answerWithin(w, upstream.WriteTimeout)
}

// answerWithin gives a client so long to take an answer that comes at once. Each
// answer has a deadline of its own: net/http leaves that of the one before.
func answerWithin(w http.ResponseWriter, d time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// logExhausted says what an operator can do about refusals because descriptors ran out.
func (g *Gateway) logExhausted() {
	g.exhaustedLog.warn("descriptors.exhausted", "limit", g.cfg.Descriptors, "text", "new sessions and requests are refused; raise the limit of open files")
}

// retryAfter is what is said to anyone who is refused because there is no room, in seconds.
const retryAfter = "5"

func (g *Gateway) refuseBusy(w http.ResponseWriter, r *http.Request, label, text string) {
	w.Header().Set("Retry-After", retryAfter)
	g.refuseHTTP(w, r, http.StatusServiceUnavailable, label, text)
}

// refuseExhausted refuses a new session because descriptors ran out.
func (g *Gateway) refuseExhausted(w http.ResponseWriter, r *http.Request) {
	g.logExhausted()
	g.refuseBusy(w, r, "descriptors", "no more sessions now")
}

// begin makes a new session: the upstream is dialled before the client is
// answered.
func (g *Gateway) begin(w http.ResponseWriter, r *http.Request, rt *route, offer wire.Offer) {
	arrived := g.clock.Now()
	player, err := authenticate(rt.Policy.Login, r)
	if err != nil {
		reason := login.Reason(err)
		g.metrics.logins.WithLabelValues(reason).Inc()
		w.Header().Set("WWW-Authenticate", login.Challenge(err))
		if offer.Refusals {
			c, _ := closing(http.StatusUnauthorized, "login: "+reason, "")
			g.noteRefused(r, http.StatusUnauthorized, c.Code, "unauthorized", "login", reason)
			g.sayRefusal(w, r, c)
			return
		}
		g.refuseHTTP(w, r, http.StatusUnauthorized, "unauthorized", "this game asks for a login: "+err.Error(), "login", reason)
		return
	}
	e := g.newRecord(rt, r.URL.EscapedPath(), player, offer.Resumable, g.clientAddr(r))
	ctx, cancel := context.WithTimeout(r.Context(), rt.Policy.DialTimeout)
	defer cancel() // a refusal's body is read to its end before
	e.SetFirst(g.upstreamRequest(e, r, offer.Protocols, nil), cancel)
	switch g.admit(ctx, e) {
	case registry.Admitted:
	case registry.Duplicate:
		g.refuseHTTP(w, r, http.StatusConflict, "duplicate", "this player has a session already")
		return
	case registry.TooMany:
		g.refuseBusy(w, r, "max_sessions", "no more sessions now")
		return
	case registry.OutOfDescriptors:
		g.refuseExhausted(w, r)
		return
	case registry.TooManyHere:
		w.Header().Set("Retry-After", retryAfter)
		g.refuseHTTP(w, r, http.StatusTooManyRequests, "max_sessions_per_ip", "no more sessions from this address")
		return
	}
	up, err := g.dials.dialFirst(ctx, e)
	if err != nil {
		g.reg.Remove(e)
		g.refuseUpstream(w, r, e, err)
		return
	}
	g.accept(w, r, e, up, arrived)
}

// admit gives e its place before its upstream is dialled, or says why not.
func (g *Gateway) admit(ctx context.Context, e *registry.Record) registry.Admission {
	for {
		a, holder := g.reg.Add(e)
		switch {
		case a == registry.Admitted:
			g.conns.MakeRoom()
			return a
		case a != registry.Duplicate, g.reg.Answers(ctx, holder):
			return a
		}
		holder.Supersede()
	}
}

// commit makes e the player's session, once its upstream has accepted it, and
// ends those that it takes over. It reports false where a newer one came first.
func (g *Gateway) commit(e *registry.Record) bool {
	older, ok := g.reg.Commit(e)
	for _, o := range older {
		o.Supersede()
	}
	return ok
}

func (g *Gateway) refuseUpstream(w http.ResponseWriter, r *http.Request, e *registry.Record, err error) {
	g.refusals.info("upstream.refused", "session", e.ID, "route", e.Route, "path", requestPath(r), "err", err)
	if listen.NoDescriptor(err) { // that is no fault of the upstream's
		g.refuseExhausted(w, r)
		return
	}
	g.metrics.refused.WithLabelValues("upstream").Inc()
	c := closingUpstream(err)
	if !wire.ParseOffer(r.Header).Refusals {
		c.Code = 0
	}
	g.keepRefusal(r, c.Status, c.Code, "upstream", strings.TrimPrefix(err.Error(), "upstream "), upstreamFault(err))
	if c.Code != 0 && g.sayRefusal(w, r, c) {
		upstream.Discard(err)
		return
	}
	w.Header().Set("Connection", "close")
	answerWithin(w, e.Terms().DialTimeout+upstream.WriteTimeout) // its body may still be coming
	upstream.WriteError(w, err)
}

// newRecord makes the record of a session of rt's. path is percent-encoded. peer is the client's address, zero for
// a session that is made ahead of its client.
func (g *Gateway) newRecord(rt *route, path, player string, resumable bool, peer netip.Addr) *registry.Record {
	s := registry.Spec{ID: newID(), Route: rt.Pattern, Path: path, Player: player, Resumable: resumable, Peer: peer, Target: rt.Upstream, Terms: rt.terms}
	if rt.Policy.Login != nil {
		s.Realm = rt.Policy.Login.Realm()
	}
	return registry.NewRecord(g.clock, s)
}

// beginSession makes e's session, once its upstream has answered. client is the
// connection that it is made for, nil where that is still to come.
func (g *Gateway) beginSession(e *registry.Record, up *upstream.Conn, client net.Conn) *transport.Session {
	return e.Begin(g.driver, g.store, observer{g, e}, up, client)
}

// accept answers the client of a session whose upstream has accepted it.
func (g *Gateway) accept(w http.ResponseWriter, r *http.Request, e *registry.Record, up *upstream.Conn, arrived session.Time) {
	giveUp := func() {
		up.Close()
		g.reg.Remove(e)
	}
	pass, directives := upstream.AnswerHeader(up.Header)
	g.direct(e, directives)
	if !g.commit(e) {
		giveUp()
		g.refuseHTTP(w, r, http.StatusConflict, "duplicate", "this player has begun a newer session")
		return
	}
	p, _, err := g.pass(e, 1, arrived)
	if err != nil {
		giveUp()
		g.log.Error("token.sign_failed", "session", e.ID, "err", err)
		g.refuseHTTP(w, r, http.StatusInternalServerError, "internal_error", "no token could be signed")
		return
	}
	if e.Kept() {
		g.setCookie(r, e, pass, p.Token)
	}
	defer e.Welcome()()
	conn, early, err := g.answer(e, up.Protocol, pass).Switch(w, r)
	if err != nil { // the client has gone: an orphan is of no use to anybody
		giveUp()
		g.log.Info("client.disconnected_early", "session", e.ID, "err", err)
		return
	}
	p.Peer = e.Peer()
	g.beginSession(e, up, conn).AttachFirst(conn, early, p)
	e.Settle()
}

// upstreamRequest is what e's upstream is asked for a handshake of the client's. more
// are headers of ours.
func (g *Gateway) upstreamRequest(e *registry.Record, r *http.Request, protocols []string, more http.Header) upstream.Request {
	own := http.Header{"Reseat-Session": {e.ID}, ViaHeader: g.via(r)}
	if e.Player != "" {
		own["Reseat-Player"] = []string{e.Player}
	}
	for name, values := range more {
		own[name] = values
	}
	path, query := upstream.ClientTarget(r)
	ask := upstream.Request{
		Path: path, RawQuery: query, Host: r.Host, Protocols: protocols,
		Header: upstream.RequestHeader(r.Header, upstream.NewPeer(r, g.cfg.TrustedProxies), g.cfg.TrustedHeaders, own),
	}
	e.Terms().Conceal(&ask)
	return ask
}

// direct takes over what the upstream asked for in its answer, docs/sessions.md.
// What cannot be read is said in the log and left aside.
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
	t.Group = clip(d.Group)
	e.SetTerms(&t)
}

// clientAddr is the client's address as believed.
func (g *Gateway) clientAddr(r *http.Request) netip.Addr {
	return upstream.ClientAddr(upstream.NewPeer(r, g.cfg.TrustedProxies), r.Header, g.cfg.TrustedProxies)
}

// clip bounds what a stranger can put into a log line.
func clip(s string) string { return frame.Clip(s, 200) }
