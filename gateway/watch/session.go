package watch

import (
	"context"
	"log/slog"
	"strconv"

	"reseat/gateway/events"
	"reseat/gateway/front"
	"reseat/gateway/registry"
	"reseat/gateway/session"
)

// Session logs, counts and publishes what has happened to e. For its end, see Ended.
func (w *Watch) Session(e *registry.Record, ev session.Event) {
	m := w.Metrics
	switch ev.Kind {
	case session.Created:
		m.Created.Inc()
		w.counts(e).Created.Add(1)
		w.publish(events.Created, e, ev)
		w.log(e, "session.created", "route", e.Route, "peer", ev.Peer, "group", e.Terms().Group)
	case session.Resumed:
		m.Detached.Observe(ev.Elapsed.Seconds())
		w.resumed(e, ev)
		w.keepAlone(e)
		w.publish(events.Resumed, e, ev)
		w.log(e, "session.resumed", "peer", ev.Peer, "epoch", ev.Epoch, "away", ev.Outage, "replay", ev.Replay, "lost", ev.Lost, "skipped", ev.Skipped)
	case session.Superseded:
		w.resumed(e, ev)
		w.publish(events.Superseded, e, ev)
		w.log(e, "session.superseded", "peer", ev.Peer, "was", ev.OldPeer, "epoch", ev.Epoch, "away", ev.Outage, "replay", ev.Replay, "lost", ev.Lost, "skipped", ev.Skipped)
	case session.Disconnected:
		m.Drops.Inc()
		w.counts(e).Detached.Add(1)
		w.publish(events.Detached, e, ev)
		w.log(e, "session.detached", "peer", ev.Peer, "epoch", ev.Epoch, "reason", ev.Reason, "silent", ev.Silent)
	case session.Overflowed:
		w.publish(events.Overflowed, e, ev)
		w.o.Log.Warn("buffer.overflowed", "session", e.ID, "reason", ev.Reason)
	case session.Started:
		w.publish(events.Started, e, ev)
		w.log(e, "session.started", "group", e.Terms().Group)
	case session.Replayed:
		m.Resume.Observe(ev.Elapsed.Seconds())
	case session.Pong:
		m.RTT.Observe(ev.Elapsed.Seconds())
	case session.Message:
		w.message(e, ev)
	default:
		w.upstream(e, ev)
	}
}

// upstream is Session for what has happened to e's connection to its game server.
func (w *Watch) upstream(e *registry.Record, ev session.Event) {
	switch ev.Kind {
	case session.UpstreamLost:
		w.publish(events.UpstreamLost, e, ev)
		w.log(e, "session.upstream_lost", append([]any{"reason", ev.Reason}, alone(ev)...)...)
	case session.UpstreamClosed:
		e.SetAlone(registry.Alone{Reason: ev.Reason, Silent: ev.Silent})
		w.publish(events.UpstreamClosed, e, ev)
		w.log(e, "session.upstream_closed", append([]any{"reason", ev.Reason}, alone(ev)...)...)
	case session.UpstreamBack:
		w.publish(events.UpstreamBack, e, ev)
		w.log(e, "session.upstream_back", "after", ev.Elapsed)
	case session.StatesNoticed:
		if flag := registry.NewestFlag(ev.Detail); w.counts(e).Newest.Swap(&flag) == nil {
			w.log(e, "states.noticed", "route", e.Route, "hint", flag, "text", "most of what waited for this client looks like states of which only the newest counts")
		}
	case session.KeepaliveNoticed:
		if flag, first := w.noticed(e, ev.Keepalive); first {
			w.log(e, "keepalive.noticed", "route", e.Route, "mode", e.Terms().Keepalive.String(), "hint", flag)
		}
	case session.KeepaliveSent:
		w.Metrics.Keepalives.WithLabelValues(map[bool]string{true: "auto", false: "flag"}[ev.Own]).Inc()
	}
}

// resumed counts and logs a resume, of a detached session or of an attached one.
func (w *Watch) resumed(e *registry.Record, ev session.Event) {
	w.Metrics.Outage.Observe(ev.Outage.Seconds())
	w.counts(e).Resumed.Add(1)
	if ev.Moved == "" {
		return
	}
	e.Note(events.Moved, session.Event{Peer: ev.Peer, Reason: ev.Moved})
	w.add(e, events.Event{Type: events.Moved, Reason: ev.Moved})
	w.log(e, "session.moved", "how", ev.Moved, "owners", e.Seat().Epoch)
}

// Explained returns ev, the end of e, with the keepalive that the game server may have missed in its detail.
func (w *Watch) Explained(e *registry.Record, ev session.Event) session.Event {
	if e.Alone() == nil {
		return ev
	}
	info := *ev.Info
	ev.Detail = explained(ev.Detail, e.Snapshot(info))
	info.Ending.Detail, ev.Info = ev.Detail, &info
	return ev
}

// Ended logs, counts and publishes that e has ended.
func (w *Watch) Ended(e *registry.Record, ev session.Event) {
	w.Metrics.Ended.WithLabelValues(ev.Reason).Inc()
	w.counts(e).Ended.Add(1)
	if ev.Elapsed > 0 {
		w.Metrics.Detached.Observe(ev.Elapsed.Seconds())
	}
	detail, stats := front.Clip(ev.Detail), ev.Info.Stats
	w.add(e, events.Event{Type: events.Ended, Reason: ev.Reason, Detail: detail, By: e.Ender()})
	w.log(e, "session.ended", "peer", e.Peer(), "reason", ev.Reason, "detail", detail, "by", e.Ender(),
		"to_client", stats.ToClient, "to_upstream", stats.ToUpstream, "dropped", stats.Dropped, "skipped", stats.Skipped)
}

// LostElsewhere reports that a session of a lost node has ended because its client resumed at no other node.
func (w *Watch) LostElsewhere(id string, s *registry.State) {
	ev := events.Event{Type: events.Ended, Session: id, Reason: session.ReasonNodeLost}
	if s != nil {
		ev.Player, ev.Group, ev.Path = s.Player, s.Terms.Group, s.Path
	}
	w.Metrics.Ended.WithLabelValues(session.ReasonNodeLost).Inc()
	w.Events.Add(ev)
	w.o.Log.Info("session.ended", "session", id, "player", ev.Player, "path", ev.Path, "reason", session.ReasonNodeLost)
}

// Panicked reports a panic in one session's code, which has ended that session.
func (w *Watch) Panicked(e *registry.Record, value any, stack []byte) {
	w.Metrics.Panics.Inc()
	w.o.Log.Error("session.panicked", "session", e.ID, "fault", value, "stack", string(stack))
}

// log writes a line about e, which the same fields identify in every line.
func (w *Watch) log(e *registry.Record, key string, more ...any) {
	if !w.o.Log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	args := []any{"session", e.ID, "player", e.Player, "path", e.Path, "client", e.Client()}
	w.o.Log.Info(key, append(args, more...)...)
}

// message logs one message, --log-messages.
func (w *Watch) message(e *registry.Record, ev session.Event) {
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
	w.o.Log.Info("session.message", args...)
}

// publish adds an event to the session's history and to the event stream.
func (w *Watch) publish(kind string, e *registry.Record, ev session.Event) {
	e.Note(kind, ev)
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
	w.add(e, out)
}

// add adds an event of e to the event stream.
func (w *Watch) add(e *registry.Record, ev events.Event) {
	ev.Session, ev.Player, ev.Group, ev.Path = e.ID, e.Player, e.Terms().Group, e.Path
	w.Events.Add(ev)
}
