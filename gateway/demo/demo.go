// Package demo adds what --demo needs to a gateway: the embedded game server, the page,
// and real disconnects of a player's own network connection.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"reseat/gateway"
	"reseat/gateway/faults"
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

// Serve adds the page, and the disconnects that its buttons cause, to g. Listeners of lines must
// serve the client address and other nodes. place is nil without a cluster.
func Serve(g *gateway.Gateway, lines *faults.Lines, place *Place) {
	pages := web.Demo
	if place != nil {
		pages = web.DemoInCluster
	}
	for p, h := range pages() {
		g.Page(p, h)
	}
	g.Page(cutPath, place.shared(place.cutter(g, lines)))
	g.Page(nodesPath, place.shared(place.nodes(g)))
}

// A cut is a page's request to disconnect it. The session's id is known to that page alone.
type cut struct {
	Session string `json:"session"`
	How     string `json:"how"` // close, reset or silence
	MS      int64  `json:"ms"`  // duration of silence
}

// cutter disconnects clients of this node's sessions.
func cutter(lines *faults.Lines) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "want a POST of application/json", http.StatusBadRequest)
			return
		}
		c, _, err := readCut(w, r)
		if err != nil {
			http.Error(w, `want {"session", "how", "ms"}`, http.StatusBadRequest)
			return
		}
		f := faults.Fault{Name: c.How}
		switch f.Name {
		case faults.Silence:
			f.For = min(max(time.Duration(c.MS)*time.Millisecond, 0), time.Minute)
		case faults.Reset, faults.Close:
		default:
			http.Error(w, "how: want close, reset or silence", http.StatusBadRequest)
			return
		}
		if err := lines.Apply(c.Session, f); err != nil { // of the other node, if one has passed the client on
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// readCut also returns the request's body.
func readCut(w http.ResponseWriter, r *http.Request) (c cut, body []byte, err error) {
	if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10)); err == nil {
		err = json.Unmarshal(body, &c)
	}
	return c, body, err
}
