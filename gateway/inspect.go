package gateway

import (
	"cmp"
	"net"
	"slices"
	"strings"
	"time"

	"reseat/gateway/drive"
	"reseat/gateway/session"
)

// SessionInfo is a session as the control API shows it, interface section 3.
type SessionInfo struct {
	ID            string     `json:"id"`
	State         string     `json:"state"`
	Player        string     `json:"player"`
	Group         string     `json:"group"`
	Peer          string     `json:"peer"`
	Route         string     `json:"route"`
	Resumable     bool       `json:"resumable"`
	Since         time.Time  `json:"since"`
	Grace         string     `json:"grace"`
	Overflow      string     `json:"overflow"`
	Started       bool       `json:"started"`
	DetachedSince *time.Time `json:"detached_since"`
	RTT           float64    `json:"rtt_ms"`

	Received       uint64 `json:"received"`
	Written        uint64 `json:"written"`
	Sent           uint64 `json:"sent"`
	Acked          uint64 `json:"acked"`
	BufferMessages int    `json:"buffer_messages"`
	BufferBytes    int64  `json:"buffer_bytes"`

	Reason string `json:"reason,omitempty"` // of an ended one

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
func (g *Gateway) Sessions(f Filter) (list []SessionInfo, next uint64) {
	source := g.living
	if f.State == session.Ended.String() {
		source = g.reg.ended
	}
	for _, i := range source() {
		switch {
		case i.seq <= f.After,
			f.Group != "" && f.Group != i.Group,
			f.Player != "" && f.Player != i.Player,
			f.State != "" && f.State != i.State:
			continue
		}
		if len(list) == f.Limit {
			return list, list[len(list)-1].seq
		}
		list = append(list, i)
	}
	return list, 0
}

func (g *Gateway) living() []SessionInfo {
	all := g.reg.all()
	list := make([]SessionInfo, 0, len(all))
	for i, info := range drive.Infos(drivesOf(all)) {
		if info.State != session.Ended {
			list = append(list, all[i].show(info))
		}
	}
	return list
}

// Session describes one session, living or remembered.
func (g *Gateway) Session(id string) (SessionInfo, bool) {
	if e := g.reg.find(id); e != nil {
		return e.describe(), true
	}
	return g.reg.remembered(id)
}

// End ends a session: code and reason go to the upstream, 4410 and reason to
// the client.
func (g *Gateway) End(id string, code int, reason string) Outcome {
	if e := g.reg.find(id); e != nil && e.drive() == nil {
		e.breakOff() // still connecting: the client gets the dial's failure
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

func (e *entry) describe() SessionInfo {
	if d := e.drive(); d != nil {
		return e.show(d.Info())
	}
	return e.show(session.Info{})
}

// show is what is shown of a session; the zero Info stands for one that has no
// driver yet.
func (e *entry) show(i session.Info) SessionInfo {
	if i.Created == 0 {
		i.State, i.Grace = session.Connecting, e.terms().session().GraceBeforeStart
	}
	s := SessionInfo{
		ID: e.ID, State: i.State.String(), Player: e.Player, Group: e.terms().Group, Peer: e.lastPeer(),
		Route: e.Route, Resumable: e.Resumable, Since: e.Since.UTC(),
		Grace: duration(i.Grace), Overflow: e.terms().Overflow.String(), Started: i.Started,
		RTT:      float64(i.RTT.Microseconds()) / 1000,
		Received: i.Received, Written: i.Written, Sent: i.Sent, Acked: i.Acked,
		BufferMessages: i.BufferMessages, BufferBytes: i.BufferBytes,
		Reason: i.Ending.Reason, seq: e.seq,
	}
	if i.Detached > 0 {
		t := e.g.clock.Wall(i.Detached).UTC()
		s.DetachedSince = &t
	}
	return s
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
	if g := r.graves[id]; g != nil {
		return g.entry.show(g.info), true
	}
	return SessionInfo{}, false
}

func (r *registry) ended() []SessionInfo {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]SessionInfo, 0, len(r.graves))
	for _, g := range r.graves {
		list = append(list, g.entry.show(g.info))
	}
	slices.SortFunc(list, func(a, b SessionInfo) int { return cmp.Compare(a.seq, b.seq) })
	return list
}
