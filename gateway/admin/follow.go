package admin

import (
	"context"
	"errors"
	"time"

	"reseat/gateway/events"
)

// This file has what a node reads from the log of events.

// follow adds what is stored in the log to the stream. While its own events wait for the log, it adds
// them without.
func (f *feed) follow(ctx context.Context) {
	began := time.Now()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		var late <-chan struct{}
		if f.late != nil {
			late = f.late.Wake()
		}
		select {
		case <-ctx.Done():
			if f.late != nil {
				f.late.Close()
			}
			return
		case m := <-f.news:
			f.receive(ctx, m)
		case <-f.wake:
			f.look(ctx)
		case <-late:
		case <-next.C:
			if f.behind || !f.isFollowing() || time.Since(f.lookedAt) >= lookEvery {
				f.look(ctx)
			}
			if time.Since(began) >= decideWait {
				f.decide.Do(func() { close(f.decided) })
			}
			next.Reset(f.pause())
		}
		f.showLate()
	}
}

// pause is the time until the next look.
func (f *feed) pause() time.Duration {
	select {
	case <-f.decided:
		if !f.behind {
			return checkEvery
		}
	default:
	}
	return behindEvery
}

func (f *feed) isFollowing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.follows
}

// look asks how far the log has come, and takes what is missing here.
func (f *feed) look(ctx context.Context) {
	f.lookedAt = time.Now()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	first, last, err := f.log.Range(ctx)
	switch {
	case errors.Is(err, events.ErrNoLog):
		f.leave()
		f.decide.Do(func() { close(f.decided) })
		return
	case err != nil:
		f.behind = true // for all that is known
		return
	case !f.isFollowing():
		f.join(first, last)
		f.fill(ctx, last)
		f.decide.Do(func() { close(f.decided) })
	default:
		if f.check(ctx, first, last) {
			f.fill(ctx, last)
		}
	}
}

// join begins to follow the log.
func (f *feed) join(first, last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := last
	if first <= last {
		from = max(first, last-min(last, startWith)) - 1
	}
	number, fresh := f.a.all.Follow(from, last)
	f.number, f.follows, f.behind, f.shrunk = number, true, false, false
	if !fresh {
		f.gap("")
	}
	if f.unsub != nil {
		f.unsub()
		f.unsub = nil
	}
}

// leave ends that: the log is gone for good.
func (f *feed) leave() {
	f.mu.Lock()
	was := f.follows
	f.follows = false
	if was {
		f.a.all.Unfollow()
		f.gap("")
		clear(f.seen)
	}
	f.mu.Unlock()
	if was {
		f.subscribe()
	}
}

// check compares the log with what was taken from it. It reports whether the rest may be taken.
func (f *feed) check(ctx context.Context, first, last uint64) bool {
	f.mu.Lock()
	number := f.number
	if first > number+1 {
		f.hole(first - 1)
	}
	f.mu.Unlock()
	if last >= number {
		f.shrunk = false
		return true
	}
	f.behind = true
	if !f.shrunk { // perhaps a server has answered that knows less
		f.shrunk = true
		return false
	}
	// NATS has lost the events, and would use their numbers again.
	err := f.log.Advance(ctx, number)
	f.a.log.Warn("events.lost", "err", err, "text", "NATS has lost the events that it had: readers get a gap")
	f.shrunk = err != nil
	return false
}

// hole notes that messages up to a number are missing. It is called with f locked.
func (f *feed) hole(until uint64) {
	f.gap("")
	f.number = until
	clear(f.seen)
}

// receive adds a message that was stored just now.
func (f *feed) receive(ctx context.Context, m events.Message) {
	f.mu.Lock()
	number := f.number
	if f.follows && m.Number == number+1 {
		f.place(m)
	}
	follows := f.follows
	f.mu.Unlock()
	switch {
	case !follows:
	case m.Number <= number:
		f.lookSoon() // read already, or NATS has begun anew
	case m.Number > number+events.Kept:
		f.look(ctx)
	case m.Number > number+1:
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		f.fill(ctx, m.Number)
	}
}

// fill reads what is stored after the newest message that was taken.
func (f *feed) fill(ctx context.Context, last uint64) {
	for {
		f.mu.Lock()
		if last > f.number+events.Kept { // more than the stream could keep
			f.hole(last - startWith)
		}
		number := f.number
		f.mu.Unlock()
		if f.behind = number < last; !f.behind {
			return
		}
		list, err := f.log.Read(ctx, number, readAtOnce)
		if err != nil || len(list) == 0 {
			return // later
		}
		f.mu.Lock()
		for _, m := range list {
			if m.Number <= f.number {
				continue
			}
			if m.Number != f.number+1 {
				f.hole(m.Number - 1)
			}
			f.place(m)
		}
		f.mu.Unlock()
	}
}

// place adds the events of the next message. It is called with f locked.
func (f *feed) place(s events.Message) {
	f.number = s.Number
	m, err := f.decode(s.Node, s.Data)
	if err != nil {
		f.a.log.Debug("events.not_taken", "node", s.Node, "err", err)
		return
	}
	at := func(i int) uint64 { return events.PlaceOf(s.Number, i, len(m.Events)) }
	if s.Node != f.self.ID {
		f.note(s.Node, &m, func(i int) { f.a.all.Place(m.Events[i], at(i)) })
		return
	}
	for i, id := range m.IDs {
		if id <= f.shown { // without the log
			f.a.all.Hide(at(i))
			continue
		}
		f.shown = id
		f.a.all.Place(m.Events[i], at(i))
	}
}

// showLate adds events of this node that wait for the log for too long.
func (f *feed) showLate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if late := f.follows && !f.waits.IsZero() && time.Since(f.waits) >= lateAfter; !late {
		if f.late != nil {
			f.late.Close()
			f.late = nil
		}
		return
	}
	if f.late == nil {
		f.late = f.own.After(f.shown)
	}
	list, _ := f.late.Next(make([]events.Event, 0, maxBatch))
	for _, e := range list {
		f.show(e)
	}
}

// showRest adds the last events of this node, which nothing follows.
func (f *feed) showRest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.follows {
		return
	}
	rest := f.own.After(f.shown)
	defer rest.Close()
	for n := 1; n > 0; {
		list, _ := rest.Next(make([]events.Event, 0, maxBatch))
		n = len(list)
		for _, e := range list {
			f.show(e)
		}
	}
}

// settle waits until it is known where a reader begins that continues after an ID, 0 if it does not.
func (f *feed) settle(ctx context.Context, id uint64) {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	select {
	case <-f.decided:
	case <-ctx.Done():
		return
	}
	if !f.isFollowing() || id <= f.a.all.Last() {
		return
	}
	f.lookSoon() // another node has taken more
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for id > f.a.all.Last() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
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
	stored, err := f.log.Read(ctx, number-1, readAtOnce)
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
