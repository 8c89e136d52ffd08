package registry

import (
	"cmp"
	"slices"
	"strings"

	"reseat/gateway/session"
)

// A View is a window on the sorted list of sessions. An empty field matches all.
type View struct {
	Filter            // After is ignored
	Text       string // substring of the id, player, group, address, route, path or client kind, ignoring case
	Sort       Sort
	Descending bool
	Offset     int
}

// A Sort is an order of sessions. Sessions without a value (the round trip of a detached
// client) come last, in either direction.
type Sort string

// The orders of a View.
const (
	BySince  Sort = "since" // by time of creation; also the zero Sort
	ByPlayer Sort = "player"
	ByGroup  Sort = "group"
	ByGrace  Sort = "grace"  // by the remaining grace period
	ByBuffer Sort = "buffer" // by the fill level of the replay buffer
	ByRTT    Sort = "rtt"
)

// Sorts lists the orders.
func Sorts() []Sort { return []Sort{BySince, ByPlayer, ByGroup, ByGrace, ByBuffer, ByRTT} }

// A rank is a session's position in an order.
type rank struct {
	at     int // index of the session
	seq    uint64
	name   string
	number float64
	silent bool // has no value in this order
}

// Living returns the window on the living sessions, its offset, and how many match.
func (v *View) Living(all *Survey) (list []Snapshot, offset, matching int) {
	var ranks []rank
	for i, e := range all.List {
		info := &all.Infos[i]
		if v.fitsLiving(e, info) {
			ranks = append(ranks, v.rank(i, e, info))
		}
	}
	ranks, offset, matching = v.window(ranks)
	for _, r := range ranks {
		e, info := all.List[r.at], all.Infos[r.at]
		if e.Driver() == nil { // connecting, or ended meanwhile
			info.Grace = e.Terms().Session().GraceBeforeStart
		}
		list = append(list, e.Snapshot(info))
	}
	return list, offset, matching
}

func (v *View) fitsLiving(e *Record, i *session.Info) bool {
	group := e.Terms().Group
	return i.State != session.Ended && (v.State == "" || v.State == i.State.String()) &&
		(v.Player == "" || v.Player == e.Player) && (v.Group == "" || v.Group == group) &&
		v.holds(e.ID, e.Player, group, e.Peer(), e.Route, e.Path, e.Client())
}

// holds reports whether one of the strings contains Text.
func (v *View) holds(where ...string) bool {
	if v.Text == "" {
		return true
	}
	text := strings.ToLower(v.Text)
	return slices.ContainsFunc(where, func(s string) bool { return strings.Contains(strings.ToLower(s), text) })
}

func (v *View) rank(at int, e *Record, i *session.Info) rank {
	r := rank{at: at, seq: e.seq}
	switch v.Sort {
	case ByPlayer:
		r.name, r.silent = e.Player, e.Player == ""
	case ByGroup:
		r.name = e.Terms().Group
		r.silent = r.name == ""
	case ByGrace:
		r.number, r.silent = float64(i.GraceEnd), i.GraceEnd == 0
	case ByBuffer:
		r.number = fill(i, e.Terms())
		r.silent = r.number == 0
	case ByRTT:
		r.number, r.silent = float64(i.RTT), i.RTT == 0
	}
	return r
}

// fill is the used fraction of a replay buffer: of its bytes or its messages, whichever
// is larger.
func fill(i *session.Info, t *Terms) float64 {
	return max(part(i.BufferBytes, t.BufferBytes), part(int64(i.BufferMessages), int64(t.BufferMessages)))
}

func part(n, most int64) float64 {
	if most <= 0 {
		return 0
	}
	return float64(n) / float64(most)
}

// Remembered returns the window on the remembered sessions. list is in the order of
// creation.
func (v *View) Remembered(list []Snapshot) (_ []Snapshot, offset, matching int) {
	var ranks []rank
	for i := range list {
		if s := &list[i]; v.holds(s.ID, s.Player, s.Group, s.Peer, s.Route, s.Path, s.Client) {
			r := v.rankOf(s)
			r.at, r.seq = i, s.seq
			ranks = append(ranks, r)
		}
	}
	ranks, offset, matching = v.window(ranks)
	window := make([]Snapshot, len(ranks))
	for i, r := range ranks {
		window[i] = list[r.at]
	}
	return window, offset, matching
}

// Merge sorts sessions of several nodes, of which each node has sorted its own, and returns
// those between offset and offset plus Limit.
func (v *View) Merge(list []Snapshot, offset int) []Snapshot {
	slices.SortStableFunc(list, func(a, b Snapshot) int {
		if c := v.compare(v.rankOf(&a), v.rankOf(&b)); c != 0 {
			return c
		}
		c := cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
		if v.Descending {
			return -c
		}
		return c
	})
	return list[min(offset, len(list)):min(offset+v.Limit, len(list))]
}

// rankOf is rank for a session that has ended, or that another node has described. One that has ended has a
// player and a group alone.
func (v *View) rankOf(s *Snapshot) (r rank) {
	by := v.Sort
	if s.State == session.Ended.String() && by != ByPlayer && by != ByGroup {
		by = BySince
	}
	switch by {
	case ByPlayer:
		r.name, r.silent = s.Player, s.Player == ""
	case ByGroup:
		r.name, r.silent = s.Group, s.Group == ""
	case ByGrace:
		if r.silent = s.Expires == nil; !r.silent {
			r.number = float64(s.Expires.UnixMicro())
		}
	case ByBuffer:
		r.number = max(part(s.BufferBytes, s.BufferMaxBytes), part(int64(s.BufferMessages), int64(s.BufferMaxMessages)))
		r.silent = r.number == 0
	case ByRTT:
		if r.silent = s.RTT == nil; !r.silent {
			r.number = *s.RTT
		}
	}
	return r
}

// window sorts the ranks and returns those to show. An offset beyond the end moves to the
// last page.
func (v *View) window(ranks []rank) (_ []rank, offset, matching int) {
	slices.SortFunc(ranks, v.compare)
	matching = len(ranks)
	offset = min(v.Offset, max(matching-v.Limit, 0))
	return ranks[offset:min(offset+v.Limit, matching)], offset, matching
}

func (v *View) compare(a, b rank) int {
	if a.silent != b.silent {
		if a.silent {
			return 1
		}
		return -1
	}
	c := cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.number, b.number), cmp.Compare(a.seq, b.seq))
	if v.Descending {
		return -c
	}
	return c
}
