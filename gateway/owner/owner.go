// Package owner knows where a session is in a cluster, and whether this node may have it.
//
// A durable session has a seat, a record in NATS that says whose the session is. Its node writes
// the seat before the first hello and at each change (seats.go). A client that comes back to a node
// which does not have its session is passed on to the owner that its token, or the seat, names
// (search.go, peers.go). If that node is lost, the client's new node claims the session (claim.go).
// A node that drains hands its durable sessions off whole (handoff.go).
package owner

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/watch"
	"reseat/tokens"
)

// Options configure an Owner. All are required except the first three: without a cluster every session
// is here.
type Options struct {
	Cluster Cluster
	Seats   *cluster.Seats // nil without durable routes
	Players Players

	Ctx      context.Context // until the gateway closes
	Running  *sync.WaitGroup
	Log      *slog.Logger
	Watch    *watch.Watch
	Gate     *gate.Gate
	Clock    *transport.Clock
	Driver   *transport.Driver
	Keys     *tokens.Keys
	Registry *registry.Registry
	Store    *replay.Store
	Table    *front.Table
	Default  policy.Policy // where the route is not known: the settings may not have it any more
	TokenTTL time.Duration

	Observe    func(*registry.Record) session.Observer
	Dialling   func(*registry.Record) bool // it waits for its game server
	Late       func(session string) bool   // a predecessor still has it
	HandedOver func() bool                 // a successor has the sessions
	Draining   func() bool                 // the gateway refuses new sessions
	MemoryLow  func() bool
}

// An Owner knows where sessions are. Its methods may be called from any goroutine.
type Owner struct {
	Options
	seats      seatKeeper
	arriving   underWay[string]           // durable sessions that are being claimed, or handed off to this node
	leaving    underWay[*registry.Record] // those that are being handed off: until they have left their game server, or have ended
	recipients recipients                 // of those that were handed off
	relays     relays                     // clients of other nodes' sessions
	passedIn   atomic.Int64               // connections that other nodes have passed on
}

// New returns an Owner. Start begins its background work.
func New(opts Options) *Owner {
	o := &Owner{Options: opts}
	o.seats = seatKeeper{
		Options: &o.Options,
		writes:  make(map[string]*seatWrite), late: make(map[string]cluster.Seat), looks: make(map[string]bool),
	}
	return o
}

// Start begins the background work, which the end of Ctx stops. All that the Options lead to must be
// there.
func (o *Owner) Start() {
	if o.Seats != nil {
		o.Running.Go(func() { o.seats.watch(o.Registry.All) })
	}
}

// Close ends the connections that are passed on. No write of a seat begins afterwards.
func (o *Owner) Close() {
	o.relays.close()
	o.seats.close()
}

// Durable reports whether new sessions on rt outlive this node.
func (o *Owner) Durable(rt *front.Route) bool { return rt.Policy.Durable && o.Seats != nil }

// HasSeat reports whether a session that is not here may have a seat that says where it is.
func (o *Owner) HasSeat(id string) bool {
	return o.Seats != nil && len(id) == cluster.IDLen+registry.SessionIDLen && !o.Registry.Ended(id)
}

// NewSessionID makes a session's id. In a cluster it says at which node the session began.
func (o *Owner) NewSessionID() string {
	if o.Cluster == nil {
		return registry.NewID()
	}
	return o.Cluster.ID() + registry.NewID()
}

// Event has a session's seat follow its events.
func (o *Owner) Event(e *registry.Record, ev session.Event) {
	switch ev.Kind {
	case session.Confirmed:
		o.seats.touch(e)
	case session.AskOwner:
		o.seats.ask(e)
	case session.Left, session.Stays, session.SessionEnded:
		o.leaving.end(e)
	}
}

// Ended has e's seat say how e has ended.
func (o *Owner) Ended(e *registry.Record, i session.Info) {
	if e.Durable {
		o.seats.end(e, i)
	}
}

// Settle has e's seat written, if e is durable, and waits for that a moment. It reports whether
// another node could go on with e.
func (o *Owner) Settle(ctx context.Context, v *gate.Visit, e *registry.Record) bool {
	return o.seats.settle(ctx, v, e)
}

// Confirm makes sure that a claimed session is this node's, before its client gets a hello.
func (o *Owner) Confirm(ctx context.Context, v *gate.Visit, e *registry.Record) *session.Refusal {
	return o.seats.confirm(ctx, v, e)
}

// Changed has the seats of sessions written that a call has changed or ended, and waits for that a
// moment.
func (o *Owner) Changed(all ...*registry.Record) { o.seats.changed(all...) }

// RenewSeats writes the seats of all durable sessions again: the engine is back, and may have lost
// them, or a predecessor may have been about to write them.
func (o *Owner) RenewSeats() {
	if o.Seats != nil {
		o.seats.renew(o.Registry.All(), false)
	}
}
