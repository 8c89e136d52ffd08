package operate

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A game is an ordinary WebSocket server, which knows nothing of Reseat. It counts to
// each player, a message every few milliseconds, until stop is closed, and records what
// each player sends.
type game struct {
	*httptest.Server
	tick time.Duration
	stop chan struct{} // closed: the count ends with a final message

	mu    sync.Mutex
	joins []*join
}

// A join is one connection to the game server.
type join struct {
	path string
	head http.Header

	mu    sync.Mutex
	heard []string // what the player has sent
	lost  error    // why the connection ended early
}

// newGame counts to each player, once per tick; zero: never.
func newGame(t *testing.T, tick time.Duration) *game {
	g := &game{tick: tick, stop: make(chan struct{})}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(g.Server.CloseClientConnections)
	return g
}

func (g *game) url() string { return "ws" + strings.TrimPrefix(g.URL, "http") }

func (g *game) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		fmt.Fprint(w, "a page of the game's")
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer c.CloseNow()
	j := &join{path: r.URL.Path, head: r.Header}
	g.mu.Lock()
	g.joins = append(g.joins, j)
	g.mu.Unlock()
	go g.count(r.Context(), c)
	for {
		_, b, err := c.Read(r.Context())
		j.mu.Lock()
		if err != nil {
			j.lost = err
			j.mu.Unlock()
			return
		}
		j.heard = append(j.heard, string(b))
		j.mu.Unlock()
		if g.tick == 0 {
			c.Write(r.Context(), websocket.MessageText, b)
		}
	}
}

func (g *game) count(ctx context.Context, c *websocket.Conn) {
	if g.tick == 0 {
		return
	}
	every := time.NewTicker(g.tick)
	defer every.Stop()
	for n := 1; ; n++ {
		select {
		case <-g.stop:
			c.Write(ctx, websocket.MessageText, []byte("last word"))
			return
		case <-every.C:
			if c.Write(ctx, websocket.MessageText, fmt.Append(nil, n)) != nil {
				return
			}
		}
	}
}

// joined returns all connections that the game server has had.
func (g *game) joined() []*join {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*join(nil), g.joins...)
}
