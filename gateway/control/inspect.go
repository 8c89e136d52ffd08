package control

import (
	"net"

	"reseat/gateway/gate"
	"reseat/gateway/registry"
	"reseat/gateway/session"
)

// Sessions lists sessions in the order of their creation, and returns the cursor of the
// next page, zero after the last one. Ended sessions are listed only if f.State asks for
// them. It asks only as many sessions for their state as the page needs, and only those that
// match f's group, player and cursor.
func (c *Control) Sessions(f registry.Filter) (list []registry.Snapshot, next uint64) {
	if f.State == session.Ended.String() {
		return f.Page(c.reg.ListTombstones(f))
	}
	for _, e := range c.reg.Select(f) {
		i, living := c.reg.Info(e)
		switch {
		case !living || i.State == session.Ended, f.State != "" && f.State != i.State.String():
			continue
		case len(list) == f.Limit:
			return list, list[len(list)-1].Seq()
		}
		list = append(list, e.Snapshot(i))
	}
	return list, 0
}

// Session describes one session, living or remembered.
func (c *Control) Session(id string) (registry.Snapshot, bool) {
	if e := c.reg.Find(id); e != nil {
		if i, living := c.reg.Info(e); living {
			return e.Snapshot(i), true
		}
	}
	return c.reg.Remembered(id)
}

// Terms returns the settings of a session, nil if it is not here.
func (c *Control) Terms(id string) *registry.Terms {
	if e := c.reg.Find(id); e != nil {
		return e.Terms()
	}
	return nil
}

// Settled is Session for a call that is passed on if the session is not here: it waits while the session is
// handed off to another node.
func (c *Control) Settled(v *gate.Visit, id string) (registry.Snapshot, bool) {
	if e := c.reg.Find(id); e != nil && e.Durable {
		v.Away(func() { e.Hold()() })
	}
	return c.Session(id)
}

// End ends a session: the upstream gets code and reason, the client 4410 and reason. by is the name of a caller of
// the control API, for the session's record.
func (c *Control) End(by, id string, code int, reason string) Outcome {
	if e := c.reg.Find(id); e != nil && e.Driver() == nil {
		e.CancelFirstDial() // still connecting: the client gets the dial's failure
		e.Do(func(core *session.Session, now session.Time) { terminate(e, core, now, by, code, reason) })
		return Done
	}
	return c.change(id, func(e *registry.Record, core *session.Session, now session.Time) bool {
		return terminate(e, core, now, by, code, reason)
	})
}

// terminate ends a session, which the caller holds, for a caller of the control API, and reports whether it had not ended before.
func terminate(e *registry.Record, core *session.Session, now session.Time, by string, code int, reason string) bool {
	if core.State() == session.Ended {
		return false
	}
	e.SetEnder(by)
	core.Terminate(now, code, reason)
	return true
}

// Disconnect drops the client's connection without a Close frame.
func (c *Control) Disconnect(id string) Outcome {
	if e := c.reg.Find(id); e != nil {
		e.AwaitFirstAnswer()
	}
	return c.change(id, func(_ *registry.Record, core *session.Session, now session.Time) bool { return core.Disconnect(now) })
}

// CloseClient closes the client's connection with code, as a proxy on the way would. The
// session stays and can be resumed.
func (c *Control) CloseClient(id string, code int, reason string) Outcome {
	return c.change(id, func(_ *registry.Record, core *session.Session, now session.Time) bool {
		return core.CloseClient(now, code, reason)
	})
}

// ClientConn is the network connection of the attached client, nil if there is none. The
// demo drops it.
func (c *Control) ClientConn(id string) net.Conn {
	if e := c.reg.Find(id); e != nil && e.Driver() != nil {
		return e.Driver().Client()
	}
	return nil
}

// change calls f with a living session; f reports whether the change was possible.
func (c *Control) change(id string, f func(*registry.Record, *session.Session, session.Time) bool) Outcome {
	e := c.reg.Find(id)
	if e == nil {
		return c.missing(id)
	}
	d := e.Driver()
	if d == nil {
		return Conflict
	}
	done := false
	release := e.Hold()
	d.Do(func(core *session.Session, now session.Time) { done = f(e, core, now) })
	release()
	if !done {
		return Conflict
	}
	c.owner.Changed(e)
	return Done
}

// History lists the events of a session, living or remembered: see
// registry.Registry.
func (c *Control) History(id string) (list []registry.Moment, left int, ok bool) {
	return c.reg.History(id)
}

// An Outcome is the result of a request to change a session.
type Outcome int

// The outcomes.
const (
	Done     Outcome = iota
	Unknown          // no such session
	Conflict         // it has ended, or its state does not allow it
	Stale            // another request changed it meanwhile
)

// missing returns Conflict for a session that has ended, Unknown for one that never existed.
func (c *Control) missing(id string) Outcome {
	if _, ok := c.reg.Remembered(id); ok {
		return Conflict
	}
	return Unknown
}
