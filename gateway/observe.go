package gateway

import (
	"reseat/gateway/events"
	"reseat/gateway/registry"
	"reseat/gateway/session"
)

// An observer has done what the events of one session ask for, once watch.Watch has shown them
// to operators. It implements session.Observer.
type observer struct {
	g *Gateway
	e *registry.Record
}

func (g *Gateway) observe(e *registry.Record) session.Observer { return observer{g, e} }

// Events implements session.Observer.
func (o observer) Events(list []session.Event) {
	for _, ev := range list {
		o.event(ev)
	}
}

func (o observer) event(ev session.Event) {
	g, e := o.g, o.e
	switch ev.Kind {
	case session.Created, session.Resumed, session.Superseded:
		e.SetPeer(ev.Peer)
	}
	g.watch.Session(e, ev)
	g.owner.Event(e, ev)
	switch ev.Kind {
	case session.Pong:
		e.Answered()
	case session.UpstreamLost:
		g.dialer.BeginOutage(e)
	case session.Renew:
		g.running.Go(func() { g.issuer.renew(e) })
	case session.SessionEnded:
		o.ended(ev)
	}
}

// ended forgets a session that has ended, or that goes on at another node.
func (o observer) ended(ev session.Event) {
	g, e := o.g, o.e
	over := ev.Reason != session.ReasonMoved
	if over {
		ev = g.watch.Explained(e, ev)
		e.Note(events.Ended, ev)
		g.reg.AddTombstone(e, *ev.Info)
	} else {
		g.reg.MovedOn(e, *ev.Info)
	}
	e.ReleaseMemory(g.store)
	e.Answered()
	g.dialer.Cancel(e)
	g.owner.ReleasePlayer(e)
	if over {
		g.owner.Ended(e, *ev.Info)
		g.watch.Ended(e, ev)
	}
}

// Closed is called once both legs of an ended session are closed.
func (o observer) Closed() { o.g.reg.LegsClosed() }

// Panicked reports a panic in one session's code, which has ended that session.
func (o observer) Panicked(value any, stack []byte) { o.g.watch.Panicked(o.e, value, stack) }
