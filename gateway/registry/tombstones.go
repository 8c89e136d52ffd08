package registry

import (
	"container/heap"
	"time"

	"reseat/gateway/session"
	"reseat/tokens/generation"
)

const (
	// maxTombstones bounds them where --max-sessions does not say how many sessions
	// there may be.
	maxTombstones = 100_000
	// minTombstones are kept however few sessions there may be.
	minTombstones = 1_000
	// maxHistories is how many tombstones, the newest, have a history.
	maxHistories = 1_000
)

// A tombstone is what is kept of a session that has ended, so that a later resume can
// be told how.
type tombstone struct {
	info    Snapshot
	past    history
	ending  session.Ending
	tokens  generation.Line
	expires time.Time // with its monotonic part
	subject string

	place int // in the heap; negative once it has been removed
}

// tombstones are those of a registry, bounded in number: a stranger who opens and ends
// sessions, where the grace period is a day, would fill the memory with them. The oldest
// go first.
type tombstones struct {
	max   int
	byID  map[string]*tombstone
	due   dueTombstones
	queue []*tombstone // oldest first; those that have expired meanwhile are still in it
	bare  int          // queue[:bare] have no history any more
}

// newTombstones makes room for as many as maxSessions, zero for no limit, can leave
// behind.
func newTombstones(maxSessions int) *tombstones {
	limit := maxTombstones
	if maxSessions > 0 {
		limit = max(minTombstones, 4*maxSessions)
	}
	return &tombstones{max: limit, byID: make(map[string]*tombstone)}
}

// add keeps t until it expires, or until there are too many after it.
func (ts *tombstones) add(t *tombstone) {
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
	if len(ts.queue) > 2*len(ts.byID)+minTombstones {
		ts.compact()
	}
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

// compact takes those that have expired out of the queue.
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

// expire drops those whose time is over.
func (ts *tombstones) expire(now time.Time) {
	for len(ts.due) > 0 && now.After(ts.due[0].expires) {
		t := heap.Pop(&ts.due).(*tombstone)
		delete(ts.byID, t.info.ID)
		t.past = history{}
	}
}

// dueTombstones is a heap by the time at which they expire.
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
