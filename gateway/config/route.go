package config

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"reseat/gateway/policy"
	"reseat/upstream"
)

// A route is a requested route with unparsed settings. What it does not set comes from
// the global flags, once all of those are known.
type route struct {
	pattern  string
	upstream *url.URL
	settings map[string][]string
	label    string // names the route in errors
}

// anyPath is the pattern of --upstream.
const anyPath = "/*"

// parseRoute parses PATTERN=URL[;NAME=VALUE]... A = inside the braces of a pattern's
// parameter belongs to the parameter. With an error it returns as much of the route as it
// understood, so that the error can name it.
func parseRoute(s string) (route, error) {
	head, tail, more := strings.Cut(s, ";")
	i := assignment(head)
	if i < 0 || !strings.HasPrefix(head, "/") {
		return route{}, want(`PATTERN=URL such as "/match/*=ws://game:9000;grace=5m"`, s)
	}
	r := route{pattern: head[:i], settings: map[string][]string{}}
	var err error
	if r.upstream, err = upstream.ParseTarget(head[i+1:]); err != nil {
		return r, err
	}
	for more {
		var item string
		item, tail, more = strings.Cut(tail, ";")
		name, value, ok := strings.Cut(strings.TrimLeft(item, " "), "=")
		if !ok {
			return r, want("NAME=VALUE after each semicolon", item)
		}
		if err := r.add(name, value); err != nil {
			return r, err
		}
	}
	return r, nil
}

// assignment returns the index of the first = outside of braces, or -1.
func assignment(s string) int {
	depth := 0
	for i, c := range s {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == '=' && depth == 0:
			return i
		}
	}
	return -1
}

// add records a setting, if a route can have it.
func (r *route) add(name, value string) error {
	f, err := routeFlag(name)
	switch {
	case err != nil:
		return err
	case !f.repeat && r.settings[name] != nil:
		return fmt.Errorf("%s: given twice", name)
	}
	r.settings[name] = append(r.settings[name], value)
	return nil
}

var errGlobal = errors.New("is a global setting and cannot be set for a route")

// routeFlag returns the flag of a route's setting.
func routeFlag(name string) (*flag, error) {
	f := lookup(name)
	switch {
	case f == nil:
		return nil, fmt.Errorf("%s: %w", printable(name), unknown(name, "setting", plainName, (*flag).perRoute))
	case !f.perRoute():
		return nil, fmt.Errorf("%s: %w", name, errGlobal)
	}
	return f, nil
}

// fault returns a UsageError for one of the route's settings.
func (r *route) fault(setting string, err error) error {
	return &UsageError{r.label, fmt.Errorf("%s: %w", setting, err)}
}

// build makes the route, with defaults for settings that it does not have.
func (r *route) build(defaults local) (policy.Route, error) {
	own := defaults
	for i := range table {
		f := &table[i]
		values, ok := r.settings[f.name]
		if !ok {
			continue
		}
		if f.off != nil && len(values) == 1 && values[0] == "" {
			f.off(&own)
			continue
		}
		if err := f.setLocal(&own, values); err != nil {
			return policy.Route{}, r.fault(f.name, err)
		}
	}
	if err := r.chooseAuth(&own); err != nil {
		return policy.Route{}, err
	}
	return policy.Route{
		Pattern:  r.pattern,
		Upstream: upstream.Target{URL: r.upstream, HostPolicy: own.host, RootCAs: own.ca},
		Policy:   own.Policy,
	}, nil
}

// chooseAuth sets how the route's logins are verified. The route's own settings replace
// the global ones.
func (r *route) chooseAuth(own *local) error {
	jwks, keyFile := r.settings["auth-jwks"] != nil, r.settings["auth-key-file"] != nil
	switch {
	case jwks && !keyFile:
		own.auth.KeyFile = ""
	case keyFile && !jwks:
		own.auth.JWKS = ""
	}
	switch a := own.auth; {
	case a.JWKS != "" && a.KeyFile != "":
		return r.fault("auth-jwks", errors.New("want it or auth-key-file, got both"))
	case a.JWKS != "" || a.KeyFile != "":
		own.Auth = &a
		return nil
	}
	for _, setting := range aboutLogins {
		if r.settings[setting] != nil {
			return r.fault(setting, errNoLogin)
		}
	}
	return nil
}

// patterns are the paths that are taken, and by which setting, by chi's own rules.
type patterns struct {
	mux   *chi.Mux
	owner map[string]string
}

func newPatterns() *patterns { return &patterns{chi.NewMux(), map[string]string{}} }

// add takes the paths of pattern for owner. It refuses patterns that chi refuses, and
// patterns that mean the same to chi as an earlier one: with /room/{id} and /room/{name}
// the later would silently replace the earlier.
func (p *patterns) add(pattern, owner string) (err error) {
	switch {
	case strings.ContainsAny(pattern, " \t"):
		return errors.New("want a pattern without blanks")
	case strings.ContainsAny(pattern, "%\\;") || strings.Contains(pattern, "//") || strings.Contains(pattern+"/", "/./") || strings.Contains(pattern+"/", "/../"):
		return errors.New("want a pattern in decoded, clean form: without %, \\, ;, // and dot segments")
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("want a pattern such as /match/* or /room/{id}: %s", printable(fmt.Sprint(r)))
		}
	}()
	if who, ok := p.owner[pattern]; ok {
		return taken(who)
	}
	p.mux.Handle(pattern, http.NotFoundHandler())
	left := map[string]bool{}
	for _, r := range p.mux.Routes() {
		left[r.Pattern] = true
	}
	for earlier, who := range p.owner {
		if !left[earlier] {
			return taken(who)
		}
	}
	p.owner[pattern] = owner
	return nil
}

func taken(who string) error {
	return fmt.Errorf("want a distinct pattern, but %s matches the same paths", who)
}
