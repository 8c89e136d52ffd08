package owner

import (
	"context"
	"strings"

	"reseat/gateway/cluster"
	"reseat/gateway/gate"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
)

// This file applies --duplicate to sessions at other nodes. The registry applies it to those
// at this one.

// playerOf returns whose session e is. It reports false if other nodes may have sessions of the
// same player.
func (o *Owner) playerOf(e *registry.Record) (cluster.Player, bool) {
	t := e.Terms()
	if o.Players == nil || e.Player == "" || t.Duplicate == policy.Allow {
		return cluster.Player{}, false
	}
	p := cluster.Player{Name: e.Player}
	if a := t.Auth; a != nil {
		p.Realm = strings.Join([]string{a.JWKS, a.Issuer, a.Audience}, "\n") // not the key file, whose path may differ
	}
	return p, true
}

// HoldPlayer makes e the session of its player in the whole cluster, once the game server has
// accepted it. It reports false if the player's session at another node stays.
func (o *Owner) HoldPlayer(ctx context.Context, v *gate.Visit, e *registry.Record) (ok bool) {
	p, one := o.playerOf(e)
	if !one {
		return true
	}
	v.Away(func() { ok = o.Players.Hold(ctx, p, e.ID, e.Terms().Duplicate == policy.Reject) })
	return ok
}

// KeepPlayer notes that e, which a predecessor has held, is the session of its player.
func (o *Owner) KeepPlayer(e *registry.Record) {
	if p, one := o.playerOf(e); one {
		o.Players.Keep(p, e.ID, e.Since, e.Terms().Duplicate == policy.Reject)
	}
}

// ReleasePlayer forgets e, which has ended.
func (o *Owner) ReleasePlayer(e *registry.Record) {
	if p, one := o.playerOf(e); one {
		o.Players.Release(p, e.ID)
	}
}

// Supersede ends a session, since its player has begun another one at another node.
func (o *Owner) Supersede(id string) {
	if e := o.Registry.Find(id); e != nil {
		e.Supersede()
	}
}

// Answers reports whether a session is about to begin, or its client is attached and answers
// within two seconds.
func (o *Owner) Answers(ctx context.Context, id string) bool {
	e := o.Registry.Find(id)
	return e != nil && o.Registry.Answers(ctx, e)
}
