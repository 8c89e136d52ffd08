package registry

import (
	"slices"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// maxDetail bounds what others may write into a history, in bytes.
const maxDetail = 200

// maxMoments is how many entries a session's history keeps.
const maxMoments = 32

// A Moment is one entry of a session's history. In JSON it is what the control
// API shows.
type Moment struct {
	Time   time.Time `json:"time"`
	Type   string    `json:"type"`   // as in the event stream
	Peer   string    `json:"peer"`   // the client's address; empty where none has to do with it
	Was    string    `json:"was"`    // of session.superseded: the older connection's address; of grace.changed: the older grace period; else empty
	Reason string    `json:"reason"` // why; empty where there is nothing to say
	Detail string    `json:"detail"` // of session.ended: what was said with it; of grace.changed: the new grace period
	By     string    `json:"by"`     // of session.ended: who ended it by the control API, as in the audit log; else empty
	Silent string    `json:"silent"` // of session.detached: how long nothing had been heard of the client, as in flags; else empty
	Away   string    `json:"away"`   // of session.resumed and session.superseded: since the last sign of life before, as in flags; else empty
	Replay uint64    `json:"replay"` // messages that a resume replayed
	Lost   uint64    `json:"lost"`   // messages that were dropped before it
	Times  int       `json:"times"`  // how often in a row, the newest at Time
}

// GraceChanged is the Type of a Moment that no event stands for: the grace period was
// changed by Patch.
const GraceChanged = "grace.changed"

// A history is what has happened to one session: its beginning, and the newest
// of the rest. It costs a session that is never cut one entry.
type history struct {
	list []Moment
	left int // entries between the first and the others that are not kept any more
}

// note adds m. What comes again in a row, as a thief's tokens might, takes no
// room of its own.
func (h *history) note(m Moment) {
	m.Times = 1
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

// repeats reports whether an event can come many times with nothing in between.
func repeats(kind string) bool { return kind == events.Replayed || kind == events.Overflowed }

// NewMoment is what a history keeps of an event, now.
func NewMoment(kind string, ev session.Event) Moment {
	m := Moment{Time: time.Now().UTC(), Type: kind, Peer: ev.Peer, Was: ev.Was, Reason: ev.Reason, Detail: frame.Clip(ev.Detail, maxDetail), Replay: ev.Replay, Lost: ev.Lost}
	switch kind {
	case events.Detached:
		m.Silent = FormatDuration(ev.Silent.Round(time.Millisecond))
	case events.Resumed, events.Superseded:
		m.Away = FormatDuration(ev.Away.Round(time.Millisecond))
	}
	return m
}

// Note puts what has happened to e into its history.
func (e *Record) Note(kind string, ev session.Event) {
	m := NewMoment(kind, ev)
	if kind == events.Created {
		m.Time = e.Since.UTC() // as everywhere else
	}
	if kind == events.Ended {
		m.By = e.Ender()
	}
	e.Keep(m)
}

// Keep adds m to the history.
func (e *Record) Keep(m Moment) {
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

// History lists what has happened to a session, living or remembered, oldest first: its
// first entry, and the newest ones of the rest. left is how many in between are not kept
// any more.
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
