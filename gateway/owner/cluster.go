package owner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/session"
)

// A Cluster knows and reaches the other nodes. Its methods may be called from any goroutine.
type Cluster interface {
	// ID returns the id of this node, which begins the ids of its sessions.
	ID() string
	// Dial returns a connection to the node listener of another node.
	Dial(ctx context.Context, node string) (net.Conn, error)
	// Judge says what is known of a node that could not be reached.
	Judge(ctx context.Context, node string) cluster.Judgement
	// Takers returns the other nodes that take sessions off this one, in the order in which to ask
	// them for this session.
	Takers(session string) []string
	// HandOff has another node take a session in: HandoffError.
	HandOff(ctx context.Context, node string, h *Handoff) error
}

// A Handoff is a session on its way to another node.
type Handoff struct {
	Session  string       `json:"session"`
	Epoch    uint64       `json:"epoch"`    // of its seat, before the hand-off
	Revision uint64       `json:"revision"` // the same
	Format   int          `json:"format"`
	At       session.Time `json:"at"` // when it was frozen, by the older node's clock
	Record   []byte       `json:"record"`
	State    []byte       `json:"state"`
	Content  []byte       `json:"content"`
}

// The errors of takeIn, by what the node that hands the session off does then.
var (
	errNotTaken = errors.New("the session cannot be taken in")
	errTaken    = errors.New("the session has gone to another node meanwhile")
)

// HandoffError is the error of HandOff for an answer of ServeHandoff, nil if the session was taken.
func HandoffError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
	switch resp.StatusCode {
	case http.StatusNoContent:
		return nil
	case http.StatusConflict:
		return fmt.Errorf("%w: %s", errTaken, text)
	case http.StatusGatewayTimeout:
		return fmt.Errorf("unclear: %s", text)
	}
	return fmt.Errorf("%w: status %d: %s", errNotTaken, resp.StatusCode, text)
}

// Players keeps players from having sessions at two nodes at a time. Its methods may be called
// from any goroutine.
type Players interface {
	// Hold makes session the one of a player, in the whole cluster. It reports false if a
	// session of the player at another node stays; oldestWins says whether that may be.
	Hold(ctx context.Context, p cluster.Player, session string, oldestWins bool) bool
	// Keep notes a session that a predecessor has held.
	Keep(p cluster.Player, session string, began time.Time, oldestWins bool)
	// Release forgets a session that has ended. It does not wait.
	Release(p cluster.Player, session string)
}

// relays are the connections that are passed on, until close.
type relays struct {
	mu     sync.Mutex
	conns  map[net.Conn]net.Conn // by the connection to the owner that of the client, nil if an event loop has it
	closed bool
	none   chan struct{} // closed when there is no relay; nil: nobody waits
}

// add reports false after close.
func (l *relays) add(owner, client net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.conns == nil {
		l.conns = make(map[net.Conn]net.Conn)
	}
	l.conns[owner] = client
	return true
}

func (l *relays) remove(owner net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, owner)
	l.noteLocked()
}

// done returns a channel that is closed once there is no relay.
func (l *relays) done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.none == nil {
		l.none = make(chan struct{})
	}
	c := l.none
	l.noteLocked()
	return c
}

func (l *relays) noteLocked() {
	if l.none != nil && len(l.conns) == 0 {
		close(l.none)
		l.none = nil
	}
}

func (l *relays) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// close ends all relays. Their clients resume.
func (l *relays) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for owner, client := range l.conns {
		if client != nil {
			client.Close()
		}
		owner.Close()
	}
}
