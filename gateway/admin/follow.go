package admin

import (
	"context"
	"errors"
	"time"

	"reseat/gateway/events"
)

// This file has what a node reads from the log of events.

const (
	// A node looks every lookEvery how far the log has come. What is stored arrives by itself.
	lookEvery = 3 * time.Second
	// It looks every behindEvery while it knows that it lacks something.
	behindEvery = 100 * time.Millisecond
	// lookTimeout limits what a look may take.
	lookTimeout = time.Second
	// A reader waits for settleWait until it is known where it continues.
	settleWait = time.Second
	// A node begins with the newest startWith messages of the log.
	startWith = 1024
	// readAtOnce limits the messages of one read, and maxReads the reads for readers of event streams
	// that are under way.
	readAtOnce = 128
	maxReads   = 4
	// maxNews bounds the stored messages that wait.
	maxNews = 1024
	// maxSeen is more than a cluster has nodes.
	maxSeen = 1000
)

// follow takes what is stored in the log, until ctx is done.
func (f *feed) follow(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-f.news:
			if f.taken == nil || m.Number <= f.number {
				continue // read already. If NATS has restarted, the next read shows it
			}
			if m.Number == f.number+1 {
				f.place(m)
				continue
			}
		case <-f.wake:
		case <-next.C:
		}
		f.look(ctx)
		pause := lookEvery
		if f.behind {
			pause = behindEvery
		}
		next.Reset(pause)
	}
}

// lookSoon has follow look at the log at once.
func (f *feed) lookSoon() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// look asks how far the log has come, and takes what is missing here.
func (f *feed) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	first, last, err := f.log.Range(ctx)
	f.behind = err != nil // for all that is known
	switch {
	case errors.Is(err, events.ErrNoLog):
		f.leave()
	case err != nil:
	case f.taken == nil:
		f.join(first, last)
		f.fill(ctx, last)
		f.mu.Lock()
		f.all = f.taken
		close(f.begun)
		f.mu.Unlock()
	case f.check(ctx, first, last):
		f.fill(ctx, last)
	}
}

// join begins to follow the log.
func (f *feed) join(first, last uint64) {
	f.number = last
	if first <= last {
		f.number = max(first, last-min(last, startWith)) - 1
	}
	f.taken, f.shrunk = events.NewShared(events.PlaceOf(f.number, 0, 1)), false
}

// leave ends that, and the streams of the log's readers: NATS keeps no log now.
func (f *feed) leave() {
	if f.taken == nil {
		return
	}
	f.taken.Close()
	f.taken = nil
	clear(f.seen)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all, f.begun = nil, make(chan struct{})
}

// check compares the log with what was taken from it. It reports whether the rest may be taken.
func (f *feed) check(ctx context.Context, first, last uint64) bool {
	if first > f.number+1 {
		f.hole(first - 1)
	}
	if last >= f.number {
		f.shrunk = false
		return true
	}
	f.behind = true
	if !f.shrunk { // perhaps a server has answered that knows less
		f.shrunk = true
		return false
	}
	// NATS has lost the events, and would use their numbers again.
	err := f.log.Advance(ctx, f.number)
	f.a.Log.Warn("events.lost", "err", err, "text", "NATS has lost the events that it had: readers get a gap")
	f.shrunk = err != nil
	return false
}

// hole notes that the messages up to a number are missing. The gap has the ID that the last of them would have,
// so that a reader continues after it at any node.
func (f *feed) hole(until uint64) {
	f.number = until
	f.taken.Place(events.Event{ID: events.PlaceOf(until, 0, 1), Type: events.Gap, Time: time.Now().UTC()})
}

// fill reads what is stored after the newest message that was taken.
func (f *feed) fill(ctx context.Context, last uint64) {
	if last > f.number+events.Kept { // more than the stream could keep
		f.hole(last - startWith)
	}
	for f.number < last {
		list, err := f.log.Read(ctx, f.number, readAtOnce)
		if err != nil || len(list) == 0 {
			f.behind = true
			return // later
		}
		for _, m := range list {
			if m.Number <= f.number {
				continue
			}
			if m.Number != f.number+1 {
				f.hole(m.Number - 1)
			}
			f.place(m)
		}
	}
}

// place adds the events of the next message, each of a node once: a process that continues a node after an upgrade
// may store some again.
func (f *feed) place(s events.Message) {
	f.number = s.Number
	m, err := f.decode(s.Node, s.Data)
	if err != nil {
		f.a.Log.Debug("events.not_taken", "node", s.Node, "err", err)
		return
	}
	if len(f.seen) > maxSeen {
		clear(f.seen)
	}
	for i, e := range m.Events {
		if m.IDs[i] <= f.seen[s.Node] && e.Type != events.Gap {
			continue
		}
		f.seen[s.Node] = m.IDs[i]
		e.ID = events.PlaceOf(s.Number, i, len(m.Events))
		f.taken.Place(e)
	}
}

// current returns the Hub of all nodes' events. It is nil while there is no log; begun is closed when there is one.
func (f *feed) current() (all *events.Hub, begun <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all, f.begun
}

// settle is current for a reader that continues after an ID, 0 if it does not: it waits for the log, and until
// this node has come as far as that one.
func (f *feed) settle(ctx context.Context, id uint64) (all *events.Hub, begun <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	all, begun = f.current()
	if all == nil {
		select {
		case <-begun:
			all, begun = f.current()
		case <-ctx.Done():
		}
	}
	if all == nil || id <= all.Last() {
		return all, begun
	}
	f.lookSoon() // another node has taken more
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for id > all.Last() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return all, begun
		}
	}
	return all, begun
}

// older reads events after an ID from the log, until another ID at the most, and returns the ID up to
// which there are no more of them. It fails if some are not there.
func (f *feed) older(ctx context.Context, after, until uint64) (list []events.Event, upTo uint64, ok bool) {
	select {
	case f.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, false
	}
	defer func() { <-f.reads }()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	number, skip := events.NextPlace(after)
	stored, err := f.log.Read(ctx, max(number, 1)-1, readAtOnce)
	if err != nil || len(stored) == 0 || stored[0].Number != number {
		return nil, 0, false
	}
	for _, s := range stored {
		if s.Number != number || upTo == until {
			break
		}
		if m, err := f.decode(s.Node, s.Data); err == nil {
			for i := range m.Events {
				m.Events[i].ID = events.PlaceOf(number, i, len(m.Events))
				if i >= skip && m.Events[i].ID <= until {
					list = append(list, m.Events[i])
				}
			}
		}
		upTo, skip = min(events.PlaceOf(number, 0, 1), until), 0
		number++
	}
	return list, upTo, true
}
