package registry

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"reseat/gateway/transport"
)

func (ts *tombstones) of(id string, expires time.Time) *tombstone {
	t := newTombstone(&outcome{info: Snapshot{ID: id}}, history{list: make([]Moment, 3)}, expires)
	ts.add(t)
	return t
}

func TestTombstonesAreBoundedAndOldestAreEvicted(t *testing.T) {
	for maxSessions, want := range map[int]int{0: maxTombstones, 50: 1000, 250: 1000, 1000: 4000} {
		ts := newTombstones(maxSessions)
		began := time.Now()
		for i := range want + 500 {
			ts.of(fmt.Sprint(i), began.Add(24*time.Hour-time.Duration(i)*time.Millisecond)) // the newest would expire first
		}
		if len(ts.byID) != want || len(ts.due) != want || len(ts.queue) != want {
			t.Errorf("max-sessions %d: %d, %d and %d are kept, want %d", maxSessions, len(ts.byID), len(ts.due), len(ts.queue), want)
		}
		if ts.byID["499"] != nil || ts.byID["500"] == nil {
			t.Errorf("max-sessions %d: the oldest is not the one that goes", maxSessions)
		}
	}
}

// After a rush of sessions that have ended, nothing ends that would have the expired ones removed.
func TestExpiredTombstonesAreReleasedWithoutNewOnes(t *testing.T) {
	ts := newTombstones(0)
	began := time.Now()
	for i := range 5 * minTombstones {
		ts.of(fmt.Sprint(i), began.Add(30*time.Second))
	}
	if ts.expire(began.Add(time.Minute)); len(ts.queue) > minTombstones {
		t.Errorf("%d expired tombstones are kept", len(ts.queue))
	}
}

func TestOnlyNewestTombstonesKeepHistory(t *testing.T) {
	ts := newTombstones(0)
	for i := range 3 * maxHistories {
		ts.of(fmt.Sprint(i), time.Now().Add(time.Hour))
	}
	n := 0
	for _, stone := range ts.byID {
		if stone.past.list != nil {
			n++
		}
	}
	if n != maxHistories || ts.byID[fmt.Sprint(3*maxHistories-1)].past.list == nil {
		t.Errorf("%d have a history, want the newest %d", n, maxHistories)
	}
}

// whole fails unless exactly queue[:bare] have no history, and at most maxHistories have
// one.
func (ts *tombstones) whole(t *testing.T) {
	t.Helper()
	with := 0
	for i, stone := range ts.queue {
		if stone.place < 0 { // expired
			continue
		}
		if stone.past.list != nil {
			with++
		}
		if (stone.past.list == nil) != (i < ts.bare) {
			t.Fatalf("%d of %d: history %v, but %d have none", i, len(ts.queue), stone.past.list != nil, ts.bare)
		}
	}
	if with > maxHistories {
		t.Fatalf("%d have a history", with)
	}
}

func TestHistoriesStayBoundedWhenTheOldestAreDropped(t *testing.T) {
	ts := newTombstones(1000)
	for i := range 3 * ts.max {
		ts.of(fmt.Sprint(i), time.Now().Add(time.Hour))
	}
	ts.whole(t)
}

func TestHistoriesStayBoundedWhenExpiredOnesAreRemoved(t *testing.T) {
	ts := newTombstones(0)
	began := time.Now()
	for i := range 6 * maxHistories {
		life := time.Hour
		if i%2 == 0 {
			life = time.Second
		}
		ts.of(fmt.Sprint(i), began.Add(life))
		if i%101 == 0 {
			ts.expire(began.Add(time.Minute))
			ts.compact()
			ts.whole(t)
			if len(ts.queue) != len(ts.byID) {
				t.Fatalf("%d in the queue, %d by id", len(ts.queue), len(ts.byID))
			}
		}
	}
}

func TestTombstonesExpireByTheirTime(t *testing.T) {
	ts := newTombstones(0)
	began := time.Now()
	for i := range 100 {
		ts.of(fmt.Sprint(i), began.Add(time.Duration(i*37%100)*time.Second))
	}
	for after := range 100 {
		ts.expire(began.Add(time.Duration(after)*time.Second + 1))
		if len(ts.byID) != 99-after || len(ts.due) != 99-after {
			t.Fatalf("after %d s %d and %d are kept, want %d", after, len(ts.byID), len(ts.due), 99-after)
		}
	}
}

// There may be a hundred thousand, and each object that one holds is visited by every collection of
// garbage.
func TestTombstoneIsSmall(t *testing.T) {
	since, rtt := time.Now().UTC(), 1.5
	o := &outcome{subject: "player-1", info: Snapshot{ID: "0123456789abcdef", Player: "player-1", Peer: "192.0.2.1", Grace: "45s", EndedSince: &since, RTT: &rtt}}
	var stone *tombstone
	if n := testing.AllocsPerRun(100, func() { stone = newTombstone(o, history{}, since) }); n > 4 { // it, what it holds, and two that are garbage at once
		t.Errorf("%v objects", n)
	}
	if size := len(stone.packed); size > 120 {
		t.Errorf("%d bytes", size)
	}
}

// A page of a hundred thousand must not decode them all: it stops at the one that shows that there are more.
func TestTombstonesAreListedByPages(t *testing.T) {
	r := New(transport.NewClock(), Limits{})
	defer r.Close()
	r.mu.Lock()
	for i := range 1000 {
		r.buryLocked(newTombstone(&outcome{info: Snapshot{ID: fmt.Sprint(i), Player: fmt.Sprint("p", i%2), seq: uint64(1000 - i)}}, history{}, time.Now().Add(time.Hour)))
	}
	r.mu.Unlock()
	f := Filter{Player: "p1", Limit: 60}
	var seen []uint64
	for {
		list := r.ListTombstones(f)
		if len(list) > f.Limit+1 {
			t.Fatalf("%d sessions for a page of %d", len(list), f.Limit)
		}
		page, next := f.Page(list)
		for _, s := range page {
			seen = append(seen, s.seq)
		}
		if f.After = next; next == 0 {
			break
		}
	}
	if len(seen) != 500 || seen[0] != 1 || !slices.IsSorted(seen) || len(slices.Compact(seen)) != 500 {
		t.Errorf("%d sessions, %v", len(seen), seen)
	}
	if n := len(r.ListTombstones(Filter{Player: "p1"})); n != 500 {
		t.Errorf("%d without a limit", n)
	}
}
