package registry

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/tlv"
)

// A Snapshot is a session as the control API shows it, docs/control-api.md.
type Snapshot struct {
	ID            string     `json:"id"`
	State         string     `json:"state"`
	Player        string     `json:"player"`
	Group         string     `json:"group"`
	Peer          string     `json:"peer"`
	Route         string     `json:"route"`
	Path          string     `json:"path"`      // of the first request, percent-encoded, without the query; at most 200 bytes
	Client        string     `json:"client"`    // resumable, cookie or plain
	Resumable     bool       `json:"resumable"` // false for a plain client
	Since         time.Time  `json:"since"`
	Grace         string     `json:"grace"`
	Overflow      string     `json:"overflow"`
	Newest        []string   `json:"newest"` // as the flags
	Started       bool       `json:"started"`
	DetachedSince *time.Time `json:"detached_since"`
	Expires       *time.Time `json:"expires"` // end of the grace period; nil unless detached
	EndedSince    *time.Time `json:"ended_since"`
	RTT           *float64   `json:"rtt_ms"`    // smoothed; nil until measured
	Silent        *int64     `json:"silent_ms"` // since the last sign of life of the client; nil if there was none, or the session has ended
	// Keepalive is the flag for what the client sends at a steady pace, to paste; "" if there is nothing.
	Keepalive string `json:"keepalive"`
	// NewestHint is the flag for messages that look like states, to paste; "" if none do.
	NewestHint string `json:"newest_hint"`
	// ClosedAfter is the silence of the client, as in flags, before the game server closed the connection
	// of the detached session; "" if it has not.
	ClosedAfter string `json:"closed_after,omitempty"`

	Received       uint64 `json:"received"`
	Written        uint64 `json:"written"`
	Sent           uint64 `json:"sent"`
	Acked          uint64 `json:"acked"`
	BufferMessages int    `json:"buffer_messages"`
	BufferBytes    int64  `json:"buffer_bytes"`
	Dropped        uint64 `json:"dropped"` // by the overflow policy
	Skipped        uint64 `json:"skipped"` // replaced by newer ones
	// The limits of the replay buffer.
	BufferMaxMessages int   `json:"buffer_max_messages"`
	BufferMaxBytes    int64 `json:"buffer_max_bytes"`

	Reason string `json:"reason,omitempty"` // of an ended one
	Detail string `json:"detail,omitempty"` // the close reason that went with it

	By string `json:"by,omitempty"` // who ended it by the control API, as in the audit log

	// Durable is Covered, Exposed or NotDurable; of an ended session as it was at the end.
	Durable string `json:"durable"`
	// Epoch is that of the session's seat: it counts claims and hand-offs.
	Epoch uint64 `json:"epoch"`
	// Moved says how it came to its node: as in hello.moved, "" if it began there.
	Moved string `json:"moved"`

	// Node is the name of the node that has the session, "" outside a cluster. The control
	// API sets it.
	Node string `json:"node,omitempty"`

	seq uint64
}

// A Filter selects sessions; an empty field matches all.
type Filter struct {
	Group, Player, State string
	After                uint64 // the cursor of the page before, zero for the first
	Limit                int    // max number of results; zero where a list is not limited
}

// Page returns the first page of a list, and the cursor of the next, zero if there is none.
func (f *Filter) Page(list []Snapshot) (_ []Snapshot, next uint64) {
	if len(list) <= f.Limit {
		return list, 0
	}
	return list[:f.Limit], list[f.Limit-1].seq
}

// fits reports whether a session may match, as far as known without querying it.
func (f *Filter) fits(seq uint64, player, group string) bool {
	return seq > f.After && (f.Player == "" || f.Player == player) && (f.Group == "" || f.Group == group)
}

// Select lists the living sessions that may match f, in the order of their creation.
func (r *Registry) Select(f Filter) (list []*Record) {
	r.mu.RLock()
	for _, e := range r.live {
		if f.fits(e.seq, e.Player, e.Terms().Group) {
			list = append(list, e)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(list, func(a, b *Record) int { return cmp.Compare(a.seq, b.seq) })
	return list
}

// ListTombstones lists the remembered sessions that match f, in the order of their creation. With a
// limit it lists one more than that at most, so that Page knows whether there are more.
func (r *Registry) ListTombstones(f Filter) (list []Snapshot) {
	var stones []*tombstone
	r.mu.RLock()
	for _, t := range r.ended.byID {
		if t.seq > f.After {
			stones = append(stones, t)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(stones, func(a, b *tombstone) int { return cmp.Compare(a.seq, b.seq) })
	for _, t := range stones { // what is packed never changes
		o := t.outcome()
		if !f.fits(o.info.seq, o.info.Player, o.info.Group) {
			continue
		}
		if list = append(list, o.info); f.Limit > 0 && len(list) > f.Limit {
			break
		}
	}
	return list
}

// Count returns the number of living sessions.
func (r *Registry) Count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.live)
}

// Info queries e's session, if it has begun. It reports false if e has ended or never
// began.
func (r *Registry) Info(e *Record) (i session.Info, living bool) {
	if d := e.Driver(); d != nil {
		return d.Info(), true
	}
	return session.Info{State: session.Connecting, Grace: e.Terms().Session().GraceBeforeStart}, r.Find(e.ID) == e
}

// Snapshot describes e with its session's state i.
func (e *Record) Snapshot(i session.Info) Snapshot {
	s := Snapshot{
		ID: e.ID, State: i.State.String(), Player: e.Player, Group: e.Terms().Group, Peer: e.Peer(),
		Route: e.Route, Path: e.Path, Client: e.Client(), Resumable: e.Resumable || e.Kept(), Since: e.Since.UTC(),
		Grace: FormatDuration(i.Grace), Overflow: e.Terms().Overflow.String(), Newest: e.Terms().Newest.Values(), Started: i.Started,
		Received: i.Received, Written: i.Written, Sent: i.Sent, Acked: i.Acked,
		BufferMessages: i.BufferMessages, BufferBytes: i.BufferBytes, Dropped: i.Stats.Dropped, Skipped: i.Stats.Skipped,
		BufferMaxMessages: e.Terms().BufferMessages, BufferMaxBytes: e.Terms().BufferBytes,
		DetachedSince: e.wall(i.Detached), Expires: e.wall(i.GraceEnd), Reason: i.Ending.Reason, Detail: frame.Clip(i.Ending.Detail, maxDetail), seq: e.seq,
	}
	s.Keepalive, s.NewestHint = KeepaliveFlag(i.Keepalive), NewestFlag(i.States)
	if a := e.Alone(); a != nil {
		s.ClosedAfter = FormatDuration(a.Silent.Round(100 * time.Millisecond))
	}
	seat := e.Seat()
	s.Durable, s.Epoch, s.Moved = e.Durability(i.State), seat.Epoch, seat.Moved
	if i.RTT > 0 {
		ms := float64(max(i.RTT, time.Microsecond).Microseconds()) / 1000
		s.RTT = &ms
	}
	if i.Heard > 0 && i.State != session.Ended {
		s.Silent = WholeMS(e.clock.Now().Sub(i.Heard))
	}
	if i.State == session.Ended {
		s.By = e.Ender()
	}
	return s
}

// walk visits all but the id.
func (s *Snapshot) walk(c *tlv.Codec) {
	c.String(1, &s.State)
	c.String(2, &s.Player)
	c.String(3, &s.Group)
	c.String(4, &s.Peer)
	c.String(5, &s.Route)
	c.String(6, &s.Path)
	c.String(7, &s.Client)
	c.Bool(8, &s.Resumable)
	walkTime(c, 9, &s.Since)
	c.String(10, &s.Grace)
	c.String(11, &s.Overflow)
	c.Bool(12, &s.Started)
	tlv.Pointer(c, 13, &s.DetachedSince, walkOnlyTime)
	tlv.Pointer(c, 15, &s.Expires, walkOnlyTime)
	tlv.Pointer(c, 17, &s.EndedSince, walkOnlyTime)
	tlv.Pointer(c, 19, &s.RTT, func(x *float64, c *tlv.Codec) { c.Float(1, x) })
	tlv.Pointer(c, 21, &s.Silent, func(x *int64, c *tlv.Codec) { tlv.Num(c, 1, x) })
	tlv.Num(c, 23, &s.Received)
	tlv.Num(c, 24, &s.Written)
	tlv.Num(c, 25, &s.Sent)
	tlv.Num(c, 26, &s.Acked)
	tlv.Num(c, 27, &s.BufferMessages)
	tlv.Num(c, 28, &s.BufferBytes)
	tlv.Num(c, 29, &s.BufferMaxMessages)
	tlv.Num(c, 30, &s.BufferMaxBytes)
	c.String(31, &s.Reason)
	c.String(32, &s.Detail)
	c.String(33, &s.By)
	c.String(34, &s.Durable)
	tlv.Num(c, 35, &s.Epoch)
	c.String(36, &s.Moved)
	c.String(37, &s.Node)
	tlv.Num(c, 38, &s.seq)
	c.String(39, &s.Keepalive)
	c.String(40, &s.ClosedAfter)
	tlv.List(c, 41, &s.Newest, func(c *tlv.Codec, v *string) { c.String(1, v) })
	tlv.Num(c, 42, &s.Dropped)
	tlv.Num(c, 43, &s.Skipped)
	c.String(44, &s.NewestHint)
	if s.Newest == nil { // of an older process, or empty
		s.Newest = []string{}
	}
}

func walkOnlyTime(t *time.Time, c *tlv.Codec) { walkTime(c, 1, t) }

// Identity returns what identifies e, without querying its session.
func (e *Record) Identity() Snapshot {
	return Snapshot{ID: e.ID, Path: e.Path, Player: e.Player, Group: e.Terms().Group, Peer: e.Peer()}
}

// wall converts t to the wall clock, nil for the zero time.
func (e *Record) wall(t session.Time) *time.Time {
	if t <= 0 {
		return nil
	}
	w := e.clock.Wall(t).UTC()
	return &w
}

// FormatDuration formats d as flags accept it: "45s", not "45.000s" or "0m45s".
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// NewestFlag returns the flag with a rule, for a shell; "" for none.
func NewestFlag(rule string) string {
	if rule == "" {
		return ""
	}
	return "--newest " + quoted(rule)
}

// quoted returns a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// KeepaliveFlag returns the flag that has the gateway send k, for a shell; "" if its Every is zero.
func KeepaliveFlag(k session.Keepalive) string {
	if k.Every == 0 {
		return ""
	}
	value := FormatDuration(k.Every)
	switch k.Kind {
	case session.KeepaliveBinary:
		value += "/binary:" + hex.EncodeToString([]byte(k.Text))
	case session.KeepalivePing:
		value += "/ping:" + hex.EncodeToString([]byte(k.Text))
	default:
		value += ":" + k.Text
	}
	return "--keepalive-send " + quoted(value)
}

// Remembered describes an ended session that is remembered.
func (r *Registry) Remembered(id string) (Snapshot, bool) {
	r.mu.RLock()
	t := r.ended.byID[id]
	r.mu.RUnlock()
	if t == nil {
		return Snapshot{}, false
	}
	return t.outcome().info, true
}

// WholeMS returns d in whole milliseconds, as events and lists show it.
func WholeMS(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// Seq returns the session's place in the order of creation.
func (s *Snapshot) Seq() uint64 { return s.seq }
