package registry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"reseat/gateway/newest"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/tlv"
	"reseat/gateway/transport"
	"reseat/upstream"
)

// This file serialises records and tombstones, for an upgrade.

// A State is a Record for another process, without its driver and without what the other
// process finds in its own settings: the route's policy and the upstream's options.
type State struct {
	ID, Route, Path, Player string
	Resumable               bool
	Since                   time.Time
	Target                  string           // the upstream's URL if it is not the route's, else ""
	First                   upstream.Request // no path: nothing is sent again
	Protocol                string
	Peer                    string
	Terms                   StateTerms

	Durable bool
	Seat    Seat

	epoch uint64
	seq   uint64
	block netip.Prefix
	data  []byte
	tag   uint64
	ender string
	past  history

	alone *Alone
}

// StateTerms are the settings that a session keeps, even if the successor's settings for its route
// differ: those that were changed for it alone, and those that its core has too.
type StateTerms struct {
	Grace       time.Duration
	BeforeStart *time.Duration
	Overflow    session.Overflow
	Newest      *newest.Rules
	Group       string
	Kept, Hard  bool
	Redial      bool
	RedialFor   time.Duration
	MessageLog  session.MessageLog
}

// Apply returns t with the settings that the session keeps.
func (s *StateTerms) Apply(t *Terms) *Terms {
	n := *t
	n.Grace, n.GraceBeforeStart, n.Overflow, n.Newest, n.Group = s.Grace, s.BeforeStart, s.Overflow, s.Newest, s.Group
	n.PlainResume, n.Hard, n.MessageLog = s.Kept, s.Hard, s.MessageLog
	n.Redial, n.RedialFor = s.Redial, s.RedialFor
	return &n
}

// AppendState appends e's State. ofRoute is the upstream of e's route.
func (e *Record) AppendState(b []byte, ofRoute upstream.Target) []byte {
	s := e.state(ofRoute)
	return tlv.Append(b, s.walk)
}

func (e *Record) state(ofRoute upstream.Target) State {
	t := e.Terms()
	s := State{
		ID: e.ID, Route: e.Route, Path: e.Path, Player: e.Player, Resumable: e.Resumable, Since: e.Since, Peer: e.Peer(),
		Terms: StateTerms{
			Grace: t.Grace, BeforeStart: t.GraceBeforeStart, Overflow: t.Overflow, Newest: t.Newest, Group: t.Group,
			Kept: t.PlainResume, Hard: t.Hard, MessageLog: t.MessageLog,
			Redial: t.Redial, RedialFor: t.RedialFor,
		},
		seq: e.seq, block: e.block, Durable: e.Durable,
	}
	if e.Target.URL != ofRoute.URL {
		s.Target = e.Target.URL.String()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.first != nil {
		s.First = *e.first
	}
	if e.data != nil {
		s.data, s.tag = e.data.bytes, e.data.tag
	}
	s.Protocol, s.ender, s.past, s.epoch, s.alone = e.protocol, e.ender, e.past, e.epoch, e.alone
	s.Seat = e.seat
	s.past.list = slices.Clone(s.past.list) // it goes on
	return s
}

// ReadState reads what AppendState has written.
func ReadState(b []byte) (*State, error) {
	s := new(State)
	if err := tlv.Read(b, s.walk); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return s, nil
}

// Expect makes room for n further sessions.
func (r *Registry) Expect(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := make(map[string]*Record, len(r.live)+n)
	maps.Copy(live, r.live)
	r.live = live
}

// Restore makes a Record from s and registers it, whatever the limits are. Its driver
// follows by Adopt.
func (r *Registry) Restore(s *State, target upstream.Target, terms *Terms, realm any, store *replay.Store) *Record {
	e := &Record{
		clock: r.clock, ID: s.ID, Route: s.Route, Path: s.Path, Player: s.Player, Resumable: s.Resumable, Since: s.Since,
		Target: target, player: playerKey{realm: realm, name: s.Player}, block: s.block, won: true,
		protocol: s.Protocol, data: newUserData(s.data, s.tag), ender: s.ender, past: s.past, epoch: s.epoch, alone: s.alone,
		Durable: s.Durable, seat: s.Seat,
	}
	e.SetTerms(terms)
	e.SetPeer(s.Peer)
	if s.First.Path != "" {
		first := s.First // not all of s is kept
		e.first = &first
	}
	store.Charge(sizeOf(e.first))
	r.ContinueTags(s.tag)
	r.mu.Lock()
	defer r.mu.Unlock()
	e.seq = s.seq
	if r.numberedLocked(e.seq) { // an earlier number is better than two sessions with the same
		r.seq++
		e.seq = r.seq
	}
	r.seq = max(r.seq, e.seq)
	r.addLocked(e)
	return e
}

// Adopt gives a restored record its driver, and calls what Do has queued meanwhile.
func (e *Record) Adopt(d *transport.Session) {
	e.mu.Lock()
	e.live.Store(d)
	e.mu.Unlock()
	e.RunQueued()
}

// Release removes a session that a successor has taken over, and returns what it is charged
// for.
func (r *Registry) Release(e *Record, store *replay.Store) {
	r.mu.Lock()
	r.removeLocked(e)
	r.mu.Unlock()
	e.ReleaseMemory(store)
}

func (s *State) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &s.seq)
	c.String(2, &s.ID)
	c.String(3, &s.Route)
	c.String(4, &s.Path)
	c.String(5, &s.Player)
	c.Bool(6, &s.Resumable)
	walkTime(c, 7, &s.Since)
	c.String(8, &s.Target)
	c.String(9, &s.First.Path)
	c.String(10, &s.First.RawQuery)
	tlv.List(c, 11, &s.First.Protocols, func(c *tlv.Codec, p *string) { c.String(1, p) })
	c.String(12, &s.Protocol)
	c.String(13, &s.Peer)
	block, _ := s.block.MarshalText()
	if c.Bytes(14, &block); !c.Writing() {
		if err := s.block.UnmarshalText(block); err != nil {
			c.Fail(err)
		}
	}
	set := s.data != nil
	c.Bool(15, &set)
	if c.Bytes(16, &s.data); set && s.data == nil {
		s.data = []byte{}
	}
	tlv.Num(c, 17, &s.tag)
	c.String(18, &s.ender)
	c.Sub(19, s.past.walk)
	c.Sub(20, s.Terms.walk)
	tlv.Num(c, 21, &s.epoch)
	c.String(22, &s.First.Host)
	walkHeader(c, 23, &s.First.Header)
	c.Bool(24, &s.Durable)
	c.Sub(25, s.Seat.walk)
	c.Bool(26, &s.First.ForceQuery)
	tlv.Pointer(c, 27, &s.alone, func(a *Alone, c *tlv.Codec) {
		c.String(1, &a.Reason)
		tlv.Num(c, 2, &a.Silent)
	})
}

func walkHeader(c *tlv.Codec, id uint64, h *http.Header) {
	type field struct{ name, value string }
	var list []field
	for _, name := range slices.Sorted(maps.Keys(*h)) {
		for _, v := range (*h)[name] {
			list = append(list, field{name, v})
		}
	}
	tlv.List(c, id, &list, func(c *tlv.Codec, f *field) {
		c.String(1, &f.name)
		c.String(2, &f.value)
	})
	if c.Writing() || len(list) == 0 {
		return
	}
	*h = make(http.Header, len(list))
	for _, f := range list {
		(*h)[f.name] = append((*h)[f.name], f.value)
	}
}

func (t *StateTerms) walk(c *tlv.Codec) {
	tlv.Num(c, 1, &t.Grace)
	tlv.Pointer(c, 2, &t.BeforeStart, func(d *time.Duration, c *tlv.Codec) { tlv.Num(c, 1, d) })
	tlv.Num(c, 4, &t.Overflow)
	c.String(5, &t.Group)
	c.Bool(6, &t.Kept)
	c.Bool(7, &t.Hard)
	c.Bool(8, &t.MessageLog.On)
	tlv.Num(c, 9, &t.MessageLog.Prefix)
	c.Bool(10, &t.Redial)
	tlv.Num(c, 11, &t.RedialFor)
	session.WalkRules(c, 12, &t.Newest)
}

func (h *history) walk(c *tlv.Codec) {
	tlv.List(c, 1, &h.list, func(c *tlv.Codec, m *Moment) { m.walk(c) })
	tlv.Num(c, 2, &h.left)
}

func (m *Moment) walk(c *tlv.Codec) {
	walkTime(c, 1, &m.Time)
	c.String(2, &m.Type)
	c.String(3, &m.Peer)
	c.String(4, &m.Was)
	c.String(5, &m.Reason)
	c.String(6, &m.Detail)
	c.String(7, &m.By)
	c.String(8, &m.Silent)
	c.String(9, &m.Away)
	tlv.Num(c, 10, &m.Replay)
	tlv.Num(c, 11, &m.Lost)
	tlv.Num(c, 12, &m.Times)
	tlv.Num(c, 13, &m.Skipped)
}

// walkTime visits a time by the wall clock, without its monotonic part.
func walkTime(c *tlv.Codec, id uint64, t *time.Time) {
	n := t.UnixNano()
	if tlv.Num(c, id, &n); !c.Writing() {
		*t = time.Unix(0, n).UTC()
	}
}

// A tombstoneState is a tombstone in an upgrade.
type tombstoneState struct {
	outcome
	past    history
	expires time.Time
}

// walk visits a tombstone. It is written while sessions are served and resumes are refused, so
// its snapshot may be encoded slowly, and writing changes nothing.
func (t *tombstoneState) walk(c *tlv.Codec) {
	info, _ := json.Marshal(&t.info)
	if c.Bytes(1, &info); !c.Writing() {
		if err := json.Unmarshal(info, &t.info); err != nil {
			c.Fail(err)
		}
		t.info.Durable = cmp.Or(t.info.Durable, NotDurable) // an older process writes none
	}
	tlv.Num(c, 2, &t.info.seq)
	c.Sub(3, t.past.walk)
	t.walkEnd(c, 4)
	left := time.Until(t.expires)
	if tlv.Num(c, 12, &left); !c.Writing() {
		t.expires = time.Now().Add(left)
	}
}

// Tombstones returns the state of up to n tombstones that were added after the one with that
// number, 0 for all, and the number of the last one. Numbers are those of this process.
func (r *Registry) Tombstones(after uint64, n int) (list [][]byte, last uint64) {
	r.mu.RLock()
	var found []*tombstone
	last = after
	for _, t := range r.ended.queue {
		if t != nil && t.place >= 0 && t.number > after {
			if found = append(found, t); len(found) == n {
				break
			}
		}
	}
	if len(found) > 0 {
		last = found[len(found)-1].number
	}
	states := make([]tombstoneState, len(found))
	for i, t := range found {
		states[i] = tombstoneState{past: t.past, expires: t.expires}
		states[i].past.list = slices.Clone(t.past.list)
	}
	r.mu.RUnlock()
	for i, t := range found {
		states[i].outcome = *t.outcome()
		list = append(list, tlv.Write(states[i].walk))
	}
	return list, last
}

// RestoreTombstone adds a tombstone of Tombstones, and returns the session's id.
func (r *Registry) RestoreTombstone(b []byte) (id string, err error) {
	t := new(tombstoneState)
	if err := tlv.Read(b, t.walk); err != nil {
		return "", fmt.Errorf("tombstone: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live[t.info.ID] == nil {
		r.buryLocked(newTombstone(&t.outcome, t.past, t.expires))
	}
	return t.info.ID, nil
}

// Totals are counts that outlive sessions.
type Totals struct {
	Past session.Stats
	Seq  uint64
}

// Totals returns the counts of ended sessions, and the number of sessions ever registered.
func (r *Registry) Totals() Totals {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return Totals{r.past, r.seq}
}

// RestoreTotals adds the counts of a predecessor.
func (r *Registry) RestoreTotals(t Totals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past = plus(r.past, t.Past)
	r.seq = max(r.seq, t.Seq)
}

// numberedLocked reports whether a living session has this number.
func (r *Registry) numberedLocked(seq uint64) bool {
	if seq > r.seq {
		return false
	}
	for _, e := range r.live {
		if e.seq == seq {
			return true
		}
	}
	return false
}
