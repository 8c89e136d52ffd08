package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
	"reseat/gateway/cluster/engine"
	"reseat/gateway/internal/test/freeport"
	"reseat/gateway/internal/test/harness/chaos/fault"
)

const nodeA, nodeB = "aaaaaaaa", "bbbbbbbb"

// A seater is a node with durable sessions.
type seater struct {
	*diary
	*cluster.Seats
}

func derive(_ string, n int) ([][]byte, error) { return [][]byte{bytes.Repeat([]byte("k"), n)}, nil }

func newSeater(t *testing.T, id string, o engine.Options) *seater {
	t.Helper()
	o.Seats = true
	d := newEngine(t, o)
	d.ready()
	return &seater{d, cluster.NewSeats(func() string { return id }, d.Engine, derive, slog.New(slog.DiscardHandler))}
}

func (r *room) seater(id string) *seater {
	r.Helper()
	s := newSeater(r.T, id, engine.Options{URLs: r.urls()})
	// The first one makes the buckets, for which it waits two seconds at most.
	eventually(r.T, "all buckets have a leader", func() bool {
		for i := range cluster.SeatBuckets {
			if _, err := s.GetSeat(r.Context(), inBucket(i)); !errors.Is(err, cluster.ErrNoRecord) {
				return false
			}
		}
		return true
	})
	return s
}

// inBucket returns a session whose seat is in one of the buckets.
func inBucket(bucket int) string {
	for i := 0; ; i++ {
		if s := fmt.Sprintf("%s%032x", nodeA, 1<<20+i); cluster.SeatBucket(s) == bucket {
			return s
		}
	}
}

// session returns the nth session of node a.
func session(n int) string { return fmt.Sprintf("%s%032x", nodeA, n) }

func seatOf(owner, session string) cluster.Seat {
	return cluster.Seat{Session: session, Owner: owner, Keep: 30 * time.Second, Body: bytes.Repeat([]byte("b"), 600)}
}

// must writes a seat, and returns it as it is then.
func (s *seater) must(seat cluster.Seat) cluster.Seat {
	s.Helper()
	revision, err := s.Seats.Put(s.Context(), seat)
	check(s.T, err)
	seat.Revision = revision
	return seat
}

// Nobody but a cluster with durable sessions has the buckets. They are in files, and their replicas
// answer nobody.
func TestBucketsOfSeats(t *testing.T) {
	t.Parallel()
	sizes(t, func(t *testing.T, r *room) {
		r.engine()
		if _, err := r.admin().Stream(t.Context(), "KV_test_seats_0"); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("without durable sessions: %v", err)
		}
		a := r.seater(nodeA)
		a.must(seatOf(nodeA, session(1)))
		for range a.ListSeats(t.Context(), 0) {
		}
		for i := range cluster.SeatBuckets {
			info := r.stream(fmt.Sprint("KV_test_seats_", i))
			if c := info.Config; c.Storage != jetstream.FileStorage || c.AllowDirect || c.MaxMsgsPerSubject != 1 || c.Replicas != len(r.servers) || info.State.Consumers > 0 {
				t.Errorf("%+v", info)
			}
		}
	})
}

// behindGate returns a node with durable sessions, the gate on its way to NATS, and what calls seen with each request
// for a stored message that NATS gets.
func (r *room) behindGate() (a *seater, hold func(bool), onRead func(seen func())) {
	r.Helper()
	gate := fault.NewGate(freeport.Addr(), strings.TrimPrefix(r.urls()[0], "nats://"), func(net.Conn) string { return "" })
	check(r.T, gate.Open())
	r.Cleanup(gate.Close)
	hold = func(on bool) { gate.Set("", fault.Weather{Hold: [2]bool{fault.ToNear: on}}) }
	onRead = func(seen func()) {
		sub, err := r.admin().Conn().Subscribe("$JS.API.STREAM.MSG.GET.>", func(*nats.Msg) { seen() })
		check(r.T, err)
		check(r.T, r.admin().Conn().Flush())
		r.Cleanup(func() { sub.Unsubscribe() })
	}
	return newSeater(r.T, nodeA, engine.Options{URLs: []string{"nats://" + gate.Addr}}), hold, onRead
}

// NATS has done what it was asked for, and no answer comes until the node asks what became of it.
func TestWriteWhoseAnswerIsLostIsFound(t *testing.T) {
	t.Parallel()
	r := newRoom(t, 1, nil)
	a, hold, onRead := r.behindGate()
	seat := a.must(seatOf(nodeA, session(1)))
	onRead(func() { hold(false) })
	hold(true)
	seat.Epoch = 5
	revision, err := a.Seats.Put(t.Context(), seat)
	check(t, err)
	if got, err := r.seater(nodeB).Get(t.Context(), seat.Session); err != nil || got.Epoch != 5 || got.Revision != revision {
		t.Errorf("revision %d was written, and the record is of epoch %d, revision %d, %v", revision, got.Epoch, got.Revision, err)
	}
}

// NATS drops requests when too many wait.
func TestReadsByLeadersAreLimited(t *testing.T) {
	t.Parallel()
	const limit, readers = 256, 300
	r := newRoom(t, 1, nil)
	r.seater(nodeB).must(seatOf(nodeB, session(1)))
	a, hold, onRead := r.behindGate()
	var sent, failed atomic.Int64
	onRead(func() { sent.Add(1) })
	hold(true)
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			if _, err := a.Get(t.Context(), session(1)); err != nil {
				failed.Add(1)
			}
		})
	}
	eventually(t, "as many as may be are under way", func() bool { return sent.Load() >= limit })
	if n := sent.Load(); n != limit {
		t.Errorf("%d reads are under way, want %d", n, limit)
	}
	hold(false)
	all.Wait()
	if sent.Load() < readers || failed.Load() > 0 {
		t.Errorf("%d reads, %d have failed", sent.Load(), failed.Load())
	}
}

// While a bucket is lost its seats cannot be read or written, and no reader gets "not found". Then
// owners hear that they may write theirs.
func TestLostBucketOfSeatsIsFilledAgain(t *testing.T) {
	t.Parallel()
	sizes(t, func(t *testing.T, r *room) {
		a, b := r.seater(nodeA), r.seater(nodeB)
		s := inBucket(5)
		seat := a.must(seatOf(nodeA, s))
		synced := 0
		a.note(func() { synced = a.synced })
		check(t, r.admin().DeleteStream(t.Context(), "KV_test_seats_5"))
		if _, err := a.Seats.Put(t.Context(), seat); err == nil || errors.Is(err, cluster.ErrSeatTaken) {
			t.Errorf("while it is lost: %v", err)
		}
		a.sees("that the owner may write again", func() bool { return a.synced > synced })
		var revision uint64
		eventually(t, "the seat can be written", func() (ok bool) {
			var err error
			revision, err = a.Renew(t.Context(), seat)
			return err == nil
		})
		if revision <= seat.Revision {
			t.Errorf("revision %d follows %d", revision, seat.Revision)
		}
		if got, err := b.Get(t.Context(), s); err != nil || got.Owner != nodeA || got.Revision != revision {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := a.Seats.Put(t.Context(), seat); !errors.Is(err, cluster.ErrSeatTaken) {
			t.Errorf("with a revision of the lost bucket: %v", err)
		}
	})
}

// A cluster whose servers were all stopped has its seats, and their revisions.
func TestSeatsOutliveTheServers(t *testing.T) {
	t.Parallel()
	sizes(t, func(t *testing.T, r *room) {
		a := r.seater(nodeA)
		var seats []cluster.Seat
		for i := range 50 {
			seats = append(seats, a.must(seatOf(nodeA, session(i))))
		}
		r.restart(func() {
			eventually(t, "the engine is down", func() bool { return !a.Status().Up })
			if _, err := a.Get(t.Context(), session(1)); err == nil || errors.Is(err, cluster.ErrNoSeat) {
				t.Errorf("while there is no server: %v", err)
			}
		})
		for _, want := range seats {
			var got cluster.Seat
			eventually(t, "a seat can be read", func() bool {
				var err error
				got, err = a.Get(t.Context(), want.Session)
				if errors.Is(err, cluster.ErrNoSeat) {
					t.Fatal(err)
				}
				return err == nil
			})
			if got.Revision != want.Revision || !bytes.Equal(got.Body, want.Body) {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
		eventually(t, "a seat can be written on the revision from before", func() bool {
			_, err := a.Seats.Put(t.Context(), seats[0])
			if errors.Is(err, cluster.ErrSeatTaken) {
				t.Fatal(err)
			}
			return err == nil
		})
	})
}

// The list has each record once, whatever was written and deleted before, and while it lists: it ends.
func TestListHasEachSeatOnce(t *testing.T) {
	t.Parallel()
	r := newRoom(t, 1, nil)
	a := r.seater(nodeA)
	var want []string
	for i := range 400 {
		seat := a.must(seatOf(nodeA, session(i)))
		switch i % 4 {
		case 1:
			a.must(seat)
		case 2:
			check(t, a.Delete(t.Context(), seat.Session, seat.Revision))
		}
		if i%4 != 2 {
			want = append(want, seat.Session)
		}
	}
	var got []string
	for bucket := range cluster.SeatBuckets {
		for stored, err := range a.ListSeats(t.Context(), bucket) {
			if err != nil || cluster.SeatBucket(stored.Session) != bucket || len(stored.Value) < 600 || stored.Written.IsZero() {
				t.Fatalf("%+v, %v", stored, err)
			}
			seat, err := a.Get(t.Context(), stored.Session)
			if err != nil || seat.Revision != stored.Revision {
				t.Fatalf("%+v is listed, and it is %+v, %v", stored, seat, err)
			}
			if got = append(got, stored.Session); len(got) > len(want) {
				t.Fatal("more are listed than there were")
			}
			a.must(seat) // its next revision is newer than the list
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d seats, want %d", len(got), len(want))
	}
}

// For a minute after a deletion its mark is there.
func TestDeletedRecordCanBeWrittenAnew(t *testing.T) {
	t.Parallel()
	sizes(t, func(t *testing.T, r *room) {
		a := r.seater(nodeA)
		seat := a.must(seatOf(nodeA, session(1)))
		check(t, a.Delete(t.Context(), seat.Session, seat.Revision))
		if _, err := a.Get(t.Context(), seat.Session); !errors.Is(err, cluster.ErrNoSeat) {
			t.Errorf("%v, want that there is none", err)
		}
		if _, err := a.Seats.Put(t.Context(), seat); !errors.Is(err, cluster.ErrSeatTaken) {
			t.Errorf("on the old revision: %v", err)
		}
		if _, err := a.Renew(t.Context(), seat); err != nil {
			t.Error(err)
		}
		if err := a.Delete(t.Context(), seat.Session, seat.Revision); !errors.Is(err, cluster.ErrSeatTaken) {
			t.Errorf("deleted on the old revision: %v", err)
		}
		revision, err := a.PutPlayer(t.Context(), "p", []byte("1"), 0)
		check(t, err)
		check(t, a.DeletePlayer(t.Context(), "p", revision))
		eventually(t, "the player's record is gone, a replica may be late", func() bool {
			_, _, err := a.GetPlayer(t.Context(), "p")
			return errors.Is(err, cluster.ErrNoRecord)
		})
		_, err = a.PutPlayer(t.Context(), "p", []byte("2"), 0)
		check(t, err)
	})
}

// Contact is what most of the servers have confirmed: with one of three left there is none.
func TestContactNeedsMostServers(t *testing.T) {
	t.Parallel()
	r := newRoom(t, 3, nil)
	a := r.seater(nodeA)
	began := time.Now()
	a.must(seatOf(nodeA, session(1)))
	if got := a.Seats.Contact(); got.Before(began) || got.After(time.Now()) {
		t.Errorf("contact %v after the write began", got.Sub(began))
	}
	before := time.Now()
	a.put(nodeA, "its record")
	if got := a.Seats.Contact(); got.Before(before) {
		t.Errorf("contact %v before its record was written", before.Sub(got))
	}
	r.stop(1)
	r.stop(2)
	eventually(t, "the node is connected to the last one", func() bool { return a.Status().Up && a.Status().URL == r.urls()[0] })
	alone := time.Now()
	a.Seats.Put(t.Context(), seatOf(nodeA, session(2)))
	a.PutNode(t.Context(), nodeA, []byte("its record"))
	if got := a.Seats.Contact(); got.After(alone) {
		t.Error("one server of three has confirmed a write")
	}
}

// With the rights that Rights names everything works, and without one to make a bucket the engine says so.
func TestRightsForSeats(t *testing.T) {
	t.Parallel()
	all := engine.Rights("test", true)
	r := newRoom(t, 1, as(all))
	a := newSeater(t, nodeA, engine.Options{URLs: r.asUser()})
	for i := range cluster.SeatBuckets {
		s := inBucket(i)
		a.must(a.must(seatOf(nodeA, s)))
		seat, err := a.Get(t.Context(), s)
		check(t, err)
		for _, err := range a.ListSeats(t.Context(), i) {
			check(t, err)
		}
		check(t, a.Delete(t.Context(), s, seat.Revision))
	}
	if found := probe(t, engine.Options{URLs: r.asUser(), Seats: true}); !found.Seats[0].Exists || found.Seats[0].Err != nil || found.Seats[0].Replicas != 1 {
		t.Errorf("%+v", found.Seats)
	}
	const one = "$JS.API.STREAM.CREATE.KV_test_seats_3"
	e := newEngine(t, engine.Options{URLs: newRoom(t, 1, as(without(all, one))).asUser(), Seats: true})
	if err := e.readyWithin(patience); !unusable(err, one) {
		t.Errorf("without %q: %v", one, err)
	}
}
