package registry

import (
	"container/heap"
	"errors"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/tlv"
	"reseat/tokens/generation"
)

const (
	// maxTombstones is the maximum number without --max-sessions.
	maxTombstones = 100_000
	// minTombstones is the maximum number with a smaller --max-sessions.
	minTombstones = 1_000
	// Only the newest maxHistories tombstones keep a history.
	maxHistories = 1_000
)

// An outcome is what is known of an ended session, so that a later resume can learn how it
// ended.
type outcome struct {
	info    Snapshot
	ending  session.Ending
	tokens  generation.Line
	subject string
}

// A tombstone keeps an outcome. There may be a hundred thousand of them, and few are ever read:
// so the outcome is encoded, which takes a third of the memory, and nearly nothing of the
// garbage collector's time.
type tombstone struct {
	packed  string // the session's id and its outcome
	idSize  int    // of the id, in bytes
	seq     uint64 // the session's place in the order of creation
	past    history
	expires time.Time // with its monotonic part

	number uint64 // in the order in which they were added, from 1
	place  int    // index in the heap; negative once removed
}

func newTombstone(o *outcome, past history, expires time.Time) *tombstone {
	var b [512]byte
	packed := string(tlv.Append(append(b[:0], o.info.ID...), o.walk))
	return &tombstone{packed: packed, idSize: len(o.info.ID), seq: o.info.seq, past: past, expires: expires}
}

func (t *tombstone) id() string { return t.packed[:t.idSize] }

func (t *tombstone) outcome() *outcome {
	o := &outcome{info: Snapshot{ID: t.id()}}
	if err := tlv.Read([]byte(t.packed[t.idSize:]), o.walk); err != nil {
		panic("registry: a tombstone cannot be read: " + err.Error())
	}
	return o
}

// walk visits all but the id.
func (o *outcome) walk(c *tlv.Codec) {
	c.Sub(1, o.info.walk)
	o.walkEnd(c, 2)
}

// walkEnd visits all but the snapshot, by the numbers from first on.
func (o *outcome) walkEnd(c *tlv.Codec, first uint64) {
	c.String(first, &o.ending.Reason)
	tlv.Num(c, first+1, &o.ending.Code)
	c.String(first+2, &o.ending.Text)
	c.String(first+3, &o.ending.Detail)
	tlv.Num(c, first+4, &o.ending.At)
	issued, confirmed := o.tokens.Issued(), o.tokens.Confirmed()
	tlv.Num(c, first+5, &issued)
	tlv.Num(c, first+6, &confirmed)
	if !c.Writing() && !o.tokens.Restore(issued, confirmed) {
		c.Fail(errors.New("generations"))
	}
	c.String(first+7, &o.subject)
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
	ts.byID[t.id()] = t
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
		delete(ts.byID, oldest.id())
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
		delete(ts.byID, t.id())
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
