package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/events"
)

const (
	// appendAgain is the time between two attempts to store a message.
	appendAgain = 250 * time.Millisecond
	// maxMessage is about how many bytes of events a message has.
	maxMessage = 32 << 10
	// nodeLost is the reason of the gap that stands for the end of all sessions of a node.
	nodeLost = "node_lost"
	// eventsRoot begins the places that messages are sealed for. A node's id follows.
	eventsRoot = "ev."
)

// Run stores the events of this node in the log of the cluster's events, and follows that, until ctx is done or
// the gateway is closed. Outside a cluster it does nothing.
func (h *Handler) Run(ctx context.Context) {
	if h.a.Cluster != nil {
		h.a.feed.run(ctx)
	}
}

// A feed stores the events of this node in the log, and has those of all nodes from there: all see the same
// events in the same order, with the same ids. While there is no log, readers get this node's own events.
type feed struct {
	a     *api
	self  cluster.Node
	log   events.Log
	own   *events.Hub
	lost  chan cluster.Node // lost nodes, to be stored as gaps
	news  chan events.Message
	wake  chan struct{} // look at the log at once
	reads chan struct{} // a place for each read of a reader that is under way

	// Of follow alone.
	behind bool              // something is known to be missing
	shrunk bool              // the log was found shorter than it had been
	number uint64            // of the newest message that was taken
	seen   map[string]uint64 // ID that each node has given its newest event in the log
	taken  *events.Hub       // has the events; nil while there is no log

	mu    sync.Mutex
	all   *events.Hub   // taken, once readers may have it
	begun chan struct{} // closed when all is there
}

func newFeed(a *api) *feed {
	return &feed{
		a: a, log: a.Cluster.Log(), own: a.g.Watch().Events.Hub, lost: make(chan cluster.Node, maxNews), news: make(chan events.Message, maxNews), wake: make(chan struct{}, 1),
		reads: make(chan struct{}, maxReads), begun: make(chan struct{}), seen: make(map[string]uint64),
	}
}

// A message has some events of a node.
type message struct {
	// IDs of the Events, at the node. A Gap has that of the event before.
	IDs    []uint64       `json:"ids"`
	Events []events.Event `json:"events"`
}

// A sealedMessage is what the log has of it.
type sealedMessage struct {
	Sealed []byte `json:"sealed"`
}

// encode returns a message as other nodes get it.
func (f *feed) encode(m message) ([]byte, error) {
	data, err := json.Marshal(m)
	if err == nil {
		data, err = f.a.Cluster.Seal(eventsRoot+f.self.ID, data)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealedMessage{data})
}

// decode returns the message that a node has encoded.
func (f *feed) decode(node string, data []byte) (m message, err error) {
	var s sealedMessage
	if err = json.Unmarshal(data, &s); err != nil {
		return m, err
	}
	opened, err := f.a.Cluster.Open(eventsRoot+node, s.Sealed)
	if err != nil {
		return m, err
	}
	return parseMessage(opened)
}

func parseMessage(data []byte) (m message, err error) {
	if err = json.Unmarshal(data, &m); err == nil && (len(m.Events) == 0 || len(m.Events) != len(m.IDs) || len(m.Events) > events.MaxInMessage) {
		err = errors.New("no message of events")
	}
	for i := range m.Events {
		if err == nil && !slices.Contains(events.Names(), m.Events[i].Type) {
			err = fmt.Errorf("unknown event %.40q", m.Events[i].Type) // of a newer version
		}
	}
	return m, err
}

func (f *feed) run(ctx context.Context) {
	f.self = f.a.self()
	own, last := f.own.Live(), f.own.Last()
	f.a.Cluster.OnLost(func(n cluster.Node) {
		select {
		case f.lost <- n:
		default: // more nodes than a cluster has
		}
	})
	f.a.Cluster.OnEngineUp(f.lookSoon) // what was stored meanwhile was not passed on
	end, err := f.log.Watch(func(m events.Message) {
		select {
		case f.news <- m:
		default: // follow reads it
		}
	})
	if err != nil {
		f.a.Log.Error("events.not_followed", "err", err)
	} else {
		defer end()
	}
	followCtx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { f.follow(followCtx) })
	if own, last, ok := f.resume(ctx, own, last); ok {
		f.publishAll(ctx, own, last)
		own.Close()
	}
	stop()
	following.Wait()
	f.look(context.WithoutCancel(ctx)) // the last events of this node
	f.leave()
}

// resume returns a Reader of the events of this node that no process of it has stored, and the ID of the
// event before. After an upgrade that is not where this process begins, which live and last say.
func (f *feed) resume(ctx context.Context, live *events.Reader, last uint64) (*events.Reader, uint64, bool) {
	for {
		stored, err := f.log.NewestOf(ctx, f.self.ID)
		if err == nil && stored.Number == 0 {
			return live, last, true
		}
		if err == nil {
			if m, err := f.decode(f.self.ID, stored.Data); err == nil {
				live.Close()
				last = m.IDs[len(m.IDs)-1]
				return f.own.After(last), last, true
			}
			return live, last, true
		}
		if !wait(ctx, appendAgain) {
			return nil, 0, false
		}
	}
}

// publishAll stores this node's events, those after the one with an ID.
func (f *feed) publishAll(ctx context.Context, own *events.Reader, last uint64) {
	list := make([]events.Event, 0, maxBatch)
	for open := true; open; {
		select {
		case <-ctx.Done():
			return
		case n := <-f.lost: // nobody publishes the end of its sessions. One of the other nodes stores it
			gap := events.Event{Type: events.Gap, Time: time.Now().UTC(), Node: n.Name, Reason: nodeLost}
			if !f.store(ctx, "lost-"+n.ID, message{IDs: []uint64{last}, Events: []events.Event{gap}}) {
				return
			}
			continue
		case <-own.Wake():
		}
		list, open = own.Next(list[:0])
		for rest := list; len(rest) > 0; {
			n := fitting(rest)
			m := message{Events: rest[:n]}
			for i := range m.Events {
				m.Events[i].Node = f.self.Name
				m.IDs = append(m.IDs, m.Events[i].ID)
			}
			last = m.IDs[n-1]
			if !f.store(ctx, fmt.Sprintf("%s-%d", f.self.ID, last), m) {
				return
			}
			rest = rest[n:]
		}
	}
}

// fitting returns how many of the events are published as one message.
func fitting(list []events.Event) (n int) {
	size := 0
	for n < len(list) && (n == 0 || size < maxMessage) {
		e := &list[n]
		size += 200 + len(e.Session) + len(e.Player) + len(e.Group) + len(e.Path) + len(e.Reason) + len(e.Detail) + len(e.By)
		n++
	}
	return n
}

// store stores a message in the log, once for an id. It tries until it has done so, or ctx is done: the Hub of
// this node keeps the next events meanwhile, and has a Gap for those that it cannot keep.
func (f *feed) store(ctx context.Context, id string, m message) bool {
	data, err := f.encode(m)
	if err != nil {
		f.a.Log.Error("events.not_published", "err", err)
		return true
	}
	for {
		_, err := f.log.Append(ctx, f.self.ID, id, data)
		if err == nil {
			return true
		}
		f.a.Log.Debug("events.not_stored", "err", err)
		if !wait(ctx, appendAgain) {
			return false
		}
	}
}

// wait reports false if ctx is done before.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
