package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// sweptAfter is the time for which the seat of a lost node's session stays after its grace period, and
	// endedAfter that of an ended session.
	sweptAfter = time.Minute
	endedAfter = 30 * time.Second
	// listRate limits the records that a node reads a second to list them. A deletion counts as several.
	listRate   = 2000
	deleteCost = 4
)

// A pace limits a rate. The zero value begins at its first step.
type pace struct {
	began time.Time
	n     int
}

// step waits for its turn.
func (p *pace) step(ctx context.Context) error {
	if p.began.IsZero() {
		p.began = time.Now()
	}
	p.n++
	due := time.Until(p.began.Add(time.Duration(p.n) * time.Second / listRate))
	if due < 50*time.Millisecond { // not for each one
		return ctx.Err()
	}
	t := time.NewTimer(due)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Sweep reads all records once, and deletes those of no more use: of sessions whose owner is gone and whose
// player did not come back, and of ended ones. It calls over for each session that is lost by that, and
// for no ended one. It holds one record at a time, and reads a limited number a second. Call it now and then.
//
// lost reports whether a node is gone, and when it was last heard, zero for never; it answers from memory.
// share reports whether this node is the one of the living that does a piece of work, by rendezvous hash of the piece's name. The pieces are the
// buckets, so that each record is read by one node: with 100 nodes that share sessions, each would read all.
//
// A seat may not have been written for hours while its player was attached. So the time begins when its owner
// was last heard or, if that is not known, when a Sweep has found it gone.
func (s *Seats) Sweep(ctx context.Context, lost func(id string) (heard time.Time, gone bool), share func(session string) bool, over func(Seat)) error {
	w := sweeper{Seats: s, isLost: lost, over: over}
	w.forgetReturned()
	for bucket := range SeatBuckets {
		if share(fmt.Sprint("seats_", bucket)) {
			w.bucket(ctx, bucket)
		}
	}
	if w.lost+w.ended+w.unreadable > 0 {
		s.log.Info("seats.swept", "lost", w.lost, "ended", w.ended, "unreadable", w.unreadable)
	}
	return errors.Join(w.errs...)
}

// A sweeper is a Sweep under way.
type sweeper struct {
	*Seats
	isLost                  func(id string) (time.Time, bool)
	over                    func(Seat)
	pace                    pace
	lost, ended, unreadable int
	errs                    []error
}

// forgetReturned forgets when nodes were lost that are back: it does not count when they are lost again.
func (w *sweeper) forgetReturned() {
	w.mu.Lock()
	ids := slices.Collect(maps.Keys(w.gone))
	w.mu.Unlock()
	ids = slices.DeleteFunc(ids, func(id string) bool {
		_, lost := w.isLost(id)
		return lost
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		delete(w.gone, id)
	}
}

// bucket sweeps one. After an error the rest of it is left for the next time.
func (w *sweeper) bucket(ctx context.Context, bucket int) {
	for stored, err := range w.store.ListSeats(ctx, bucket) {
		if err == nil {
			err = w.pace.step(ctx)
		}
		if err == nil {
			err = w.record(ctx, stored)
		}
		if err != nil {
			w.errs = append(w.errs, err)
			return
		}
	}
}

func (w *sweeper) record(ctx context.Context, stored StoredSeat) error {
	seat, err := readHead(stored)
	if err != nil {
		w.unreadable++
		return nil
	}
	if time.Now().Before(w.due(seat)) {
		return nil
	}
	w.pace.n += deleteCost
	err = w.store.DeleteSeat(ctx, stored.Session, stored.Revision)
	switch {
	case errors.Is(err, ErrOvertaken): // it was claimed
		return nil
	case err != nil:
		return err
	case seat.Ended != 0:
		w.ended++
		return nil
	}
	w.lost++
	if seat, err = w.seal.seat(stored); err != nil {
		w.log.Warn("seat.unreadable", "session", stored.Session, "err", err)
		return nil
	}
	w.over(seat)
	return nil
}

// never is the end of what is not to be deleted.
var never = time.Unix(1<<40, 0)

// due returns the time after which a record may be deleted.
func (w *sweeper) due(seat Seat) time.Time {
	if seat.Ended != 0 {
		return seat.Written.Add(seat.Keep + endedAfter)
	}
	since, lost := w.isLost(seat.Owner)
	if !lost {
		return never
	}
	if since.IsZero() {
		since = w.foundGone(seat.Owner)
	}
	if seat.Written.After(since) {
		since = seat.Written
	}
	return since.Add(seat.Keep + sweptAfter)
}

// foundGone returns when a Sweep first found a node gone.
func (w *sweeper) foundGone(node string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, known := w.gone[node]
	if !known {
		since = time.Now()
		w.gone[node] = since
	}
	return since
}
