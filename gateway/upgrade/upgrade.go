// Package upgrade hands the sessions of one process over to the next, without a cut.
//
// The predecessor (handover.go) offers its listeners, sends what can be sent while it serves, closes
// the gate and waits for handshakes in flight, pauses the event loops and every session between two
// calls (freeze.go), and sends each session's state with its descriptors. The successor (receive.go)
// restores them (restore.go), and touches no socket before it has the commit. Until then the
// predecessor can go on as if nothing had happened; afterwards it reads and writes no connection, but
// those over TLS, whose bytes it forwards (pump.go). It retires (retire.go): sessions that were busy,
// such as with a dial, and clients whose handshake was under way follow one by one (late.go,
// forward.go), and the successor serves them (follow.go).
//
// messages.go has the bodies of what the processes say to each other over a handover.Conn. Sessions
// is the part of it that the gateway has; Upgrader decides about upgrades (run.go), and asks the
// process around it by Server.
package upgrade

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"reseat/gateway/dial"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/listen"
	"reseat/gateway/owner"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/watch"
	"reseat/tokens"
)

// Options configure Sessions. All are required.
type Options struct {
	Running  *sync.WaitGroup
	Log      *slog.Logger
	Watch    *watch.Watch
	Gate     *gate.Gate
	Clock    *transport.Clock
	Driver   *transport.Driver
	Registry *registry.Registry
	Store    *replay.Store
	Table    *front.Table
	Dialer   *dial.Dialer
	Owner    *owner.Owner
	Keys     *tokens.Keys
	// Conns and AdminConns track the idle connections of both addresses.
	Conns, AdminConns *listen.ConnTracker
	Default           policy.Policy // of sessions whose route the settings do not have any more

	Observe       func(*registry.Record) session.Observer
	CommitSession func(*registry.Record) bool // makes it its player's; false: a newer one was first
	Renew         func(*registry.Record)      // sends its client a new token
	RenewTokens   func()                      // does so for all
	Renewing      func() bool                 // that has not come to its end

	Draining       func() bool          // the gateway refuses new sessions
	ResumeAnswered func(LateConn) error // continues a resume that the predecessor has answered
}

// Sessions are all sessions of a process, on their way from a predecessor or to a successor.
type Sessions struct {
	Options
	Late      Late                      // that a predecessor still has
	successor atomic.Pointer[Successor] // set by Frozen.Commit
}

// New returns the Sessions of a process.
func New(o Options) *Sessions { return &Sessions{Options: o} }
