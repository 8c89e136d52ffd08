package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"reseat/gateway/control"
	"reseat/gateway/frame"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/listen"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/upstream"
)

// A CreateRequest asks for a session ahead of its client.
type CreateRequest struct {
	Path         string   // with the query, as a client would request it
	Upstream     string   // instead of the route's, within Config.UpstreamAllow; "": the route's
	Subprotocols []string // offered to the upstream
	Player       string   // who may resume it; "": anyone with its token
	Group        string
	Data         []byte         // nil: none
	Grace        *time.Duration // nil: the route's
}

// Errors of Create for a faulty or refused CreateRequest. Other errors are those of the dial.
var (
	ErrBadRequest = errors.New("bad request")
	ErrNotAllowed = errors.New("upstream not allowed; see --upstream-allow")
	ErrNoRoute    = errors.New("nothing is served at this path")
	ErrBusy       = errors.New("no new sessions now")
	ErrDuplicate  = errors.New("this player has a session already")
)

// MaxData is the maximum size of the data that a game server keeps with a session, in bytes.
const MaxData = 64 << 10

// Create makes a session ahead of its client: it dials the upstream, and the grace
// period runs until a client resumes with the token.
func (g *Gateway) Create(ctx context.Context, v *gate.Visit, w CreateRequest) (id, token string, err error) {
	ask, rt, err := g.plan(w)
	if err != nil {
		return "", "", err
	}
	switch {
	case g.draining.Load():
		return "", "", fmt.Errorf("%w: draining", ErrBusy)
	case g.memory.low():
		return "", "", fmt.Errorf("%w: no memory", ErrBusy)
	}
	e := g.newRecord(rt, ask.Path, w.Player, true, netip.Addr{})
	e.Durable = g.owner.Durable(rt)
	if w.Data != nil {
		e.SetData(w.Data, g.reg.NextTag(), nil)
	}
	ask.Header.Set("Reseat-Session", e.ID)
	if w.Player != "" {
		ask.Header["Reseat-Player"] = []string{w.Player}
	}
	ctx, cancel := context.WithTimeout(ctx, rt.Policy.DialTimeout)
	defer cancel()
	e.SetFirst(ask, cancel)
	switch g.admit(ctx, v, e) {
	case registry.Admitted:
	case registry.Duplicate:
		return "", "", ErrDuplicate
	case registry.TooManySessions:
		return "", "", fmt.Errorf("%w: --max-sessions reached", ErrBusy)
	default:
		return "", "", fmt.Errorf("%w: no descriptors left but the reserve", ErrBusy)
	}
	up, err := g.dialer.First(ctx, v, e)
	if err != nil {
		g.reg.Remove(e)
		if listen.NoDescriptor(err) {
			err = fmt.Errorf("%w: no descriptors left", ErrBusy)
		}
		return "", "", err
	}
	return g.reserve(ctx, v, e, up, w)
}

// reserve starts e's session, which waits for its client.
func (g *Gateway) reserve(ctx context.Context, v *gate.Visit, e *registry.Record, up *upstream.Conn, w CreateRequest) (id, token string, err error) {
	_, directives := upstream.AnswerHeader(up.Header)
	g.direct(e, directives)
	t := *e.Terms()
	control.Change{Grace: w.Grace, Group: groupChange(w.Group)}.Apply(&t)
	e.SetTerms(&t)
	if t.Session().GraceBeforeStart == 0 {
		g.giveUp(e, up)
		return "", "", fmt.Errorf("%w: grace: without a grace period the session would end before its client connects", ErrBadRequest)
	}
	if !g.commit(e) {
		g.giveUp(e, up)
		return "", "", ErrDuplicate
	}
	if !g.owner.HoldPlayer(ctx, v, e) {
		g.dismiss(e, up)
		return "", "", ErrDuplicate
	}
	p, _, err := g.issuer.pass(e, 1, 0)
	if err != nil {
		g.giveUp(e, up)
		return "", "", fmt.Errorf("sign a token: %w", err)
	}
	p.Peer = e.Peer()
	g.beginSession(e, up, nil)
	g.owner.Settle(ctx, v, e)
	e.Do(func(core *session.Session, now session.Time) { core.Reserve(now, p) })
	e.RunQueued()
	return e.ID, p.Token, nil
}

// groupChange returns the Change.Group for s, nil if it is empty.
func groupChange(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// plan validates w and returns the request for its upstream, and the route.
func (g *Gateway) plan(w CreateRequest) (upstream.Request, *front.Route, error) {
	u, err := url.ParseRequestURI(w.Path)
	switch {
	case err != nil || !strings.HasPrefix(w.Path, "/"):
		return upstream.Request{}, nil, fmt.Errorf("%w: path: want one such as /match/7, got %q", ErrBadRequest, front.Clip(w.Path))
	case len(w.Data) > MaxData:
		return upstream.Request{}, nil, fmt.Errorf("%w: data: want at most %d bytes, got %d", ErrBadRequest, MaxData, len(w.Data))
	}
	rt, path, err := g.table.Match(u.EscapedPath())
	switch {
	case err != nil:
		return upstream.Request{}, nil, fmt.Errorf("%w: path: it is ambiguous: %w", ErrBadRequest, err)
	case rt == nil:
		return upstream.Request{}, nil, ErrNoRoute
	}
	if w.Upstream != "" {
		if rt, err = g.withUpstream(rt, w.Upstream); err != nil {
			return upstream.Request{}, nil, err
		}
	}
	return upstream.Request{
		Path: path.Escaped, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery, Host: rt.Upstream.URL.Host,
		Protocols: w.Subprotocols, Header: http.Header{front.ViaHeader: {g.id}},
	}, rt, nil
}

// withUpstream returns rt with another upstream, if --upstream-allow permits it.
func (g *Gateway) withUpstream(rt *front.Route, raw string) (*front.Route, error) {
	u, err := upstream.ParseTarget(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: upstream: %w", ErrBadRequest, err)
	}
	if !g.allowed(u) {
		return nil, fmt.Errorf("%w: %q", ErrNotAllowed, frame.Clip(u.Host, 100))
	}
	other := *rt
	other.Upstream.URL = u
	return &other, nil
}

// allowed reports whether an upstream is one of Config.UpstreamAllow.
func (g *Gateway) allowed(u *url.URL) bool {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"ws": "80", "http": "80", "wss": "443", "https": "443"}[u.Scheme]
	}
	for _, pattern := range g.cfg.UpstreamAllow {
		h, p, err := net.SplitHostPort(pattern)
		if err == nil && hostMatches(strings.ToLower(h), host) && (p == "*" || p == port) {
			return true
		}
	}
	return false
}

// hostMatches reports whether host matches pattern. A * in the pattern does not match
// dots, except that the pattern * matches any host.
func hostMatches(pattern, host string) bool {
	if pattern == "*" {
		return true
	}
	ok, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(host, ".", "/"))
	return err == nil && ok
}
