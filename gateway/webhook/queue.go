package webhook

import (
	"container/heap"
	"container/list"
	"slices"
	"time"

	"reseat/gateway/events"
)

// An item is one event that is queued.
type item struct {
	events.Event
	id string // the same for every attempt
	// lost counts the events that a gap stands for.
	lost uint64

	line  *line
	place *list.Element // in queue.order
}

// A line holds one session's events, oldest first. Its head is the only one that
// is being posted, so that the events of a session arrive in order.
type line struct {
	session string
	items   []*item
	busy    bool // its head is being posted

	// Of the head: how often it failed, since when, and when to try again.
	tries int
	since time.Time
	due   time.Time

	index int // in queue.ready, where it is not busy
}

// A queue holds at most limit events. It does no I/O, reads no clock and takes no
// lock: the Hook's loop owns it.
//
// Invariant: every line has at least one item, and is either busy or in ready.
type queue struct {
	limit int
	lines map[string]*line
	ready waiting
	order *list.List // of *item, oldest first
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, lines: map[string]*line{}, order: list.New()}
}

func (q *queue) len() int { return q.order.Len() }

// push queues an event. It returns the one it evicted, or nil.
func (q *queue) push(it *item) (dropped *item) {
	if q.order.Len() >= q.limit {
		dropped = q.dropOldest()
	}
	l := q.lines[it.Session]
	if l == nil {
		l = &line{session: it.Session, items: []*item{it}}
		q.lines[it.Session] = l
	} else {
		l.items = append(l.items, it)
	}
	it.line = l
	it.place = q.order.PushBack(it)
	if len(l.items) == 1 {
		heap.Push(&q.ready, l)
	}
	return dropped
}

// dropOldest removes and returns the oldest event that is not in flight, or nil.
func (q *queue) dropOldest() *item {
	for e := q.order.Front(); e != nil; e = e.Next() {
		it := e.Value.(*item)
		if l := it.line; !l.busy || l.items[0] != it {
			q.remove(it)
			return it
		}
	}
	return nil
}

// remove removes an item, and its line with the last one.
func (q *queue) remove(it *item) {
	l := it.line
	q.order.Remove(it.place)
	i := slices.Index(l.items, it)
	if l.items = slices.Delete(l.items, i, i+1); i == 0 {
		l.tries, l.since, l.due = 0, time.Time{}, time.Time{}
	}
	if len(l.items) > 0 {
		if !l.busy {
			heap.Fix(&q.ready, l.index)
		}
		return
	}
	delete(q.lines, l.session)
	if !l.busy {
		heap.Remove(&q.ready, l.index)
	}
}

// take returns a line whose head is due, and makes it busy. If there is none it
// returns nil and when one is due, zero for never.
func (q *queue) take(now time.Time) (*line, time.Time) {
	if len(q.ready) == 0 {
		return nil, time.Time{}
	}
	if l := q.ready[0]; l.due.After(now) {
		return nil, l.due
	}
	l := heap.Pop(&q.ready).(*line)
	l.busy = true
	return l, time.Time{}
}

// done removes the head of a busy line: it was delivered or abandoned.
func (q *queue) done(l *line) {
	q.remove(l.items[0])
	l.busy = false
	if len(l.items) > 0 {
		heap.Push(&q.ready, l)
	}
}

// again makes a busy line wait until due, when its head is retried.
func (q *queue) again(l *line, now, due time.Time) {
	if l.tries == 0 {
		l.since = now
	}
	l.tries++
	l.due, l.busy = due, false
	heap.Push(&q.ready, l)
}

// resetDue makes every waiting line due now.
func (q *queue) resetDue() {
	for _, l := range q.ready {
		l.due = time.Time{}
	}
	heap.Init(&q.ready)
}

// waiting is a heap of the lines that are not busy, by due time and then by the age
// of the head.
type waiting []*line

func (w waiting) Len() int { return len(w) }

func (w waiting) Less(i, j int) bool {
	if a, b := w[i], w[j]; !a.due.Equal(b.due) {
		return a.due.Before(b.due)
	}
	return w[i].items[0].ID < w[j].items[0].ID
}

func (w waiting) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

// Push is called by package heap alone.
func (w *waiting) Push(x any) {
	l := x.(*line)
	l.index = len(*w)
	*w = append(*w, l)
}

// Pop is called by package heap alone.
func (w *waiting) Pop() any {
	old := *w
	last := len(old) - 1
	l := old[last]
	old[last] = nil
	*w = old[:last]
	return l
}
