package gateway

import (
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// An Outcome is the outcome of a request to change a session.
type Outcome int

// The outcomes of what is asked of one session.
const (
	Done     Outcome = iota
	Unknown          // no such session
	Conflict         // it has ended, or is not in the state for it
	Stale            // it was changed by somebody else meanwhile
)

// A Change is what to change of a session; nil members stay.
type Change struct {
	Grace    *time.Duration
	Overflow *session.Overflow
	Group    *string
	Started  *bool
}

// Patch changes a living session, a running grace timer too, and describes it
// as it is then: it may have ended by that. It is a Conflict where a grace
// period would outlast the token of a client that is away.
func (g *Gateway) Patch(id string, c Change) (registry.Snapshot, Outcome) {
	e := g.reg.Find(id)
	if e == nil {
		return registry.Snapshot{}, g.gone(id)
	}
	made, ok := change(e, c)
	info, known := g.Session(id)
	switch {
	case !known:
		return registry.Snapshot{}, Unknown
	case !ok, !made && info.State == session.Ended.String():
		return registry.Snapshot{}, Conflict
	}
	return info, Done
}

// gone tells a session that has ended from one that never was.
func (g *Gateway) gone(id string) Outcome {
	if _, ok := g.reg.Remembered(id); ok {
		return Conflict
	}
	return Unknown
}

// change makes the change at once where the session is live, or else, and made
// is false, as soon as it is. It reports whether the change can be.
func change(e *registry.Record, c Change) (made, ok bool) {
	outcome := make(chan bool, 1)
	e.Do(func(core *session.Session, now session.Time) {
		t := *e.Terms()
		apply(&t, c)
		before := core.Info().Grace
		ok := core.State() != session.Ended && core.SetTerms(now, t.Session())
		if after := core.Info().Grace; ok && after != before {
			e.Keep(registry.Moment{Time: time.Now().UTC(), Type: registry.GraceChanged, Was: registry.FormatDuration(before), Detail: registry.FormatDuration(after)})
		}
		outcome <- ok
		if !ok {
			return
		}
		e.SetTerms(&t)
		if c.Started != nil {
			core.SetStarted(now, *c.Started)
		}
	})
	select {
	case ok = <-outcome:
		return true, ok
	default:
		return false, true
	}
}

// apply takes over what is nearest: a grace period that is set for this very
// session holds before it has started, too.
func apply(t *registry.Terms, c Change) {
	if c.Grace != nil {
		t.Grace, t.GraceBeforeStart = *c.Grace, nil
	}
	if c.Overflow != nil {
		t.Overflow = *c.Overflow
	}
	if c.Group != nil {
		t.Group = *c.Group
	}
}

// StartGroup marks the living sessions of a group as started, and tells how
// many they are.
func (g *Gateway) StartGroup(group string) int {
	return g.eachOf(group, func(e *registry.Record) {
		e.Do(func(core *session.Session, now session.Time) { core.SetStarted(now, true) })
	})
}

// EndGroup ends those sessions of a group whose client is away; the data of the
// others is cleared, and they count as not started. It tells how many there
// were. by is the name of the caller, for the records of those that end.
func (g *Gateway) EndGroup(group, by string) int {
	return g.eachOf(group, func(e *registry.Record) {
		e.SetData(nil, 0, nil)
		e.Do(func(core *session.Session, now session.Time) {
			if core.State() == session.Detached {
				terminate(e, core, now, by, wire.CodeNormal, "group ended")
				return
			}
			core.SetStarted(now, false)
		})
	})
}

// eachOf calls f for the living sessions of a group.
func (g *Gateway) eachOf(group string, f func(*registry.Record)) (n int) {
	for _, e := range g.reg.All() {
		if e.Terms().Group == group && e.Alive() {
			f(e)
			n++
		}
	}
	return n
}

// Data is what the game server keeps with a session, and the tag of this state
// of it; nil where nothing is kept.
func (g *Gateway) Data(id string) (data []byte, tag uint64, o Outcome) {
	e := g.reg.Find(id)
	if e == nil {
		return nil, 0, g.gone(id)
	}
	data, tag = e.Data()
	return data, tag, Done
}

// SetData keeps data with a living session, for its life. With want it is Stale
// unless that reports true of the present state: its tag, zero for none.
func (g *Gateway) SetData(id string, data []byte, want func(tag uint64) bool) (tag uint64, o Outcome) {
	e := g.reg.Find(id)
	if e == nil {
		return 0, g.gone(id)
	}
	if tag = g.tags.Add(1); !e.SetData(data, tag, want) {
		return 0, Stale
	}
	return tag, Done
}
