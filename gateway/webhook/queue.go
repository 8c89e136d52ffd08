package webhook

import (
	"slices"
	"time"

	"reseat/gateway/events"
)

// An item is one event that is queued.
type item struct {
	events.Event
	id   string // the same for every attempt
	lost uint64 // how many events a gap stands for
}

// A line is a session's events. Its head, the oldest, is the only one that is being posted, so
// that the events of a session arrive in order.
type line struct {
	head   *item
	queued int
	busy   bool // its head is being posted

	// Of the head: how often it failed, since when, and when to try again.
	tries int
	since time.Time
	due   time.Time
}

// A queue holds at most limit events. It does no I/O, reads no clock and takes no
// lock: the Hook's loop owns it.
//
// Invariant: every session with an item has a line, whose head is the first of them.
type queue struct {
	limit int
	items []*item // oldest first
	lines map[string]*line
}

func newQueue(limit int) *queue { return &queue{limit: limit, lines: map[string]*line{}} }

func (q *queue) len() int { return len(q.items) }

// push queues an event. It returns the one it evicted, or nil.
func (q *queue) push(it *item) (dropped *item) {
	if len(q.items) >= q.limit {
		dropped = q.dropOldest()
	}
	q.items = append(q.items, it)
	l := q.lines[it.Session]
	if l == nil {
		l = &line{head: it}
		q.lines[it.Session] = l
	}
	l.queued++
	return dropped
}

// dropOldest removes and returns the oldest event that is not in flight, or nil.
func (q *queue) dropOldest() *item {
	for _, it := range q.items {
		if l := q.lines[it.Session]; !l.busy || l.head != it {
			q.remove(it)
			return it
		}
	}
	return nil
}

// remove removes an item, and its line with the last one.
func (q *queue) remove(it *item) {
	i := slices.Index(q.items, it)
	q.items = slices.Delete(q.items, i, i+1)
	l := q.lines[it.Session]
	l.queued--
	switch {
	case l.queued == 0:
		delete(q.lines, it.Session)
	case l.head == it:
		next := slices.IndexFunc(q.items[i:], func(o *item) bool { return o.Session == it.Session })
		*l = line{head: q.items[i+next], queued: l.queued}
	}
}

// take returns the line with the oldest head that is due, and makes it busy. If there is none it
// returns nil and when one is due, zero for never.
func (q *queue) take(now time.Time) (l *line, due time.Time) {
	for _, it := range q.items {
		l := q.lines[it.Session]
		switch {
		case l.busy || l.head != it:
		case !l.due.After(now):
			l.busy = true
			return l, time.Time{}
		case due.IsZero() || l.due.Before(due):
			due = l.due
		}
	}
	return nil, due
}

// done removes the head of a busy line: it was delivered or abandoned.
func (q *queue) done(l *line) { q.remove(l.head) }

// again makes a busy line wait until due, when its head is retried.
func (q *queue) again(l *line, now, due time.Time) {
	if l.tries == 0 {
		l.since = now
	}
	l.tries++
	l.due, l.busy = due, false
}

// resetDue makes every waiting line due now.
func (q *queue) resetDue() {
	for _, l := range q.lines {
		l.due = time.Time{}
	}
}
