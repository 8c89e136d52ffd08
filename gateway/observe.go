package gateway

import (
	"context"
	"log/slog"
	"strconv"

	"reseat/gateway/events"
	"reseat/gateway/registry"
	"reseat/gateway/session"
)

// An observer observes one session: it logs, counts and publishes its events, renews its
// token and removes it when it has ended. It implements session.Observer.
type observer struct {
	g *Gateway
	e *registry.Record
}

// Events implements session.Observer.
func (o observer) Events(list []session.Event) {
	for _, ev := range list {
		o.event(ev)
	}
}

func (o observer) event(ev session.Event) {
	g, e, m := o.g, o.e, o.g.metrics
	switch ev.Kind {
	case session.Created:
		e.SetPeer(ev.Peer)
		m.created.Inc()
		g.countsOf(e).created.Add(1)
		o.publish(events.Created, ev)
		o.log("session.created", "route", e.Route, "peer", ev.Peer, "group", e.Terms().Group)
	case session.Resumed:
		e.SetPeer(ev.Peer)
		m.detached.Observe(ev.Elapsed.Seconds())
		m.outage.Observe(ev.Outage.Seconds())
		g.countsOf(e).resumed.Add(1)
		o.noteMoved(ev)
		g.keepAlone(e)
		o.publish(events.Resumed, ev)
		o.log("session.resumed", "peer", ev.Peer, "epoch", ev.Epoch, "away", ev.Outage, "replay", ev.Replay, "lost", ev.Lost)
	case session.Superseded:
		e.SetPeer(ev.Peer)
		m.outage.Observe(ev.Outage.Seconds())
		g.countsOf(e).resumed.Add(1)
		o.noteMoved(ev)
		o.publish(events.Superseded, ev)
		o.log("session.superseded", "peer", ev.Peer, "was", ev.OldPeer, "epoch", ev.Epoch, "away", ev.Outage, "replay", ev.Replay, "lost", ev.Lost)
	case session.Disconnected:
		m.drops.Inc()
		g.countsOf(e).detached.Add(1)
		o.publish(events.Detached, ev)
		o.log("session.detached", "peer", ev.Peer, "epoch", ev.Epoch, "reason", ev.Reason, "silent", ev.Silent)
	case session.Overflowed:
		o.publish(events.Overflowed, ev)
		g.log.Warn("buffer.overflowed", "session", e.ID, "reason", ev.Reason)
	case session.Replayed:
		m.resume.Observe(ev.Elapsed.Seconds())
	case session.Pong:
		m.rtt.Observe(ev.Elapsed.Seconds())
		e.Answered()
	case session.Message:
		o.logMessage(ev)
	case session.UpstreamLost:
		o.publish(events.UpstreamLost, ev)
		o.log("session.upstream_lost", append([]any{"reason", ev.Reason}, alone(ev)...)...)
		g.outages.begin(e)
	case session.UpstreamClosed:
		e.SetAlone(registry.Alone{Reason: ev.Reason, Silent: ev.Silent})
		o.publish(events.UpstreamClosed, ev)
		o.log("session.upstream_closed", append([]any{"reason", ev.Reason}, alone(ev)...)...)
	case session.KeepaliveNoticed:
		if flag, first := g.noticed(e, ev.Keepalive); first {
			o.log("keepalive.noticed", "route", e.Route, "mode", e.Terms().Keepalive.String(), "hint", flag)
		}
	case session.KeepaliveSent:
		m.keepalives.WithLabelValues(map[bool]string{true: "auto", false: "flag"}[ev.Own]).Inc()
	case session.UpstreamBack:
		o.publish(events.UpstreamBack, ev)
		o.log("session.upstream_back", "after", ev.Elapsed)
	case session.Started:
		o.publish(events.Started, ev)
		o.log("session.started", "group", e.Terms().Group)
	case session.Confirmed:
		g.seats.touch(e)
	case session.AskOwner:
		g.seats.ask(e)
	case session.Left, session.Stays:
		g.leaving.left(e)
	case session.Renew:
		g.running.Go(func() { g.renew(e) })
	case session.SessionEnded:
		if g.leaving.left(e); ev.Reason == session.ReasonMoved {
			o.movedOn(ev)
		} else {
			o.over(ev)
		}
	}
}

// noteMoved reports that a session goes on at this node, once its client is attached.
func (o observer) noteMoved(ev session.Event) {
	if ev.Moved == "" {
		return
	}
	o.e.Note(events.Moved, session.Event{Peer: ev.Peer, Reason: ev.Moved})
	o.g.publish(o.e, events.Event{Type: events.Moved, Reason: ev.Moved})
	o.log("session.moved", "how", ev.Moved, "owners", o.e.Seat().Epoch)
}

// movedOn forgets a session that goes on at another node: it has not ended.
func (o observer) movedOn(ev session.Event) {
	g, e := o.g, o.e
	g.reg.MovedOn(e, *ev.Info)
	o.released()
}

// released ends what was under way for a session that is not here any more.
func (o observer) released() {
	g, e := o.g, o.e
	e.ReleaseMemory(g.store)
	e.Answered()
	g.redials.cancel(e)
	g.outages.cancel(e)
	g.releasePlayer(e)
}

// log writes a line about o's session, which the same fields identify in every line.
func (o observer) log(key string, more ...any) {
	if !o.g.log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	args := []any{"session", o.e.ID, "player", o.e.Player, "path", o.e.Path, "client", o.e.Client()}
	o.g.log.Info(key, append(args, more...)...)
}

// logMessage logs one message, --log-messages.
func (o observer) logMessage(ev session.Event) {
	e := o.e
	args := []any{"session", e.ID, "direction", "to_upstream", "kind", "binary", "size", ev.Size}
	if ev.Down {
		args[3] = "to_client"
	}
	if ev.Text {
		args[5] = "text"
	}
	if e.Terms().MessageLog.Prefix > 0 {
		args = append(args, "head", strconv.Quote(ev.Head))
	}
	o.g.log.Info("session.message", args...)
}

func (o observer) over(ev session.Event) {
	g, e := o.g, o.e
	g.metrics.ended.WithLabelValues(ev.Reason).Inc()
	g.countsOf(e).ended.Add(1)
	if ev.Elapsed > 0 {
		g.metrics.detached.Observe(ev.Elapsed.Seconds())
	}
	info := *ev.Info
	if e.Alone() != nil {
		ev.Detail = explained(ev.Detail, e.Snapshot(info))
		info.Ending.Detail = ev.Detail
	}
	e.Note(events.Ended, ev)
	g.reg.AddTombstone(e, info)
	o.released()
	if e.Durable {
		g.seats.end(e, info)
	}
	g.publish(e, events.Event{Type: events.Ended, Reason: ev.Reason, Detail: clip(ev.Detail), By: e.Ender()})
	o.log("session.ended", "peer", e.Peer(), "reason", ev.Reason, "detail", clip(ev.Detail), "by", e.Ender(),
		"to_client", info.Stats.ToClient, "to_upstream", info.Stats.ToUpstream, "dropped", info.Stats.Dropped)
}

// publish adds an event to the session's history and to the event stream.
func (o observer) publish(kind string, ev session.Event) {
	o.e.Note(kind, ev)
	out := events.Event{Type: kind}
	switch ev.Kind {
	case session.Disconnected:
		out.Reason, out.SilentMS = ev.Reason, registry.WholeMS(ev.Silent)
	case session.Overflowed:
		out.Reason = ev.Reason
	case session.UpstreamLost, session.UpstreamClosed:
		out.Reason = ev.Reason
		if ev.Silent > 0 {
			out.SilentMS, out.Detail = registry.WholeMS(ev.Silent), registry.KeepaliveFlag(ev.Keepalive)
		}
	case session.Resumed, session.Superseded:
		out.AwayMS = registry.WholeMS(ev.Outage)
	}
	o.g.publish(o.e, out)
}

// publish adds an event of e to the event stream.
func (g *Gateway) publish(e *registry.Record, ev events.Event) {
	ev.Session, ev.Player, ev.Group, ev.Path = e.ID, e.Player, e.Terms().Group, e.Path
	g.publishEvent(ev)
}

// Events returns the hub with the events of docs/control-api.md.
func (g *Gateway) Events() *events.Hub { return g.events }

// Closed is called once both legs of an ended session are closed.
func (o observer) Closed() { o.g.reg.LegsClosed() }

// Panicked reports a panic in one session's code, which has ended that session.
func (o observer) Panicked(value any, stack []byte) {
	o.g.metrics.panics.Inc()
	o.g.log.Error("session.panicked", "session", o.e.ID, "fault", value, "stack", string(stack))
}
