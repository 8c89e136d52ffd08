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
}

// random returns a source of random choices that depends on the seed.
func (v *rivalry) random(what uint64) *rand.Rand {
	return rand.New(rand.NewPCG(v.run.cfg.Seed, uint64(v.id)<<20|what|1<<46))
}

// plan returns the fault of the connection number attempt.
func (v *rivalry) plan(attempt int) fault.Plan {
	r := v.random(uint64(attempt))
	if attempt > 1 && r.IntN(2) == 0 {
		plan := fault.Cutting(r, v.run.cfg.Hold)
		plan.After /= 1 + r.IntN(8) // little passes on these connections
		return plan
	}
	return fault.Calm(r)
}

func (v *rivalry) play(ctx context.Context) {
	if !v.begin(ctx) {
		v.run.fault("rivals of session %d never had a hello", v.id)
		return
	}
	// A refused attempt does not extend the session, and one attempt may take long.
	enough := time.Now().Add(v.run.cfg.Expiry / 2)
	var all sync.WaitGroup
	for i := range rivals {
		r := v.random(uint64(i) | 1<<18)
		all.Go(func() {
			for n := 0; n < tenures && time.Now().Before(enough); n++ {
				v.attempt(ctx, i, r, false)
				sleep(ctx, time.Duration(r.IntN(400))*time.Millisecond)
			}
		})
	}
	all.Wait()
	v.finish(ctx, v.random(1<<19))
}

// begin makes the session. Until the gateway has received something, it keeps that only for twice the
// heartbeat.
func (v *rivalry) begin(ctx context.Context) bool {
	for try := range 20 {
		c, gen, _ := v.connect(ctx, 0, history.New, fmt.Sprintf("%d?a=1", try), "")
		if c == nil {
			continue
		}
		pong := v.ping(ctx, c, 0, gen)
		c.Drop()
		return pong
	}
	return false
}

// connect makes a session or resumes it. It returns the code of a refusal, else 0.
func (v *rivalry) connect(ctx context.Context, client int, kind history.Kind, path, token string) (c *seat.Conn, gen, code int) {
	answer := v.hist.Begin(client, kind, max(seat.Gen(token), 0))
	c, _, err := seat.Dial(ctx, v.run.client, fmt.Sprintf("%s/r/%d/%s", v.run.fronts[0], v.id, path), seat.Offer{Token: token})
	if err != nil {
		v.unanswered(kind, answer)
		return nil, 0, 0
	}
	h, k, err := c.Hello(ctx)
	switch {
	case err != nil:
		v.unanswered(kind, answer)
	case k != nil:
		answer(history.Refused, 0, k.Code)
		code = k.Code
	default:
		gen = seat.Gen(h.Token)
		answer(history.Done, gen, 0)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.tokens = append(v.tokens, h.Token)
		return c, gen, 0
	}
	c.Drop()
	return nil, 0, code
}

// unanswered records that no answer came. A first connection without one is another session.
func (v *rivalry) unanswered(kind history.Kind, answer func(history.Outcome, int, int)) {
	if kind != history.New {
		answer(history.Unknown, 0, 0)
	}
}

// resume resumes with the newest token, on a calm line, or with one of the newest ones.
func (v *rivalry) resume(ctx context.Context, client int, r *rand.Rand, newest bool) (c *seat.Conn, gen, code int) {
	v.mu.Lock()
	v.attempts++
	attempt, token := v.attempts+1, v.tokens[max(0, len(v.tokens)-1-r.IntN(shownAgain))]
	if newest { // hellos are read in any order
		attempt, token = 1, slices.MaxFunc(v.tokens, func(a, b string) int { return seat.Gen(a) - seat.Gen(b) })
	}
	v.mu.Unlock()
	return v.connect(ctx, client, history.Resume, fmt.Sprintf("0?a=%d", attempt), token)
}

// attempt resumes once, pings, stays a little and disconnects.
func (v *rivalry) attempt(ctx context.Context, client int, r *rand.Rand, newest bool) (attached bool, code int) {
	ctx, cancel := context.WithTimeout(ctx, min(5*time.Second, v.run.cfg.Expiry/4))
	defer cancel()
	c, gen, code := v.resume(ctx, client, r, newest)
	if c == nil {
		return false, code
	}
	defer c.Drop()
	ctx, cancel = context.WithTimeout(ctx, time.Duration(50+r.IntN(900))*time.Millisecond)
	defer cancel()
	for v.ping(ctx, c, client, gen) && !newest && sleep(ctx, time.Duration(r.IntN(200))*time.Millisecond) {
	}
	return true, 0
}

// ping pings, and reads up to the pong, or to the connection's end.
func (v *rivalry) ping(ctx context.Context, c *seat.Conn, client, gen int) bool {
	since, answer := now(), v.hist.Begin(client, history.Live, gen)
	c.Say(ctx, "ping", "?")
	for {
		m, err := c.Read(ctx)
		switch {
		case err == nil && m.Verb == "pong":
			answer(history.Done, 0, 0)
			return true
		case err == nil && m.Verb == "ping":
			c.Say(ctx, "pong", m.Arg)
		case err == nil && m.Verb == "":
			v.run.fault("rivals of session %d: a message %q came where none was sent", v.id, m.Data)
		case err != nil || m.Verb == "close" && closing(m.Arg).Code == 4409:
			answer(history.Unknown, 0, 0)
			if err == nil {
				v.hist.Add(client, history.Superseded, gen, since, now(), history.Done, 0, 0)
			}
			return false
		}
	}
}

// insist resumes with the newest token until there is an answer.
func (v *rivalry) insist(ctx context.Context, client int, r *rand.Rand) (attached bool, code int) {
	for tries := 0; !attached && code == 0 && tries < 10; tries++ {
		attached, code = v.attempt(ctx, client, r, true)
	}
	return attached, code
}

// finish ends the session by bye, or by staying detached: for longer than the grace
// period, or until about its end.
func (v *rivalry) finish(ctx context.Context, r *rand.Rand) {
	attached, code := v.insist(ctx, 0, r)
	if !attached {
		v.run.fault("rivals of session %d: the newest token was refused with %d", v.id, code)
		return
	}
	if left, grace := now(), v.run.cfg.Expiry; v.id%2 == 1 { // at the same time
		sleep(ctx, grace-40*time.Millisecond+time.Duration(r.IntN(80))*time.Millisecond)
		v.hist.Add(0, history.Expire, 0, left+int64(grace), history.Never, history.Unknown, 0, 0)
		v.attempt(ctx, 0, r, true)
	}
	for tries := 1; !v.bye(ctx, r) && tries < 5; tries++ { // no answer in time
	}
	if attached, code := v.insist(ctx, 1, r); attached || code != 4404 && code != 4410 {
		v.run.fault("rivals of session %d: after the end a resume was answered: attached %v, code %d", v.id, attached, code)
	}
}

// bye resumes and sends bye. It reports whether the session is over by then.
func (v *rivalry) bye(ctx context.Context, r *rand.Rand) bool {
	c, _, code := v.resume(ctx, 2, r, true)
	if c == nil {
		return code == 4404 || code == 4410
	}
	defer c.Drop()
	ended, outcome := v.hist.Begin(2, history.End, 0), history.Unknown
	c.Say(ctx, "bye", "")
	var err error
	for err == nil {
		_, err = c.Read(ctx)
	}
	if seat.CloseOf(err) == 1000 {
		outcome = history.Done
	}
	ended(outcome, 0, 0)
	return outcome == history.Done
}
