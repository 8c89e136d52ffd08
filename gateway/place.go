package gateway

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"reseat/upstream"
)

// errTwoRoutes refuses a path that means one route to a game server that knows
// parameters of path segments ("/ranked;v=1/7"), and another to one that does not.
var errTwoRoutes = errors.New("parameters (;) that may change which route it matches")

// locate finds the route of a request's path, nil for none, and gives the request
// the normal form of that path: what routes match is what goes on. A route is policy
// (who may connect, and with which login), so a path that could be read as another
// route's has none, and an error says why.
func (g *Gateway) locate(r *http.Request) (*http.Request, *route, error) {
	raw, query := upstream.ClientTarget(r)
	rt, path, err := g.match(raw)
	if err != nil {
		return r, nil, err
	}
	normal := new(http.Request)
	*normal = *r
	normal.URL = &url.URL{Path: path.Decoded, RawPath: path.Escaped, RawQuery: query}
	normal.RequestURI = path.Escaped
	if query != "" {
		normal.RequestURI += "?" + query
	}
	return normal, rt, nil
}

// match is the route of a path, nil for none, and the path's normal form.
func (g *Gateway) match(raw string) (*route, upstream.Path, error) {
	path, err := upstream.NormalPath(raw, g.cfg.UnsafePaths)
	if err != nil {
		return nil, path, err
	}
	rt := g.routeOf(path.Decoded)
	if bare, other := path.WithoutParams(); other && !g.cfg.UnsafePaths && g.routeOf(bare) != rt {
		return nil, path, errTwoRoutes
	}
	return rt, path, nil
}

// routeOf is the route whose pattern a decoded path matches, nil for none.
func (g *Gateway) routeOf(path string) *route {
	ctx := chi.NewRouteContext()
	if !g.mux.Match(ctx, http.MethodGet, path) {
		return nil
	}
	return g.routes[ctx.RoutePattern()]
}

// unsafePath is what a client is told whose path was refused.
func unsafePath(err error) string { return "this path is ambiguous: " + err.Error() }
