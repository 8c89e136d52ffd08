package gateway

import (
	"context"
	"strings"

	"reseat/gateway/cluster"
	"reseat/gateway/frame"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// This file applies --duplicate to sessions at other nodes. The registry applies it to those
// at this one.

// playerOf returns whose session e is. It reports false if other nodes may have sessions of the
// same player.
func (g *Gateway) playerOf(e *registry.Record) (cluster.Player, bool) {
	t := e.Terms()
	if g.cfg.Players == nil || e.Player == "" || t.Duplicate == policy.Allow {
		return cluster.Player{}, false
	}
	p := cluster.Player{Name: e.Player}
	if a := t.Auth; a != nil {
		p.Realm = strings.Join([]string{a.JWKS, a.Issuer, a.Audience}, "\n") // not the key file, whose path may differ
	}
	return p, true
}

// holdPlayer makes e the session of its player in the whole cluster, once the game server has
// accepted it. It reports false if the player's session at another node stays.
func (g *Gateway) holdPlayer(ctx context.Context, e *registry.Record) (ok bool) {
	p, one := g.playerOf(e)
	if !one {
		return true
	}
	away(ctx, func() { ok = g.cfg.Players.Hold(ctx, p, e.ID, e.Terms().Duplicate == policy.Reject) })
	return ok
}

// keepPlayer notes that e, which a predecessor has held, is the session of its player.
func (g *Gateway) keepPlayer(e *registry.Record) {
	if p, one := g.playerOf(e); one {
		g.cfg.Players.Keep(p, e.ID, e.Since, e.Terms().Duplicate == policy.Reject)
	}
}

func (g *Gateway) releasePlayer(e *registry.Record) {
	if p, one := g.playerOf(e); one {
		g.cfg.Players.Release(p, e.ID)
	}
}

// dismiss removes a session that its game server has accepted and that is not to begin: the
// game server gets 1001. It does not wait for the answer.
func (g *Gateway) dismiss(e *registry.Record, up *upstream.Conn) {
	g.reg.Remove(e)
	bye := frame.AppendMasked(nil, frame.Close, registry.MaskingKey(), frame.ClosePayload(wire.CodeGoingAway, "duplicate"))
	g.running.Go(func() { transport.Farewell(up.Conn, bye) })
}

// Supersede ends a session, since its player has begun another one at another node.
func (g *Gateway) Supersede(id string) {
	if e := g.reg.Find(id); e != nil {
		e.Supersede()
	}
}

// Answers reports whether a session is about to begin, or its client is attached and answers
// within two seconds.
func (g *Gateway) Answers(ctx context.Context, id string) bool {
	e := g.reg.Find(id)
	return e != nil && g.reg.Answers(ctx, e)
}
