//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/chaos/history"
	"reseat/gateway/internal/test/harness/chaos/message"
	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/harness/seat"
)

// A player is one client. Its tenures follow one another.
type player struct {
	run    *run
	id     int
	end    ending
	budget int // remaining disconnects
	hist   history.History
	cuts   atomic.Int64
	late   atomic.Bool  // all planned messages are made
	heard  atomic.Int64 // when the newest message arrived
	pinged atomic.Int64 // when the newest Ping arrived, for a plain client with a cookie
	script *rand.Rand
	temper int // one of tempers

	mu       sync.Mutex
	wake     chan struct{} // one slot: something may be sent now
	try      int           // of the first connection
	attempts int
	token    string
	session  string
	hellos   int
	current  int       // the generation of the newest hello: messages from older connections are ignored
	stating  bool      // a resume is in flight,
	stated   uint64    // which states this received count,
	settled  uint64    // and this of its own messages
	dialled  int64     // when the connection with the first hello was started
	received uint64    // messages received from the gateway, and reported lost
	partial  *incoming // has come of the message after received
	resumed  uint64    // the received count of the newest resume that was answered by hello
	before   uint64    // messages sent on older connections, which are not resent
	limits   struct{ messages, bytes uint64 }
	down     message.Check
	up       message.Stream
	made     uint64   // messages sent up
	cursor   uint64   // the newest sent on this connection
	acked    uint64   // acked by the gateway
	sizes    []uint64 // cumulative sizes of messages 1 to made
	mayMake  bool     // the script allows new messages
	sayBye   bool
	leave    bool   // stay disconnected
	drop     func() // closes the current connection
	rtt      time.Duration
	alarms   int          // consecutive false alarms
	doubted  int64        // when it last started a resume on suspicion
	struck   map[int]bool // connections that fell silent, by number
	parted   int64        // when the newest connection ended; 0: there is one
	done     bool
	doneAt   int64
	verdict  string // how the gateway said that it ended
	code     int
	faults   []string
	story    []string

	greetings []greeting // of a durable session
	covered   bool       // a hello has said that it outlives its node
	unheard   bool       // see neverHeard
	fell      bool       // the session was lost with its gateway

	endAsked func(o history.Outcome, got, code int) // records the end's answer in the history
}

func newPlayer(r *run, id int, end ending) *player {
	p := &player{run: r, id: id, end: end, budget: r.cfg.Cuts, wake: make(chan struct{}, 1), mayMake: true, temper: tempers[id%len(tempers)], struck: map[int]bool{},
		script: rand.New(rand.NewPCG(r.cfg.Seed, uint64(id)|1<<42)), sizes: []uint64{0}}
	if end == plain || end == expiry { // the latter has a short grace period
		p.budget = 0
	}
	p.streams()
	return p
}

func (p *player) streams() {
	counts := p.end == countingGame
	p.up = message.Stream{Seed: p.run.cfg.Seed, Up: true, Session: p.id, Try: stage(p.try, 0), Counting: counts, Large: p.end.takesParts()}
	p.down = message.Check{Stream: message.Stream{Seed: p.run.cfg.Seed, Session: p.id, Try: stage(p.try, 0), Counting: counts, States: p.end.hasStates(), Large: p.end.takesParts()}, Staged: p.end.redials() && !counts}
}

// secureBytes is about the length of a TLS handshake. If disconnects were as likely
// within it as after it, a client might not resume in time.
const secureBytes = 2500

// roomy is how many bytes reach a plain client's end of a connection, so that it makes progress.
const roomy = 20000

// plan returns the fault of the player's connection number attempt.
func (p *player) plan(attempt int) fault.Plan {
	r := rand.New(rand.NewPCG(p.run.cfg.Seed, uint64(p.id)<<20|uint64(attempt)|1<<43))
	if int(p.cuts.Load()) >= p.budget || p.run.ending() {
		return fault.Calm(r)
	}
	plan := fault.Cutting(r, p.run.cfg.Hold)
	if p.late.Load() {
		plan.After = plan.After%4096 + 1 // almost nothing gets through any more
	}
	if p.end == cookie && attempt == 1 { // a plain client can't know whether its messages arrived: they must
		plan.Kind, plan.After = fault.Reset, plan.After+roomy
	}
	if p.end == cookie && attempt%4 == 0 { // five in a row without progress would end the session: protocol section 11
		// The gateway sends a Ping after at most 64 KiB, and only a Pong is progress. Short runs send less.
		plan.Kind, plan.Up, plan.After = fault.Reset, false, plan.After+roomy+40*p.run.cfg.Messages
	}
	if p.run.cfg.TLS && plan.Kind != fault.EarlyReset && plan.Kind != fault.EarlyDeaf {
		plan.After += secureBytes
	}
	return plan
}

// legPlan returns the fault of the line to the game server.
func (p *player) legPlan() fault.Plan {
	r := rand.New(rand.NewPCG(p.run.cfg.Seed, uint64(p.id)|1<<44))
	plan := fault.Calm(r)
	plan.Rate = 0 // bye gives the game server only 10 s to read what preceded it
	if p.end == legCut {
		plan.Kind, plan.Up = []fault.Kind{fault.Reset, fault.FinToNear}[r.IntN(2)], r.IntN(3) == 0
		plan.After, plan.Hold = 2000+r.IntN(60*p.run.cfg.Messages), p.run.cfg.Hold
	}
	return plan
}

const mostStory = 40

// note adds a line to the story of a failure.
func (p *player) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLocked(format, args...)
}

func (p *player) noteLocked(format string, args ...any) {
	if len(p.story) >= mostStory {
		p.story = append(p.story[:0], p.story[len(p.story)/2:]...)
	}
	p.story = append(p.story, fmt.Sprintf("%8.3f ", float64(now())/1e9)+fmt.Sprintf(format, args...))
}

func (p *player) faultLocked(format string, args ...any) {
	if len(p.faults) < 10 {
		p.faults = append(p.faults, fmt.Sprintf(format, args...))
		p.noteLocked("FAULT "+format, args...)
	}
}

func (p *player) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faultLocked(format, args...)
}

// play runs until the session is over.
func (p *player) play(ctx context.Context) {
	r := rand.New(rand.NewPCG(p.run.cfg.Seed, uint64(p.id)|1<<45))
	scripted := make(chan struct{})
	go func() {
		defer close(scripted)
		p.direct(ctx)
	}()
	var next *arrival
	for !p.isDone() && ctx.Err() == nil {
		wait := time.Duration(0)
		if next == nil {
			next, wait = p.attempt(ctx, r, nil)
		}
		if a := next; a != nil {
			if next = p.tenure(ctx, a, r); next == nil {
				wait = time.Duration(r.IntN(60))*time.Millisecond + p.away(r)
			}
		}
		if next == nil && !p.isDone() {
			sleep(ctx, wait)
		}
	}
	if next != nil {
		next.c.Drop()
	}
	<-scripted
}

// An arrival is an established connection: one that has its hello, or a plain client's.
type arrival struct {
	c       *seat.Conn
	h       *seat.Hello // nil: a plain client's
	attempt int         // its number
	front   int         // of the fronts
	began   int64
	base    uint64 // the number of the message before its first
	held    int    // of the one after what it states
	watch   *watch
}

// away returns how much longer than necessary the player stays detached: sometimes, if
// the buffer is small, for about as long as it takes to overflow.
func (p *player) away(r *rand.Rand) time.Duration {
	if p.end == countingGame && r.IntN(4) == 0 { // while its gateway may die
		return process.Span(r, 0, 3*time.Second)
	}
	if p.end != dropOldest && p.end != overflowEnd && p.end != newestFirst || r.IntN(4) == 0 {
		return 0
	}
	each := p.run.cfg.Spread / time.Duration(3*p.run.cfg.Messages)
	return time.Duration(r.Int64N(3 * small * int64(each)))
}

func (p *player) isDone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// finishLocked records that the gateway has ended the session.
func (p *player) finishLocked(verdict string, code int) {
	if !p.done {
		p.noteLocked("over: %s %d", verdict, code)
		p.doneAt = now()
	}
	p.done, p.verdict, p.code = true, verdict, code
}

const helloPatience = 20 * time.Second

// attempt makes one connection, or returns how long to wait before the next. An attempt
// on suspicion, beside a tenure, is abandoned if that tenure shows activity before the
// 101.
func (p *player) attempt(ctx context.Context, r *rand.Rand, beside *tenure) (*arrival, time.Duration) {
	a := &arrival{watch: newWatch()}
	offer, url, ok := p.offer(r, a)
	if !ok {
		return nil, 10 * time.Millisecond
	}
	defer p.decided()
	kind, gen := history.Resume, seat.Gen(offer.Token)
	if offer.Token == "" {
		kind, gen = history.New, 0
	}
	answer := p.hist.Begin(p.id, kind, gen)
	actx, cancel := context.WithTimeout(ctx, helloPatience)
	defer cancel()
	c, status, err := p.dial(actx, url, offer, beside)
	if err != nil {
		p.lost(kind, answer, "handshake: %v", err)
		if status == 503 {
			return nil, time.Second
		}
		return nil, backoff(r)
	}
	a.c = c
	if c.Compressed {
		p.run.count.compressed.Add(1)
	}
	if p.end.isPlain() {
		p.enter(c)
		return a, 0
	}
	h, k, err := c.Hello(actx)
	switch {
	case err != nil:
		c.Drop()
		p.lost(kind, answer, "waiting for hello: %v", err)
		return nil, backoff(r)
	case k != nil:
		c.Drop()
		outcome := history.Refused
		if p.run.cluster != nil && p.run.cluster.judgeRefusal(p, a, k) {
			outcome = history.Unknown
		}
		answer(outcome, 0, k.Code)
		return nil, p.refused(k, beside)
	}
	if !p.fits(h) {
		c.Drop()
		answer(history.Unknown, 0, 0)
		return nil, 0
	}
	answer(history.Done, seat.Gen(h.Token), 0)
	p.greet(h, a)
	return a, 0
}

// dial connects. A resume on suspicion may be abandoned as long as it has no 101.
func (p *player) dial(ctx context.Context, url string, offer seat.Offer, beside *tenure) (*seat.Conn, int, error) {
	if beside == nil {
		return seat.Dial(ctx, p.run.client, url, offer)
	}
	ctx, cancel := context.WithTimeout(ctx, max(suspectEvery, 4*p.roundTrip()))
	defer cancel()
	answered := make(chan struct{})
	var side sync.WaitGroup
	side.Go(func() {
		select {
		case <-beside.speaks:
			defer cancel()
			p.run.count.falseAlarms.Add(1)
			p.parts()
			p.note("the connection spoke: the resume on suspicion is dropped")
			p.mu.Lock()
			p.alarms++
			p.mu.Unlock()
		case <-answered:
		}
	})
	c, status, err := seat.Dial(ctx, p.run.client, url, offer)
	close(answered)
	side.Wait()
	return c, status, err
}

// parts records that the player leaves a connection, which may be the one that the gateway knows.
func (p *player) parts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parted = now()
}

func (p *player) roundTrip() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rtt
}

// decided records that the resume in flight has its hello, or has failed.
func (p *player) decided() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stating = false
}

func backoff(r *rand.Rand) time.Duration { return time.Duration(10+r.IntN(150)) * time.Millisecond }

// offer returns the next handshake; false: the script wants none now.
func (p *player) offer(r *rand.Rand, a *arrival) (o seat.Offer, url string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leave {
		return o, "", false
	}
	if p.end == cookie && !p.done && p.run.game.isSecond(p.id, p.try) { // a fault; it would go on for ever
		p.finishLocked("another session", 0)
		return o, "", false
	}
	p.attempts++
	a.attempt, p.stating, p.stated = p.attempts, true, p.received
	p.settled = p.acked
	a.began, a.held = now(), p.held()
	if len(p.run.fronts) > 1 {
		a.front = r.IntN(len(p.run.fronts))
	}
	front := p.run.fronts[a.front]
	if p.session == "" {
		p.dialled = now()
	}
	o = seat.Offer{Token: p.token, Received: p.received, Acked: p.acked, Sent: p.made, Headers: r.IntN(2) == 0, Plain: p.end.isPlain(), Skips: p.end.hasStates(), Parts: p.end.takesParts(), Held: p.held(), Compress: r.IntN(3) == 0, Heard: a.watch.hear}
	if p.end == cookie {
		o.Token, o.Cookie, o.Origin = "", p.token, strings.Replace(front, "ws", "http", 1)
		o.Pinged = func() { p.pinged.Store(now()) }
	}
	p.noteLocked("attempt %d at %d: generation %d, received %d; %s", p.attempts, a.front, seat.Gen(p.token), p.received, p.plan(p.attempts).Short())
	return o, fmt.Sprintf("%s/%c/%d/%d?a=%d", front, rules[p.end].letter, p.id, p.try, p.attempts), true
}

// enter starts a plain client's connection. What the older one accepted is not resent,
// and messages received on it may arrive again.
func (p *player) enter(c *seat.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == plain {
		return
	}
	if p.session != "" {
		p.run.count.cookies.Add(1)
		p.before += p.made
		p.up.Try++
		p.made, p.cursor, p.sizes = 0, 0, []uint64{0}
		p.down.Rewind()
	}
	p.session = "by cookie"
	if c.Cookie != "" {
		p.token = c.Cookie
	}
}

// lost handles an attempt without an answer. A first one may have created a session
// that nobody knows; the next creates another.
func (p *player) lost(kind history.Kind, answer func(history.Outcome, int, int), format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLocked(format, args...)
	if kind == history.New && p.session == "" {
		p.try++
		p.streams()
		return
	}
	answer(history.Unknown, 0, 0)
}

// refused handles a resume answered by close. Beside a live connection that is not
// final: it only concerns this token and this count.
func (p *player) refused(k *seat.Closing, beside *tenure) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLocked("refused: %d %s, retry %v", k.Code, k.Reason, k.Retry)
	if !k.Retry && k.Code != 4409 && beside == nil {
		p.finishLocked("refused", k.Code)
	}
	return time.Duration(k.RetryAfterMS)*time.Millisecond + 10*time.Millisecond
}

// fits reports whether a hello may be taken. One of a session that goes on at another node after a failover may
// not, if anything came since the handshake on an older connection: the new owner does not know of it.
func (p *player) fits(h *seat.Hello) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.Moved != "failover" || p.received == p.stated && p.acked == p.settled {
		return true
	}
	p.run.count.misfits.Add(1)
	p.noteLocked("hello of generation %d not taken: received %d, acked %d by now", seat.Gen(h.Token), p.received, p.acked)
	return false
}

// greet processes hello, and compares it with what the client knows. Messages from
// older connections are ignored from now on.
func (p *player) greet(h *seat.Hello, a *arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLocked("hello: generation %d, received %d, lost %d, replay %d, durable %v, moved %q", seat.Gen(h.Token), h.Received, h.Lost, h.Replay, h.Durable, h.Moved)
	if h.Resumed != (p.session != "") || p.session != "" && h.Session != p.session {
		p.faultLocked("hello names session %q, resumed %v; the client's is %q", h.Session, h.Resumed, p.session)
	}
	if h.Received < p.acked || h.Received > p.made {
		p.faultLocked("hello.received is %d, with %d acked and %d made", h.Received, p.acked, p.made)
	}
	a.h, a.base = h, p.stated+h.Lost
	p.current, p.alarms = seat.Gen(h.Token), 0
	p.resumed = p.stated
	if p.end == dropOldest {
		if a.base > p.received {
			p.down.Skip(a.base - p.received)
			p.run.count.told.Add(a.base - p.received)
			p.received = a.base
		}
	} else if h.Lost != 0 {
		p.down.Verdicts.Lost += h.Lost
		p.faultLocked("hello.lost is %d under --overflow pause", h.Lost)
	}
	p.hellos++
	if p.end.takesParts() {
		p.goesOn(h, a)
	}
	if p.end.isDurable() {
		p.owned(h)
	}
	if h.Skipped > 0 && !p.end.hasStates() {
		p.faultLocked("hello.skipped is %d for a client without the offer", h.Skipped)
	}
	if h.Resumed {
		p.run.count.resumes.Add(1)
		if c := p.run.cluster; c != nil {
			if owner := c.lifeOf(h.Session); owner != nil && owner.node != c.nodes[a.front] {
				p.run.count.forwarded.Add(1)
			}
		}
		p.run.count.replayed.Add(h.Replay)
	}
	p.session, p.token = h.Session, h.Token
	p.limits.messages, p.limits.bytes = h.Limits.Messages, h.Limits.Bytes
	p.cursor = min(h.Received, p.made)
}

// owned notes which node has the session; p.mu is held.
func (p *player) owned(h *seat.Hello) {
	gen, owner := seat.Claims(h.Token)
	if owner == "" {
		owner = h.Session[:min(8, len(h.Session))]
	}
	if p.covered = p.covered || h.Durable; h.Moved != "" {
		p.run.count.moved.Add(1)
	}
	p.greetings = append(p.greetings, greeting{seat.Epoch(gen), owner})
}

// next returns the next message to send on the connection of generation gen, if there
// is one now; bye means that everything is sent and bye is next.
func (p *player) next(gen int, mayMake bool) (n uint64, text bool, b []byte, isNew, bye bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gen != p.current {
		return 0, false, nil, false, false
	}
	n = p.cursor + 1
	isNew = n > p.made
	if isNew {
		if !mayMake || !p.mayMake {
			return 0, false, nil, false, p.sayBye
		}
		text, b = p.up.Message(n)
		p.sizes = append(p.sizes, p.sizes[n-1]+uint64(len(b)))
		p.made = n
		p.late.Store(p.before+n >= uint64(p.run.cfg.Messages))
	} else {
		text, b = p.up.Message(n)
	}
	if !p.end.isPlain() && n != p.acked+1 && (n-p.acked > p.limits.messages || p.sizes[n]-p.sizes[p.acked] > p.limits.bytes) {
		return 0, false, nil, isNew, false
	}
	p.cursor = n
	return n, text, b, isNew, false
}

func (p *player) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
