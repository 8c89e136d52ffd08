// Package demo adds what --demo needs to a gateway: the embedded game server, the page,
// and real disconnects of a player's own network connection.
package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"reseat/gateway"
	"reseat/gateway/policy"
	"reseat/upstream"
	"reseat/upstream/demo"
	"reseat/web"
)

const everyPath = "/*"

// A Showcase is the running game server.
type Showcase struct {
	game    *demo.Server
	server  http.Server
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Start starts the game server on a free loopback port, and adds its route to cfg.
func Start(cfg *gateway.Config) (*Showcase, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the demo's game server: %w", err)
	}
	game := demo.NewServer(demo.Config{})
	ctx, stop := context.WithCancel(context.Background())
	s := &Showcase{game: game, server: http.Server{Handler: game, ReadHeaderTimeout: 5 * time.Second}, stop: stop}
	s.running.Go(func() { game.Run(ctx) })
	s.running.Go(func() { s.server.Serve(ln) })
	p := cfg.Default
	p.Redial = true // the page can restart the game server, which takes its players back
	cfg.Routes = append(cfg.Routes, policy.Route{
		Pattern:  everyPath,
		Upstream: upstream.Target{URL: &url.URL{Scheme: "ws", Host: ln.Addr().String()}},
		Policy:   p,
	})
	return s, nil
}

// Restart restarts the game server: demo.Server.
func (s *Showcase) Restart() bool { return s.game.Restart() }

// Close stops the game server.
func (s *Showcase) Close() {
	s.stop()
	s.server.Close()
	s.running.Wait()
}

// Serve adds the page to g; package dev adds the panel, which cuts its connections. place is nil
// without a cluster.
func Serve(g *gateway.Gateway, place *Place) {
	pages := web.Demo
	if place != nil {
		pages = web.DemoInCluster
	}
	for p, h := range pages() {
		g.Page(p, h)
	}
	g.Page(nodesPath, place.shared(place.nodes(g)))
}
