package watch

import (
	"sync"

	"reseat/gateway/events"
)

// A Stream publishes the events of this process: to its own readers, or to those of the
// successor that has taken the sessions over. Its methods may be called from any goroutine.
//
// While the sessions are frozen it holds events back, since it is not known yet which of the two
// publishes them. Otherwise a reader could see one under an ID that the successor does not know.
type Stream struct {
	*events.Hub

	mu   sync.Mutex // held while this process publishes, so that no publication is in progress after Hold
	on   bool       // events are held back
	list []events.Event
	sent int                // of list, which the successor has already
	to   func(events.Event) // the successor's; nil: this process has the sessions
}

// Add publishes an event.
func (s *Stream) Add(ev events.Event) {
	s.mu.Lock()
	to := s.to
	switch {
	case s.on:
		s.list = append(s.list, ev)
		to = nil
	case to == nil:
		s.Publish(ev)
	}
	s.mu.Unlock()
	if to != nil {
		to(ev)
	}
}

// Hold holds back the events from now on, unless a successor has the sessions.
func (s *Stream) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = s.to == nil
}

// Held returns up to n events that the successor does not have yet. Release does not return them again.
func (s *Stream) Held(n int) []events.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.sent
	s.sent = min(from+n, len(s.list))
	return s.list[from:s.sent:s.sent]
}

// Release publishes the events since Hold. If to is not nil, it passes those that the successor
// does not have, and all later ones, to it instead.
func (s *Stream) Release(to func(events.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, publish := s.list, s.Publish
	if to != nil {
		list, publish, s.to = list[s.sent:], to, to
	}
	for _, ev := range list {
		publish(ev)
	}
	s.on, s.list, s.sent = false, nil, 0
}
