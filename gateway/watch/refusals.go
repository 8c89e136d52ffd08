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
func (w *Watch) Refusals() []Refusal { return w.ring.newestFirst() }

// keep keeps that r was refused, for label, which is the metric's, and a detail: with a close of
// code, or by HTTP where that is 0. A request for no WebSocket is not kept.
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
	w.ring.add(kept)
	if r.Route != nil {
		r.Route.Counts.Refused.Add(1)
	}
}

// Refused counts, keeps and logs a refused handshake. code is that of the close that says so, 0
// where HTTP answers. more is a detail and its name in the log, if there is one.
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

// OriginRefused says which page was refused, beside Refused.
func (w *Watch) OriginRefused(r *front.Request, origin string) {
	w.Limited.Warn("origin.refused", "text", Hint("origin", origin), "origin", origin, "host", front.Clip(r.Host))
}

// UpstreamFailed logs that a session could not begin, as its game server cannot be reached or
// refuses it.
func (w *Watch) UpstreamFailed(r *front.Request, e *registry.Record, err error) {
	w.Limited.Info("upstream.refused", "session", e.ID, "route", e.Route, "path", r.ShownPath(), "err", err)
}

// UpstreamRefused counts and keeps it where it is the game server's fault.
func (w *Watch) UpstreamRefused(r *front.Request, status, code int, err error) {
	w.Metrics.Refused.WithLabelValues("upstream").Inc()
	w.keep(r, status, code, "upstream", strings.TrimPrefix(err.Error(), "upstream "), Hint("upstream", upstreamFault(err)))
}

// Resumed counts a resume.
func (w *Watch) Resumed() { w.Metrics.Resumes.WithLabelValues(ResumeOK).Inc() }

// ResumeRefused keeps and logs why a resume was refused, and the session as far as it is known.
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

// RefusedElsewhere keeps that such a resume was refused with code.
func (w *Watch) RefusedElsewhere(r *front.Request, code int, evidence string) {
	name := wire.Name(code)
	w.keep(r, http.StatusSwitchingProtocols, code, name, evidence, Hint(name, ""))
}

// RefusalsSoFar returns the refusals that are kept, oldest first, and how many there ever were.
func (w *Watch) RefusalsSoFar() (list []Refusal, n int) {
	list = w.ring.newestFirst()
	slices.Reverse(list)
	return list, w.ring.count()
}

// ContinueRefusals adds those of RefusalsSoFar, of a predecessor.
func (w *Watch) ContinueRefusals(list []Refusal, n int) {
	for _, f := range list {
		w.ring.add(f)
	}
	w.ring.setCount(n)
}
