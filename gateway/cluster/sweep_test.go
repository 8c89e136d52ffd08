package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/internal/test/clustertest"
	"reseat/gateway/internal/test/wstest"
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

// wantEnded sweeps, and checks which sessions have ended by that.
func (s *sweep) wantEnded(what string, want ...string) {
	s.Helper()
	if got := s.run(); !slices.Equal(got, want) {
		s.Errorf("%s: ended %v, want %v", what, got, want)
	}
}

// inSweep runs f in a bubble of synctest with a session of node a, and sweeps of node b.
func inSweep(t *testing.T, f func(t *testing.T, e *clustertest.Seats, a *node, b *sweep, seat cluster.Seat)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, a, b, seat := begun(t)
		f(t, e, a, newSweep(b), seat)
	})
}

// inLargeSweep is inSweep with so many more sessions.
func inLargeSweep(t *testing.T, seats int, f func(t *testing.T, e *clustertest.Seats, b *sweep)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		for i := range seats {
			a.put(seatOf(nodeA, fmt.Sprintf("%s%032x", nodeA, i)))
		}
		f(t, e, newSweep(newNode(t, e, nodeB)))
	})
}

// The seat of a player who was attached for hours is as old. That node and player were there until now.
func TestPlayersOfALostNodeHaveTheirGracePeriod(t *testing.T) {
	inSweep(t, func(t *testing.T, e *clustertest.Seats, _ *node, b *sweep, seat cluster.Seat) {
		for range 3 {
			time.Sleep(time.Hour)
			b.wantEnded("of a node that lives")
		}
		b.gone[nodeA] = true
		b.wantEnded("at once")
		time.Sleep(seat.Keep + time.Minute - time.Second)
		b.wantEnded("a second early")
		time.Sleep(time.Second)
		b.wantEnded("in time", sessionOfA)
		wstest.Equal(t, "records that are left", len(e.Records()), 0)
	})
}

// However late a sweep comes, the time counts from when the node was last heard.
func TestTimeOfALostNodeCountsFromItsLastSign(t *testing.T) {
	inSweep(t, func(t *testing.T, _ *clustertest.Seats, _ *node, b *sweep, seat cluster.Seat) {
		b.gone[nodeA], b.heard = true, time.Now()
		time.Sleep(seat.Keep + time.Minute - time.Second)
		b.wantEnded("a second early")
		time.Sleep(time.Second)
		b.wantEnded("by the first sweep after its time", sessionOfA)
	})
}

func TestSeatWrittenAfterItsOwnerWasLostStaysAsLong(t *testing.T) {
	inSweep(t, func(t *testing.T, _ *clustertest.Seats, a *node, b *sweep, seat cluster.Seat) {
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Minute)
		a.put(seat) // it was silent only
		time.Sleep(seat.Keep + time.Minute - time.Second)
		b.wantEnded("a second early")
		time.Sleep(time.Second)
		b.wantEnded("in time", sessionOfA)
	})
}

// The time before a node was back does not count. The sweep that learns that it is back need not meet a seat of it.
func TestNodeThatIsBackKeepsItsSeats(t *testing.T) {
	for _, emptied := range []bool{false, true} {
		inSweep(t, func(t *testing.T, e *clustertest.Seats, a *node, b *sweep, _ cluster.Seat) {
			b.gone[nodeA] = true
			b.run()
			if emptied {
				e.Empty()
			} else {
				time.Sleep(time.Hour)
			}
			b.gone[nodeA] = false
			b.run()
			if emptied {
				a.put(seatOf(nodeA, sessionOfA))
				time.Sleep(time.Hour)
			}
			b.gone[nodeA] = true
			b.wantEnded("as it is lost again")
		})
	}
}

func TestClaimedSeatIsNotSwept(t *testing.T) {
	inSweep(t, func(t *testing.T, e *clustertest.Seats, a *node, b *sweep, seat cluster.Seat) {
		c := newNode(t, e, nodeC)
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Hour)
		b.link.SetBefore(func() { c.put(claimed(seat, nodeC)) }) // at the last moment
		b.wantEnded("as another node claims it")
		a.wantOwner(nodeC)
	})
}

func TestSeatOfAnEndedSessionIsSweptInSilence(t *testing.T) {
	inSweep(t, func(t *testing.T, e *clustertest.Seats, a *node, b *sweep, seat cluster.Seat) {
		seat.Ended = 4404
		a.put(seat)
		b.gone[nodeA] = true
		time.Sleep(seat.Keep + 30*time.Second - time.Second)
		b.wantEnded("a second early")
		wstest.Equal(t, "records", len(e.Records()), 1)
		b.gone[nodeA] = false // it matters no more who owned it
		time.Sleep(time.Second)
		b.wantEnded("in time")
		wstest.Equal(t, "records", len(e.Records()), 0)
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
		b.wantEnded("in time")
		if left := e.Records(); len(left) != 1 || left[anotherOfA].Value == nil {
			t.Errorf("left are %v, want that of the later version", left)
		}
	})
}

// took checks how long f takes, to a tenth.
func took(t *testing.T, what string, want time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if d := time.Since(began); d < want-want/10 || d > want+want/10 {
		t.Errorf("%s took %v, want %v", what, d, want)
	}
}

func TestSweepIsSlow(t *testing.T) {
	const seats = 4000
	inLargeSweep(t, seats, func(t *testing.T, _ *clustertest.Seats, b *sweep) {
		took(t, "reading", 2*time.Second, func() { b.run() })
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Hour)
		took(t, "deleting", 10*time.Second, func() { wstest.Equal(t, "ended", len(b.run()), seats) })
	})
}

// A bucket without a leader holds up no other, and is swept the next time.
func TestSweepGoesOnAfterAnError(t *testing.T) {
	const seats = 100
	inLargeSweep(t, seats, func(t *testing.T, e *clustertest.Seats, b *sweep) {
		b.gone[nodeA] = true
		b.run()
		time.Sleep(time.Hour)
		b.link.Answer = func(session string, seat cluster.StoredSeat, err error) (cluster.StoredSeat, error) {
			if cluster.SeatBucket(session) == 3 {
				return cluster.StoredSeat{}, clustertest.ErrAway
			}
			return seat, err
		}
		wantErr(t, "a sweep", b.sweep(), clustertest.ErrAway)
		left := len(e.Records())
		if left == 0 || left > seats/4 || len(b.over) != seats-left {
			t.Errorf("%d are left, %d ended", left, len(b.over))
		}
		b.link.Answer = nil
		wstest.Equal(t, "ended by the next sweep", len(b.run()), left)
	})
}

// Each of the pieces is one node's, and nobody else reads it.
func TestNodesShareTheSweep(t *testing.T) {
	const seats = 200
	inLargeSweep(t, seats, func(t *testing.T, e *clustertest.Seats, b *sweep) {
		sweeps := []*sweep{b, newSweep(newNode(t, e, nodeC))}
		pieces, reads := map[string]int{}, 0
		for i, s := range sweeps {
			s.gone[nodeA] = true
			s.share = func(piece string) bool {
				pieces[piece]++
				return int(piece[len(piece)-1])%2 == i
			}
			s.link.Answer = func(_ string, seat cluster.StoredSeat, err error) (cluster.StoredSeat, error) {
				reads++
				return seat, err
			}
			s.run()
		}
		wstest.Equal(t, "pieces", len(pieces), cluster.SeatBuckets)
		wstest.Equal(t, "reads", reads, seats)
		time.Sleep(time.Hour)
		first, second := len(sweeps[0].run()), len(sweeps[1].run())
		if first == 0 || second == 0 || first+second != seats || len(e.Records()) != 0 {
			t.Errorf("%d and %d were ended, %d are left; want %d in all", first, second, len(e.Records()), seats)
		}
	})
}
