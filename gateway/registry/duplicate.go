package registry

import (
	"context"
	"time"

	"reseat/gateway/policy"
	"reseat/gateway/session"
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

// An Admission is whether a new session may be begun.
type Admission int

const (
	Admitted         Admission = iota
	Duplicate                  // another session of the player holds its place
	TooMany                    // --max-sessions
	TooManyHere                // --max-sessions-per-ip
	OutOfDescriptors           // the process may open no more
)

// Supersede ends the session, since its player began another one.
func (e *Record) Supersede() {
	e.Do(func(core *session.Session, now session.Time) { core.Supersede(now) })
}

// Answers reports whether e is about to begin, or its client is attached and
// answers a ping in time.
func (r *Registry) Answers(ctx context.Context, e *Record) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	d := e.Driver()
	if d == nil {
		return r.Find(e.ID) == e
	}
	e.AwaitFirst()
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
		return e.Driver() != nil
	case <-ctx.Done():
		return false
	}
}

// holderLocked is a living session that keeps e from being begun under Reject,
// nil for none.
func (r *Registry) holderLocked(e *Record) *Record {
	if e.player.name == "" || e.Terms().Duplicate != policy.Reject {
		return nil
	}
	for o := range r.players[e.player] {
		if o.Alive() {
			return o
		}
	}
	return nil
}

// alive reports whether e has not ended.
func (e *Record) Alive() bool {
	d := e.Driver()
	return d == nil || d.Info().State != session.Ended
}

// Commit marks e as accepted. older are those that it takes over.
func (r *Registry) Commit(e *Record) (older []*Record, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live[e.ID] != e {
		return nil, false
	}
	e.won = true
	if e.player.name == "" || e.Terms().Duplicate != policy.Takeover {
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
