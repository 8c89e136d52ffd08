//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/chaos/history"
	"reseat/gateway/internal/test/harness/seat"
)

const (
	rivals     = 4
	tenures    = 7 // per rival; takeovers are limited to 20 in 10 s
	shownAgain = 4 // how many of the newest tokens a rival chooses from
)

// A rivalry is one session whose tokens four clients share. They supersede each other,
// with old and new tokens, through faults, until one ends it or all stay away. Only the
// history is checked.
type rivalry struct {
	run  *run
	id   int
	hist history.History

	mu       sync.Mutex
	tokens   []string
	attempts int
	faults   []string
}

// plan returns the fault of the connection number attempt.
func (v *rivalry) plan(attempt int) fault.Plan {
	r := rand.New(rand.NewPCG(v.run.cfg.Seed, uint64(v.id)<<20|uint64(attempt)|1<<46))
	if attempt > 1 && r.IntN(2) == 0 {
		plan := fault.Cutting(r, v.run.cfg.Hold)
		plan.After /= 1 + r.IntN(8) // little passes on these connections
		return plan
	}
	return fault.Calm(r)
}

func (v *rivalry) fault(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

func (v *rivalry) play(ctx context.Context) {
	if !v.begin(ctx) {
		v.fault("rivals: never had a hello")
		return
	}
	// A refused attempt does not extend the session, and one attempt may take long.
	enough := time.Now().Add(v.run.cfg.Grace / 2)
	var all sync.WaitGroup
	for i := range rivals {
		r := rand.New(rand.NewPCG(v.run.cfg.Seed, uint64(v.id)<<8|uint64(i)|1<<47))
		all.Go(func() {
			for n := 0; n < tenures && time.Now().Before(enough); n++ {
				v.attempt(ctx, i, r, false)
				sleep(ctx, time.Duration(r.IntN(400))*time.Millisecond)
			}
		})
	}
	all.Wait()
	v.finish(ctx, rand.New(rand.NewPCG(v.run.cfg.Seed, uint64(v.id)|1<<48)))
}

func (v *rivalry) begin(ctx context.Context) bool {
	for try := range 20 {
		answer := v.hist.Begin(0, history.New, 0)
		c, _, err := seat.Dial(ctx, v.run.client, fmt.Sprintf("%s/r/%d/%d?a=1", v.run.fronts[0], v.id, try), seat.Offer{})
		if err != nil {
			continue
		}
		h, _, err := c.Hello(ctx)
		if err == nil && h != nil {
			gen := seat.Gen(h.Token)
			answer(history.Done, gen, 0)
			v.tokens = append(v.tokens, h.Token)
			// Until the gateway has received something, it keeps a session only for twice the
			// heartbeat.
			alive := v.hist.Begin(0, history.Live, gen)
			c.Say(ctx, "ping", "?")
			pong, _ := v.hear(ctx, c)
			c.Drop()
			if pong {
				alive(history.Done, 0, 0)
			}
			return pong
		}
		c.Drop()
	}
	return false
}

func (v *rivalry) token(r *rand.Rand, newest bool) (token string, attempt int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.attempts++
	n := len(v.tokens)
	if newest { // hellos are read in any order
		return slices.MaxFunc(v.tokens, func(a, b string) int { return seat.Gen(a) - seat.Gen(b) }), 1 // a calm line
	}
	return v.tokens[max(0, n-1-r.IntN(shownAgain))], v.attempts + 1
}

// attempt resumes once, pings, stays a little and disconnects. It returns the code of a
// refusal, else 0.
func (v *rivalry) attempt(ctx context.Context, client int, r *rand.Rand, newest bool) (attached bool, code int) {
	token, attempt := v.token(r, newest)
	ctx, cancel := context.WithTimeout(ctx, min(5*time.Second, v.run.cfg.Grace/4))
	defer cancel()
	answer := v.hist.Begin(client, history.Resume, seat.Gen(token))
	c, _, err := seat.Dial(ctx, v.run.client, fmt.Sprintf("%s/r/%d/0?a=%d", v.run.fronts[0], v.id, attempt), seat.Offer{Token: token})
	if err != nil {
		answer(history.Unknown, 0, 0)
		return false, 0
	}
	defer c.Drop()
	h, k, err := c.Hello(ctx)
	switch {
	case err != nil:
		answer(history.Unknown, 0, 0)
		return false, 0
	case k != nil:
		answer(history.Refused, 0, k.Code)
		return false, k.Code
	}
	gen := seat.Gen(h.Token)
	answer(history.Done, gen, 0)
	v.hold(h.Token)
	v.stay(ctx, c, client, gen, r, newest)
	return true, 0
}

func (v *rivalry) hold(token string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tokens = append(v.tokens, token)
}

// stay pings on a connection and waits for a pong, or a 4409.
func (v *rivalry) stay(ctx context.Context, c *seat.Conn, client, gen int, r *rand.Rand, bye bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(50+r.IntN(900))*time.Millisecond)
	defer cancel()
	since := now()
	for more := true; more; {
		answer := v.hist.Begin(client, history.Live, gen)
		c.Say(ctx, "ping", "?")
		pong, superseded := v.hear(ctx, c)
		if pong {
			answer(history.Done, 0, 0)
		} else {
			answer(history.Unknown, 0, 0)
		}
		if superseded {
			v.hist.Add(client, history.Superseded, gen, since, now(), history.Done, 0, 0)
		}
		more = pong && !bye && sleep(ctx, time.Duration(r.IntN(200))*time.Millisecond)
	}
}

// hear reads up to a pong, or to the connection's end.
func (v *rivalry) hear(ctx context.Context, c *seat.Conn) (pong, superseded bool) {
	for {
		m, err := c.Read(ctx)
		switch {
		case err != nil:
			return false, false
		case m.Verb == "pong":
			return true, false
		case m.Verb == "ping":
			c.Say(ctx, "pong", m.Arg)
		case m.Verb == "close" && closing(m.Arg).Code == 4409:
			return false, true
		case m.Verb == "":
			v.fault("rivals: a message %q came where none was sent", m.Data)
		}
	}
}

// finish ends the session by bye, or by staying detached: for longer than the grace
// period, or until about its end.
func (v *rivalry) finish(ctx context.Context, r *rand.Rand) {
	attached, code := v.attempt(ctx, 0, r, true)
	for tries := 1; !attached && code == 0 && tries < 3; tries++ { // no answer in time
		attached, code = v.attempt(ctx, 0, r, true)
	}
	if !attached {
		v.fault("rivals: the newest token was refused with %d", code)
		return
	}
	left := now()
	grace := v.run.cfg.Grace
	switch v.id % 2 {
	case 0:
		v.bye(ctx, r)
	case 1: // at the same time
		sleep(ctx, grace-40*time.Millisecond+time.Duration(r.IntN(80))*time.Millisecond)
		v.hist.Add(0, history.Expire, 0, left+int64(grace), history.Never, history.Unknown, 0, 0)
		v.attempt(ctx, 0, r, true)
		v.bye(ctx, r)
	}
	if attached, code := v.attempt(ctx, 1, r, true); attached || code != 4404 && code != 4410 {
		v.fault("rivals: after the end a resume was answered: attached %v, code %d", attached, code)
	}
}

// bye resumes and sends bye.
func (v *rivalry) bye(ctx context.Context, r *rand.Rand) {
	token, attempt := v.token(r, true)
	resumed := v.hist.Begin(2, history.Resume, seat.Gen(token))
	c, _, err := seat.Dial(ctx, v.run.client, fmt.Sprintf("%s/r/%d/0?a=%d", v.run.fronts[0], v.id, attempt), seat.Offer{Token: token})
	if err != nil {
		resumed(history.Unknown, 0, 0)
		return
	}
	defer c.Drop()
	h, k, err := c.Hello(ctx)
	if err != nil || k != nil {
		if k != nil {
			resumed(history.Refused, 0, k.Code)
		} else {
			resumed(history.Unknown, 0, 0)
		}
		return
	}
	resumed(history.Done, seat.Gen(h.Token), 0)
	v.hold(h.Token)
	ended := v.hist.Begin(2, history.End, 0)
	c.Say(ctx, "bye", "")
	for {
		if _, err := c.Read(ctx); err != nil {
			if seat.CloseOf(err) == 1000 {
				ended(history.Done, 0, 0)
				return
			}
			ended(history.Unknown, 0, 0)
			return
		}
	}
}
