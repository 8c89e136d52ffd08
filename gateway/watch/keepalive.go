package watch

import (
	"net/http"
	"strings"
	"time"

	"reseat/gateway/front"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// This file reports the keepalives that clients send, --keepalive-send, and game servers that close the connection
// of a detached session, perhaps because they miss them.

// noticed keeps the flag for what e's client sends at a steady pace, and reports whether it is the first of e's route.
func (w *Watch) noticed(e *registry.Record, k session.Keepalive) (flag string, first bool) {
	flag = registry.KeepaliveFlag(k)
	return flag, w.counts(e).Keepalive.Swap(&flag) == nil
}

// alone returns the fields of a log line about a connection that the game server closed while the client was detached:
// for how long the client was silent and detached, and the flag for its keepalive.
func alone(ev session.Event) (args []any) {
	if ev.Silent == 0 {
		return nil
	}
	args = []any{"silent", ev.Silent, "detached", ev.Elapsed}
	if flag := registry.KeepaliveFlag(ev.Keepalive); flag != "" {
		args = append(args, "hint", flag)
	}
	return args
}

// keepAlone adds a refusal for a resume whose game server has closed the connection meanwhile: the session ends as
// soon as the client has received the rest.
func (w *Watch) keepAlone(e *registry.Record) {
	a := e.Alone()
	if a == nil {
		return
	}
	i, _ := w.o.Registry.Info(e)
	s := e.Snapshot(i)
	label, code := wire.Name(wire.CodeUpstreamLost), wire.CodeUpstreamLost
	if strings.HasPrefix(a.Reason, "closed") {
		label, code = session.ReasonUpstreamClosed, wire.CodeEnded
	}
	w.ring.add(1, Refusal{
		Time: time.Now().UTC(), Status: http.StatusSwitchingProtocols, Code: &code,
		Why: front.Clip(label + ": " + afterSilence(a.Reason, s)), Path: e.Path, Peer: e.Peer(), Hint: w.keepaliveHint(s),
	})
}

// explained adds to the detail of the end of a session for how long the client was silent, and its keepalive.
func explained(detail string, s registry.Snapshot) string {
	if detail = afterSilence(detail, s); s.Keepalive != "" {
		detail += "; " + s.Keepalive
	}
	return detail
}

// afterSilence adds to a detail for how long the client had been silent.
func afterSilence(detail string, s registry.Snapshot) string {
	return strings.TrimPrefix(detail+", "+s.ClosedAfter+" after the client was last heard", ", ")
}

// keepaliveHint returns the hint for a session whose game server closed the connection while the client was detached.
func (w *Watch) keepaliveHint(s registry.Snapshot) string {
	mode := session.KeepaliveOff
	if rt := w.o.Table.Route(s.Route); rt != nil {
		mode = rt.Policy.Keepalive
	}
	switch {
	case mode == session.KeepaliveOff:
		return "--keepalive-send: hint finds out what the client sends at a steady pace, which the game server may miss"
	case s.Keepalive == "":
		return "--keepalive-send: if the game server closes for silence, send what it expects; nothing that the client sends at a steady pace was noticed"
	case mode == session.KeepaliveAuto:
		return noSetting + "the game server closed although the client's keepalive was sent"
	}
	return "--keepalive-send: the client sends this while it is there, and the game server may miss it: " + s.Keepalive
}
