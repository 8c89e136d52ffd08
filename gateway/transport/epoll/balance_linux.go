package epoll

import (
	"math"
	"math/rand/v2"
	"sync/atomic"

	"reseat/gateway/session"
)

// A balance is what a loop knows of its own load, and of the sessions that it is about to hand on.
//
// Each session counts what it costs. When a window ends in which the loop was busy, it plans to hand half of what
// it has more than the least busy loop to that one. In the window that follows it chooses, as they are served,
// sessions which together cost that much. One that costs more alone stays: it would only be another loop's burden.
type balance struct {
	began  session.Time // of this turn
	busy   atomic.Int64 // ns spent in turns
	share  atomic.Int64 // see shareAt
	asOf   atomic.Int64 // session.Time, when share was measured
	window uint32       // its number
	since  session.Time // when it began
	before int64        // busy then
	spent  int64        // of all sessions, in this window

	// While a loop is busy, it compares the processor time of every fourth turn with the time that passes: it may
	// have to wait for a processor, and then another loop would only take that from it.
	pressed   bool
	turns     uint32
	cpuBegan  int64 // of this turn; negative: it is not measured
	wall, cpu int64 // of the turns measured, in this window

	plan   plan
	chosen []*Session
	moved  atomic.Uint64

	random *rand.Rand // see everyTurn
}

// everyTurn is a seed for tests. If it is not zero, all loops are in use, and each hands the sessions that it has
// served in a turn to one chosen at random. The build tag reseat_moves sets it.
var everyTurn uint64

// A plan says which sessions leave a loop.
type plan struct {
	to   *Loop // nil: none
	left int64 // cost, in units of spend
	any  bool  // also those that cost more
}

// maxHands is the max number of sessions that a loop hands on in one turn, a few microseconds each.
const maxHands = 32

// spend counts what serving s has cost: one unit for the turn, and one for each 16 KiB of effort.
func (s *Session) spend(effort int) {
	l := s.loop
	if s.window != l.window {
		s.last = 0
		if s.window == l.window-1 {
			s.last = s.work
		}
		s.window, s.work = l.window, 0
	}
	n := 1 + effort>>14
	s.work += uint32(n)
	l.spent += int64(n)
	if l.plan.to != nil {
		l.choose(s)
	}
}

// choose chooses s to leave, if the plan wants it to.
func (l *Loop) choose(s *Session) {
	cost := int64(s.last)
	if s.chosen || len(l.chosen) == maxHands || !l.plan.any && (cost == 0 || cost > l.plan.left) {
		return
	}
	s.chosen = true
	l.plan.left -= cost
	l.chosen = append(l.chosen, s)
}

// endTurn hands on the sessions that were chosen, and measures.
func (l *Loop) endTurn() {
	if len(l.chosen) > 0 {
		l.handOn()
	}
	now := l.clock.Now()
	took := int64(max(0, now.Sub(l.began)))
	total := l.busy.Add(took)
	if l.cpuBegan >= 0 {
		l.wall += took
		l.cpu += min(max(0, l.all.threadTime()-l.cpuBegan), took)
	}
	if l.random != nil {
		l.plan = plan{l.all.list[l.random.IntN(len(l.all.list))], math.MaxInt64, true}
		return
	}
	passed := now.Sub(l.since)
	if passed < window {
		return
	}
	if passed < staleAge { // else it has waited most of the time, and what expect says is newer
		l.share.Store(l.measured(min(1000, (total-l.before)*1000/int64(passed))))
		l.asOf.Store(int64(now))
	}
	spent := l.spent
	l.window, l.since, l.before, l.spent = l.window+1, now, total, 0
	l.all.review(now)
	l.plan = l.newPlan(now, spent)
}

// measured returns a share without the time for which the loop had no processor.
func (l *Loop) measured(share int64) int64 {
	wall, cpu, was := l.wall, l.cpu, l.pressed
	l.wall, l.cpu, l.pressed = 0, 0, share > busy
	switch {
	case share <= busy:
		return share
	case !was || wall == 0:
		return busy // the next window shows it
	}
	return share * cpu / wall
}

// startCPU begins to measure the processor time of a turn.
func (l *Loop) startCPU() {
	l.turns++
	l.cpuBegan = -1
	if l.pressed && l.turns%4 == 0 {
		l.cpuBegan = l.all.threadTime()
	}
}

func (l *Loop) handOn() {
	list, to := l.chosen[:0], l.plan.to
	for _, s := range l.chosen {
		s.chosen = false
		if s.loop == l && s.atRest() == nil {
			list = append(list, s)
		}
	}
	if len(list) > 0 && to != l && !l.closing && l.all.paused.Load() == 0 {
		l.moved.Add(uint64(len(list)))
		l.hand(list, to)
	}
	clear(l.chosen)
	l.chosen = l.chosen[:0]
}

// newPlan plans for the window that begins now. Sessions of the one before have cost spent together.
func (l *Loop) newPlan(now session.Time, spent int64) plan {
	own := l.shareAt(now)
	used := l.index < int(l.all.inUse.Load())
	if used && own <= busy {
		return plan{}
	}
	var to *Loop
	for _, other := range l.all.list[:l.all.inUse.Load()] {
		if other != l && (to == nil || other.shareAt(now) < to.shareAt(now)) {
			to = other
		}
	}
	switch {
	case to == nil:
		return plan{}
	case !used:
		return plan{to, math.MaxInt64, true}
	}
	more := own - to.shareAt(now)
	if more < gap {
		return plan{}
	}
	to.expect(more/2, now)
	return plan{to: to, left: spent * more / (2 * own)}
}

// expect adds to l's share what another loop is about to hand to it, until l measures it itself.
func (l *Loop) expect(share int64, now session.Time) {
	l.share.Store(l.shareAt(now) + share)
	l.asOf.Store(int64(now))
}

// shareAt returns l's share of the last window: how many thousandths of it were spent in turns. A loop that waits
// measures nothing.
func (l *Loop) shareAt(now session.Time) int64 {
	if now.Sub(session.Time(l.asOf.Load())) > staleAge {
		return 0
	}
	return l.share.Load()
}
