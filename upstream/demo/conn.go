package demo

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// Path is where the page plays.
const Path = "/demo/play"

// Subprotocol is the name of what a Server speaks; package documentation.
const Subprotocol = "arena.v1"

// errStopping says that the server ends.
var errStopping = errors.New("the server is going away")

// ServeHTTP takes a WebSocket connection as a new player, at any path, though the
// page uses Path; the query parameter name is the player's name. A request that
// is no WebSocket handshake gets 426 at Path and 404 elsewhere, a bad name 400, and
// after Run has ended 503. Where no seat is free the handshake succeeds and a Close
// with 1013 follows, since a browser does not show the status of a handshake that
// fails. The Origin is not looked at: that is the gateway's part. It returns when the
// connection has ended.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" && r.URL.Path != Path {
		http.NotFound(w, r)
		return
	}
	if r.Header.Get("Upgrade") == "" {
		w.Header().Set("Upgrade", "websocket")
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

// newClient is a client without a seat.
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

// join asks the loop for a seat. After a nil error the loop must be told of the
// client's part, once.
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

// serve plays one connection until it has ended.
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

// read passes the client's inputs to the loop until the connection ends, and
// returns how it is to be closed.
func (s *Server) read(conn *websocket.Conn, c *client) ending {
	limit := newBucket(inputRate, inputBurst, time.Now())
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
		case !limit.take(time.Now()):
			return ending{websocket.StatusPolicyViolation, "too many inputs"}
		}
		s.inputs <- input{c, m}
	}
}

// write sends what the loop queues until the loop closes the queue, then closes
// the connection as the loop says. A write that fails closes it at once.
func (c *client) write(conn *websocket.Conn) {
	for msg := range c.queue {
		if err := conn.Write(c.ctx, websocket.MessageText, msg); err != nil {
			// The reader meets the same end and has the seat taken away.
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
