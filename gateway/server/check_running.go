package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"reseat/gateway/config"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/watch"
)

const (
	askTime   = time.Second
	maxAnswer = 1 << 20
)

// running asks the gateway that serves at --admin what it has noticed of its clients: check sees none. It sends no token,
// since nobody knows who listens there.
func (r *report) running(ctx context.Context, set *config.Settings) {
	host, port, err := net.SplitHostPort(set.Admin)
	if err != nil || port == "0" {
		return
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	noticed, addr := make(map[string]string), net.JoinHostPort(host, port)
	for _, f := range routesAt(ctx, addr) {
		noticed[f.Pattern] = f.Keepalive
	}
	for _, route := range set.Gateway.Routes {
		p := &route.Policy
		flag := noticed[route.Pattern]
		set := slices.ContainsFunc(p.Keepalives, func(k session.Keepalive) bool { return registry.KeepaliveFlag(k) == flag })
		if flag != "" && !set && p.Keepalive == session.KeepaliveHint && !p.Hard {
			r.warn("--keepalive-send", fmt.Sprintf("route %s: clients of the gateway at --admin %s send the same at a steady pace. A game server that waits for it closes the connection of a client who is away: set %s, or --keepalive-send auto", route.Pattern, addr, flag))
		}
	}
}

// routesAt returns what the gateway with that admin address says of its routes, nil if none answers.
func routesAt(ctx context.Context, addr string) []watch.RouteFigures {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/api/v1/overview?limit=0&node=self", nil)
	if err != nil {
		return nil
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(ask)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	var found struct{ Routes []watch.RouteFigures }
	if answer.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&found) != nil {
		return nil
	}
	return found.Routes
}
