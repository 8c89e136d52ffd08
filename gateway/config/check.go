package config

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"reseat/gateway/policy"
)

// check checks the settings against each other, and completes the gateway's
// configuration with the routes.
func (d *draft) check() error {
	for _, rule := range []func(*draft) error{
		(*draft).checkGame,
		(*draft).checkNeeds,
		(*draft).checkDev,
		(*draft).checkListeners,
		(*draft).checkTLS,
		(*draft).checkCluster,
		(*draft).buildRoutes,
		(*draft).checkAuth,
		(*draft).checkUpstreams,
	} {
		if err := rule(d); err != nil {
			return err
		}
	}
	return nil
}

// checkGame requires something to serve, and at most one upstream for all paths.
func (d *draft) checkGame() error {
	switch {
	case d.upstream != nil && d.Demo:
		return d.fault("upstream", "want it or --demo, got both")
	case d.upstream == nil && len(d.routes)+len(d.tables) == 0 && !d.Demo:
		return &UsageError{"--upstream, --route, --demo", errors.New("want at least one of them, got none")}
	}
	return nil
}

// checkNeeds refuses a setting without the other one that it needs: half a certificate, or posts of
// events without a signature, which anyone could forge.
func (d *draft) checkNeeds() error {
	for i := range table {
		if f := &table[i]; f.needs != "" && d.given[f.name] && !d.given[f.needs] {
			return d.fault(f.name, "requires --%s", f.needs)
		}
	}
	return nil
}

// devListen is the default of --listen with --dev.
const devListen = "127.0.0.1:8080"

// checkDev refuses --dev with what looks like production: it lets players cut connections. A foreign page
// whose name was made to resolve to this machine (DNS rebinding) sees nothing of the game.
func (d *draft) checkDev() error {
	if d.Dev && !d.given["listen"] {
		d.Listen = devListen
	}
	if d.Dev && isLoopback(d.Listen) && len(d.Gateway.Hosts) == 0 {
		host, _, _ := net.SplitHostPort(d.Listen)
		d.Gateway.Hosts = []string{"localhost", "127.0.0.1", "[::1]", host}
	}
	switch {
	case !d.Dev && d.DevTokenFile != "":
		return d.fault("dev-token-file", "requires --dev")
	case d.Dev && len(d.TLS.Domains) > 0:
		return d.fault("acme-domain", "want it or --dev, got both: --dev is not for production")
	case d.Dev && !isLoopback(d.Listen) && d.DevTokenFile == "":
		return d.fault("dev", "want a loopback --listen such as %s, or --dev-token-file, got --listen %q: others could reach it", devListen, d.Listen)
	}
	return nil
}

func (d *draft) checkListeners() error {
	if d.Admin != "" && sameListener(d.Listen, d.Admin) {
		return d.fault("admin", "want another port than --listen %q, got %q", d.Listen, d.Admin)
	}
	return d.checkAdmin()
}

// checkAdmin requires a loopback admin address unless it asks for tokens: docs/flags.md,
// --admin-token-file.
func (d *draft) checkAdmin() error {
	if d.Admin != "" && !isLoopback(d.Admin) && d.AdminTokenFile == "" && d.ViewerTokenFile == "" {
		return d.fault("admin", "%w: other machines can reach that address without a token; see --admin-token-file",
			want("a loopback address such as 127.0.0.1:8081, or off", d.Admin))
	}
	return nil
}

// checkTLS requires one source of certificates.
func (d *draft) checkTLS() error {
	if d.TLS.CertFile != "" && len(d.TLS.Domains) > 0 {
		return d.fault("acme-domain", "want it or --tls-cert, got both")
	}
	return nil
}

// aboutLogins are the settings that have no effect without login keys.
var aboutLogins = []string{"auth-from", "auth-issuer", "auth-audience", "auth-forward"}

// errNoLogin refuses one of them: an operator who sets it believes that players need a
// login.
var errNoLogin = errors.New("requires --auth-jwks or --auth-key-file")

// errNoCluster refuses --durable where there is no other node.
var errNoCluster = errors.New("requires --cluster: another node goes on with the sessions of one that is lost")

// checkAuth requires keys if other login settings are present. The demo's page has no
// login, so keys would have no effect on it.
func (d *draft) checkAuth() error {
	for _, flag := range []string{"auth-jwks", "auth-key-file"} {
		if d.given[flag] && d.Demo {
			return d.fault(flag, "requires --upstream, or set it for a single route; --demo has no logins")
		}
	}
	if slices.ContainsFunc(d.Gateway.Routes, func(r policy.Route) bool { return r.Policy.Auth != nil }) {
		return nil
	}
	for _, flag := range aboutLogins {
		if d.given[flag] {
			return d.fault(flag, "%w", errNoLogin)
		}
	}
	return nil
}

// checkUpstreams keeps clients from an admin address without tokens: a route to it would
// give all of them access.
func (d *draft) checkUpstreams() error {
	for i := range d.Gateway.Routes {
		r := &d.Gateway.Routes[i]
		if d.Admin != "" && reaches(d.Admin, &r.Upstream) {
			return d.fault("admin", "want an address of its own, but route %s leads to it (%s): use the game server's port", quote(r.Pattern), r.Upstream.URL.Host)
		}
	}
	return nil
}

// buildRoutes builds the gateway's routes, --upstream first.
func (d *draft) buildRoutes() error {
	if d.given["auth-jwks"] && d.given["auth-key-file"] {
		return d.fault("auth-jwks", "want it or --auth-key-file, got both")
	}
	if d.defaults.Durable && !d.Cluster.Enabled() {
		return d.fault("durable", "%w", errNoCluster)
	}
	d.Gateway.Default = d.defaults.Policy
	paths, err := d.ownPaths()
	if err != nil {
		return err
	}
	if d.upstream != nil {
		err := d.addRoute(paths, route{pattern: anyPath, upstream: d.upstream, label: d.from["upstream"]})
		if err != nil {
			return err
		}
	}
	asked, err := d.requestedRoutes()
	if err != nil {
		return err
	}
	for _, r := range asked {
		if err := d.addRoute(paths, r); err != nil {
			return err
		}
	}
	return nil
}

// requestedRoutes returns the routes of --route, or of the config file.
func (d *draft) requestedRoutes() ([]route, error) {
	if d.tables != nil {
		return d.tables, nil
	}
	var list []route
	for _, raw := range d.routes {
		r, err := parseRoute(raw)
		label := d.from["route"]
		if r.pattern != "" {
			label += " " + quote(r.pattern)
		}
		if err != nil {
			return nil, &UsageError{label, err}
		}
		r.label = label
		list = append(list, r)
	}
	return list, nil
}

// ownPaths returns the paths that the gateway itself serves at the client address
// (docs/control-api.md). They take precedence over all routes.
func (d *draft) ownPaths() (*patterns, error) {
	paths := newPatterns()
	own := map[string]string{}
	for _, p := range []string{"/reseat.js", "/reseat.page.js", "/reseat.install.js"} {
		own[p], own[p+".map"] = "the browser client", "the browser client"
	}
	if d.Dev || d.Demo {
		for _, p := range []string{"/reseat.dev.js", "/reseat.dev.js.map", "/reseat.dev/faults", "/reseat.dev/session"} {
			own[p] = "the panel"
		}
	}
	if d.Demo {
		own["/"], own[anyPath] = "--demo", "--demo"
	}
	for pattern, owner := range own {
		if err := paths.add(pattern, owner); err != nil {
			return nil, &UsageError{owner, err}
		}
	}
	return paths, nil
}

// addRoute completes a route and takes its paths.
func (d *draft) addRoute(paths *patterns, r route) error {
	if err := paths.add(r.pattern, r.label); err != nil {
		return &UsageError{r.label, err}
	}
	built, err := r.build(d.defaults)
	if err != nil {
		return err
	}
	if built.Policy.Durable && !d.Cluster.Enabled() {
		return &UsageError{r.label, fmt.Errorf("durable: %w", errNoCluster)}
	}
	d.Gateway.Routes = append(d.Gateway.Routes, built)
	return nil
}

// fault returns a UsageError for a flag, named as it was given.
func (d *draft) fault(flag, format string, args ...any) error {
	return &UsageError{d.from[flag], fmt.Errorf(format, args...)}
}
