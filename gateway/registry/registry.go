package registry

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens"
)

// remembered is how long a resume is told how a session ended, protocol
// section 6.
const remembered = 30 * time.Second

// A Registry knows the sessions by id, and for a while those that have ended.
type Registry struct {
	Limits
	clock *transport.Clock

	mu      sync.RWMutex
	seq     uint64
	live    map[string]*Record
	players map[playerKey]map[*Record]struct{}
	blocks  map[netip.Prefix]int // sessions begun from there
	ended   *tombstones
	past    session.Stats        // of the sessions that have ended
	taking  int                  // leave: ended, and a leg is not closed yet
	passing int                  // ordinary requests that are being passed on
	asking  map[netip.Prefix]int // the same by where they came from
	empty   chan struct{}        // closed while no session lives or takes leave
	sweep   *time.Timer
}

// Limits bound what a Registry takes. Zero is no limit.
type Limits struct {
	Sessions, PerAddr int // living sessions: all, and those begun from one address, or one /64 of IPv6
	Open              int // sessions and ordinary requests that the process has descriptors for
}

// New makes a Registry; Close ends what it does in the background.
func New(clock *transport.Clock, l Limits) *Registry {
	r := &Registry{
		clock: clock, Limits: l, live: make(map[string]*Record), players: make(map[playerKey]map[*Record]struct{}),
		blocks: make(map[netip.Prefix]int), ended: newTombstones(l.Sessions), asking: make(map[netip.Prefix]int), empty: make(chan struct{}),
	}
	close(r.empty)
	r.sweep = time.AfterFunc(time.Hour, r.forget)
	r.sweep.Stop()
	return r
}

// Add registers e unless a limit, or holder, another session of the same player,
// forbids it.
func (r *Registry) Add(e *Record) (a Admission, holder *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.Sessions > 0 && len(r.live) >= r.Sessions:
		return TooMany, nil
	case r.exhaustedLocked():
		return OutOfDescriptors, nil
	case r.PerAddr > 0 && e.block.IsValid() && r.blocks[e.block] >= r.PerAddr:
		return TooManyHere, nil
	}
	if holder := r.holderLocked(e); holder != nil {
		return Duplicate, holder
	}
	if len(r.live)+r.taking == 0 {
		r.empty = make(chan struct{})
	}
	r.seq++
	e.seq = r.seq
	r.live[e.ID] = e
	if e.player.name != "" {
		if r.players[e.player] == nil {
			r.players[e.player] = make(map[*Record]struct{})
		}
		r.players[e.player][e] = struct{}{}
	}
	if e.block.IsValid() {
		r.blocks[e.block]++
	}
	return Admitted, nil
}

// exhaustedLocked reports whether there are no descriptors for one more session, or
// one more request.
func (r *Registry) exhaustedLocked() bool { return r.Open > 0 && r.openLocked() >= r.Open }

// openLocked counts the sessions and ordinary requests: each has two descriptors,
// its client's and its upstream's.
func (r *Registry) openLocked() int { return len(r.live) + r.taking + r.passing }

// Taken is how many descriptors they have.
func (r *Registry) Taken() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return 2 * r.openLocked()
}

// Ordinary requests may take half of the descriptors that sessions and they share, and
// those of one address, or one /64, an eighth of that: strangers whose requests never
// end leave room for new players.
const (
	requestShare   = 2
	requestsOfOne  = 8
	minOfOneClient = 8
)

// Pass takes an ordinary request from a block of addresses in (the zero one: from
// nobody knows where), and reports whether there was room for it; passed is to follow.
func (r *Registry) Pass(from netip.Prefix) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Open > 0 {
		share := max(r.Open/requestShare, 1)
		ofOne := max(share/requestsOfOne, minOfOneClient)
		if r.exhaustedLocked() || r.passing >= share || from.IsValid() && r.asking[from] >= ofOne {
			return false
		}
	}
	r.passing++
	if from.IsValid() {
		r.asking[from]++
	}
	return true
}

// Passed says that the request is over.
func (r *Registry) Passed(from netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passing--
	if r.asking[from]--; r.asking[from] <= 0 {
		delete(r.asking, from)
	}
}

// Remove forgets a session that never came about.
func (r *Registry) Remove(e *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(e)
}

func (r *Registry) removeLocked(e *Record) bool {
	if r.live[e.ID] != e {
		return false
	}
	delete(r.live, e.ID)
	if of := r.players[e.player]; of != nil {
		delete(of, e)
		if len(of) == 0 {
			delete(r.players, e.player)
		}
	}
	if e.block.IsValid() {
		if r.blocks[e.block]--; r.blocks[e.block] == 0 {
			delete(r.blocks, e.block)
		}
	}
	r.noteEmptyLocked()
	return true
}

func (r *Registry) noteEmptyLocked() {
	if len(r.live)+r.taking == 0 {
		close(r.empty)
	}
}

// Left is called when an ended session has closed both its legs.
func (r *Registry) Left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taking--
	r.noteEmptyLocked()
}

// Staying counts the sessions that live or take leave.
func (r *Registry) Staying() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.live) + r.taking
}

// Bury moves an ended session to those that are remembered.
func (r *Registry) Bury(e *Record, info session.Info) {
	past := e.moments()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taking++
	if !r.removeLocked(e) {
		return
	}
	r.past = plus(r.past, info.Stats)
	e.live.Store(nil)
	if len(r.ended.byID) == 0 {
		r.sweep.Reset(time.Second)
	}
	now := time.Now() // with its monotonic part, for forget
	last, since := e.Snapshot(info), now.UTC()
	last.EndedSince = &since
	r.ended.add(&tombstone{
		info: last, past: past, ending: info.Ending, tokens: info.Tokens, subject: e.Subject(),
		expires: now.Add(max(remembered, e.Terms().LongestGrace())),
	})
}

// forget drops what has been remembered long enough.
func (r *Registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended.expire(time.Now())
	if len(r.ended.byID) > 0 {
		r.sweep.Reset(time.Second)
	}
}

func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep.Stop()
	r.ended = newTombstones(0)
}

func (r *Registry) Find(id string) *Record {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.live[id]
}

// Memo is the Memo of a living session's newest token, nil for none.
func (r *Registry) Memo(session string) *tokens.Memo {
	if e := r.Find(session); e != nil {
		return e.Memo()
	}
	return nil
}

// Refusal is what a resume of a session that does not live is told, and the
// session as it was, where it is remembered.
func (r *Registry) Refusal(c tokens.Claims) (Snapshot, *session.Refusal) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.ended.byID[c.Session]
	switch {
	case g == nil:
		return Snapshot{}, session.Refuse(wire.CodeNoSession, "")
	case g.subject != c.Subject || !g.tokens.Good(c.Gen):
		ref := session.Refuse(wire.CodeBadToken, "superseded")
		ref.Superseded = g.subject == c.Subject
		return g.info, ref
	}
	return g.info, &session.Refusal{Code: g.ending.Code, Text: g.ending.Text}
}

// NoteLate puts what has happened to a session after its end into its history.
func (r *Registry) NoteLate(id string, m Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.ended.byID[id]; g != nil {
		g.past.note(m)
	}
}

// All lists the living sessions in the order in which they were made.
func (r *Registry) All() []*Record {
	r.mu.RLock()
	list := make([]*Record, 0, len(r.live))
	for _, e := range r.live {
		list = append(list, e)
	}
	r.mu.RUnlock()
	slices.SortFunc(list, func(a, b *Record) int { return cmp.Compare(a.seq, b.seq) })
	return list
}

// None is closed while no session lives or takes leave.
func (r *Registry) None() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.empty
}

// A Survey is all living sessions at one moment, in no order, and what those
// that have ended before it had counted.
type Survey struct {
	List  []*Record
	Infos []session.Info // of each of them; the zero one of those that are connecting
	past  session.Stats
}

// Survey asks every living session.
func (r *Registry) Survey() (s Survey) {
	r.mu.RLock()
	s.past = r.past
	s.List = slices.Collect(maps.Values(r.live))
	drives := Drivers(s.List)
	r.mu.RUnlock()
	s.Infos = transport.Infos(drives)
	return s
}

// Census counts the living sessions by state, and the messages of all that
// ever lived.
func (s *Survey) Census() (states [session.Ended + 1]int, total session.Stats) {
	total = s.past
	for i := range s.Infos {
		states[s.Infos[i].State]++
		total = plus(total, s.Infos[i].Stats)
	}
	return states, total
}

// Drivers are the drivers of sessions, nil for those that are connecting.
func Drivers(list []*Record) []*transport.Session {
	drives := make([]*transport.Session, len(list))
	for i, e := range list {
		drives[i] = e.Driver()
	}
	return drives
}

func plus(a, b session.Stats) session.Stats {
	a.ToClient += b.ToClient
	a.ToUpstream += b.ToUpstream
	a.ToClientBytes += b.ToClientBytes
	a.ToUpstreamBytes += b.ToUpstreamBytes
	a.Replayed += b.Replayed
	a.Dropped += b.Dropped
	return a
}

// Held is how much the registry holds, by what it is: all zero once every session and
// request is over.
func (r *Registry) Held() map[string]int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return map[string]int{
		"live sessions": len(r.live), "players": len(r.players), "address blocks": len(r.blocks), "sessions that are being closed": r.taking,
		"requests": r.passing, "blocks of requests": len(r.asking),
	}
}
