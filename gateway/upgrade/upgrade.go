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
	"sync/atomic"

	"reseat/gateway/dial"
	"reseat/gateway/listen"
	"reseat/gateway/owner"
	"reseat/gateway/registry"
)

// Options configure Sessions, together with those of their Owner. All are required.
type Options struct {
	owner.Options
	Owner  *owner.Owner
	Dialer *dial.Dialer
	// Conns and AdminConns track the idle connections of both addresses.
	Conns, AdminConns *listen.ConnTracker

	CommitSession  func(*registry.Record) bool // makes it its player's; false: a newer one was first
	Renew          func(*registry.Record)      // sends its client a new token
	RenewTokens    func()                      // does so for all
	Renewing       func() bool                 // that has not come to its end
	ResumeAnswered func(LateConn) error        // continues a resume that the predecessor has answered
}

// Sessions are all sessions of a process, on their way from a predecessor or to a successor.
type Sessions struct {
	Options
	Late      Late                      // that a predecessor still has
	successor atomic.Pointer[Successor] // set by Frozen.Commit
}

// New returns the Sessions of a process.
func New(o Options) *Sessions { return &Sessions{Options: o} }
