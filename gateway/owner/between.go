package owner

import (
	"sync"
	"time"
)

// This file has the durable sessions that are between two nodes.

// An underWay has what is in progress, each with a channel that is closed at its end.
type underWay[K comparable] struct {
	mu sync.Mutex
	of map[K]chan struct{}
}

// begin returns k's channel, nil if k is in progress already.
func (u *underWay[K]) begin(k K) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.of == nil:
		u.of = make(map[K]chan struct{})
	case u.of[k] != nil:
		return nil
	}
	c := make(chan struct{})
	u.of[k] = c
	return c
}

// get returns k's channel, nil if k is not in progress.
func (u *underWay[K]) get(k K) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.of[k]
}

// end may be called twice.
func (u *underWay[K]) end(k K) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c := u.of[k]; c != nil {
		close(c)
		delete(u.of, k)
	}
}

// recipients are the nodes to which this one has handed sessions off.
type recipients struct {
	mu sync.Mutex
	to map[string]recipient
}

type recipient struct {
	node  string
	until time.Time
}

func (m *recipients) add(id, node string, keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.to == nil {
		m.to = make(map[string]recipient)
	}
	now := time.Now()
	for id, old := range m.to {
		if now.After(old.until) {
			delete(m.to, id)
		}
	}
	m.to[id] = recipient{node, now.Add(keep)}
}

// node returns the node that has a session now, "" if this one has not handed it off.
func (m *recipients) node(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.to[id].node
}
