package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"reseat/gateway/events"
	"reseat/gateway/listen"
	"reseat/gateway/registry"
	"reseat/gateway/replay"
	"reseat/gateway/transport"
	"reseat/tokens"
)

// A Gateway is the http.Handler of the client address. It owns the sessions: it creates
// them, finds them for a resume, and remembers for a while how they ended.
type Gateway struct {
	cfg     Config
	id      string // of this process: see ViaHeader
	log     *slog.Logger
	keys    *tokens.Keys
	clock   *transport.Clock
	driver  *transport.Driver
	store   *replay.Store
	metrics *metrics
	events  *events.Hub
	reg     *registry.Registry

	conns, adminConns *listen.ConnTracker // idle connections

	refused      refusalRing
	refusals     *limitedLog
	exhaustedLog *limitedLog   // memory and descriptors
	shedLog      *limitedLog   // idle connections that were closed
	replays      *rate.Limiter // token.replayed events

	table   *table
	pages   map[string]http.Handler
	proxies []interface{ Close() }
	signing chan struct{} // semaphore: tokens signed at once

	gate        gate                      // closed while sessions are frozen for an upgrade
	successor   atomic.Pointer[Successor] // set by Frozen.Commit
	unpublished unpublished               // events during a freeze
	late        late                      // sessions that a predecessor still has
	draining    atomic.Bool               // new sessions are refused; drain.go sets it
	drain       drain
	relays      relays       // clients of other nodes' sessions
	seats       seatKeeper   // of durable sessions
	claims      claims       // durable sessions that are being taken in
	leaving     leavings     // and those that are being handed over
	moves       moves        // and those that were
	passedIn    atomic.Int64 // connections that other nodes have passed on
	windows     atomic.Int64 // bytes of compression windows; part of what store has lent
	dials       dials
	redials     redialer
	outages     outages
	tags        atomic.Uint64   // of the sessions' data; each is used once
	pressed     chan struct{}   // one slot: see memory.go
	ctx         context.Context // until Close
	stop        context.CancelFunc
	began       time.Time
	running     sync.WaitGroup
	renewals    atomic.Int32 // runs of RenewTokens
}

// SessionIDLen is the length of newID. In a cluster the node's id comes before it.
const SessionIDLen = 32

// newID makes an id of 128 random bits.
func newID() string {
	var b [SessionIDLen / 2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// newSessionID makes a session's id. In a cluster it says which node has the session.
func (g *Gateway) newSessionID() string {
	if g.cfg.Cluster == nil {
		return newID()
	}
	return g.cfg.Cluster.ID() + newID()
}

// A drain is a period in which the gateway refuses new sessions. An operator's drain can
// be cancelled. The final drain, before the process ends, replaces it and cannot.
type drain struct {
	mu       sync.Mutex
	last     bool        // the final drain
	timedOut bool        // closeWait has passed, with sessions left
	timer    *time.Timer // of an operator's drain; nil when it has fired
	until    time.Time   // when it fires
}

func (d *drain) stopLocked() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
