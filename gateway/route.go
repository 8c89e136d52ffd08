package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/upstream"
)

// errTwoRoutes refuses a path that matches one route for a game server that knows
// parameters of path segments ("/ranked;v=1/7"), and another route for one that does not.
var errTwoRoutes = errors.New("parameters (;) that may change which route it matches")

// A table finds the route of a path.
type table struct {
	mux       *chi.Mux          // matches paths to patterns
	byPattern map[string]*route // by pattern
}

func newTable() *table {
	return &table{mux: chi.NewMux(), byPattern: make(map[string]*route)}
}

// add adds a route. It fails if chi refuses the pattern, or if another route has the same
// one.
func (t *table) add(rt *route) (err error) {
	defer func() {
		if v := recover(); v != nil { // chi has no other way to refuse a pattern
			err = fmt.Errorf("route %q: %v", rt.Pattern, v)
		}
	}()
	if t.byPattern[rt.Pattern] != nil {
		return fmt.Errorf("route %q: given twice", rt.Pattern)
	}
	t.mux.Handle(rt.Pattern, http.NotFoundHandler()) // only matches, serves nothing
	t.byPattern[rt.Pattern] = rt
	return nil
}

// Locate returns the route of c that a path matches, nil if none does, and the path's
// normal form. The error says why a path is ambiguous; its clients get 400.
func Locate(c *Config, path string) (*policy.Route, string, error) {
	t := newTable()
	for _, r := range c.Routes {
		if err := t.add(&route{Route: r}); err != nil {
			return nil, "", err
		}
	}
	rt, normal, err := t.match(path)
	if rt == nil || err != nil {
		return nil, normal.Escaped, err
	}
	return &rt.Route, normal.Escaped, nil
}

// match returns the route of a path, nil if none matches, and the path's normal form.
func (t *table) match(raw string) (*route, upstream.Path, error) {
	path, err := upstream.NormalPath(raw)
	if err != nil {
		return nil, path, err
	}
	rt := t.routeOf(path.Decoded)
	if bare, other := path.WithoutParams(); other && t.routeOf(bare) != rt {
		return nil, path, errTwoRoutes
	}
	return rt, path, nil
}

// routeOf returns the route whose pattern a decoded path matches, nil if none does.
func (t *table) routeOf(path string) *route {
	ctx := routeContexts.Get().(*chi.Context)
	defer routeContexts.Put(ctx)
	ctx.Reset()
	if !t.mux.Match(ctx, http.MethodGet, path) {
		return nil
	}
	return t.byPattern[ctx.RoutePattern()]
}

// routeContexts are for routeOf.
var routeContexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// unsafePath is the message for a client whose path was refused.
func unsafePath(err error) string { return "this path is ambiguous: " + err.Error() }

// routeCounts are what is counted for one route.
type routeCounts struct {
	created, detached, resumed, refused, ended atomic.Uint64

	keepalive atomic.Pointer[string] // RouteFigures.Keepalive; nil: none was noticed
}

// A route is a policy.Route that is ready to serve.
type route struct {
	policy.Route
	terms  *registry.Terms // of new sessions
	proxy  *upstream.Proxy // nil if ordinary requests are off
	counts *routeCounts
}
