package server

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"time"

	"reseat/gateway/policy"
	"reseat/upstream"
)

// Probes of a game server that could not be reached at the start come at growing
// intervals.
const (
	probeAgain    = time.Second
	maxProbeAgain = 30 * time.Second
)

// logUnreachable says once which game servers cannot be reached at the start, and once for
// each of them when it can, until ctx is done. It is no reason not to serve: they may come
// later.
func logUnreachable(ctx context.Context, log *slog.Logger, routes []policy.Route) {
	var probes sync.WaitGroup
	for _, route := range distinct(routes) {
		probes.Go(func() { logUntilReachable(ctx, log, &route) })
	}
	probes.Wait()
}

func logUntilReachable(ctx context.Context, log *slog.Logger, route *policy.Route) {
	said, wait := false, probeAgain
	for {
		err := probe(ctx, route)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if said {
				log.Info("upstream.reachable", "upstream", probedURL(route), "text", "it accepts connections now")
			}
			return
		case !said:
			said = true
			log.Warn("upstream.unreachable", "upstream", probedURL(route), "err", err,
				"text", "its players get 502 until it accepts connections: start it, or correct --upstream or --route; upstream.reachable follows")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, maxProbeAgain)
	}
}

// distinct is one route for each game server.
func distinct(routes []policy.Route) (list []policy.Route) {
	type place struct {
		url string
		ca  *x509.CertPool
	}
	seen := map[place]bool{}
	for _, route := range routes {
		p := place{probedURL(&route), route.Upstream.RootCAs}
		if !seen[p] {
			seen[p] = true
			list = append(list, route)
		}
	}
	return list
}

// probedURL is the URL of a route's game server, without the path.
func probedURL(route *policy.Route) string {
	return route.Upstream.URL.Scheme + "://" + route.Upstream.URL.Host
}

// A probed is a game server, and what is wrong with it.
type probed struct {
	url string // without the path
	err error
}

// probeAll connects to each game server once, all at the same time, with TLS
// where it is asked for. No handshake is sent: to a game server that would be a
// player.
func probeAll(ctx context.Context, routes []policy.Route) []probed {
	targets := distinct(routes)
	list := make([]probed, len(targets))
	var probes sync.WaitGroup
	for i, t := range targets {
		probes.Go(func() { list[i] = probed{probedURL(&t), probe(ctx, &t)} })
	}
	probes.Wait()
	return list
}

func probe(ctx context.Context, route *policy.Route) error {
	ctx, cancel := context.WithTimeout(ctx, route.Policy.DialTimeout)
	defer cancel()
	err := route.Upstream.Probe(ctx)
	if e := (*upstream.Error)(nil); errors.As(err, &e) {
		return e.Err // the address is said already
	}
	return err
}
