package server

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
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

// unreachableText says what follows from a game server that cannot be reached.
const unreachableText = "its players get 502 until it accepts connections: start it, or correct --upstream or --route"

// logUnreachable logs which game servers are unreachable at the start, and when each is
// reachable, until ctx is done. That is no reason not to serve: they may start later.
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
				log.Info("upstream.reachable", "upstream", shown(&route.Upstream), "text", "it accepts connections now")
			}
			return
		case !said:
			said = true
			log.Warn("upstream.unreachable", "upstream", shown(&route.Upstream), "err", err,
				"text", unreachableText+"; upstream.reachable follows")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, maxProbeAgain)
	}
}

// distinct returns one route for each game server.
func distinct(routes []policy.Route) (list []policy.Route) {
	type place struct {
		url string
		ca  *x509.CertPool
	}
	seen := map[place]bool{}
	for _, route := range routes {
		p := place{shown(&route.Upstream), route.Upstream.RootCAs}
		if !seen[p] {
			seen[p] = true
			list = append(list, route)
		}
	}
	return list
}

// shown returns a target's URL without its path. It adds an omitted port, which is more often
// forgotten than intended.
func shown(t *upstream.Target) string {
	s := t.URL.Scheme + "://" + t.URL.Host
	if _, port, err := net.SplitHostPort(t.Address()); err == nil && t.URL.Port() == "" {
		s += " (port " + port + ")"
	}
	return s
}

// A probed is a game server, and its error.
type probed struct {
	url string // without the path
	err error
}

// probeAll connects to each game server once, concurrently, with TLS if its URL says so.
// It sends no handshake: to a game server that would be a player.
func probeAll(ctx context.Context, routes []policy.Route) []probed {
	targets := distinct(routes)
	list := make([]probed, len(targets))
	var probes sync.WaitGroup
	for i, t := range targets {
		probes.Go(func() { list[i] = probed{shown(&t.Upstream), probe(ctx, &t)} })
	}
	probes.Wait()
	return list
}

func probe(ctx context.Context, route *policy.Route) error {
	ctx, cancel := context.WithTimeout(ctx, route.Policy.DialTimeout)
	defer cancel()
	err := route.Upstream.Probe(ctx)
	if e := (*upstream.Error)(nil); errors.As(err, &e) {
		return e.Err // the caller prints the address
	}
	return err
}
