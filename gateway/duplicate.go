package gateway

import (
	"context"
	"time"

	"reseat/gateway/session"
)

// Duplicate says what a second session of the same player means, --duplicate.
type Duplicate uint8

// The policies of --duplicate.
const (
	// Allow lets a player have as many sessions as he begins.
	Allow Duplicate = iota
	// Takeover ends the older sessions once the game server has accepted the
	// newest: of any number that begin at once, the newest stays.
	Takeover
	// Reject refuses a session whose player has one that is attached and
	// answers a ping in time, or that is about to begin. Any other is taken over.
	Reject
)

// answerTime is how long an attached client has to answer the ping that decides
// whether a second session of its player is refused.
const answerTime = 2 * time.Second

// A playerKey tells players apart: two issuers of logins may use one name for
// two people.
type playerKey struct {
	realm any
	name  string
}

// An admission is whether a new session may be begun.
type admission int

const (
	admitted         admission = iota
	duplicate                  // another session of the player holds its place
	tooMany                    // --max-sessions
	tooManyHere                // --max-sessions-per-ip
	outOfDescriptors           // the process may open no more
)

// admit gives e its place before its upstream is dialled, or says why not.
func (g *Gateway) admit(ctx context.Context, e *entry) admission {
	for {
		a, holder := g.reg.add(e)
		switch {
		case a == admitted:
			g.conns.MakeRoom()
			return a
		case a != duplicate, g.reg.answers(ctx, holder):
			return a
		}
		holder.supersede()
	}
}

// commit makes e the player's session, once its upstream has accepted it, and
// ends those that it takes over. It reports false where a newer one came first.
func (g *Gateway) commit(e *entry) bool {
	older, ok := g.reg.commit(e)
	for _, o := range older {
		o.supersede()
	}
	return ok
}

func (e *entry) supersede() {
	e.do(func(core *session.Session, now session.Time) { core.Supersede(now) })
}

// answers reports whether e is about to begin, or its client is attached and
// answers a ping in time.
func (r *registry) answers(ctx context.Context, e *entry) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	d := e.drive()
	if d == nil {
		return r.find(e.ID) == e
	}
	e.awaitFirst()
	var pong <-chan struct{}
	asked := false
	// While this runs nothing else happens to the session: no pong comes before it is
	// listened for.
	d.Do(func(core *session.Session, now session.Time) { pong, asked = e.pongs.next(), core.Ask(now) })
	if !asked {
		return false
	}
	select {
	case <-pong:
		return e.drive() != nil
	case <-ctx.Done():
		return false
	}
}

// holderLocked is a living session that keeps e from being begun under Reject,
// nil for none.
func (r *registry) holderLocked(e *entry) *entry {
	if e.player.name == "" || e.terms().Duplicate != Reject {
		return nil
	}
	for o := range r.players[e.player] {
		if o.alive() {
			return o
		}
	}
	return nil
}

// alive reports whether e has not ended.
func (e *entry) alive() bool {
	d := e.drive()
	return d == nil || d.Info().State != session.Ended
}

// commit marks e as accepted. older are those that it takes over.
func (r *registry) commit(e *entry) (older []*entry, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live[e.ID] != e {
		return nil, false
	}
	e.won = true
	if e.player.name == "" || e.terms().Duplicate != Takeover {
		return nil, true
	}
	for o := range r.players[e.player] {
		switch {
		case o == e || !o.won:
		case o.seq > e.seq:
			return nil, false
		default:
			older = append(older, o)
		}
	}
	return older, true
}
