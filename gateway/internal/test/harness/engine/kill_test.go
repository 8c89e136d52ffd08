//go:build linux

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/cluster/engine"
	"reseat/gateway/internal/test/harness/process"
)

// These tests kill and stop servers that run as processes of their own: make engine, for an hour.
var (
	minutes = flag.Float64("minutes", 0.3, "how long servers are killed")
	seed    = flag.Uint64("seed", uint64(time.Now().UnixNano())%1_000_000, "of what happens to the servers")
	binary  = flag.String("nats", "", "the NATS server's program; built where there is none")
)

// A yard is three servers, as processes.
type yard struct {
	*testing.T
	servers []*process.NATS
}

func newYard(t *testing.T) *yard {
	t.Helper()
	bin, err := process.Program(*binary, "nats-server")
	check(t, err)
	y := &yard{T: t}
	y.servers, err = process.StartNATS(bin, t.TempDir(), 3)
	for _, s := range y.servers {
		t.Cleanup(s.Kill)
	}
	check(t, err)
	eventually(t, "the servers are healthy", y.healthy)
	return y
}

func (y *yard) urls() (list []string) {
	for _, s := range y.servers {
		list = append(list, "nats://"+s.Client)
	}
	return list
}

func (y *yard) healthy() bool {
	return !slices.ContainsFunc(y.servers, func(s *process.NATS) bool { return !s.Healthy() })
}

// ravage kills or stops one server after the other, every second time the leader of a stream. The next
// one follows when all are up to date: what is in memory would be lost otherwise.
func (y *yard) ravage(ctx context.Context, streams ...string) {
	y.Helper()
	kills, pauses := 0, 0
	r := rand.New(rand.NewPCG(*seed, 1))
	for ctx.Err() == nil {
		victim := y.servers[r.IntN(3)]
		if r.IntN(2) == 0 {
			if leader := process.Leader(y.servers, streams[r.IntN(len(streams))]); leader != nil {
				victim = leader
			}
		}
		rest := time.Duration(500+r.IntN(5000)) * time.Millisecond
		if r.IntN(2) == 0 {
			kills++
			victim.Kill()
			process.Sleep(ctx, rest)
			check(y.T, victim.Start())
		} else {
			pauses++
			victim.Signal(syscall.SIGSTOP)
			process.Sleep(ctx, rest)
			victim.Signal(syscall.SIGCONT)
		}
		eventually(y.T, "the servers are healthy again", y.healthy)
		process.Sleep(ctx, time.Duration(r.IntN(3000))*time.Millisecond)
	}
	y.Logf("%d kills, %d pauses; -seed %d repeats them", kills, pauses, *seed)
}

// A store is counters with conditional writes. Its errors are cluster.ErrNoRecord, cluster.ErrOvertaken,
// and others, after which nobody knows whether a write was accepted.
type store interface {
	GetPlayer(ctx context.Context, key string) ([]byte, uint64, error)
	PutPlayer(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
}

// seatStore is the buckets of seats, through our engine.
type seatStore struct{ *engine.Engine }

func (s seatStore) GetPlayer(ctx context.Context, key string) ([]byte, uint64, error) {
	stored, err := s.GetSeat(ctx, key)
	return stored.Value, stored.Revision, err
}

func (s seatStore) PutPlayer(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return s.PutSeat(ctx, key, value, revision)
}

// counters are eight keys that clients count up, one at a time.
type counters struct {
	mu                        sync.Mutex
	acked                     map[string]map[int]int // how often a value of a key was
	total, unknown, overtaken int
}

const keysOf = 8

func (c *counters) count(ctx context.Context, s store, r *rand.Rand) {
	for ctx.Err() == nil {
		key := fmt.Sprint("c", r.IntN(keysOf))
		op, cancel := context.WithTimeout(ctx, 2*time.Second)
		value, err := c.step(op, s, key)
		cancel()
		c.mu.Lock()
		switch {
		case err == nil:
			c.total++
			c.acked[key][value]++
		case errors.Is(err, cluster.ErrOvertaken):
			c.overtaken++
		case value > 0:
			c.unknown++
		}
		c.mu.Unlock()
		process.Sleep(ctx, time.Duration(r.IntN(4))*time.Millisecond)
	}
}

// step returns the value that it wrote, or may have.
func (c *counters) step(ctx context.Context, s store, key string) (value int, err error) {
	b, revision, err := s.GetPlayer(ctx, key)
	if err != nil && !errors.Is(err, cluster.ErrNoRecord) {
		return 0, err
	}
	if err == nil {
		if err := json.Unmarshal(b, &value); err != nil {
			return 0, err
		}
	}
	value++
	_, err = s.PutPlayer(ctx, key, fmt.Append(nil, value), revision)
	return value, err
}

// judge compares what was acked with what is there at the end.
func (c *counters) judge(t *testing.T, what string, s store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	twice, lost := 0, 0
	sum := 0
	for key, values := range c.acked {
		var last int
		eventually(t, "the counters can be read", func() bool {
			b, _, err := s.GetPlayer(t.Context(), key)
			return err == nil && json.Unmarshal(b, &last) == nil
		})
		sum += last
		for value, n := range values {
			twice += n - 1
			if value > last {
				lost++
			}
		}
	}
	t.Logf("%s: %d acknowledged, %d unknown, %d overtaken; %d acknowledged twice, %d lost", what, c.total, c.unknown, c.overtaken, twice, lost)
	if twice > 0 || lost > 0 || sum < c.total || sum > c.total+c.unknown {
		t.Errorf("%s: the counters are at %d together, with %d acknowledged and %d unknown; %d acknowledged twice, %d lost", what, sum, c.total, c.unknown, twice, lost)
	}
	if c.total < 200 {
		t.Errorf("%s: only %d acknowledged", what, c.total)
	}
}

// Twelve clients count up eight keys by conditional writes, in the bucket of players, which is in memory, and in
// those of seats, which are in files.
func TestNoConditionalWriteIsAcceptedTwiceOrLost(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*minutes*float64(time.Minute)))
	defer cancel()
	inMemory, inSeats := newCounters(), newCounters()
	var clients sync.WaitGroup
	var first *engine.Engine
	for i := range 12 {
		e := newEngine(t, engine.Options{URLs: y.urls(), Seats: true})
		e.ready()
		first = e.Engine
		clients.Go(func() { inSeats.count(ctx, seatStore{e.Engine}, rand.New(rand.NewPCG(*seed, uint64(70+i)))) })
		clients.Go(func() { inMemory.count(ctx, e, rand.New(rand.NewPCG(*seed, uint64(10+i)))) })
	}
	y.ravage(ctx, "KV_test_players", fmt.Sprint("KV_test_seats_", cluster.SeatBucket("c0")), fmt.Sprint("KV_test_seats_", cluster.SeatBucket("c1")))
	clients.Wait()
	inMemory.judge(t, "in memory", first)
	inSeats.judge(t, "in seats", seatStore{first})
}

func newCounters() *counters {
	c := &counters{acked: map[string]map[int]int{}}
	for i := range keysOf {
		c.acked[fmt.Sprint("c", i)] = map[int]int{}
	}
	return c
}

// The server that leads a bucket is killed. For the seconds until another one does, nobody can read or write a
// seat of that bucket, and nobody is told anything untrue. Then all is as it was.
func TestSeatsAreAwayWhileTheirBucketHasNoLeader(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	node := func(id string) *seater { return newSeater(t, id, engine.Options{URLs: y.urls()}) }
	a, b := node(nodeA), node(nodeB)
	var leader, other *process.NATS
	var bucket, elsewhere int
	eventually(t, "two servers lead buckets", func() bool {
		leader, other = nil, nil
		for i := range cluster.SeatBuckets {
			at := process.Leader(y.servers, fmt.Sprint("KV_test_seats_", i))
			switch {
			case leader == nil:
				leader, bucket = at, i
			case at != nil && at != leader && other == nil:
				other, elsewhere = at, i
			}
		}
		return other != nil
	})
	seat, spare := seatOf(nodeA, inBucket(bucket)), seatOf(nodeA, inBucket(elsewhere))
	eventually(t, "the seats can be written", func() bool {
		var err error
		if seat.Revision, err = a.Renew(t.Context(), seat); err == nil {
			spare.Revision, err = a.Renew(t.Context(), spare)
		}
		return err == nil
	})
	killed := time.Now()
	leader.Kill()
	claim := seat
	claim.Owner, claim.Epoch = nodeB, 1
	failed := 0
	eventually(t, "the seat is claimed", func() bool {
		revision, err := b.Seats.Put(t.Context(), claim)
		switch got, lost := a.Get(t.Context(), seat.Session); {
		case lost == nil && got.Owner == nodeB && got.Epoch == 1: // by this write, or one that was unclear
			claim.Revision = got.Revision
			return err != nil || revision == got.Revision
		case errors.Is(err, cluster.ErrSeatTaken), errors.Is(lost, cluster.ErrNoSeat):
			t.Fatalf("%v after the kill: %v, %v", time.Since(killed), err, lost)
		}
		failed++
		return false
	})
	t.Logf("claimed %v after its leader was killed, after %d attempts", time.Since(killed).Round(10*time.Millisecond), failed)
	if failed == 0 {
		t.Error("the bucket had a leader all the time")
	}
	if _, err := a.Seats.Put(t.Context(), seat); !errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("the former owner, on its revision: %v", err)
	}
	if got, err := a.Get(t.Context(), spare.Session); err != nil || got.Revision != spare.Revision {
		t.Errorf("%+v, %v", got, err)
	}
	check(t, leader.Start())
	eventually(t, "the servers are healthy again", y.healthy)
	if got, err := a.Get(t.Context(), seat.Session); err != nil || got.Owner != nodeB || got.Revision != claim.Revision {
		t.Errorf("%+v, %v", got, err)
	}
}

// A lounge is nodes with players, as --duplicate needs them.
type lounge struct {
	mu    sync.Mutex
	nodes map[string]*cluster.Players
	where map[string]string // the node of each session that lives, with its key behind a slash
}

// begins does what a gateway does with two sessions of its own. It reports false if the new one may
// not begin.
func (l *lounge) begins(node, session, key string, policy cluster.PlayerPolicy) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	place := node + "/" + key
	for other, where := range l.where {
		if where == place && policy == cluster.OldestWins {
			return false
		}
		if where == place {
			delete(l.where, other)
		}
	}
	l.where[session] = place
	return true
}

func (l *lounge) ends(session string) {
	l.mu.Lock()
	where, ok := l.where[session]
	delete(l.where, session)
	l.mu.Unlock()
	if ok {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		l.nodes[where[:8]].Release(ctx, where[9:], session)
	}
}

// Supersede implements cluster.PlayerPeers.
func (l *lounge) Supersede(_, session string) { go l.ends(session) }

// Answers implements cluster.PlayerPeers.
func (l *lounge) Answers(_ context.Context, _, session string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.where[session]
	return ok
}

func (l *lounge) count() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for _, where := range l.where {
		n[where[9:]]++
	}
	return n
}

// Players begin sessions at random nodes, often two at once, while servers are killed. When that is
// over, each has one session: --duplicate takeover and reject.
func TestPlayersHaveOneSessionAfterKills(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*minutes*float64(time.Minute)))
	defer cancel()
	l := &lounge{nodes: map[string]*cluster.Players{}, where: map[string]string{}}
	var ids []string
	var unchecked, refused, begun int
	for i := range 3 {
		id := fmt.Sprintf("%08x", i)
		e := newEngine(t, engine.Options{URLs: y.urls()})
		e.ready()
		p := cluster.NewPlayers(func() string { return id }, e, l, slog.New(slog.DiscardHandler))
		p.Unchecked = func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			unchecked++
		}
		l.nodes[id], ids = p, append(ids, id)
		e.note(func() { e.then = func() { p.Announce(t.Context(), l.ends) } }) // as a node does
	}
	var clients sync.WaitGroup
	for i := range 12 {
		r := rand.New(rand.NewPCG(*seed, uint64(50+i)))
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key, session, id := fmt.Sprint("p", r.IntN(keysOf)), fmt.Sprintf("%d-%d", i, n), ids[r.IntN(3)]
				policy := cluster.NewestWins
				if key > "p3" { // of a key always the same
					policy = cluster.OldestWins
				}
				if !l.begins(id, session, key, policy) {
					process.Sleep(ctx, 10*time.Millisecond)
					continue
				}
				stays := l.nodes[id].Hold(ctx, key, session, policy)
				if !stays || r.IntN(3) == 0 {
					l.ends(session)
				}
				l.mu.Lock()
				begun++
				if !stays {
					refused++
				}
				l.mu.Unlock()
				process.Sleep(ctx, time.Duration(5+r.IntN(40))*time.Millisecond)
			}
		})
	}
	y.ravage(ctx, "KV_test_players")
	clients.Wait()
	eventually(t, "each player has one session", func() bool {
		for _, n := range l.count() {
			if n > 1 {
				return false
			}
		}
		return true
	})
	t.Logf("%d sessions, %d refused, %d began unchecked", begun, refused, unchecked)
	if begun < 200 || refused == 0 || len(l.count()) == 0 {
		t.Errorf("%d sessions, %d refused, %d left: too little has happened to mean anything", begun, refused, len(l.count()))
	}
}
