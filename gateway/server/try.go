package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"reseat/gateway"
	"reseat/gateway/config"
	"reseat/gateway/registry"
	"reseat/upstream"
)

// A question is a flag of check only, which may come several times.
type question struct {
	flag, want string
	valid      func(value string) bool
}

var (
	tried = question{"--try", "a path such as /match/7", func(v string) bool { return strings.HasPrefix(v, "/") }}
	asked = question{"--session", "the id of a session", func(v string) bool { return v != "" && !strings.ContainsAny(v, "/?#") }}
)

// take removes the values of q from args.
func (q question) take(args []string) (values, rest []string, err error) {
	for i := 0; i < len(args); i++ {
		value, inline := strings.CutPrefix(args[i], q.flag+"=")
		switch {
		case inline:
		case args[i] != q.flag:
			rest = append(rest, args[i])
			continue
		case i+1 == len(args) || strings.HasPrefix(args[i+1], "--"):
			return nil, nil, fmt.Errorf("%s: want %s, got none", q.flag, q.want)
		default:
			i++
			value = args[i]
		}
		if !q.valid(value) {
			return nil, nil, fmt.Errorf("%s: want %s, got %.100q", q.flag, q.want, value)
		}
		values = append(values, value)
	}
	return values, rest, nil
}

// session reports what the gateway at --admin knows of a session.
func (r *report) session(ctx context.Context, set *config.Settings, id string) {
	what := "--session " + id
	var s registry.Snapshot
	if json.Unmarshal(askAdmin(ctx, set, "/api/v1/sessions/"+url.PathEscape(id)), &s) != nil || s.ID == "" {
		r.say(what, "", 1, fmt.Errorf("no gateway at --admin %s says what it is: has it ended, or does the gateway ask for a token?", set.Admin))
		return
	}
	note := fmt.Sprintf("%s on route %s, grace %s; %s in the replay buffer, %d dropped, %d skipped", s.State, s.Route, s.Grace, plural(s.BufferMessages, "message"), s.Dropped, s.Skipped)
	r.say(what, note, 0, nil)
	if s.NewestHint != "" {
		r.warn(what, "most of what waited for its client looks like states. If only the newest of each counts, set "+s.NewestHint)
	}
	if s.Keepalive != "" {
		r.warn(what, "its client sends the same at a steady pace. If the game server waits for that, set "+s.Keepalive)
	}
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
