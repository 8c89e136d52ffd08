package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/control"
	"reseat/gateway/dial"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/listen"
	"reseat/gateway/owner"
	"reseat/gateway/registry"
	"reseat/gateway/replay"
	"reseat/gateway/transport"
	"reseat/gateway/upgrade"
	"reseat/gateway/watch"
	"reseat/tokens"
	"reseat/upstream"
)

// A Gateway is the http.Handler of the client address. It owns the sessions: it creates
// them, finds them for a resume, and remembers for a while how they ended.
type Gateway struct {
	cfg    Config
	id     string // of this process: see front.ViaHeader
	log    *slog.Logger
	keys   *tokens.Keys
	clock  *transport.Clock
	driver *transport.Driver
	store  *replay.Store
	reg    *registry.Registry
	watch  *watch.Watch
	refuse refuser
	issuer *issuer
	memory *relief

	conns, adminConns *listen.ConnTracker // idle connections

	table   *front.Table
	pages   map[string]http.Handler
	proxies []*upstream.Proxy

	gate     *gate.Gate  // closed while sessions are frozen for an upgrade
	draining atomic.Bool // new sessions are refused; drain.go sets it
	drain    drain
	windows  atomic.Int64 // bytes of compression windows; part of what store has lent
	dialer   *dial.Dialer
	owner    *owner.Owner
	upgrade  *upgrade.Sessions
	ctx      context.Context // until Close
	stop     context.CancelFunc
	running  sync.WaitGroup
	renewals atomic.Int32 // runs of RenewTokens
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

// Watch returns what operators see of the gateway.
func (g *Gateway) Watch() *watch.Watch { return g.watch }

// Driver returns what drives the sessions.
func (g *Gateway) Driver() *transport.Driver { return g.driver }

// Owner returns what knows where sessions are in a cluster.
func (g *Gateway) Owner() *owner.Owner { return g.owner }

// Living counts the sessions.
func (g *Gateway) Living() int { return g.reg.Count() }

// Enter begins a call that may act on sessions, unless they are frozen or were handed over: then
// it returns nil.
func (g *Gateway) Enter() *gate.Visit { return g.gate.TryEnter() }

// Upgrade returns what gives the sessions to a successor, and takes those of a predecessor over.
func (g *Gateway) Upgrade() *upgrade.Sessions { return g.upgrade }

// Control returns what lists and changes sessions.
func (g *Gateway) Control() *control.Control { return control.New(g.reg, g.owner) }
