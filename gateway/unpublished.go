package gateway

import (
	"sync"

	"reseat/gateway/events"
)

// unpublished are the events of a freeze, since it is not known yet whether this process publishes
// them or its successor, which has those before. Otherwise a reader could see one under an ID that
// the successor does not know.
type unpublished struct {
	mu   sync.Mutex // held while this process publishes, so that none is under way at begin
	on   bool
	list []events.Event
	sent int // of list, which the successor has already
}

// next returns up to n events that the successor does not have yet, and will have now.
func (u *unpublished) next(n int) []events.Event {
	u.mu.Lock()
	defer u.mu.Unlock()
	from := u.sent
	u.sent = min(from+n, len(u.list))
	return u.list[from:u.sent:u.sent]
}

func (u *unpublished) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.on = true
}

// end publishes the events since begin, if moved but those that the successor has. Later ones
// follow.
func (u *unpublished) end(moved bool, publish func(events.Event)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.list
	if moved {
		list = list[u.sent:]
	}
	for _, ev := range list {
		publish(ev)
	}
	u.on, u.list, u.sent = false, nil, 0
}
