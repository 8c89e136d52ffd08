package registry

import (
	"context"
	"time"

	"reseat/gateway/policy"
	"reseat/gateway/session"
)

// answerTime limits the wait for the answer of an attached client to the ping that decides
// whether a second session of its player is refused.
const answerTime = 2 * time.Second

// A playerKey identifies a player. It includes the login's realm, since two issuers may
// use one name for two people.
type playerKey struct {
	realm any
	name  string
}

// An Admission says whether a new session may begin.
type Admission int

const (
	Admitted               Admission = iota
	Duplicate                        // the player has another session
	TooManySessions                  // --max-sessions
	TooManySessionsPerAddr           // --max-sessions-per-ip
	OutOfDescriptors                 // no descriptors left but the reserve
)

// Supersede ends the session because its player has begun another one.
func (e *Record) Supersede() {
	e.Do(func(core *session.Session, now session.Time) { core.Supersede(now) })
}

// Answers reports whether e is about to begin, or its client is attached and answers a
// ping in time. It blocks until that is known or ctx is done.
func (r *Registry) Answers(ctx context.Context, e *Record) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	d := e.Driver()
	if d == nil {
		return r.Find(e.ID) == e
	}
	e.AwaitFirstAnswer()
	var pong <-chan struct{}
	asked := false
	// The session is locked meanwhile: no pong arrives before it is
	// listened for.
	d.Do(func(core *session.Session, now session.Time) { pong, asked = e.pongs.next(), core.Ping(now) })
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

// holderLocked returns a living session that forbids e under Reject, nil if there is
// none.
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

// Alive reports whether e has not ended.
func (e *Record) Alive() bool {
	d := e.Driver()
	return d == nil || d.Info().State != session.Ended
}

// Commit marks e as accepted by its upstream. older are the sessions that it supersedes.
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
