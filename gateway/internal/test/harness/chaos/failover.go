//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/harness/seat"
)

// failovers has all n sessions of a gateway go on at the two others when it is killed, or drained, and writes
// how long that took from the signal to their hellos.
func failovers(ctx context.Context, cfg Config, n int, drain bool, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute+cfg.Late+time.Duration(n)*20*time.Millisecond)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	r := &run{cfg: cfg, began: time.Now()}
	defer r.close()
	if err := r.open(ctx); err != nil {
		return err
	}
	place, fronts := r.cluster.nodes[0], []string{}
	first := place.now.Load()
	for _, n := range r.cluster.nodes {
		fronts = append(fronts, n.listen)
	}
	all := make([]*survivor, n)
	for i := range all {
		s := &survivor{id: i, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: seat.DialTCP}}}
		all[i] = s
		clients.Go(func() { s.play(ctx, fronts) })
		process.Sleep(ctx, time.Millisecond)
	}
	f := &failover{r: r, all: all, limit: time.Minute + cfg.Late + time.Duration(n)*10*time.Millisecond}
	if err := f.await(ctx, "before", f.applied("[1]")); err != nil {
		return err
	}
	if err := f.await(ctx, "before", func(*survivor) string {
		if covered := first.process.Metrics()[`reseat_durable_sessions{state="covered"}`]; covered < float64(n) {
			return fmt.Sprintf("and others: %v of %d have their seat", covered, n)
		}
		return ""
	}); err != nil {
		return err
	}
	began, how := time.Now(), "killed"
	if drain {
		how = "drained"
		first.process.Signal(syscall.SIGTERM)
		clients.Go(func() {
			first.process.Wait(cfg.Drain + time.Minute)
			place.gate.Refuse()
		})
	} else {
		r.cluster.kill(place, first)
	}
	if err := f.await(ctx, how, (*survivor).stays); err != nil {
		return err
	}
	if err := f.await(ctx, how, f.applied("[1 2]")); err != nil {
		return err
	}
	at := f.times(began)
	fmt.Fprintf(out, "%d sessions of a gateway that is %s, driver %s, from the signal to hello: p50 %v, p90 %v, p99 %v, max %v\n", n, how, cfg.Driver, at(50), at(90), at(99), at(100))
	return nil
}

// A failover is the sessions of one gateway, which go on at others.
type failover struct {
	r     *run
	all   []*survivor
	limit time.Duration // of each await
}

// await waits until no session misses anything.
func (f *failover) await(ctx context.Context, what string, missing func(s *survivor) string) error {
	text := process.Await(ctx, f.limit, func() string {
		for _, s := range f.all {
			s.mu.Lock()
			text := missing(s)
			s.mu.Unlock()
			if text != "" {
				return fmt.Sprintf("session %d (%s) %s; last: %s", s.id, s.session, text, s.last)
			}
		}
		return ""
	})
	if text != "" {
		return fmt.Errorf("%s: %s", what, text)
	}
	return nil
}

// applied says what a session misses until the game server has applied these messages of it.
func (f *failover) applied(want string) func(s *survivor) string {
	return func(s *survivor) string {
		if got := f.r.counting.report(s.session, moment); fmt.Sprint(got.Applied) != want || got.Lost > 0 {
			return fmt.Sprintf("has %v applied by the game, lost %d, want %s", got.Applied, got.Lost, want)
		}
		return ""
	}
}

// times returns how long the sessions were away since began, by percentile.
func (f *failover) times(began time.Time) func(percent int) time.Duration {
	var times []time.Duration
	for _, s := range f.all {
		times = append(times, s.moved.Sub(began))
	}
	slices.Sort(times)
	return func(percent int) time.Duration { return times[percent*(len(times)-1)/100].Round(time.Millisecond) }
}

// A survivor is the client of a session of the counting game. It sends 1 where the session begins, and 2 where it
// goes on.
type survivor struct {
	id     int
	client *http.Client

	mu             sync.Mutex
	token, session string
	received, made uint64
	moved          time.Time // zero: it has not
	last           string    // what has happened last
}

// stays says that a session has not moved. The caller holds mu.
func (s *survivor) stays() string {
	if s.moved.IsZero() {
		return "has not moved"
	}
	return ""
}

// play begins the session at the first gateway, and goes on at one of the others.
func (s *survivor) play(ctx context.Context, fronts []string) {
	for ctx.Err() == nil {
		front := fronts[0]
		if s.token != "" {
			front = fronts[1+rand.IntN(len(fronts)-1)]
		}
		wait, err := s.connect(ctx, fmt.Sprintf("ws://%s/%c/%d/0", front, rules[countingGame].letter, s.id))
		s.mu.Lock()
		s.last = fmt.Sprint(err)
		s.mu.Unlock()
		process.Sleep(ctx, wait+time.Duration(5+rand.IntN(40))*time.Millisecond)
	}
}

// connect begins the session, or resumes it, and reads the connection to its end. It returns how long to wait before the
// next, and why it has ended.
func (s *survivor) connect(ctx context.Context, url string) (wait time.Duration, err error) {
	c, _, err := seat.Dial(ctx, s.client, url, seat.Offer{Token: s.token, Received: s.received, Acked: s.made, Sent: s.made})
	if err != nil {
		return 0, err
	}
	defer c.Drop()
	h, k, err := c.Hello(ctx)
	if h == nil {
		if k != nil {
			wait = time.Duration(k.RetryAfterMS) * time.Millisecond
		}
		return wait, fmt.Errorf("no hello: %v, %+v", err, k)
	}
	s.mu.Lock()
	if s.token, s.session, s.made = h.Token, h.Session, 1; h.Moved != "" {
		s.moved, s.made = time.Now(), 2
	}
	s.mu.Unlock()
	c.Say(ctx, "ping", "0") // confirms the generation
	for n := h.Received + 1; n <= s.made; n++ {
		c.Send(ctx, true, strconv.AppendUint(nil, n, 10))
	}
	for {
		m, err := c.Read(ctx)
		switch {
		case err != nil:
			return wait, err
		case m.Verb == "":
			s.received++
			c.Ack(ctx, s.received)
		case m.Verb == "ping":
			c.Say(ctx, "pong", m.Arg)
		case m.Verb == "close":
			wait = time.Duration(closing(m.Arg).RetryAfterMS) * time.Millisecond
		}
	}
}
