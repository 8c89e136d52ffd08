package watch

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/front"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// Refusals lists the newest refused handshakes and resumes, the newest first.
func (w *Watch) Refusals() []Refusal {
	list, _ := w.ring.kept()
	slices.Reverse(list)
	return list
}

// keep adds a refusal of r to the list: label is the metric's, code that of the close, 0 where
// HTTP answered. Ordinary requests are not listed.
func (w *Watch) keep(r *front.Request, status, code int, label, detail, hint string) {
	if !r.WebSocket {
		return
	}
	kept := Refusal{Time: time.Now().UTC(), Status: status, Why: label, Path: r.ShownPath(), Peer: r.Addr.String(), Hint: hint}
	if code != 0 {
		kept.Code = &code
	}
	if detail != "" && detail != label {
		kept.Why = front.Clip(label + ": " + detail)
	}
	w.ring.add(1, kept)
	if r.Route != nil {
		r.Route.Counts.Refused.Add(1)
	}
}

// Refused counts, lists and logs a refused handshake. code is that of the close that refuses it,
// 0 where HTTP answers. more is a name in the log and a detail, or nothing.
func (w *Watch) Refused(r *front.Request, status, code int, label string, more ...any) {
	w.Metrics.Refused.WithLabelValues(label).Inc()
	detail := ""
	if len(more) > 1 {
		detail = fmt.Sprint(more[1])
	}
	hint := Hint(label, detail)
	w.keep(r, status, code, label, detail, hint)
	args := []any{"status", status, "why", label, "path", r.ShownPath(), "peer", r.Addr, "hint", hint}
	w.Limited.Info("handshake.refused", append(args, more...)...)
}

// OriginRefused logs which page was refused. Refused must be called too.
func (w *Watch) OriginRefused(r *front.Request, origin string) {
	w.Limited.Warn("origin.refused", "text", Hint("origin", origin), "origin", origin, "host", front.Clip(r.Host))
}

// UpstreamFailed logs that a session could not begin because its game server cannot be reached
// or refuses it.
func (w *Watch) UpstreamFailed(r *front.Request, e *registry.Record, err error) {
	w.Limited.Info("upstream.refused", "session", e.ID, "route", e.Route, "path", r.ShownPath(), "err", err)
}

// UpstreamRefused counts and lists a handshake that failed at the game server.
func (w *Watch) UpstreamRefused(r *front.Request, status, code int, err error) {
	w.Metrics.Refused.WithLabelValues("upstream").Inc()
	w.keep(r, status, code, "upstream", strings.TrimPrefix(err.Error(), "upstream "), Hint("upstream", upstreamFault(err)))
}

// Resumed counts a resume.
func (w *Watch) Resumed() { w.Metrics.Resumes.WithLabelValues(ResumeOK).Inc() }

// ResumeRefused lists and logs a refused resume, with what is known of its session.
func (w *Watch) ResumeRefused(r *front.Request, of registry.Snapshot, refusal *session.Refusal) {
	name := wire.Name(refusal.Code)
	detail := strings.TrimPrefix(refusal.Text, name+": ")
	switch {
	case refusal.Superseded:
		detail = "superseded"
	case of.Reason != "":
		detail = of.Reason
	}
	hint := Hint(name, detail)
	if of.ClosedAfter != "" && !refusal.Superseded {
		detail, hint = afterSilence(detail, of), w.keepaliveHint(of)
	}
	w.keep(r, http.StatusSwitchingProtocols, refusal.Code, name, detail, hint)
	args := []any{"code", refusal.Code, "why", refusal.Text, "path", r.ShownPath(), "peer", r.Addr}
	if of.ID != "" {
		args = append(args, "session", of.ID)
	}
	if refusal.Superseded {
		w.TokenReplayed(of)
		w.Limited.Warn("token.replayed", append(args, "held_by", of.Peer)...)
		return
	}
	w.Limited.Info("resume.refused", args...)
}

// TokenReplayed reports that a resume brought a token of a superseded generation, a bug or
// a theft. The session may have ended.
func (w *Watch) TokenReplayed(of registry.Snapshot) {
	w.Metrics.Replayed.Inc()
	if !w.replayed.Allow() {
		return
	}
	if e := w.o.Registry.Find(of.ID); e != nil {
		e.Note(events.Replayed, session.Event{})
	} else {
		w.o.Registry.NoteLate(of.ID, registry.NewMoment(events.Replayed, session.Event{}))
	}
	w.Events.Add(events.Event{Type: events.Replayed, Session: of.ID, Player: of.Player, Group: of.Group, Path: of.Path})
}

// NotForwarded logs that a resume could not be passed on to the node that has its session.
func (w *Watch) NotForwarded(r *front.Request, id, node, evidence string) {
	w.Limited.Info("resume.not_forwarded", "session", id, "node", node, "why", evidence, "path", r.ShownPath(), "peer", r.Addr)
}

// RefusedElsewhere lists a resume that NotForwarded has logged, and its close code.
func (w *Watch) RefusedElsewhere(r *front.Request, code int, evidence string) {
	name := wire.Name(code)
	w.keep(r, http.StatusSwitchingProtocols, code, name, evidence, Hint(name, ""))
}

// RefusalsSoFar returns the listed refusals, oldest first, and the number of all.
func (w *Watch) RefusalsSoFar() (list []Refusal, n int) {
	return w.ring.kept()
}

// ContinueRefusals adds the RefusalsSoFar of a predecessor.
func (w *Watch) ContinueRefusals(list []Refusal, n int) {
	w.ring.add(n, list...)
}
