//go:build linux

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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

// This test kills and stops servers that run as processes of their own: make engine, for an hour.
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
		rest := process.Span(r, 500*time.Millisecond, 5500*time.Millisecond)
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
		process.Sleep(ctx, process.Span(r, 0, 3*time.Second))
	}
	y.Logf("%d kills, %d pauses; -seed %d repeats them", kills, pauses, *seed)
}

// A store is counters with conditional writes. Its errors are cluster.ErrNoRecord, cluster.ErrOvertaken,
// and others, after which nobody knows whether a write was accepted.
type store interface {
	GetPlayer(ctx context.Context, key string) ([]byte, uint64, error)
	PutPlayer(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
}

// seatStore is the buckets of seats.
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
	mu                                sync.Mutex
	acked                             map[string]map[int]int // how often a value of a key was
	total, unknown, overtaken, untrue int                    // untrue: that there is no record, after there was one
}

const keysOf = 8

func newCounters() *counters {
	c := &counters{acked: map[string]map[int]int{}}
	for i := range keysOf {
		c.acked[fmt.Sprint("c", i)] = map[int]int{}
	}
	return c
}

func (c *counters) count(ctx context.Context, s store, r *rand.Rand) {
	for ctx.Err() == nil {
		c.step(ctx, s, fmt.Sprint("c", r.IntN(keysOf)))
		process.Sleep(ctx, time.Duration(r.IntN(4))*time.Millisecond)
	}
}

// step counts a key up, or fails to.
func (c *counters) step(ctx context.Context, s store, key string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c.mu.Lock()
	there := len(c.acked[key]) > 0
	c.mu.Unlock()
	value := 0
	b, revision, err := s.GetPlayer(ctx, key)
	isNone := errors.Is(err, cluster.ErrNoRecord)
	if isNone && !there || err == nil && json.Unmarshal(b, &value) == nil {
		value++
		_, err = s.PutPlayer(ctx, key, fmt.Append(nil, value), revision)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.total++
		c.acked[key][value]++
	case errors.Is(err, cluster.ErrOvertaken):
		c.overtaken++
	case isNone && there:
		c.untrue++
	case value > 0:
		c.unknown++
	}
}

// judge compares what was acked with what is there at the end.
func (c *counters) judge(t *testing.T, what string, s store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	twice, lost, sum := 0, 0, 0
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
	said := fmt.Sprintf("%s: the counters are at %d together; %d acknowledged, %d unknown, %d overtaken; %d acknowledged twice, %d lost, %d said not to be there",
		what, sum, c.total, c.unknown, c.overtaken, twice, lost, c.untrue)
	t.Log(said)
	if twice > 0 || lost > 0 || c.untrue > 0 || sum < c.total || sum > c.total+c.unknown || c.total < 200 {
		t.Error(said)
	}
}

// Twelve clients count up eight keys by conditional writes, in the bucket of players, which is in memory, and in
// those of seats, which are in files. None is accepted twice or lost, and no reader gets "not found" for a record that exists,
// such as while its bucket has no leader.
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
