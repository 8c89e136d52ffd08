package control

import (
	"time"

	"reseat/gateway/newest"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A Change is a change of a session; nil fields stay as they are.
type Change struct {
	Grace    *time.Duration
	Overflow *session.Overflow
	Newest   **newest.Rules
	Group    *string
	Started  *bool
}

// Patch changes a living session, including a running grace timer, and describes the
// result: the session may have ended by it. It returns Conflict if the grace period would
// outlast the token of a detached client.
func (c *Control) Patch(id string, to Change) (registry.Snapshot, Outcome) {
	e := c.reg.Find(id)
	if e == nil {
		return registry.Snapshot{}, c.missing(id)
	}
	release := e.Hold()
	made, ok := change(e, to)
	release()
	c.owner.Changed(e)
	info, known := c.Session(id)
	switch {
	case !known:
		return registry.Snapshot{}, Unknown
	case !ok, !made && info.State == session.Ended.String():
		return registry.Snapshot{}, Conflict
	}
	return info, Done
}

// change applies c at once if the session is live (made is true), or else as soon as it
// is. ok reports whether the change is possible.
func change(e *registry.Record, c Change) (made, ok bool) {
	outcome := make(chan bool, 1)
	e.Do(func(core *session.Session, now session.Time) {
		t := *e.Terms()
		c.Apply(&t)
		before := core.Info().Grace
		ok := core.State() != session.Ended && core.SetTerms(now, t.Session())
		if after := core.Info().Grace; ok && after != before {
			e.AppendMoment(registry.Moment{Time: time.Now().UTC(), Type: registry.GraceChanged, Was: registry.FormatDuration(before), Detail: registry.FormatDuration(after)})
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

// Apply sets the terms that c changes. A grace period set for one session also holds
// before that session has started.
func (c Change) Apply(t *registry.Terms) {
	if c.Grace != nil {
		t.Grace, t.GraceBeforeStart = *c.Grace, nil
	}
	if c.Overflow != nil {
		t.Overflow = *c.Overflow
	}
	if c.Newest != nil {
		t.Newest = *c.Newest
	}
	if c.Group != nil {
		t.Group = *c.Group
	}
}

// StartGroup marks the living sessions of a group as started, and returns their number.
func (c *Control) StartGroup(group string) int {
	return c.eachInGroup(group, func(e *registry.Record) {
		e.Do(func(core *session.Session, now session.Time) { core.SetStarted(now, true) })
	})
}

// EndGroup ends the detached sessions of a group. It clears the data of the others and
// marks them as not started. It returns the number of sessions in the group. by is the
// caller's name, for the records of those that end.
func (c *Control) EndGroup(group, by string) int {
	return c.eachInGroup(group, func(e *registry.Record) {
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

// eachInGroup calls f for the living sessions of a group, and returns their number.
func (c *Control) eachInGroup(group string, f func(*registry.Record)) int {
	var of []*registry.Record
	for _, e := range c.reg.All() {
		if e.Terms().Group == group && e.Alive() {
			release := e.Hold()
			f(e)
			release()
			of = append(of, e)
		}
	}
	c.owner.Changed(of...)
	return len(of)
}

// Data returns the data that the game server keeps with a session, and its tag; nil if
// there is none.
func (c *Control) Data(id string) (data []byte, tag uint64, o Outcome) {
	e := c.reg.Find(id)
	if e == nil {
		return nil, 0, c.missing(id)
	}
	data, tag = e.Data()
	return data, tag, Done
}

// SetData keeps data with a session until the session ends. If want is not nil, and
// reports false for the tag of the present data (zero for none), SetData returns Stale.
func (c *Control) SetData(id string, data []byte, want func(tag uint64) bool) (tag uint64, o Outcome) {
	e := c.reg.Find(id)
	if e == nil {
		return 0, c.missing(id)
	}
	tag = c.reg.NextTag()
	release := e.Hold()
	here, set := c.reg.Find(id) == e, e.SetData(data, tag, want)
	release()
	switch {
	case !here: // it has ended, or gone to another node
		return 0, c.missing(id)
	case !set:
		return 0, Stale
	}
	c.owner.Changed(e)
	return tag, Done
}
