package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"reseat/gateway"
	"reseat/gateway/config"
	"reseat/upstream"
)

// tries removes --try PATH, a flag of check only, from its arguments.
func tries(args []string) (paths, rest []string, err error) {
	for i := 0; i < len(args); i++ {
		value, inline := strings.CutPrefix(args[i], "--try=")
		switch {
		case inline:
		case args[i] != "--try":
			rest = append(rest, args[i])
			continue
		case i+1 == len(args) || strings.HasPrefix(args[i+1], "--"):
			return nil, nil, errors.New("--try: want a path such as /match/7, got none")
		default:
			i++
			value = args[i]
		}
		if !strings.HasPrefix(value, "/") {
			return nil, nil, fmt.Errorf("--try: want a path such as /match/7, got %.100q", value)
		}
		paths = append(paths, value)
	}
	return paths, rest, nil
}

// try reports the route of a path, and makes one real handshake with its game server, as a
// player without a login would.
func (r *report) try(ctx context.Context, set *config.Settings, target string) {
	what := fmt.Sprintf("--try %.200q", target)
	path, query, found := strings.Cut(target, "?")
	route, normal, err := gateway.Locate(&set.Gateway, path)
	switch {
	case err != nil:
		r.say(what, "", 1, fmt.Errorf("clients get 400: the path is ambiguous: %w", err))
		return
	case route == nil && set.Demo:
		r.say(what, "the demo", 0, nil)
		return
	case route == nil:
		r.say(what, "", 1, fmt.Errorf("clients get 404: no route matches %s", normal))
		return
	}
	r.say(what, fmt.Sprintf("route %s, sent on as %s", route.Pattern, normal), 0, nil)
	ctx, cancel := context.WithTimeout(ctx, route.Policy.DialTimeout)
	defer cancel()
	host := ""
	if len(set.Gateway.Hosts) > 0 && !strings.Contains(set.Gateway.Hosts[0], "*") {
		host = set.Gateway.Hosts[0]
	}
	conn, err := route.Upstream.Dial(ctx, upstream.Request{Path: normal, RawQuery: query, ForceQuery: found, Host: host, Header: http.Header{}})
	var refused *upstream.Refusal
	switch {
	case errors.As(err, &refused):
		defer refused.Body.Close()
		r.say(what, "", 1, fmt.Errorf("the game server answered the handshake with %d %s", refused.Status, http.StatusText(refused.Status)))
		return
	case err != nil:
		r.say(what, "", 1, err)
		return
	}
	conn.Close()
	note := "the game server answered 101"
	if conn.Protocol != "" {
		note += ", subprotocol " + conn.Protocol
	}
	r.say(what, note, 0, nil)
}
