package gateway

import (
	"cmp"
	"net"
	"slices"
	"strings"
	"time"

	"reseat/gateway/session"
)

// SessionInfo is a session as the control API shows it, docs/control-api.md.
type SessionInfo struct {
	ID            string     `json:"id"`
	State         string     `json:"state"`
	Player        string     `json:"player"`
	Group         string     `json:"group"`
	Peer          string     `json:"peer"`
	Route         string     `json:"route"`
	Client        string     `json:"client"`    // resumable, cookie or plain
	Resumable     bool       `json:"resumable"` // its client can come back: any but a plain one
	Since         time.Time  `json:"since"`
	Grace         string     `json:"grace"`
	Overflow      string     `json:"overflow"`
	Started       bool       `json:"started"`
	DetachedSince *time.Time `json:"detached_since"`
	Expires       *time.Time `json:"expires"` // when its grace period is over; nil while it is not detached
	EndedSince    *time.Time `json:"ended_since"`
	RTT           *float64   `json:"rtt_ms"`    // smoothed; nil until measured
	Silent        *int64     `json:"silent_ms"` // since anything was heard of the client; nil where nothing ever was, and for an ended one

	Received       uint64 `json:"received"`
	Written        uint64 `json:"written"`
	Sent           uint64 `json:"sent"`
	Acked          uint64 `json:"acked"`
	BufferMessages int    `json:"buffer_messages"`
	BufferBytes    int64  `json:"buffer_bytes"`
	// What the replay buffer may hold.
	BufferMostMessages int   `json:"buffer_most_messages"`
	BufferMostBytes    int64 `json:"buffer_most_bytes"`

	Reason string `json:"reason,omitempty"` // of an ended one
	Detail string `json:"detail,omitempty"` // and what was said with it: an operator's words, or the game server's

	seq uint64
}

// A Filter chooses sessions; an empty field chooses all.
type Filter struct {
	Group, Player, State string
	After                uint64 // the cursor of the page before, zero for the first
	Limit                int    // at most so many
}

// Sessions lists sessions in the order in which they were made, and the cursor
// of the next page, zero where this is the last. Ended ones are listed only
// where State asks for them.
//
// Only those that their group, player and place in the list leave over are
// asked for their state, and no more of them than the page needs.
func (g *Gateway) Sessions(f Filter) (list []SessionInfo, next uint64) {
	if f.State == session.Ended.String() {
		return f.page(g.reg.remembers(f))
	}
	for _, e := range g.reg.choose(f) {
		i, living := g.reg.look(e)
		switch {
		case !living || i.State == session.Ended, f.State != "" && f.State != i.State.String():
			continue
		case len(list) == f.Limit:
			return list, list[len(list)-1].seq
		}
		list = append(list, e.info(i))
	}
	return list, 0
}

// page is the first page of a list.
func (f *Filter) page(list []SessionInfo) (_ []SessionInfo, next uint64) {
	if len(list) <= f.Limit {
		return list, 0
	}
	return list[:f.Limit], list[f.Limit-1].seq
}

// fits reports what can be said of a session without asking it.
func (f *Filter) fits(seq uint64, player, group string) bool {
	return seq > f.After && (f.Player == "" || f.Player == player) && (f.Group == "" || f.Group == group)
}

// choose lists the living sessions that may fit f, in the order in which they
// were made.
func (r *registry) choose(f Filter) (list []*entry) {
	r.mu.RLock()
	for _, e := range r.live {
		if f.fits(e.seq, e.Player, e.terms().Group) {
			list = append(list, e)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	return list
}

// remembers lists the remembered sessions that fit f.
func (r *registry) remembers(f Filter) (list []SessionInfo) {
	r.mu.RLock()
	for _, g := range r.ended.byID {
		if f.fits(g.info.seq, g.info.Player, g.info.Group) {
			list = append(list, g.info)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(list, func(a, b SessionInfo) int { return cmp.Compare(a.seq, b.seq) })
	return list
}

// count is how many sessions live.
func (r *registry) count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.live)
}

// Session describes one session, living or remembered.
func (g *Gateway) Session(id string) (SessionInfo, bool) {
	if e := g.reg.find(id); e != nil {
		if i, living := g.reg.look(e); living {
			return e.info(i), true
		}
	}
	return g.reg.remembered(id)
}

// End ends a session: code and reason go to the upstream, 4410 and reason to
// the client.
func (g *Gateway) End(id string, code int, reason string) Outcome {
	if e := g.reg.find(id); e != nil && e.drive() == nil {
		e.breakFirst() // still connecting: the client gets the dial's failure
		e.do(func(core *session.Session, now session.Time) { core.Terminate(now, code, reason) })
		return Done
	}
	return g.change(id, func(core *session.Session, now session.Time) bool {
		if core.State() == session.Ended {
			return false
		}
		core.Terminate(now, code, reason)
		return true
	})
}

// Disconnect cuts the client's connection without a Close.
func (g *Gateway) Disconnect(id string) Outcome {
	if e := g.reg.find(id); e != nil {
		e.awaitFirst()
	}
	return g.change(id, func(core *session.Session, now session.Time) bool { return core.Disconnect(now) })
}

// CloseClient closes the client's connection with a Close frame of code, as
// something between client and gateway would.
func (g *Gateway) CloseClient(id string, code int, reason string) Outcome {
	return g.change(id, func(core *session.Session, now session.Time) bool { return core.CloseClient(now, code, reason) })
}

// ClientConn is the network connection of the attached client, nil where there
// is none: for cutting it in a demo.
func (g *Gateway) ClientConn(id string) net.Conn {
	if e := g.reg.find(id); e != nil && e.drive() != nil {
		return e.drive().Client()
	}
	return nil
}

// change calls f as the owner of a live session; f reports whether it could.
func (g *Gateway) change(id string, f func(*session.Session, session.Time) bool) Outcome {
	e := g.reg.find(id)
	if e == nil {
		return g.gone(id)
	}
	d := e.drive()
	if d == nil {
		return Conflict
	}
	done := false
	d.Do(func(core *session.Session, now session.Time) { done = f(core, now) })
	if !done {
		return Conflict
	}
	return Done
}

// look asks the session itself, once there is one. It reports false where e has
// been buried, or never came about.
func (r *registry) look(e *entry) (i session.Info, living bool) {
	if d := e.drive(); d != nil {
		return d.Info(), true
	}
	return session.Info{State: session.Connecting, Grace: e.terms().session().GraceBeforeStart}, r.find(e.ID) == e
}

func (e *entry) info(i session.Info) SessionInfo {
	s := SessionInfo{
		ID: e.ID, State: i.State.String(), Player: e.Player, Group: e.terms().Group, Peer: e.lastPeer(),
		Route: e.Route, Client: e.client(), Resumable: e.Resumable || e.kept(), Since: e.Since.UTC(),
		Grace: duration(i.Grace), Overflow: e.terms().Overflow.String(), Started: i.Started,
		Received: i.Received, Written: i.Written, Sent: i.Sent, Acked: i.Acked,
		BufferMessages: i.BufferMessages, BufferBytes: i.BufferBytes,
		BufferMostMessages: e.terms().BufferMessages, BufferMostBytes: e.terms().BufferBytes,
		DetachedSince: e.wall(i.Detached), Expires: e.wall(i.GraceEnd), Reason: i.Ending.Reason, Detail: clip(i.Ending.Detail), seq: e.seq,
	}
	if i.RTT > 0 {
		ms := float64(max(i.RTT, time.Microsecond).Microseconds()) / 1000
		s.RTT = &ms
	}
	if i.Heard > 0 && i.State != session.Ended {
		s.Silent = wholeMS(e.clock.Now().Sub(i.Heard))
	}
	return s
}

// name is what tells e from others, without asking its session for anything.
func (e *entry) name() SessionInfo {
	return SessionInfo{ID: e.ID, Player: e.Player, Group: e.terms().Group, Peer: e.lastPeer()}
}

// wall is t on the wall clock, nil for no time.
func (e *entry) wall(t session.Time) *time.Time {
	if t <= 0 {
		return nil
	}
	w := e.clock.Wall(t).UTC()
	return &w
}

// duration writes d as flags take it: "45s", not "45.000s" or "0m45s".
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func (r *registry) remembered(id string) (SessionInfo, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if g := r.ended.byID[id]; g != nil {
		return g.info, true
	}
	return SessionInfo{}, false
}
