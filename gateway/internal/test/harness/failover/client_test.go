//go:build linux

package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/harness/seat"
)

// A client is a player of the counting game with a durable session. Its message number n says n, so
// that it need not be kept to be sent again.
type client struct {
	id                          int
	r                           *rand.Rand
	http                        *http.Client
	fronts                      []string // addresses of gateways
	pace, pings, acks, patience time.Duration
	beside                      bool // it resumes beside a silent connection, and leaves that when the new one speaks

	mu              sync.Mutex
	hello           seat.Hello // the newest
	movedAt         time.Time  // when the newest hello of a session that had moved arrived
	received        uint64     // N: the newest of the game's messages
	acked           uint64     // A: the newest of its own that it knows to be held
	made            uint64     // C: the newest that it gave to a connection
	stating         bool       // a resume is in flight, which states:
	stated, settled uint64
	current         *link
	quiet           bool // make no new messages
	stay            bool // stay away
	leave           bool // say bye
	faults          []string
	story           []string
	refused         map[int]int // closes, by code
	over            string      // why the session is over
}

const (
	doubtAfter = 800 * time.Millisecond
	helloTime  = 15 * time.Second
)

// A link is one connection.
type link struct {
	*seat.Conn
	c       *client
	base    uint64 // number of the message before its first
	came    uint64
	heard   time.Time
	next    uint64 // of its own messages
	ended   chan struct{}
	over    bool // by close or end
	saidBye bool
}

func newClient(id int, seed uint64, fronts []string, pace time.Duration) *client {
	return &client{id: id, r: rand.New(rand.NewPCG(seed, uint64(id))), fronts: fronts, pace: pace, pings: 250 * time.Millisecond, acks: 100 * time.Millisecond, patience: 1500 * time.Millisecond,
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: seat.DialTCP}}, refused: map[int]int{}}
}

func (c *client) note(format string, args ...any) {
	if len(c.story) > 200 {
		c.story = append(c.story[:0], c.story[100:]...)
	}
	c.story = append(c.story, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (c *client) fault(format string, args ...any) {
	if len(c.faults) < 10 {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
	c.note("FAULT "+format, args...)
}

// locked calls f with the lock.
func (c *client) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// play plays until ctx is done, or the session is over.
func (c *client) play(ctx context.Context) {
	var now *link
	for ctx.Err() == nil {
		var away, over bool
		c.locked(func() { away, over = c.stay, c.over != "" })
		switch {
		case over:
			return
		case now != nil:
			now = c.attend(ctx, now)
		case away:
			process.Sleep(ctx, 20*time.Millisecond)
		default:
			var wait time.Duration
			if now, wait = c.attempt(ctx); now == nil {
				process.Sleep(ctx, wait)
			}
		}
	}
	if now != nil {
		now.leave()
	}
}

// attend waits for the end of a link, and returns one that has replaced it meanwhile, if there is one.
func (c *client) attend(ctx context.Context, l *link) (next *link) {
	for {
		select {
		case <-l.ended:
			return nil
		default:
		}
		if !process.Sleep(ctx, c.patience/30) {
			l.leave()
			return nil
		}
		var silent time.Duration
		var away bool
		c.locked(func() { silent, away = time.Since(l.heard), c.stay })
		if away || silent > c.patience {
			c.locked(func() { c.note("leaves, after %v of silence", silent) })
			l.leave()
			return nil
		}
		if c.beside && silent > doubtAfter {
			if next, _ := c.attempt(ctx); next != nil {
				l.leave()
				return next
			}
		}
	}
}

// attempt begins the session, or resumes it, at a random gateway.
func (c *client) attempt(ctx context.Context) (*link, time.Duration) {
	l := &link{c: c, ended: make(chan struct{}), heard: time.Now()}
	o := seat.Offer{Heard: func() { c.locked(func() { l.heard = time.Now() }) }}
	var url string
	var pause time.Duration
	c.locked(func() {
		front := c.r.IntN(len(c.fronts))
		pause = time.Duration(5+c.r.IntN(40)) * time.Millisecond
		o.Token, o.Received, o.Acked, o.Sent = c.hello.Token, c.received, c.acked, c.made
		c.stating, c.stated, c.settled = true, c.received, c.acked
		url = fmt.Sprint("ws://", c.fronts[front], "/game?client=", c.id)
		c.note("attempt at %d: gen %d, received %d, settled %d.%d", front, seat.Gen(o.Token), c.received, c.acked, c.made)
	})
	defer c.locked(func() { c.stating = false })
	within, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	var h *seat.Hello
	var k *seat.Closing
	conn, status, err := seat.Dial(within, c.http, url, o)
	if err == nil {
		if h, k, err = conn.Hello(within); h == nil {
			conn.Drop()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.note("no hello: %d, %v", status, err)
		return nil, pause
	case k != nil:
		c.note("refused: %+v", *k)
		c.refused[k.Code]++
		if !k.Retry && k.Code != 4409 && (c.current == nil || c.current.isOver()) {
			c.over = fmt.Sprintf("%+v", *k)
		}
		return nil, time.Duration(k.RetryAfterMS+10) * time.Millisecond
	}
	l.Conn = conn
	return c.greet(l, h), 0
}

// epoch is that of a token.
func epoch(token string) uint64 { return seat.Epoch(seat.Gen(token)) }

// greet takes a hello, or returns nil; c.mu is held.
func (c *client) greet(l *link, h *seat.Hello) *link {
	c.note("hello: epoch %d moved %q durable %v received %d replay %d lost %d", epoch(h.Token), h.Moved, h.Durable, h.Received, h.Replay, h.Lost)
	if h.Moved == "failover" && (c.received != c.stated || c.acked != c.settled) { // the new owner does not know of it
		c.note("not taken: received %d, acked %d since", c.received, c.acked)
		l.Drop()
		return nil
	}
	switch last := c.hello; {
	case h.Resumed != (last.Session != ""), last.Session != "" && h.Session != last.Session:
		c.fault("hello of session %s, resumed %v; this is %s", h.Session, h.Resumed, last.Session)
	case h.Received < c.acked || h.Received > c.made:
		c.fault("hello.received is %d, with %d acked and %d made", h.Received, c.acked, c.made)
	case h.Lost != 0:
		c.fault("hello.lost is %d", h.Lost)
	case epoch(h.Token) < epoch(last.Token):
		c.fault("hello of epoch %d after one of %d", epoch(h.Token), epoch(last.Token))
	}
	if h.Moved != "" {
		c.movedAt = time.Now()
	}
	c.hello, c.acked, c.current = *h, max(c.acked, h.Received), l
	l.base, l.next, l.heard = c.stated, h.Received+1, time.Now()
	go l.read()
	go l.write()
	return l
}

// leave closes the connection, and waits until nothing comes of it.
func (l *link) leave() {
	l.Drop()
	<-l.ended
}

func (l *link) isOver() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// read takes what arrives.
func (l *link) read() {
	defer close(l.ended)
	defer l.Drop()
	for c := l.c; ; {
		m, err := l.Read(context.Background())
		c.mu.Lock()
		switch {
		case err != nil:
			c.note("connection ended: %v", err)
			if l.saidBye && seat.CloseOf(err) > 0 {
				c.over = "bye"
			}
			c.mu.Unlock()
			return
		case m.Verb != "":
			l.control(m.Verb, m.Arg)
		default:
			l.take(m.Data)
		}
		c.mu.Unlock()
	}
}

// take takes one of the game's messages, unless another connection has brought it.
func (l *link) take(p []byte) {
	c := l.c
	l.came++
	n := l.base + l.came
	if c.current != l || n <= c.received {
		return
	}
	var m struct{ N uint64 }
	if err := json.Unmarshal(p, &m); err != nil || m.N != n || n != c.received+1 || l.over {
		c.fault("message %s is number %d of the connection, with %d received: %v", p, n, c.received, err)
		return
	}
	c.received = n
}

func (l *link) control(verb, arg string) {
	c := l.c
	switch verb {
	case "ping":
		go l.Say(context.Background(), "pong", arg)
	case "ack":
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n > c.made {
			c.fault("ack %q, with %d made", arg, c.made)
		} else if c.current == l {
			c.acked = max(c.acked, n)
		}
	case "token":
		if c.current == l {
			json.Unmarshal([]byte(arg), &c.hello)
		}
	case "end", "close":
		var k seat.Closing
		json.Unmarshal([]byte(arg), &k)
		c.note("%s %s", verb, arg)
		if l.over = true; c.current == l && verb == "close" && !k.Retry && k.Code != 4409 || verb == "end" {
			c.over = verb + " " + arg
		}
	case "pong", "grace", "move":
	default:
		c.fault("unexpected %q %q", verb, arg)
	}
}

// write sends what can be sent, acks and pings.
func (l *link) write() {
	defer l.Drop()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	tick, acks, pings := time.NewTicker(l.c.pace), time.NewTicker(l.c.acks), time.NewTicker(l.c.pings)
	defer tick.Stop()
	defer acks.Stop()
	defer pings.Stop()
	err := l.Say(ctx, "ping", "0") // confirms the generation
	mayMake := false
	for acked := uint64(0); err == nil; {
		if n := l.nextMessage(mayMake); n > 0 {
			mayMake = false
			err = l.Send(ctx, true, strconv.AppendUint(nil, n, 10))
			continue
		}
		select {
		case <-tick.C:
			mayMake = true
		case <-acks.C:
			n, leave := l.ackable()
			if n != acked {
				acked, err = n, l.Ack(ctx, n)
			}
			if leave && err == nil {
				err = l.Say(ctx, "bye", `{"code":4000,"reason":"played enough"}`)
			}
		case <-pings.C:
			err = l.Say(ctx, "ping", "1")
		case <-l.ended:
			return
		}
	}
}

// nextMessage returns what to send now: a message to be repeated, or a new one if that may be; else 0.
func (l *link) nextMessage(mayMake bool) uint64 {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != l {
		return 0
	}
	if l.next > c.made {
		if !mayMake || c.quiet || c.stay || c.made-c.acked >= c.hello.Limits.Messages {
			return 0
		}
		c.made++
	}
	l.next++
	return l.next - 1
}

// ackable returns what may be acked, no more than a resume in flight has stated, and whether to say bye.
func (l *link) ackable() (n uint64, leave bool) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(l.base+l.came, c.received)
	if c.stating {
		n = min(n, c.stated)
	}
	leave = c.leave && c.current == l
	l.saidBye = l.saidBye || leave
	return max(n, l.base), leave
}
