package admin

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"reseat/gateway/events"
)

// Run publishes the events of this node to the others, and adds theirs to the event stream,
// until ctx is done or the gateway is closed. Outside a cluster it does nothing.
func (h *Handler) Run(ctx context.Context) {
	a := h.a
	if a.cluster == nil {
		return
	}
	defer a.all.Close()
	f := &feed{a: a, self: a.cluster.Self(), seen: make(map[string]uint64)}
	stop, err := a.cluster.Subscribe(f.take, f.restored)
	if err != nil {
		a.log.Error("events.not_subscribed", "err", err, "text", "the event stream lacks the events of other nodes")
	} else {
		defer stop()
	}
	own := a.g.Events().Live()
	defer own.Close()
	list := make([]events.Event, 0, maxBatch)
	for open := true; open; {
		select {
		case <-ctx.Done():
			return
		case <-own.Wake():
		}
		list, open = own.Next(list[:0])
		for _, e := range list {
			f.publish(e)
		}
	}
}

// A feed connects the events of this node and of the others.
type feed struct {
	a    *api
	self Node

	mu   sync.Mutex
	sent uint64
	seen map[string]uint64 // number of the last message, by the id of its node
}

// A message is an event on its way to other nodes. Its number shows where messages were lost.
type message struct {
	Number uint64       `json:"n"`
	Event  events.Event `json:"event"`
}

// publish adds an event of this node to its stream and sends it to the other nodes.
func (f *feed) publish(e events.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Node = f.self.Name
	f.a.all.Merge(e)
	f.send(e)
}

// send is called with f locked.
func (f *feed) send(e events.Event) {
	f.sent++
	data, err := json.Marshal(message{f.sent, e})
	if err == nil {
		err = f.a.cluster.Publish(data) // the number shows the others that it was lost
	}
	if err != nil {
		f.a.log.Debug("events.not_published", "err", err)
	}
}

// take adds an event of another node, and a gap where one was lost before it.
func (f *feed) take(node string, data []byte) {
	if node == f.self.ID {
		return
	}
	var m message
	if err := json.Unmarshal(data, &m); err != nil || !slices.Contains(events.Names(), m.Event.Type) {
		f.a.log.Debug("events.not_taken", "node", node, "err", err) // of a newer version
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last, known := f.seen[node]
	if !known {
		f.forget()
	}
	f.seen[node] = m.Number
	if known && m.Number != last+1 && m.Event.Type != events.Gap {
		f.a.all.Merge(events.Event{Type: events.Gap, Time: m.Event.Time, Node: m.Event.Node})
	}
	f.a.all.Merge(m.Event)
}

// forget removes the nodes that are no more.
func (f *feed) forget() {
	others := f.a.cluster.Others()
	for id := range f.seen {
		if !slices.ContainsFunc(others, func(n Node) bool { return n.ID == id }) {
			delete(f.seen, id)
		}
	}
}

// restored is called when messages of other nodes, and to them, may have been lost.
func (f *feed) restored() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.seen)
	gap := events.Event{Type: events.Gap, Time: time.Now().UTC()}
	f.a.all.Merge(gap)
	gap.Node = f.self.Name
	f.send(gap)
}
