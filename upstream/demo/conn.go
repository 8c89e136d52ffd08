package demo

import (
	"context"
	"errors"
	"net/http"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"
)

// Path is the WebSocket endpoint that the page uses.
const Path = "/demo/play"

// Subprotocol is the protocol of a Server: see the package documentation.
const Subprotocol = "arena.v1"

// The rate limit of a client's inputs. The burst accepts what a client has queued during
// two minutes without a connection, sent at once when it reconnects.
const (
	inputRate  = 50 // a second
	inputBurst = 2400
)

// errStopping refuses players while the server stops.
var errStopping = errors.New("the server is shutting down")

// errRestarting refuses players during a Restart.
var errRestarting = errors.New("the server is being restarted")

// ServeHTTP accepts a WebSocket connection as a new player, at any path; the page uses
// Path. The query parameter name is the player's name. A request that is not a WebSocket
// handshake gets 426 at Path and 404 elsewhere, a bad name 400, and after Run has ended
// 503. If no seat is free, the handshake succeeds and a Close with 1013 follows, since a
// browser does not show the status of a failed handshake. The Origin is not checked: the
// gateway does that. ServeHTTP returns when the connection has ended.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" && r.URL.Path != Path {
		http.NotFound(w, r)
		return
	}
	if r.Header.Get("Upgrade") == "" {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "this is a WebSocket endpoint", http.StatusUpgradeRequired)
		return
	}
	name, err := checkName(r.URL.Query().Get("name"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := newClient(name, r.Header.Get("Reseat-Session"))
	defer c.cancel()
	joined := s.join(r.Context(), c)
	if joined != nil && joined != errFull {
		w.Header().Set("Retry-After", "5")
		http.Error(w, joined.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Reseat-Newest", newestRule)
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Subprotocol},
		InsecureSkipVerify: true,
	})
	switch {
	case joined == nil && err != nil:
		s.parts <- part{client: c}
	case joined == nil:
		s.serve(conn, c)
	case err == nil:
		conn.Close(websocket.StatusTryAgainLater, joined.Error())
	}
}

// newClient returns a client without a seat.
func newClient(name, session string) *client {
	ctx, cancel := context.WithCancel(context.Background())
	return &client{
		name:    name,
		session: session[:min(len(session), maxSessionSize)],
		queue:   make(chan []byte, queueMessages),
		ctx:     ctx,
		cancel:  cancel,
	}
}

// join asks the loop for a seat. If it returns nil, the caller must report to the loop, once,
// when the client has left.
func (s *Server) join(ctx context.Context, c *client) error {
	result := make(chan error, 1)
	select {
	case s.joins <- join{c, result}:
		return <-result
	case <-s.stopping:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve runs one connection until it has ended.
func (s *Server) serve(conn *websocket.Conn, c *client) {
	conn.SetReadLimit(maxInputBytes)
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write(conn)
	}()
	end := s.read(conn, c)
	s.parts <- part{c, end}
	<-written
}

// read passes the client's inputs to the loop until the connection ends, and returns how
// to close it.
func (s *Server) read(conn *websocket.Conn, c *client) ending {
	limit := rate.NewLimiter(inputRate, inputBurst)
	for {
		kind, msg, err := conn.Read(context.Background())
		if err != nil {
			return ending{}
		}
		m, err := parseInput(msg)
		switch {
		case kind != websocket.MessageText:
			return ending{websocket.StatusUnsupportedData, "want text messages"}
		case err != nil:
			return ending{websocket.StatusPolicyViolation, "bad input"}
		case !limit.Allow():
			return ending{websocket.StatusPolicyViolation, "too many inputs"}
		}
		s.inputs <- input{c, m}
	}
}

// write sends what the loop queues until the loop closes the queue, then closes the
// connection as the loop says. If a write fails, it closes the connection at once.
func (c *client) write(conn *websocket.Conn) {
	for msg := range c.queue {
		if err := conn.Write(c.ctx, websocket.MessageText, msg); err != nil {
			// The reader gets the same error and gives up the seat.
			conn.CloseNow()
			return
		}
	}
	if c.end.code == 0 {
		conn.CloseNow()
		return
	}
	conn.Close(c.end.code, c.end.reason)
}
