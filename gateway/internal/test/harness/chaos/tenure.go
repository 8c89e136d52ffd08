//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"reseat/gateway/internal/test/harness/chaos/history"
	"reseat/gateway/internal/test/harness/seat"
)

// A tenure is a player's time on one connection.
type tenure struct {
	*arrival
	p      *player
	ctx    context.Context
	stop   context.CancelFunc
	gen    int // 0: a plain client's
	since  int64
	speaks chan struct{} // one slot: activity has arrived
	first  string        // the argument of the first ping,
	pinged func(o history.Outcome, got, code int)
	next   *arrival // the connection of a resume on suspicion

	answer, heartbeat time.Duration
	inside            inside

	side  sync.WaitGroup
	mu    sync.Mutex
	came  uint64 // data messages, including repeats
	owed  int    // of these, not acked
	ended string
	code  int
}

var errAbandoned = errors.New("abandoned, and left open")

// tenure uses a connection until it ends. It returns the next one if a resume on
// suspicion has established one.
func (p *player) tenure(ctx context.Context, a *arrival, r *rand.Rand) *arrival {
	c, h := a.c, a.h
	t := &tenure{arrival: a, p: p, since: now(), speaks: make(chan struct{}, 1), heartbeat: p.run.cfg.Heartbeat}
	t.inside.wake = make(chan struct{}, 1)
	t.ctx, t.stop = context.WithCancel(ctx)
	p.mu.Lock()
	p.parted = 0
	if p.drop = t.stop; p.leave {
		t.stop()
	}
	p.mu.Unlock()
	if h != nil && h.Partial != nil {
		t.inside.from, t.inside.up = h.Partial.Down, h.Partial.Up
	}
	if h != nil {
		t.gen, t.answer = seat.Gen(h.Token), time.Duration(h.AnswerMS)*time.Millisecond
		t.pinged = p.hist.Begin(p.id, history.Live, t.gen)
		c.Ack(t.ctx, a.base)
		t.first = a.watch.ping()
		c.Say(t.ctx, "ping", t.first)
	}
	own := rand.New(rand.NewPCG(r.Uint64(), 1))
	t.side.Go(func() { t.write(own) })
	t.side.Go(t.beat)
	if h != nil && p.temper > 0 {
		doubts := rand.New(rand.NewPCG(r.Uint64(), 2))
		t.side.Go(func() { t.doubt(ctx, doubts) })
	}
	patience := -1
	if h != nil && h.Resumed && r.IntN(12) == 0 {
		patience = r.IntN(60) // messages until the player starts a new connection
	}
	err := t.read(patience)
	p.parts()
	t.stop()
	if !errors.Is(err, errAbandoned) {
		c.Drop()
	}
	t.side.Wait()
	if t.pinged != nil {
		t.pinged(history.Unknown, 0, 0)
	}
	p.note("connection ended: %v", err)
	return t.next
}

// ackable returns what may be acked here: what arrived here, and while a resume is in
// flight no more than it states.
func (t *tenure) ackable() uint64 {
	t.mu.Lock()
	n := t.base + t.came
	t.mu.Unlock()
	p := t.p
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(n, p.received)
	if p.stating {
		n = min(n, p.stated)
	}
	return max(n, t.base)
}

// read processes what arrives. After that many messages, unless patience is negative,
// it abandons the connection without closing it.
func (t *tenure) read(patience int) error {
	// The library closes a connection whose Read is cancelled, and an abandoned one must
	// stay open: it is read with its own context.
	ctx, cancel := context.WithCancel(context.Background())
	leave := context.AfterFunc(t.ctx, cancel)
	for {
		m, err := t.c.Read(ctx)
		if err != nil {
			return t.closed(err)
		}
		t.p.heard.Store(now())
		if m.Verb != "close" || closing(m.Arg).Code != 4409 {
			t.watch.speaks()
			select {
			case t.speaks <- struct{}{}:
			default:
			}
		}
		switch {
		case m.Verb != "":
			t.control(m.Verb, m.Arg)
			continue
		case t.ended != "":
			t.p.fault("a message came after %s", t.ended)
		case t.inside.in != nil:
			if m, err = t.part(m); err != nil {
				return err
			}
			if m.Data == nil {
				continue
			}
		}
		t.take(m)
		if patience--; patience == 0 {
			leave()
			t.p.run.count.abandoned.Add(1)
			go t.leaveBehind(ctx, cancel)
			return errAbandoned
		}
	}
}

// leaveBehind keeps an abandoned connection open and unread until the next hello has
// arrived, because the library would answer a Close frame. Then it reads it to its end:
// the connection must end with 4409, or break, and messages on it are ignored.
func (t *tenure) leaveBehind(ctx context.Context, cancel context.CancelFunc) {
	defer cancel()
	time.AfterFunc(t.p.run.cfg.Hold, cancel)
	defer t.c.Drop()
	for t.p.newest() == t.gen {
		if !sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
	for {
		m, err := t.c.Read(ctx)
		if err != nil {
			return
		}
		if m.Verb == "close" && closing(m.Arg).Code == 4409 {
			t.p.run.count.takenOver.Add(1)
			t.p.hist.Add(t.p.id, history.Superseded, t.gen, t.since, now(), history.Done, 0, 0)
		}
	}
}

// newest returns the generation of the newest hello.
func (p *player) newest() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return seat.Gen(p.token)
}

func closing(arg string) (k seat.Closing) {
	json.Unmarshal([]byte(arg), &k)
	return k
}

// take processes a data message, unless it is a repeat: an older connection may have
// delivered it while this one's resume was in flight.
func (t *tenure) take(m seat.Message) {
	p := t.p
	t.mu.Lock()
	t.came++
	n := t.base + t.came
	t.mu.Unlock()
	p.mu.Lock()
	before := p.down.Verdicts
	switch {
	case t.gen != p.current: // a newer connection has its hello
	case t.gen > 0 && n <= p.received:
		p.run.count.again.Add(1)
	default:
		p.down.Take(m.Text, m.Data)
		p.received++
		p.partial = nil
	}
	if p.down.Verdicts != before {
		p.noteLocked("FAULT %s", p.down.Faults[len(p.down.Faults)-1])
	}
	p.mu.Unlock()
	t.mu.Lock()
	t.owed++
	due := t.owed >= 32 || len(m.Data) >= 32<<10
	t.mu.Unlock()
	if due {
		t.ack()
	}
}

// skip processes messages that newer ones have replaced.
func (t *tenure) skip(arg string) {
	p := t.p
	k, err := strconv.ParseUint(arg, 10, 64)
	if err != nil || k == 0 || !p.end.hasStates() {
		p.fault("skip %q", arg)
		return
	}
	t.mu.Lock()
	t.came += k
	n := t.base + t.came
	t.owed++
	t.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.gen == p.current && n > p.received {
		p.run.count.skipped.Add(n - p.received)
		p.down.Replaced(n - p.received)
		p.received, p.partial = n, nil
	}
}

// ack acks everything received.
func (t *tenure) ack() {
	if t.p.end.isPlain() {
		return
	}
	t.mu.Lock()
	t.owed = 0
	t.mu.Unlock()
	t.c.Ack(t.ctx, t.ackable())
}

const ackWithin = 500 * time.Millisecond

// beat sends overdue acks and pings, and closes a dead connection.
func (t *tenure) beat() {
	step := max(t.answer/16, 20*time.Millisecond)
	acked := now()
	for last := now(); sleep(t.ctx, step); last = now() {
		if time.Duration(now()-last) > step+stoodStill {
			t.watch.standStill() // unread input must be read first
		}
		t.mu.Lock()
		owed := t.owed > 0
		t.mu.Unlock()
		if owed && time.Duration(now()-acked) > ackWithin {
			t.side.Go(t.ack) // a full socket must not block this goroutine
			acked = now()
		}
		t.side.Go(func() { t.tell(partWithin) })
		t.judge()
	}
}

// judge sends a ping when it is due, and closes a dead connection.
func (t *tenure) judge() {
	p := t.p
	if t.gen == 0 { // a plain client can't ping
		if silent := time.Duration(now() - max(t.watch.heardAt(), p.pinged.Load())); p.end == cookie && silent > 2*t.heartbeat {
			p.note("nothing heard for twice the heartbeat")
			t.stop()
		}
		return
	}
	switch ping, dead := t.watch.judge(t.answer, t.heartbeat, p.roundTrip()); {
	case dead:
		p.note("silent: taken for dead")
		t.stop()
	case ping:
		arg := t.watch.ping()
		t.side.Go(func() { t.c.Say(t.ctx, "ping", arg) })
	}
}

// doubt starts a resume beside the connection after an unusual silence, protocol
// section 5. A resume in flight continues when the connection ends.
func (t *tenure) doubt(ctx context.Context, r *rand.Rand) {
	p := t.p
	for sleep(t.ctx, 20*time.Millisecond) {
		if !t.watch.suspicious(p.temper) || !p.maySuspect() {
			continue
		}
		select {
		case <-t.speaks: // before the suspicion
		default:
		}
		p.note("suspects its connection")
		p.run.count.suspicions.Add(1)
		if a, _ := p.attempt(ctx, r, t); a != nil {
			t.next = a
			t.stop()
			return
		}
	}
}

// maySuspect reports whether the player may start a resume on suspicion, and the script
// allows it. The interval doubles after each consecutive false alarm.
func (p *player) maySuspect() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	often := p.doubted == 0 || time.Duration(now()-p.doubted) >= suspectEvery<<min(p.alarms, 6)
	if !often || p.leave || p.sayBye || p.done {
		return false
	}
	p.doubted = now()
	return true
}

// write sends what can be sent, and makes new messages at the player's pace.
func (t *tenure) write(r *rand.Rand) {
	cfg := t.p.run.cfg
	pc := pace{quota: cfg.Messages, spread: cfg.Spread, r: r}
	for t.ctx.Err() == nil {
		left := pc.burst(t.p.madeNow())
		for t.send(&left) {
		}
		select {
		case <-t.p.wake:
		case <-time.After(pc.rest(t.p.madeNow())):
		case <-t.ctx.Done():
		}
	}
}

func (p *player) madeNow() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.before + p.made
}

// send sends one message; at most left new ones.
func (t *tenure) send(left *int) bool {
	n, text, b, isNew, bye := t.p.next(t.gen, *left > 0)
	if bye {
		t.bye()
		return false
	}
	if n == 0 {
		return false
	}
	if isNew {
		*left--
	}
	t.watch.sent(n)
	began := now()
	err := t.sendLarge(n, text, b)
	if time.Duration(now()-began) > 100*time.Millisecond && err == nil {
		t.watch.hear() // a full socket accepted bytes
	}
	return err == nil
}

// bye ends the session deliberately; it is sent once per connection.
func (t *tenure) bye() {
	if t.p.end.isPlain() {
		go t.c.Close(1000, "played enough")
	} else if t.c.Say(t.ctx, "bye", `{"code":4000,"reason":"played enough"}`) != nil {
		return
	}
	<-t.ctx.Done()
}

// control handles a control message from the gateway.
func (t *tenure) control(verb, arg string) {
	p := t.p
	switch verb {
	case "ack":
		t.acked(arg)
	case "token":
		p.hold(arg, t.gen)
	case "ping":
		t.ack()
		t.tell(0)
		t.c.Say(t.ctx, "pong", arg)
	case "pong":
		if arg == t.first && t.pinged != nil {
			t.pinged(history.Done, 0, 0)
			t.pinged = nil
		}
		if rtt := t.watch.pong(arg); rtt > 0 {
			p.measured(rtt)
		}
	case "end", "close":
		k := closing(arg)
		t.ended, t.code = verb, k.Code
		p.note("%s %d %q", verb, k.Code, k.Reason)
		t.over(verb, k)
	case "skip":
		t.skip(arg)
	case "parts":
		t.begins(arg)
	case "part":
		t.told(arg)
	case "grace", "move":
	default:
		t.p.fault("unexpected verb %q %q", verb, arg)
	}
}

// over checks what the gateway says about the end.
func (t *tenure) over(verb string, k seat.Closing) {
	p := t.p
	if verb == "close" && k.Code == 4409 {
		p.run.count.takenOver.Add(1)
		p.hist.Add(p.id, history.Superseded, t.gen, t.since, now(), history.Done, 0, 0)
		return // an attempt of the player's own: it continues
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if verb == "close" && !k.Retry && t.gen == p.current {
		p.finishLocked(verb, k.Code)
	}
}

// measured records a round trip.
func (p *player) measured(rtt time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rtt == 0 {
		p.rtt = rtt
	}
	p.rtt += (rtt - p.rtt) / 4
}

func (t *tenure) acked(arg string) {
	p := t.p
	n, err := strconv.ParseUint(arg, 10, 64)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || n > p.made {
		p.faultLocked("ack %q, with %d made", arg, p.made)
		return
	}
	if t.gen == p.current {
		p.acked = max(p.acked, n)
		t.watch.acked(n)
	}
	p.poke()
}

func (p *player) hold(arg string, gen int) {
	var a struct{ Token string }
	err := json.Unmarshal([]byte(arg), &a)
	p.mu.Lock()
	defer p.mu.Unlock()
	if gen != p.current {
		return // a newer connection has its hello
	}
	if err != nil || seat.Gen(a.Token) != seat.Gen(p.token) {
		p.faultLocked("token %q is not of the generation that the client holds", arg)
		return
	}
	p.token = a.Token
	p.run.count.tokens.Add(1)
}

// closed handles the end of reading. The session is over if the Close frame answers bye
// or follows end.
func (t *tenure) closed(err error) error {
	p := t.p
	code := seat.CloseOf(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case code < 0, t.gen != p.current: // a newer connection has its hello
	case t.ended == "end" && code == t.code:
		p.finishLocked("end", code)
	case t.ended == "" && p.end.isDurable() && code == fenced: // another node has the session, which the next resume finds
		p.run.count.fences.Add(1)
	case t.ended == "close" && code == t.code:
	case t.ended == "" && p.sayBye:
		p.finishLocked("bye", code)
	case p.end == cookie && code != 1000: // 1008: a resume of its own has taken over
	case t.ended == "" && p.end.isPlain():
		p.finishLocked("Close", code)
	default:
		p.faultLocked("a Close frame %d after %q %d", code, t.ended, t.code)
	}
	switch {
	case p.end == cookie && p.sayBye, p.end == plain && p.sayBye && code < 0: // no resume is possible, and a Ping may cross the Close; the game server's Close is checked
		p.finishLocked("Close", 1000)
	case p.end == plain && code < 0:
		p.finishLocked("dropped", code)
	}
	return fmt.Errorf("closed with %d: %w", code, err)
}
