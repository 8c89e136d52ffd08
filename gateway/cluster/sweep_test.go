package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/internal/test/clustertest"
)

// A sweep is what the sweeps of a node find, and what they leave.
type sweep struct {
	*node
	gone  map[string]bool
	heard time.Time // when the nodes that are gone were, zero: not known
	share func(string) bool
	over  []string
}

func newSweep(n *node) *sweep {
	return &sweep{node: n, gone: map[string]bool{}, share: func(string) bool { return true }}
}

// run sweeps once, and returns the sessions that it has ended.
func (s *sweep) run() []string {
	s.Helper()
	s.over = nil
	if err := s.sweep(); err != nil {
		s.Fatal(err)
	}
	slices.Sort(s.over)
	return s.over
}

func (s *sweep) sweep() error {
	return s.Sweep(s.Context(), func(id string) (time.Time, bool) { return s.heard, s.gone[id] }, s.share, func(seat cluster.Seat) {
		if len(seat.Body) == 0 {
			s.Error("the seat has no body")
		}
		s.over = append(s.over, seat.Session)
	})
}

// The seat of a player who was attached for hours is as old. That node and player were there until now.
func TestPlayersOfALostNodeHaveTheirGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		b := newSweep(newNode(t, e, nodeB))
		seat := a.put(seatOf(nodeA, sessionOfA))
		for range 3 {
			time.Sleep(time.Hour)
			if got := b.run(); got != nil {
				t.Fatalf("%v, of a node that lives", got)
			}
		}
		b.gone[nodeA] = true
		limit := seat.Keep + time.Minute
		for _, d := range []time.Duration{0, limit - time.Second} {
			time.Sleep(d)
			if got := b.run(); got != nil {
				t.Fatalf("%v, %v after the node was lost", got, d)
			}
		}
		time.Sleep(time.Second)
		if got := b.run(); !slices.Equal(got, []string{sessionOfA}) || len(e.Records()) != 0 {
			t.Errorf("%v, %d records are left", got, len(e.Records()))
		}
	})
}

// However late a sweep comes, the time counts from when the node was last heard.
func TestTimeOfALostNodeCountsFromItsLastSign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		b := newSweep(newNode(t, e, nodeB))
		seat := a.put(seatOf(nodeA, sessionOfA))
		b.gone[nodeA], b.heard = true, time.Now()
		time.Sleep(seat.Keep + time.Minute - time.Second)
		if got := b.run(); got != nil {
			t.Fatalf("%v, a second early", got)
		}
		time.Sleep(time.Second)
		if got := b.run(); !slices.Equal(got, []string{sessionOfA}) {
			t.Errorf("%v, by the first sweep after its time", got)
		}
	})
}

func TestSeatWrittenAfterItsOwnerWasLostStaysAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		b := newSweep(newNode(t, e, nodeB))
		seat := a.put(seatOf(nodeA, sessionOfA))
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Minute)
		a.put(seat) // it was silent only
		time.Sleep(seat.Keep + time.Minute - time.Second)
		if got := b.run(); got != nil {
			t.Errorf("%v", got)
		}
		time.Sleep(time.Second)
		if got := b.run(); len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}

func TestNodeThatIsBackKeepsItsSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		b := newSweep(newNode(t, e, nodeB))
		a.put(seatOf(nodeA, sessionOfA))
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Hour)
		b.gone[nodeA] = false
		b.run()
		b.gone[nodeA] = true
		if got := b.run(); got != nil {
			t.Errorf("%v: the time before it was back counts", got)
		}
	})
}

// The sweep that learns that it is back need not meet a seat of it.
func TestReturnedNodeNeedsNoSeatToBeNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		b := newSweep(newNode(t, e, nodeB))
		a.put(seatOf(nodeA, sessionOfA))
		b.gone[nodeA] = true
		b.run()
		e.Empty()
		b.gone[nodeA] = false
		b.run()
		a.put(seatOf(nodeA, sessionOfA))
		time.Sleep(time.Hour)
		b.gone[nodeA] = true
		if got := b.run(); got != nil {
			t.Errorf("%v: the time of its first loss counts", got)
		}
	})
}

func TestClaimedSeatIsNotSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a, c := newNode(t, e, nodeA), newNode(t, e, nodeC)
		b := newSweep(newNode(t, e, nodeB))
		seat := a.put(seatOf(nodeA, sessionOfA))
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Hour)
		b.link.Before = func() { c.put(claimed(seat, nodeC)) } // at the last moment
		if got := b.run(); got != nil {
			t.Errorf("ended %v", got)
		}
		if got := a.get(sessionOfA); got.Owner != nodeC {
			t.Errorf("%+v, want c's", got)
		}
	})
}

func TestSeatOfAnEndedSessionIsSweptInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		b := newSweep(newNode(t, e, nodeB))
		seat := seatOf(nodeA, sessionOfA)
		seat.Ended = 4404
		a.put(seat)
		b.gone[nodeA] = true
		time.Sleep(seat.Keep + 30*time.Second - time.Second)
		if got := b.run(); got != nil || len(e.Records()) != 1 {
			t.Errorf("too early: %v, %d records", got, len(e.Records()))
		}
		b.gone[nodeA] = false // it matters no more who owned it
		time.Sleep(time.Second)
		if got := b.run(); got != nil || len(e.Records()) != 0 {
			t.Errorf("%v, %d records", got, len(e.Records()))
		}
	})
}

// What a sweep cannot open it deletes at the same time, and says nothing of a session that it does not know.
// What is in another format is not its affair.
func TestUnreadableSeatsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		b := newSweep(newNode(t, e, nodeB))
		newNode(t, e, nodeA, "another key").put(seatOf(nodeA, sessionOfA))
		e.Set(anotherOfA, []byte("\x02of a later version"))
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Hour)
		if got := b.run(); got != nil {
			t.Errorf("ended %v", got)
		}
		if left := e.Records(); len(left) != 1 || left[anotherOfA].Value == nil {
			t.Errorf("left are %v", left)
		}
	})
}

// Each of the pieces is one node's, and nobody else reads it.
func TestNodesShareTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		const seats = 200
		for i := range seats {
			a.put(seatOf(nodeA, fmt.Sprintf("%s%032x", nodeA, i)))
		}
		sweeps := []*sweep{newSweep(newNode(t, e, nodeB)), newSweep(newNode(t, e, nodeC))}
		pieces, reads := map[string]int{}, 0
		for i, s := range sweeps {
			s.gone[nodeA] = true
			s.share = func(piece string) bool {
				if i == 0 {
					pieces[piece]++
				}
				return int(piece[len(piece)-1])%2 == i
			}
			s.link.Answer = func(_ string, seat cluster.StoredSeat, err error) (cluster.StoredSeat, error) {
				reads++
				return seat, err
			}
			s.run()
		}
		if len(pieces) != cluster.SeatBuckets || reads != seats {
			t.Errorf("%d pieces, %d reads", len(pieces), reads)
		}
		time.Sleep(time.Hour)
		first, second := len(sweeps[0].run()), len(sweeps[1].run())
		if first == 0 || second == 0 || first+second != seats || len(e.Records()) != 0 {
			t.Errorf("%d and %d were ended, %d are left", first, second, len(e.Records()))
		}
	})
}

func TestSweepIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		b := newSweep(newNode(t, e, nodeB))
		const seats = 4000
		for i := range seats {
			a.put(seatOf(nodeA, fmt.Sprintf("%s%032x", nodeA, i)))
		}
		began := time.Now()
		b.run()
		if took := time.Since(began); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("%d seats were read in %v, want 2s", seats, took)
		}
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Hour)
		began = time.Now()
		if got := b.run(); len(got) != seats {
			t.Errorf("%d were ended", len(got))
		}
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("%d seats were deleted in %v, want 10s", seats, took)
		}
	})
}

// A bucket without a leader holds up no other, and is swept the next time.
func TestSweepGoesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		b := newSweep(newNode(t, e, nodeB))
		const seats = 100
		for i := range seats {
			a.put(seatOf(nodeA, fmt.Sprintf("%s%032x", nodeA, i)))
		}
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Hour)
		b.link.Answer = func(session string, seat cluster.StoredSeat, err error) (cluster.StoredSeat, error) {
			if cluster.SeatBucket(session) == 3 {
				return cluster.StoredSeat{}, clustertest.ErrAway
			}
			return seat, err
		}
		if err := b.sweep(); !errors.Is(err, clustertest.ErrAway) {
			t.Errorf("%v", err)
		}
		left := len(e.Records())
		if left == 0 || left > seats/4 || len(b.over) != seats-left {
			t.Errorf("%d are left, %d ended", left, len(b.over))
		}
		b.link.Answer = nil
		if got := b.run(); len(got) != left {
			t.Errorf("%d of %d", len(got), left)
		}
	})
}

func TestCancelledSweepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		b := newSweep(newNode(t, e, nodeB))
		for i := range 4000 {
			a.put(seatOf(nodeA, fmt.Sprintf("%s%032x", nodeA, i)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := b.Sweep(ctx, func(string) (time.Time, bool) { return time.Time{}, true }, b.share, func(s cluster.Seat) { t.Errorf("ended %s", s.Session) })
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}
