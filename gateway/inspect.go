package gateway

import (
	"net"

	"reseat/gateway/registry"
	"reseat/gateway/session"
)

// Sessions lists sessions in the order in which they were made, and the cursor
// of the next page, zero where this is the last. Ended ones are listed only
// where State asks for them.
//
// Only those that their group, player and place in the list leave over are
// asked for their state, and no more of them than the page needs.
func (g *Gateway) Sessions(f registry.Filter) (list []registry.Snapshot, next uint64) {
	if f.State == session.Ended.String() {
		return f.Page(g.reg.Remembers(f))
	}
	for _, e := range g.reg.Choose(f) {
		i, living := g.reg.Look(e)
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
func (g *Gateway) Session(id string) (registry.Snapshot, bool) {
	if e := g.reg.Find(id); e != nil {
		if i, living := g.reg.Look(e); living {
			return e.Snapshot(i), true
		}
	}
	return g.reg.Remembered(id)
}

// End ends a session: code and reason go to the upstream, 4410 and reason to
// the client.
func (g *Gateway) End(id string, code int, reason string) Outcome {
	return g.EndBy("", id, code, reason)
}

// EndBy is End, with the name of a caller of the control API, for the session's record.
func (g *Gateway) EndBy(by, id string, code int, reason string) Outcome {
	if e := g.reg.Find(id); e != nil && e.Driver() == nil {
		e.BreakFirst() // still connecting: the client gets the dial's failure
		e.Do(func(core *session.Session, now session.Time) { terminate(e, core, now, by, code, reason) })
		return Done
	}
	return g.change(id, func(e *registry.Record, core *session.Session, now session.Time) bool {
		return terminate(e, core, now, by, code, reason)
	})
}

// terminate ends a session for a caller, and reports whether it had not ended before.
func terminate(e *registry.Record, core *session.Session, now session.Time, by string, code int, reason string) bool {
	if core.State() == session.Ended {
		return false
	}
	e.SetEnder(by)
	core.Terminate(now, code, reason)
	return true
}

// Disconnect cuts the client's connection without a Close.
func (g *Gateway) Disconnect(id string) Outcome {
	if e := g.reg.Find(id); e != nil {
		e.AwaitFirst()
	}
	return g.change(id, func(_ *registry.Record, core *session.Session, now session.Time) bool { return core.Disconnect(now) })
}

// CloseClient closes the client's connection with a Close frame of code, as
// something between client and gateway would.
func (g *Gateway) CloseClient(id string, code int, reason string) Outcome {
	return g.change(id, func(_ *registry.Record, core *session.Session, now session.Time) bool {
		return core.CloseClient(now, code, reason)
	})
}

// ClientConn is the network connection of the attached client, nil where there
// is none: for cutting it in a demo.
func (g *Gateway) ClientConn(id string) net.Conn {
	if e := g.reg.Find(id); e != nil && e.Driver() != nil {
		return e.Driver().Client()
	}
	return nil
}

// change calls f as the owner of a live session; f reports whether it could.
func (g *Gateway) change(id string, f func(*registry.Record, *session.Session, session.Time) bool) Outcome {
	e := g.reg.Find(id)
	if e == nil {
		return g.gone(id)
	}
	d := e.Driver()
	if d == nil {
		return Conflict
	}
	done := false
	d.Do(func(core *session.Session, now session.Time) { done = f(e, core, now) })
	if !done {
		return Conflict
	}
	return Done
}

// History lists what has happened to a session, living or remembered: see
// registry.Registry.
func (g *Gateway) History(id string) (list []registry.Moment, left int, ok bool) {
	return g.reg.History(id)
}
