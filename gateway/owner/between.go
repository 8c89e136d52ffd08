package owner

import (
	"sync"
	"time"

	"reseat/gateway/registry"
)

// This file has the durable sessions that are between two nodes.

// claims are the sessions that are just being claimed by this node, or taken in from another one.
type claims struct {
	mu sync.Mutex
	of map[string]chan struct{}
}

// begin reports whether the caller may take a session in, and must call end then. If not, another is doing so.
func (c *claims) begin(id string) (end func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[id] != nil {
		return nil, false
	}
	if c.of == nil {
		c.of = make(map[string]chan struct{})
	}
	done := make(chan struct{})
	c.of[id] = done
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.of, id)
		close(done)
	}, true
}

// underWay returns nil, or what is closed once a session that is being taken in is here, or could not be.
func (c *claims) underWay(id string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[id]
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

// leavings are the sessions that are just being handed off. Each has a channel that is closed once the
// session has left its game server, or has ended.
type leavings struct {
	mu sync.Mutex
	of map[*registry.Record]chan struct{}
}

// begin returns e's channel, nil if it is being handed off already.
func (l *leavings) begin(e *registry.Record) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.of == nil:
		l.of = make(map[*registry.Record]chan struct{})
	case l.of[e] != nil:
		return nil
	}
	c := make(chan struct{})
	l.of[e] = c
	return c
}

// left is called when e has left, has ended, or is handed off no longer.
func (l *leavings) left(e *registry.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.of[e]; c != nil {
		close(c)
		delete(l.of, e)
	}
}
