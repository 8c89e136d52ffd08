package webhook

import (
	"context"

	"reseat/gateway/events"
)

// A Queued event goes from the Hook of one process to that of its successor.
type Queued struct {
	Event  events.Event
	Number uint64 // the Event's ID, which is not in its JSON
	Post   string // the id of its posts: a receiver may have got one already
	Lost   uint64 // how many events a gap stands for
}

// HandOver stops posting, waits for the posts in flight until ctx is done, and returns what
// was not delivered, oldest first. The Hook is closed then.
func (h *Hook) HandOver(ctx context.Context) (list []Queued) {
	h.do(func() {
		h.readEvents()
		h.reportGap()
		h.wake, h.handed = nil, true
	})
	h.awaitEnd(ctx)
	for _, it := range h.queue.items {
		list = append(list, Queued{it.Event, it.ID, it.id, it.lost})
	}
	return list
}

// Continue begins to post: first these events, which an earlier process has handed over. It has
// no effect after Close.
func (h *Hook) Continue(list []Queued) {
	h.do(func() {
		h.readEvents()
		later := h.queue.items // none is in flight
		h.queue = newQueue(h.queue.limit)
		for _, q := range list {
			q.Event.ID = q.Number
			h.push(&item{Event: q.Event, id: q.Post, lost: q.Lost})
		}
		for _, it := range later {
			h.push(it)
		}
		h.held = false
		h.metrics.waiting.Store(int64(h.queue.len()))
	})
}
