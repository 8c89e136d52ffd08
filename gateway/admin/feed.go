package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"reseat/gateway/events"
)

const (
	// lookEvery is how often a node looks how far the log has come. What is stored arrives by itself.
	lookEvery = 3 * time.Second
	// checkEvery is how often it looks whether its own events wait.
	checkEvery = time.Second
	// behindEvery is how often it looks while it knows that it lacks something.
	behindEvery = 100 * time.Millisecond
	// lookTimeout limits what a look may take.
	lookTimeout = time.Second
	// appendAgain is the time between two attempts to store a message.
	appendAgain = 250 * time.Millisecond
	// lateAfter is for how long a node's own events wait for the log before its readers get them
	// without.
	lateAfter = time.Second
	// decideWait is how long the start waits for the log.
	decideWait = 3 * time.Second
	// settleWait is how long a reader waits until it is known where it continues.
	settleWait = time.Second
	// startWith is how many messages of the log a node begins with.
	startWith = 1024
	// readAtOnce is how many messages are read at once, and maxReads how many readers of event
	// streams may do that at a time.
	readAtOnce = 128
	maxReads   = 4
	// maxMessage is about how many bytes of events a message has.
	maxMessage = 32 << 10
	// maxNews is how many stored messages may wait.
	maxNews = 1024
	// nodeLost is the reason of the gap that stands for the end of all sessions of a node.
	nodeLost = "node_lost"
)

// Run publishes the events of this node to the others, and adds theirs to the event stream,
// until ctx is done or the gateway is closed. Outside a cluster it does nothing.
func (h *Handler) Run(ctx context.Context) {
	if h.a.cluster != nil {
		h.a.feed.run(ctx)
	}
}

// A feed connects the events of this node and of the others. Where the cluster has a log, each node
// stores its events there, and takes those of all nodes from there: all see the same events in the
// same order, with the same ids. Where there is none each node sends its events to all others, and
// numbers what it has and gets itself.
type feed struct {
	a     *api
	self  Node
	log   events.Log // nil: none
	own   *events.Hub
	news  chan events.Message // stored just now
	wake  chan struct{}       // look at the log at once
	reads chan struct{}       // as many as maxReads

	decided chan struct{} // closed when it is known whether there is a log
	decide  sync.Once

	// Of follow alone.
	late     *events.Reader // of own events that wait for the log
	behind   bool           // something is known to be missing
	shrunk   bool           // the log was found shorter than it had been
	lookedAt time.Time
	unsub    func() // ends the subscription to what others send

	mu      sync.Mutex
	follows bool              // the log
	number  uint64            // of the newest message of the log that was taken
	last    uint64            // ID of this node's newest event that was published
	shown   uint64            // ID of this node's newest event that is in a.all
	seen    map[string]uint64 // the same of other nodes, by their ids
	waits   time.Time         // since when a message waits for the log; zero: none does
}

func newFeed(a *api) *feed {
	f := &feed{
		a: a, log: a.cluster.Log(), own: a.g.Watch().Events.Hub, news: make(chan events.Message, maxNews), wake: make(chan struct{}, 1),
		reads: make(chan struct{}, maxReads), decided: make(chan struct{}), seen: make(map[string]uint64),
	}
	if f.log == nil {
		close(f.decided)
	}
	return f
}

// A message has some events of a node.
type message struct {
	// After is the ID of the node's event before these: it shows where some were lost.
	After uint64 `json:"after"`
	// IDs of the Events, at the node.
	IDs    []uint64       `json:"ids"`
	Events []events.Event `json:"events"`
	// Sealed has the message itself: beside it there is a gap, for nodes of older versions.
	Sealed []byte `json:"sealed,omitempty"`
}

// encode returns a message as other nodes get it.
func (f *feed) encode(m message) ([]byte, error) {
	data, err := json.Marshal(m)
	if err == nil {
		data, err = f.a.cluster.Seal(data)
	}
	if err != nil {
		return nil, err
	}
	newest := m.IDs[len(m.IDs)-1]
	gap := map[string]any{"type": events.Gap, "time": time.Now().UTC(), "node": f.self.Name}
	return json.Marshal(map[string]any{"after": newest, "ids": []uint64{newest}, "events": []any{gap}, "sealed": data})
}

// decode returns the message that a node has encoded.
func (f *feed) decode(node string, data []byte) (m message, err error) {
	if err = json.Unmarshal(data, &m); err != nil {
		return m, err
	}
	opened, isOlder, err := f.a.cluster.Open(node, m.Sealed)
	switch {
	case isOlder:
		return parseMessage(data)
	case err != nil:
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
	f.self = f.a.cluster.Self()
	defer f.a.all.Close()
	own, first := f.own.Live(), f.own.Last()
	f.subscribe()
	f.a.cluster.Lost(f.lost)
	followCtx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	if f.log != nil {
		end, err := f.log.Watch(func(m events.Message) {
			select {
			case f.news <- m:
			default: // follow reads it
			}
		})
		if err != nil {
			f.a.log.Error("events.not_followed", "err", err)
		} else {
			defer end()
		}
		all.Go(func() { f.follow(followCtx) })
		own, first = f.resume(ctx, own, first)
	}
	f.mu.Lock()
	f.last, f.shown = first, max(f.shown, first)
	f.mu.Unlock()
	f.publishAll(ctx, own)
	own.Close()
	stop()
	all.Wait()
	if f.unsub != nil {
		f.unsub()
	}
	f.showRest()
}

// subscribe begins to take what other nodes send.
func (f *feed) subscribe() {
	stop, err := f.a.cluster.Subscribe(f.take, f.restored)
	if err != nil {
		f.a.log.Error("events.not_subscribed", "err", err, "text", "the event stream lacks the events of other nodes")
		return
	}
	f.unsub = stop
}

// resume returns a Reader of the events of this node that no process of it has stored, and the ID of the
// event before. After an upgrade that is not where this process begins.
func (f *feed) resume(ctx context.Context, live *events.Reader, first uint64) (*events.Reader, uint64) {
	select {
	case <-f.decided:
	case <-ctx.Done():
	}
	f.mu.Lock()
	follows := f.follows
	f.mu.Unlock()
	if recent, _ := f.own.Recent(0); !follows || len(recent) == 0 {
		return live, first
	}
	stored, err := f.log.NewestOf(ctx, f.self.ID)
	if err != nil || stored.Number == 0 {
		return live, first
	}
	m, err := f.decode(f.self.ID, stored.Data)
	if err != nil {
		return live, first
	}
	live.Close()
	first = m.IDs[len(m.IDs)-1]
	return f.own.After(first), first
}

// publishAll publishes this node's events.
func (f *feed) publishAll(ctx context.Context, own *events.Reader) {
	list := make([]events.Event, 0, maxBatch)
	for open := true; open; {
		select {
		case <-ctx.Done():
			return
		case <-own.Wake():
		}
		list, open = own.Next(list[:0])
		for rest := list; len(rest) > 0; {
			n := fitting(rest)
			if !f.publish(ctx, rest[:n]) {
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

// publish stores events of this node in the log, or sends them to the other nodes. It tries until it has
// done so, or ctx is done: the Hub of this node keeps the next ones meanwhile, and a Gap for those that
// it cannot keep.
func (f *feed) publish(ctx context.Context, list []events.Event) bool {
	f.mu.Lock()
	m := message{After: f.last, Events: slices.Clone(list)}
	f.mu.Unlock()
	for i := range m.Events {
		m.Events[i].Node = f.self.Name
		m.IDs = append(m.IDs, m.Events[i].ID)
	}
	newest := m.IDs[len(m.IDs)-1]
	data, err := f.encode(m)
	if err != nil {
		f.a.log.Error("events.not_published", "err", err)
		return true
	}
	for {
		if f.send(m, data) {
			return true
		}
		_, err := f.log.Append(ctx, f.self.ID, fmt.Sprintf("%s-%d", f.self.ID, newest), data)
		if err == nil {
			f.mu.Lock()
			f.last, f.waits = newest, time.Time{}
			f.mu.Unlock()
			return true
		}
		f.a.log.Debug("events.not_stored", "err", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(appendAgain):
		}
	}
}

// send sends a message to the other nodes, unless it is for the log: then it waits from now on.
func (f *feed) send(m message, data []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.follows {
		if f.waits.IsZero() {
			f.waits = time.Now()
		}
		return false
	}
	for i := range m.Events {
		f.show(m.Events[i])
	}
	f.last, f.waits = m.IDs[len(m.IDs)-1], time.Time{}
	if err := f.a.cluster.Publish(data); err != nil { // the next message shows the others that it was lost
		f.a.log.Debug("events.not_published", "err", err)
	}
	return true
}

// show adds an event of this node to the stream, without the log. It is called with f locked.
func (f *feed) show(e events.Event) {
	if e.ID > f.shown || e.Type == events.Gap {
		f.shown = max(f.shown, e.ID)
		e.Node = f.self.Name
		f.a.all.Merge(e)
	}
}

// take adds the events that another node has sent.
func (f *feed) take(node string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node == f.self.ID || f.follows {
		return
	}
	m, err := f.decode(node, data)
	if err != nil {
		f.a.log.Debug("events.not_taken", "node", node, "err", err)
		return
	}
	f.note(node, &m, func(i int) { f.a.all.Merge(m.Events[i]) })
}

// note calls add for each event of another node that is new, with a gap before it where some are
// missing. It is called with f locked.
func (f *feed) note(node string, m *message, add func(i int)) {
	last, known := f.seen[node]
	if !known {
		f.forget()
	}
	for i, id := range m.IDs {
		if known && id <= last && m.Events[i].Type != events.Gap {
			continue
		}
		if known && i == 0 && m.After != last && m.Events[0].Type != events.Gap {
			f.gap(m.Events[0].Node)
		}
		f.seen[node], last, known = id, id, true
		add(i)
	}
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

// gap notes that events are missing: of a node, or "" if it is not known whose.
func (f *feed) gap(node string) {
	f.a.all.Merge(events.Event{Type: events.Gap, Time: time.Now().UTC(), Node: node})
}

// lost notes that a node is lost, with its sessions: nobody publishes their end.
func (f *feed) lost(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.a.all.Merge(events.Event{Type: events.Gap, Time: time.Now().UTC(), Node: node, Reason: nodeLost})
}

// restored is called when messages of other nodes, and to them, may have been lost.
func (f *feed) restored() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.follows {
		f.lookSoon() // they are in the log
		return
	}
	clear(f.seen)
	f.gap("")
	gap := events.Event{ID: f.last, Type: events.Gap, Time: time.Now().UTC(), Node: f.self.Name}
	if data, err := f.encode(message{After: f.last, IDs: []uint64{f.last}, Events: []events.Event{gap}}); err == nil {
		f.a.cluster.Publish(data)
	}
}

// lookSoon has follow look at the log at once.
func (f *feed) lookSoon() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}
