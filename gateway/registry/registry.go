package registry

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens"
)

// remembered is the minimum time for which a resume can learn how its session ended: protocol section 6.
const remembered = 30 * time.Second

// A Registry holds the living sessions by id, and for a while those that have ended.
type Registry struct {
	Limits
	clock *transport.Clock
	tags  atomic.Uint64 // of the sessions' data: see NextTag

	mu      sync.RWMutex
	seq     uint64
	live    map[string]*Record
	players map[playerKey]map[*Record]struct{}
	blocks  map[netip.Prefix]int // living sessions by address
	ended   *tombstones
	past    session.Stats        // of ended sessions
	closing int                  // ended sessions with a leg not yet closed
	passing int                  // ordinary requests in flight
	asking  map[netip.Prefix]int // the same by address
	empty   chan struct{}        // closed while no session lives or is closing
	sweep   *time.Timer
}

// Limits of a Registry. Zero means no limit.
type Limits struct {
	Sessions, PerAddr int // living sessions: in total, and per client address (per /64 for IPv6)
	Open              int // sessions and ordinary requests together, by the process's descriptors
}

// New makes a Registry. Close ends its background work.
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

// Add registers e unless a limit, or another session of the same player (holder),
// forbids it.
func (r *Registry) Add(e *Record) (a Admission, holder *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.Sessions > 0 && len(r.live) >= r.Sessions:
		return TooManySessions, nil
	case r.exhaustedLocked(), r.Open > 0 && r.openLocked()+r.blocks[e.block]/sessionsOfOne >= r.Open:
		return OutOfDescriptors, nil
	case r.PerAddr > 0 && e.block.IsValid() && r.blocks[e.block] >= r.PerAddr:
		return TooManySessionsPerAddr, nil
	}
	if holder := r.holderLocked(e); holder != nil {
		return Duplicate, holder
	}
	r.seq++
	e.seq = r.seq
	r.addLocked(e)
	return Admitted, nil
}

// addLocked registers e, whose number is set.
func (r *Registry) addLocked(e *Record) {
	if len(r.live)+r.closing == 0 {
		r.empty = make(chan struct{})
	}
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
}

// sessionsOfOne is the part that one address (or /64) leaves to others: where it has nearly all
// of the sessions that descriptors allow, a ninth is left.
const sessionsOfOne = 8

// exhaustedLocked reports whether there are no descriptors for another session or
// request.
func (r *Registry) exhaustedLocked() bool { return r.Open > 0 && r.openLocked() >= r.Open }

// openLocked counts the sessions and ordinary requests. Each has two descriptors, its
// client's and its upstream's.
func (r *Registry) openLocked() int { return len(r.live) + r.closing + r.passing }

// InUse returns the number of descriptors in use by sessions and ordinary requests.
func (r *Registry) InUse() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return 2 * r.openLocked()
}

// Ordinary requests may use half of the descriptors that they share with sessions, and
// those of one address (or /64) an eighth of that: clients whose requests never end must
// leave room for new sessions.
const (
	requestShare   = 2
	requestsOfOne  = 8
	minOfOneClient = 8
)

// AdmitRequest admits an ordinary request from a block of addresses (zero if unknown), and reports
// whether there was room for it. If so, the caller must call EndRequest.
func (r *Registry) AdmitRequest(from netip.Prefix) bool {
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

// EndRequest ends an ordinary request.
func (r *Registry) EndRequest(from netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passing--
	if r.asking[from]--; r.asking[from] <= 0 {
		delete(r.asking, from)
	}
}

// Remove removes a session that never began.
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
	if len(r.live)+r.closing == 0 {
		close(r.empty)
	}
}

// LegsClosed is called when an ended session has closed both its legs.
func (r *Registry) LegsClosed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing--
	r.noteEmptyLocked()
}

// CountOpen counts the sessions that live or are closing.
func (r *Registry) CountOpen() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.live) + r.closing
}

// AddTombstone replaces an ended session by its tombstone.
func (r *Registry) AddTombstone(e *Record, info session.Info) {
	past := e.moments()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closeLocked(e, info) {
		return
	}
	now := time.Now() // with its monotonic part, for expire
	last, since := e.Snapshot(info), now.UTC()
	last.EndedSince = &since
	r.buryLocked(newTombstone(&outcome{last, info.Ending, info.Tokens, e.Subject()}, past, now.Add(max(remembered, e.Terms().LongestGrace()))))
}

// closeLocked removes a session whose legs are being closed. It reports false if that was done already.
func (r *Registry) closeLocked(e *Record, info session.Info) bool {
	r.closing++
	if !r.removeLocked(e) {
		return false
	}
	r.past = plus(r.past, info.Stats)
	e.live.Store(nil)
	return true
}

// buryLocked adds a tombstone.
func (r *Registry) buryLocked(t *tombstone) {
	if len(r.ended.byID) == 0 {
		r.sweep.Reset(time.Second)
	}
	r.ended.add(t)
}

// forget removes expired tombstones.
func (r *Registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended.expire(time.Now())
	if len(r.ended.byID) > 0 {
		r.sweep.Reset(time.Second)
	}
}

// Close forgets the tombstones, and ends the background work.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep.Stop()
	r.ended = newTombstones(0)
}

// Find returns a living session, nil if there is none.
func (r *Registry) Find(id string) *Record {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.live[id]
}

// Memo returns the Memo of a living session's newest token, nil if there is none.
func (r *Registry) Memo(session string) *tokens.Memo {
	if e := r.Find(session); e != nil {
		return e.Memo()
	}
	return nil
}

// Refusal returns the refusal of a resume for a session that does not live, and the
// session's last state if it is remembered.
func (r *Registry) Refusal(c tokens.Claims) (Snapshot, *session.Refusal) {
	r.mu.RLock()
	t := r.ended.byID[c.Session]
	r.mu.RUnlock()
	if t == nil {
		return Snapshot{}, session.Refuse(wire.CodeNoSession, "")
	}
	o := t.outcome()
	switch {
	case o.subject != c.Subject || !o.tokens.Good(c.Gen):
		ref := session.Refuse(wire.CodeBadToken, "superseded")
		ref.Superseded = o.subject == c.Subject
		return o.info, ref
	case o.ending.Code == wire.CodeNodeUnreachable: // no verdict
		return o.info, session.RefuseMoved()
	}
	return o.info, &session.Refusal{Code: o.ending.Code, Text: o.ending.Text}
}

// NoteLate adds an event to the history of a session that has ended.
func (r *Registry) NoteLate(id string, m Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.ended.byID[id]; g != nil {
		g.past.note(m)
	}
}

// All lists the living sessions in the order of their creation.
func (r *Registry) All() []*Record { return r.Select(Filter{}) }

// Drained returns a channel that is closed while no session lives or is closing.
func (r *Registry) Drained() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.empty
}

// A Survey is the state of all living sessions at one moment, in no order, and the counts
// of the sessions that ended before.
type Survey struct {
	List  []*Record
	Infos []session.Info // of each one; zero if it is connecting
	past  session.Stats
}

// Survey queries every living session.
func (r *Registry) Survey() (s Survey) {
	r.mu.RLock()
	s.past = r.past
	s.List = slices.Collect(maps.Values(r.live))
	drives := Drivers(s.List)
	r.mu.RUnlock()
	s.Infos = transport.Infos(drives)
	return s
}

// Census counts the living sessions by state, and the messages of all sessions, ended ones
// included.
func (s *Survey) Census() (states [session.Ended + 1]int, total session.Stats) {
	total = s.past
	for i := range s.Infos {
		states[s.Infos[i].State]++
		total = plus(total, s.Infos[i].Stats)
	}
	return states, total
}

// Drivers returns the sessions' drivers, nil for those that are connecting.
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
	a.Skipped += b.Skipped
	return a
}

// Usage counts what the registry holds, by kind. All are zero once every session and
// request has ended.
func (r *Registry) Usage() map[string]int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return map[string]int{
		"live sessions": len(r.live), "players": len(r.players), "address blocks": len(r.blocks), "sessions that are being closed": r.closing,
		"requests": r.passing, "blocks of requests": len(r.asking),
	}
}
