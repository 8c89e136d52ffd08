// Package control lists, describes and changes sessions for the control API.
package control

import (
	"reseat/gateway/owner"
	"reseat/gateway/registry"
)

// A Control acts on the sessions of one gateway. Its methods may be called from any goroutine that
// is inside the gate.
type Control struct {
	reg   *registry.Registry
	owner *owner.Owner
}

// New returns a Control.
func New(reg *registry.Registry, o *owner.Owner) *Control { return &Control{reg, o} }
