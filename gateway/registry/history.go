package registry

import (
	"slices"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// maxDetail is the maximum size of a peer's text in a history, in bytes.
const maxDetail = 200

// maxMoments is the maximum number of entries in a session's history.
const maxMoments = 32

// A Moment is one entry of a session's history. Its JSON is part of the control API.
type Moment struct {
	Time   time.Time `json:"time"`
	Type   string    `json:"type"`   // as in the event stream
	Peer   string    `json:"peer"`   // the client's address; "" if no client is involved
	Was    string    `json:"was"`    // of session.superseded: the older connection's address; of grace.changed: the older grace period; else empty
	Reason string    `json:"reason"` // "" if there is none
	Detail string    `json:"detail"` // of session.ended: the close reason or error; of grace.changed: the new grace period
	By     string    `json:"by"`     // of session.ended: who ended it by the control API, as in the audit log; else empty
	Silent string    `json:"silent"` // of session.detached and session.upstream_closed: how long the client had been silent, as in flags; else empty
	Away   string    `json:"away"`   // of session.resumed and session.superseded: since the last sign of life before, as in flags; else empty
	Replay uint64    `json:"replay"` // messages that a resume replayed
	Lost   uint64    `json:"lost"`   // messages that were dropped before it,
	// Skipped is how many newer ones had replaced.
	Skipped uint64 `json:"skipped"`
	Times   int    `json:"times"` // how often in a row, the last one at Time
}

// GraceChanged is the Type of a Moment without an event: Patch changed the grace period.
const GraceChanged = "grace.changed"

// A history is the events of one session: the first one, and the newest of the rest. A
// session that is never disconnected has one entry.
type history struct {
	list []Moment
	left int // entries dropped after the first one
}

// note adds m. It merges repetitions into one entry, so that a thief who sends tokens
// over and over cannot evict the others.
func (h *history) note(m Moment) {
	m.Times = 1
	if m.Type == events.Created { // a change by the API may be noted before
		h.list = slices.Insert(h.list, 0, m)
		return
	}
	if n := len(h.list); n > 0 {
		last := &h.list[n-1]
		if last.Type == m.Type && repeats(m.Type) {
			m.Times += last.Times
			*last = m
			return
		}
		if n == maxMoments {
			h.list = slices.Delete(h.list, 1, 2)
			h.left++
		}
	}
	h.list = append(h.list, m)
}

// repeats reports whether an event can repeat without limit.
func repeats(kind string) bool { return kind == events.Replayed || kind == events.Overflowed }

// NewMoment returns the history entry of an event that happens now.
func NewMoment(kind string, ev session.Event) Moment {
	m := Moment{Time: time.Now().UTC(), Type: kind, Peer: ev.Peer, Was: ev.OldPeer, Reason: ev.Reason, Detail: frame.Clip(ev.Detail, maxDetail), Replay: ev.Replay, Lost: ev.Lost, Skipped: ev.Skipped}
	switch kind {
	case events.Detached, events.UpstreamClosed:
		m.Silent = FormatDuration(ev.Silent.Round(time.Millisecond))
	case events.Resumed, events.Superseded:
		m.Away = FormatDuration(ev.Outage.Round(time.Millisecond))
	}
	return m
}

// Note adds an event to e's history.
func (e *Record) Note(kind string, ev session.Event) {
	m := NewMoment(kind, ev)
	if kind == events.Created {
		m.Time = e.Since.UTC() // the same time as in Snapshot
	}
	if kind == events.Ended {
		m.By = e.Ender()
	}
	e.AppendMoment(m)
}

// AppendMoment adds m to the history.
func (e *Record) AppendMoment(m Moment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.past.note(m)
}

// moments copies e's history.
func (e *Record) moments() history {
	e.mu.Lock()
	defer e.mu.Unlock()
	return history{slices.Clone(e.past.list), e.past.left}
}

// History lists the events of a session, living or remembered, oldest first: its first
// entry, and the newest of the rest. left is how many in between were dropped.
func (r *Registry) History(id string) (list []Moment, left int, ok bool) {
	if e := r.Find(id); e != nil {
		h := e.moments()
		return h.list, h.left, true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if g := r.ended.byID[id]; g != nil {
		return slices.Clone(g.past.list), g.past.left, true
	}
	return nil, 0, false
}
