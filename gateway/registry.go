package gateway

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

// A registry knows the sessions by id, and for a while those that have ended.
type registry struct {
	clock           *transport.Clock
	max, maxPerAddr int // sessions, and those of one block; zero: no bound
	maxOpen         int // sessions and requests that the process has descriptors for; zero: no bound

	mu      sync.RWMutex
	seq     uint64
	live    map[string]*entry
	players map[playerKey]map[*entry]struct{}
	blocks  map[netip.Prefix]int // sessions begun from there
	ended   *tombstones
	past    session.Stats        // of the sessions that have ended
	taking  int                  // leave: ended, and a leg is not closed yet
	passing int                  // ordinary requests that are being passed on
	asking  map[netip.Prefix]int // the same by where they came from
	empty   chan struct{}        // closed while no session lives or takes leave
	sweep   *time.Timer
}

func newRegistry(clock *transport.Clock) *registry {
	r := &registry{clock: clock, live: make(map[string]*entry), players: make(map[playerKey]map[*entry]struct{}), blocks: make(map[netip.Prefix]int), ended: newTombstones(0), asking: make(map[netip.Prefix]int), empty: make(chan struct{})}
	close(r.empty)
	r.sweep = time.AfterFunc(time.Hour, r.forget)
	r.sweep.Stop()
	return r
}

// add takes e in, unless there is no room, or holder, another session of its
// player, keeps it out.
func (r *registry) add(e *entry) (a admission, holder *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.max > 0 && len(r.live) >= r.max:
		return tooMany, nil
	case r.exhaustedLocked():
		return outOfDescriptors, nil
	case r.maxPerAddr > 0 && e.block.IsValid() && r.blocks[e.block] >= r.maxPerAddr:
		return tooManyHere, nil
	}
	if holder := r.holderLocked(e); holder != nil {
		return duplicate, holder
	}
	if len(r.live)+r.taking == 0 {
		r.empty = make(chan struct{})
	}
	r.seq++
	e.seq = r.seq
	r.live[e.ID] = e
	if e.player.name != "" {
		if r.players[e.player] == nil {
			r.players[e.player] = make(map[*entry]struct{})
		}
		r.players[e.player][e] = struct{}{}
	}
	if e.block.IsValid() {
		r.blocks[e.block]++
	}
	return admitted, nil
}

// exhaustedLocked reports whether there are no descriptors for one more session, or
// one more request.
func (r *registry) exhaustedLocked() bool { return r.maxOpen > 0 && r.openLocked() >= r.maxOpen }

// openLocked counts the sessions and ordinary requests: each has two descriptors,
// its client's and its upstream's.
func (r *registry) openLocked() int { return len(r.live) + r.taking + r.passing }

// taken is how many descriptors they have.
func (r *registry) taken() int {
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

// pass takes an ordinary request from a block of addresses in (the zero one: from
// nobody knows where), and reports whether there was room for it; passed is to follow.
func (r *registry) pass(from netip.Prefix) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maxOpen > 0 {
		share := max(r.maxOpen/requestShare, 1)
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

func (r *registry) passed(from netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passing--
	if r.asking[from]--; r.asking[from] <= 0 {
		delete(r.asking, from)
	}
}

// remove forgets a session that never came about.
func (r *registry) remove(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(e)
}

func (r *registry) removeLocked(e *entry) bool {
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

func (r *registry) noteEmptyLocked() {
	if len(r.live)+r.taking == 0 {
		close(r.empty)
	}
}

// left is called when an ended session has closed both its legs.
func (r *registry) left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taking--
	r.noteEmptyLocked()
}

// staying counts the sessions that live or take leave.
func (r *registry) staying() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.live) + r.taking
}

// bury moves an ended session to those that are remembered.
func (r *registry) bury(e *entry, info session.Info) {
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
	last, since := e.info(info), now.UTC()
	last.EndedSince = &since
	r.ended.add(&tombstone{
		info: last, past: past, ending: info.Ending, tokens: info.Tokens, subject: e.subject(),
		expires: now.Add(max(remembered, e.terms().longestGrace())),
	})
}

// forget drops what has been remembered long enough.
func (r *registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended.expire(time.Now())
	if len(r.ended.byID) > 0 {
		r.sweep.Reset(time.Second)
	}
}

func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep.Stop()
	r.ended = newTombstones(0)
}

func (r *registry) find(id string) *entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.live[id]
}

// memo is the Memo of a living session's newest token, nil for none.
func (r *registry) memo(session string) *tokens.Memo {
	if e := r.find(session); e != nil {
		return e.memo.Load()
	}
	return nil
}

// refusal is what a resume of a session that does not live is told, and the
// session as it was, where it is remembered.
func (r *registry) refusal(c tokens.Claims) (SessionInfo, *session.Refusal) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.ended.byID[c.Session]
	switch {
	case g == nil:
		return SessionInfo{}, session.Refuse(wire.CodeNoSession, "")
	case g.subject != c.Subject || !g.tokens.Good(c.Gen):
		ref := session.Refuse(wire.CodeBadToken, "superseded")
		ref.Superseded = g.subject == c.Subject
		return g.info, ref
	}
	return g.info, &session.Refusal{Code: g.ending.Code, Text: g.ending.Text}
}

// noteLate puts what has happened to a session after its end into its history.
func (r *registry) noteLate(id string, m Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.ended.byID[id]; g != nil {
		g.past.note(m)
	}
}

// all lists the living sessions in the order in which they were made.
func (r *registry) all() []*entry {
	r.mu.RLock()
	list := make([]*entry, 0, len(r.live))
	for _, e := range r.live {
		list = append(list, e)
	}
	r.mu.RUnlock()
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	return list
}

// none is closed while no session lives or takes leave.
func (r *registry) none() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.empty
}

// A survey is all living sessions at one moment, in no order, and what those
// that have ended before it had counted.
type survey struct {
	list  []*entry
	infos []session.Info // of each of them; the zero one of those that are connecting
	past  session.Stats
}

// survey asks every living session.
func (r *registry) survey() (s survey) {
	r.mu.RLock()
	s.past = r.past
	s.list = slices.Collect(maps.Values(r.live))
	drives := drivesOf(s.list)
	r.mu.RUnlock()
	s.infos = transport.Infos(drives)
	return s
}

// census counts the living sessions by state, and the messages of all that
// ever lived.
func (s *survey) census() (states [session.Ended + 1]int, total session.Stats) {
	total = s.past
	for i := range s.infos {
		states[s.infos[i].State]++
		total = plus(total, s.infos[i].Stats)
	}
	return states, total
}

// drivesOf are the drivers of sessions, nil for those that are connecting.
func drivesOf(list []*entry) []*transport.Session {
	drives := make([]*transport.Session, len(list))
	for i, e := range list {
		drives[i] = e.drive()
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
