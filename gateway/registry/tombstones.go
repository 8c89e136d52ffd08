package registry

import (
	"container/heap"
	"time"

	"reseat/gateway/session"
	"reseat/tokens/generation"
)

const (
	// maxTombstones is the maximum number without --max-sessions.
	maxTombstones = 100_000
	// minTombstones is the maximum number with a smaller --max-sessions.
	minTombstones = 1_000
	// maxHistories is how many tombstones, counted from the newest, keep a history.
	maxHistories = 1_000
)

// A tombstone is what is kept of an ended session, so that a later resume can learn how it
// ended.
type tombstone struct {
	info    Snapshot
	past    history
	ending  session.Ending
	tokens  generation.Line
	expires time.Time // with its monotonic part
	subject string

	number uint64 // in the order in which they were added, from 1
	place  int    // index in the heap; negative once removed
}

// tombstones are bounded in number, and the oldest are evicted: with a grace period of a
// day, a client that opens and ends sessions would otherwise fill the memory.
type tombstones struct {
	max   int
	byID  map[string]*tombstone
	due   dueTombstones
	queue []*tombstone // oldest first, including expired ones
	bare  int          // queue[:bare] no longer have a history
	added uint64       // how many ever
}

// newTombstones sets the limit for maxSessions, zero for no limit on sessions.
func newTombstones(maxSessions int) *tombstones {
	limit := maxTombstones
	if maxSessions > 0 {
		limit = max(minTombstones, 4*maxSessions)
	}
	return &tombstones{max: limit, byID: make(map[string]*tombstone)}
}

// add keeps t until it expires, or is evicted.
func (ts *tombstones) add(t *tombstone) {
	ts.added++
	t.number = ts.added
	ts.byID[t.info.ID] = t
	heap.Push(&ts.due, t)
	ts.queue = append(ts.queue, t)
	for len(ts.byID) > ts.max {
		ts.dropOldest()
	}
	for len(ts.queue)-ts.bare > maxHistories {
		ts.queue[ts.bare].past = history{}
		ts.bare++
	}
	ts.tidy()
}

func (ts *tombstones) dropOldest() {
	oldest := ts.queue[0]
	ts.queue[0] = nil
	ts.queue = ts.queue[1:]
	ts.bare = max(ts.bare-1, 0)
	if oldest.place >= 0 {
		heap.Remove(&ts.due, oldest.place)
		delete(ts.byID, oldest.info.ID)
	}
}

// tidy compacts the queue once more than half of it has expired.
func (ts *tombstones) tidy() {
	if len(ts.queue) > 2*len(ts.byID)+minTombstones {
		ts.compact()
	}
}

// compact removes expired tombstones from the queue.
func (ts *tombstones) compact() {
	kept := make([]*tombstone, 0, len(ts.byID))
	bare := 0
	for i, t := range ts.queue {
		if t.place < 0 {
			continue
		}
		kept = append(kept, t)
		if i < ts.bare {
			bare = len(kept)
		}
	}
	ts.queue, ts.bare = kept, bare
}

// expire removes the tombstones that have expired by now.
func (ts *tombstones) expire(now time.Time) {
	for len(ts.due) > 0 && now.After(ts.due[0].expires) {
		t := heap.Pop(&ts.due).(*tombstone)
		delete(ts.byID, t.info.ID)
		t.past = history{}
	}
	ts.tidy()
}

// dueTombstones is a heap by time of expiry.
type dueTombstones []*tombstone

func (d dueTombstones) Len() int           { return len(d) }
func (d dueTombstones) Less(i, j int) bool { return d[i].expires.Before(d[j].expires) }
func (d dueTombstones) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push implements heap.Interface.
func (d *dueTombstones) Push(x any) {
	t := x.(*tombstone)
	t.place = len(*d)
	*d = append(*d, t)
}

// Pop implements heap.Interface.
func (d *dueTombstones) Pop() any {
	old := *d
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	t.place = -1
	return t
}
