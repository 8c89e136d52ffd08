package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
)

// The seats of durable sessions lie in the buckets NAME_seats_0 to NAME_seats_7, in files: each has a leader
// of its own, and a session's id says in which one its seat is. They are made only if there are durable
// routes, so that other clusters need no rights for them.
//
// Their replicas answer no reads, since they may be behind: the leader does (STREAM.MSG.GET). Revisions begin with the
// time in microseconds: a bucket that was lost and made again uses none of them twice.
const (
	// maxLeaderReads bounds those under way at once. A server drops requests when 10,000 wait.
	maxLeaderReads = 256
	seatsAgain     = time.Second // buckets that could not be made are tried again
)

func (e *Engine) seatsBucket(i int) string { return seatsBucket(e.o.Name, i) }

func seatsBucket(name string, i int) string { return fmt.Sprintf("%s_seats_%d", name, i) }

// openSeats makes the buckets that are missing, if that is due. Nothing else depends on them.
func (e *Engine) openSeats() {
	e.mu.Lock()
	due := e.o.Seats && e.nodes != nil && !e.seatsThere && !time.Now().Before(e.seatsAgain)
	e.mu.Unlock()
	if due && e.makeSeats(e.ctx) {
		e.tell(e.h.Synced) // owners write theirs
	}
}

// makeSeats makes the buckets that are missing. It reports whether all are there.
func (e *Engine) makeSeats(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	var errs [cluster.SeatBuckets]error
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = e.makeSeatsBucket(ctx, i) })
	}
	all.Wait()
	err := errors.Join(errs[:]...)
	e.mu.Lock()
	up := e.status.Up
	if up {
		e.seatsThere, e.seatsAgain = err == nil, time.Now().Add(seatsAgain)
	}
	say := err != nil && up && final(err) && err.Error() != e.noSeatsSaid
	if err == nil {
		e.noSeatsSaid = ""
	} else if say {
		e.noSeatsSaid = err.Error()
	}
	e.mu.Unlock()
	if say {
		e.o.Log.Error("engine.no_seats", "err", err, "text", "durable sessions do not outlive their node")
	}
	return err == nil && up
}

func (e *Engine) makeSeatsBucket(ctx context.Context, i int) error {
	bucket := e.seatsBucket(i)
	kv, err := e.open(ctx, bucket, func(js jetstream.JetStream, replicas int) error {
		// A bucket as the nats command knows it, but without reads from replicas.
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "KV_" + bucket, Description: "Durable sessions of a Reseat cluster", Subjects: []string{"$KV." + bucket + ".>"}, Replicas: replicas,
			Storage: jetstream.FileStorage, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowMsgTTL: true,
			FirstSeq: uint64(time.Now().UnixMicro()),
		})
		return err
	})
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seats[i] = kv
	}
	return err
}

// readSeats is read, of a bucket of seats.
func (e *Engine) readSeats(ctx context.Context, op string, bucket int, f func(ctx context.Context, kv jetstream.KeyValue) error) error {
	kv := e.there(&e.seats[bucket])
	if kv == nil {
		return cluster.ErrEngineDown
	}
	select {
	case e.reads <- struct{}{}:
		defer func() { <-e.reads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return e.read(ctx, op, kv.Bucket(), func(ctx context.Context) error { return f(ctx, kv) })
}

// GetSeat implements cluster.SeatStore.
func (e *Engine) GetSeat(ctx context.Context, session string) (cluster.StoredSeat, error) {
	var entry jetstream.KeyValueEntry
	err := e.readSeats(ctx, "seat_get", cluster.SeatBucket(session), func(ctx context.Context, kv jetstream.KeyValue) (err error) {
		entry, err = kv.Get(ctx, session)
		return err
	})
	if err != nil {
		return cluster.StoredSeat{}, err
	}
	return cluster.StoredSeat{Session: session, Value: entry.Value(), Revision: entry.Revision(), Written: entry.Created()}, nil
}

// PutSeat implements cluster.SeatStore.
func (e *Engine) PutSeat(ctx context.Context, session string, value []byte, revision uint64) (uint64, error) {
	return e.put(ctx, "seat_put", e.there(&e.seats[cluster.SeatBucket(session)]), session, value, revision)
}

// DeleteSeat implements cluster.SeatStore.
func (e *Engine) DeleteSeat(ctx context.Context, session string, revision uint64) error {
	return e.delete(ctx, "seat_delete", e.there(&e.seats[cluster.SeatBucket(session)]), session, revision)
}

// ListSeats implements cluster.SeatStore, without a consumer. What is written while it lists is not listed.
func (e *Engine) ListSeats(ctx context.Context, bucket int) iter.Seq2[cluster.StoredSeat, error] {
	return func(yield func(cluster.StoredSeat, error) bool) {
		var st jetstream.Stream
		err := e.readSeats(ctx, "seat_info", bucket, func(ctx context.Context, _ jetstream.KeyValue) (err error) {
			_, js := e.conn()
			st, err = js.Stream(ctx, "KV_"+e.seatsBucket(bucket))
			return err
		})
		subjects := "$KV." + e.seatsBucket(bucket) + "."
		for next := uint64(1); err == nil && next <= st.CachedInfo().State.LastSeq; {
			var m *jetstream.RawStreamMsg
			err = e.readSeats(ctx, "seat_list", bucket, func(ctx context.Context, _ jetstream.KeyValue) (err error) {
				m, err = st.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subjects+">"))
				return err
			})
			if err != nil || m.Sequence > st.CachedInfo().State.LastSeq {
				break
			}
			next = m.Sequence + 1
			seat := cluster.StoredSeat{Session: strings.TrimPrefix(m.Subject, subjects), Value: m.Data, Revision: m.Sequence, Written: m.Time}
			if m.Header.Get(operationHeader) == "" && !yield(seat, nil) {
				return
			}
		}
		if err != nil && !errors.Is(err, cluster.ErrNoRecord) { // else the last one has been deleted since
			yield(cluster.StoredSeat{}, err)
		}
	}
}

// confirmed notes that a write was confirmed that began at a time.
func (e *Engine) confirmed(began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if began.After(e.contact) {
		e.contact = began
	}
}

// Contact implements cluster.SeatStore.
func (e *Engine) Contact() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.contact
}
