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
	"sync/atomic"
	"time"

	"reseat/gateway/internal/chaos/history"
	"reseat/gateway/internal/chaos/seat"
)

// A tenure is a player's time on one connection.
type tenure struct {
	p      *player
	c      *seat.Conn
	ctx    context.Context
	stop   context.CancelFunc
	gen    int
	since  int64
	heard  atomic.Int64
	pinged func(o history.Outcome, got, code int)

	mu    sync.Mutex
	owed  int // data messages taken in and not acked
	ended string
	code  int
}

var errSilent = errors.New("nothing heard for twice the heartbeat")
var errAbandoned = errors.New("abandoned, and left open")

// tenure plays on a connection until it ends.
func (p *player) tenure(ctx context.Context, c *seat.Conn, h *seat.Hello, r *rand.Rand) {
	t := &tenure{p: p, c: c, since: now()}
	t.ctx, t.stop = context.WithCancel(ctx)
	t.heard.Store(now())
	p.mu.Lock()
	p.drop = t.stop
	p.mu.Unlock()
	if h != nil {
		t.gen = seat.Gen(h.Token)
		t.pinged = p.hist.Begin(p.id, history.Live, t.gen)
		c.Ack(t.ctx, p.receivedNow())
		c.Say(t.ctx, "ping", "first")
	}
	var side sync.WaitGroup
	own := rand.New(rand.NewPCG(r.Uint64(), 1))
	side.Go(func() { t.write(own) })
	side.Go(t.beat)
	patience := -1
	if h != nil && h.Resumed && r.IntN(12) == 0 {
		patience = r.IntN(60) // messages until the player turns to a new connection
	}
	err := t.read(patience)
	t.stop()
	if !errors.Is(err, errAbandoned) {
		c.Drop()
	}
	side.Wait()
	if t.pinged != nil {
		t.pinged(history.Unknown, 0, 0)
	}
	p.note("connection ended: %v", err)
}

func (p *player) receivedNow() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.received
}

// read takes in what comes. After as many messages as it has patience for, if that
// is not negative, it leaves the connection behind as it is.
func (t *tenure) read(patience int) error {
	// The library closes a connection whose Read is cancelled, and one that is
	// left behind is to stay open: it is read with a context of its own.
	ctx, cancel := context.WithCancel(context.Background())
	leave := context.AfterFunc(t.ctx, cancel)
	for {
		m, err := t.c.Read(ctx)
		if err != nil {
			return t.closed(err)
		}
		t.heard.Store(now())
		switch {
		case m.Verb != "":
			t.control(m.Verb, m.Arg)
			continue
		case t.ended != "":
			t.wrong("a message came after %s", t.ended)
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

// leaveBehind leaves an abandoned connection open and unread until the next hello
// has come, since the library would answer a Close frame, and then reads it to its
// end: it must end by 4409, or be lost, and what it still brings is nobody's.
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

// newest is the generation of the newest hello.
func (p *player) newest() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return seat.Gen(p.token)
}

func closing(arg string) (k seat.Closing) {
	json.Unmarshal([]byte(arg), &k)
	return k
}

func (t *tenure) wrong(format string, args ...any) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	t.p.faultLocked(format, args...)
}

func (t *tenure) take(m seat.Message) {
	p := t.p
	p.mu.Lock()
	before := p.down.Verdicts
	p.down.Take(m.Text, m.Data)
	p.received++
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

// ack acks all that was taken in.
func (t *tenure) ack() {
	if t.p.end.isPlain() {
		return
	}
	t.mu.Lock()
	t.owed = 0
	t.mu.Unlock()
	t.c.Ack(t.ctx, t.p.receivedNow())
}

// beat acks what is owed for long, and ends a connection that is silent.
func (t *tenure) beat() {
	beat := t.p.run.cfg.Heartbeat
	for i := 1; sleep(t.ctx, beat/4); i++ {
		t.mu.Lock()
		owed := t.owed > 0
		t.mu.Unlock()
		switch silent := time.Duration(now() - max(t.heard.Load(), t.p.pinged.Load())); {
		case t.p.end == plain:
		case silent > 2*beat:
			t.p.note("%v", errSilent)
			t.stop()
		case t.p.end == cookie: // it has no way to ask
		case silent > beat:
			t.c.Say(t.ctx, "ping", "beat")
		case owed:
			t.ack()
		}
	}
}

// write sends what there is to send, and makes new messages at the player's pace.
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

// send sends one message; of new ones as many as are left.
func (t *tenure) send(left *int) bool {
	n, text, b, isNew, bye := t.p.next(*left > 0)
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
	return t.c.Send(t.ctx, text, b) == nil
}

// bye ends the session on purpose; it is said once on each connection.
func (t *tenure) bye() {
	if t.p.end.isPlain() {
		go t.c.Close(1000, "played enough")
	} else if t.c.Say(t.ctx, "bye", `{"code":4000,"reason":"played enough"}`) != nil {
		return
	}
	<-t.ctx.Done()
}

// control handles a control message of the gateway's.
func (t *tenure) control(verb, arg string) {
	p := t.p
	switch verb {
	case "ack":
		t.acked(arg)
	case "token":
		p.hold(arg)
	case "ping":
		t.ack()
		t.c.Say(t.ctx, "pong", arg)
	case "pong":
		if arg == "first" && t.pinged != nil {
			t.pinged(history.Done, 0, 0)
			t.pinged = nil
		}
	case "end", "close":
		k := closing(arg)
		t.ended, t.code = verb, k.Code
		p.note("%s %d %q", verb, k.Code, k.Reason)
		t.over(verb, k)
	case "grace", "move":
	default:
		t.wrong("unexpected verb %q %q", verb, arg)
	}
}

// over judges what the gateway says the end is.
func (t *tenure) over(verb string, k seat.Closing) {
	p := t.p
	if verb == "close" && k.Code == 4409 {
		p.run.count.takenOver.Add(1)
		p.hist.Add(p.id, history.Superseded, t.gen, t.since, now(), history.Done, 0, 0)
		return // an attempt of the player's own: it goes on
	}
	if verb == "close" && !k.Retry {
		p.mu.Lock()
		p.finishLocked(verb, k.Code)
		p.mu.Unlock()
	}
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
	p.acked = max(p.acked, n)
	p.poke()
}

func (p *player) hold(arg string) {
	var a struct{ Token string }
	err := json.Unmarshal([]byte(arg), &a)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || seat.Gen(a.Token) != seat.Gen(p.token) {
		p.faultLocked("token %q is not of the generation that the client holds", arg)
		return
	}
	p.token = a.Token
	p.run.count.tokens.Add(1)
}

// closed is why reading ended. The session is over where the Close frame
// answers bye or follows end.
func (t *tenure) closed(err error) error {
	p := t.p
	code := seat.CloseOf(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case code < 0:
	case t.ended == "end" && code == t.code:
		p.finishLocked("end", code)
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
	case p.end == plain && code < 0:
		p.finishLocked("dropped", code)
	case p.end == cookie && p.sayBye: // there is no way back; what the game server was told is judged
		p.finishLocked("Close", 1000)
	}
	return fmt.Errorf("closed with %d: %w", code, err)
}
