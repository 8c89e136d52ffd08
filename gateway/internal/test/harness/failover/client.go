//go:build linux

package failover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// A client is a player of the counting game with a durable session, written from docs/protocol.md on
// top of coder/websocket. Its message number n says n, so that it need not be kept to be sent again.
type client struct {
	id       int
	r        *rand.Rand
	http     *http.Client
	fronts   []string      // addresses of gateways
	pace     time.Duration // between two messages
	pings    time.Duration // between two pings of its own
	acks     time.Duration // between two acks at least
	patience time.Duration // of silence, until it takes a connection for dead
	beside   bool          // it resumes beside a silent connection, and leaves that when the new one speaks

	mu              sync.Mutex
	front           int // of the newest attempt
	session         string
	token           string
	received        uint64 // N: the newest of the game's messages
	acked           uint64 // A: the newest of its own that it knows to be held
	made            uint64 // C: the newest that it gave to a connection
	most            uint64 // unacked messages
	sum             int64  // of what the game added
	stating         bool   // a resume is in flight, which states:
	stated, settled uint64
	current         *link
	quiet           bool // make no new messages
	stay            bool // stay away
	leave           bool // say bye
	hellos          []hello
	faults          []string
	story           []string
	refused         map[int]int // closes, by code
	over            string      // why the session is over
	unused          int         // hellos that were not taken: R1
}

// A hello is one that the client took.
type hello struct {
	Session, Token, Moved  string
	Resumed, Durable       bool
	Received, Lost, Replay uint64
	GraceMS                int64 `json:"grace_ms"`
	Limits                 struct {
		Messages uint64 `json:"unacked_messages"`
	}

	asked, at time.Time // the handshake's beginning, and its arrival
	front     int
	gen       uint64
	stated    uint64
}

// epoch is that of the seat.
func (h hello) epoch() uint64 { return h.gen >> 20 }

// owner is the id of the node that has the session.
func (h hello) owner() string {
	if own := read(h.Token).Own; own != "" {
		return own
	}
	return h.Session[:min(8, len(h.Session))]
}

type closing struct {
	Code         int
	Reason       string
	Retry        bool
	RetryAfterMS int64 `json:"retry_after_ms"`
}

const (
	pingsEvery = 250 * time.Millisecond
	deadAfter  = 1500 * time.Millisecond
	doubtAfter = 800 * time.Millisecond
	ackEvery   = 100 * time.Millisecond
	helloTime  = 15 * time.Second
)

// A link is one connection.
type link struct {
	c       *client
	ws      *websocket.Conn
	gen     uint64
	base    uint64 // number of the message before its first
	came    uint64
	heard   time.Time
	next    uint64 // of its own messages
	ended   chan struct{}
	over    bool // by close or end
	saidBye bool
}

func newClient(id int, seed uint64, fronts []string, pace time.Duration) *client {
	return &client{id: id, r: rand.New(rand.NewPCG(seed, uint64(id))), fronts: fronts, pace: pace, pings: pingsEvery, acks: ackEvery, patience: deadAfter, refused: map[int]int{},
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, most: 100}
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

func (c *client) isOver() (over bool) {
	c.locked(func() { over = c.over != "" })
	return over
}

// play plays until ctx is done, or the session is over.
func (c *client) play(ctx context.Context) {
	var now *link
	for ctx.Err() == nil && !c.isOver() {
		away := false
		c.locked(func() { away = c.stay })
		if now == nil {
			if away {
				sleep(ctx, 20*time.Millisecond)
				continue
			}
			var wait time.Duration
			if now, wait = c.attempt(ctx); now == nil {
				sleep(ctx, wait)
			}
			continue
		}
		now = c.attend(ctx, now)
	}
	c.locked(func() {
		if c.current != nil {
			c.current.ws.CloseNow()
		}
	})
}

// attend waits for the end of a link, and returns one that has replaced it meanwhile, if there is one.
func (c *client) attend(ctx context.Context, l *link) (next *link) {
	tick := time.NewTicker(c.patience / 30)
	defer tick.Stop()
	for {
		select {
		case <-l.ended:
			return nil
		case <-ctx.Done():
			l.ws.CloseNow()
			<-l.ended
			return nil
		case <-tick.C:
		}
		var silent time.Duration
		var leave bool
		c.locked(func() { silent, leave = time.Since(l.heard), c.stay })
		switch {
		case leave || silent > c.patience:
			c.locked(func() { c.note("leaves, after %v of silence", silent) })
			l.ws.CloseNow()
			<-l.ended
			return nil
		case c.beside && silent > doubtAfter:
			if next, _ := c.attempt(ctx); next != nil {
				l.ws.CloseNow()
				<-l.ended
				return next
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// attempt begins the session, or resumes it, at a random gateway.
func (c *client) attempt(ctx context.Context) (*link, time.Duration) {
	h := hello{asked: time.Now()}
	offer := []string{"reseat.v1"}
	var url string
	c.locked(func() {
		c.front = c.r.IntN(len(c.fronts))
		h.front = c.front
		if c.token != "" {
			offer = append(offer, "reseat.token."+c.token, fmt.Sprint("reseat.received.", c.received))
		}
		offer = append(offer, fmt.Sprintf("reseat.settled.%d.%d", c.acked, c.made))
		c.stating, c.stated, c.settled = true, c.received, c.acked
		h.stated = c.received
		url = fmt.Sprint("ws://", c.fronts[c.front], "/game?client=", c.id)
		c.note("attempt at %d: gen %d, received %d, settled %d.%d", c.front, read(c.token).Gen, c.received, c.acked, c.made)
	})
	defer c.locked(func() { c.stating = false })
	within, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	l := &link{c: c, ended: make(chan struct{}), heard: time.Now()}
	ws, resp, err := websocket.Dial(within, url, &websocket.DialOptions{HTTPClient: c.http, Subprotocols: offer, OnPingReceived: func(context.Context, []byte) bool { l.hears(); return true }})
	if err != nil {
		status := 0
		if resp != nil {
			status = resp.StatusCode
		}
		c.locked(func() { c.note("no connection: %d, %v", status, errors.Unwrap(err)) })
		return nil, time.Duration(5+c.random(40)) * time.Millisecond
	}
	ws.SetReadLimit(-1)
	l.ws = ws
	_, p, err := ws.Read(within)
	if err != nil {
		ws.CloseNow()
		c.locked(func() { c.note("no hello: %v", err) })
		return nil, time.Duration(5+c.random(40)) * time.Millisecond
	}
	return c.greet(l, h, string(p))
}

func (c *client) random(n int) (i int) {
	c.locked(func() { i = c.r.IntN(n) })
	return i
}

// greet processes the first message of a connection.
func (c *client) greet(l *link, h hello, text string) (*link, time.Duration) {
	verb, arg, _ := strings.Cut(text, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch verb {
	case "\x10hello":
	case "\x10close":
		l.ws.CloseNow()
		var k closing
		json.Unmarshal([]byte(arg), &k)
		c.note("refused: %s", arg)
		c.refused[k.Code]++
		if !k.Retry && k.Code != 4409 && (c.current == nil || c.current.isOver()) {
			c.over = arg
		}
		return nil, time.Duration(k.RetryAfterMS+10) * time.Millisecond
	default:
		l.ws.CloseNow()
		c.fault("the first message is %q", text)
		return nil, time.Second
	}
	if err := json.Unmarshal([]byte(arg), &h); err != nil {
		c.fault("%v: %q", err, arg)
	}
	h.at, h.gen = time.Now(), read(h.Token).Gen
	c.note("hello: epoch %d gen %d moved %q durable %v received %d replay %d lost %d", h.epoch(), h.gen&(1<<20-1), h.Moved, h.Durable, h.Received, h.Replay, h.Lost)
	if h.Moved == "failover" && (c.received != c.stated || c.acked != c.settled) { // R1
		c.unused++
		c.note("not taken: received %d, acked %d since", c.received, c.acked)
		l.ws.CloseNow()
		return nil, 0
	}
	switch {
	case h.Resumed != (c.session != ""), c.session != "" && h.Session != c.session:
		c.fault("hello of session %s, resumed %v; this is %s", h.Session, h.Resumed, c.session)
	case h.Received < c.acked || h.Received > c.made:
		c.fault("hello.received is %d, with %d acked and %d made", h.Received, c.acked, c.made)
	case h.Lost != 0:
		c.fault("hello.lost is %d", h.Lost)
	case len(c.hellos) > 0 && h.epoch() < c.hellos[len(c.hellos)-1].epoch():
		c.fault("hello of epoch %d after one of %d", h.epoch(), c.hellos[len(c.hellos)-1].epoch())
	}
	c.session, c.token = h.Session, h.Token
	c.acked = max(c.acked, h.Received)
	c.most = h.Limits.Messages
	c.hellos = append(c.hellos, h)
	l.gen, l.base, l.next = h.gen, h.stated+h.Lost, h.Received+1
	l.heard = time.Now()
	c.current = l
	go l.read()
	go l.write()
	return l, 0
}

func (l *link) isOver() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (l *link) hears() {
	l.c.locked(func() { l.heard = time.Now() })
}

// read takes what arrives.
func (l *link) read() {
	defer close(l.ended)
	defer l.ws.CloseNow()
	for {
		_, p, err := l.ws.Read(context.Background())
		c := l.c
		c.mu.Lock()
		if err != nil {
			c.note("connection ended: %v", err)
			if l.saidBye && websocket.CloseStatus(err) > 0 {
				c.over = "bye"
			}
			c.mu.Unlock()
			return
		}
		l.heard = time.Now()
		if len(p) > 0 && p[0] == 0x10 {
			l.control(string(p[1:]))
		} else {
			l.take(p)
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
	var m struct {
		N    uint64
		Add  *int64
		Sum  *int64
		Lost uint64
	}
	if err := json.Unmarshal(p, &m); err != nil || m.N != n || n != c.received+1 || l.over {
		c.fault("message %s is number %d of the connection, with %d received: %v", p, n, c.received, err)
		return
	}
	c.received = n
	switch {
	case m.Add != nil:
		c.sum += *m.Add
	case m.Sum != nil:
		c.sum = *m.Sum
	}
}

func (l *link) control(text string) {
	c := l.c
	verb, arg, _ := strings.Cut(text, " ")
	switch verb {
	case "ping":
		go l.say("pong " + arg)
	case "ack":
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n > c.made {
			c.fault("ack %q, with %d made", arg, c.made)
		} else if c.current == l {
			c.acked = max(c.acked, n)
		}
	case "token":
		var t struct{ Token string }
		if json.Unmarshal([]byte(arg), &t); c.current == l {
			c.token = t.Token
		}
	case "end", "close":
		var k closing
		json.Unmarshal([]byte(arg), &k)
		c.note("%s %s", verb, arg)
		if l.over = true; c.current == l && verb == "close" && !k.Retry && k.Code != 4409 || verb == "end" {
			c.over = text
		}
	case "pong", "grace", "move":
	default:
		c.fault("unexpected %q", text)
	}
}

func (l *link) say(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return l.ws.Write(ctx, websocket.MessageText, []byte("\x10"+text))
}

// write sends what can be sent, acks and pings.
func (l *link) write() {
	c := l.c
	tick := time.NewTicker(max(c.pace, time.Millisecond))
	defer tick.Stop()
	acks := time.NewTicker(c.acks)
	defer acks.Stop()
	pings := time.NewTicker(c.pings)
	defer pings.Stop()
	acked := uint64(0)
	ack := func() error {
		var n uint64
		c.locked(func() {
			n = min(l.base+l.came, c.received)
			if c.stating {
				n = min(n, c.stated)
			}
			n = max(n, l.base)
		})
		if n == acked {
			return nil
		}
		acked = n
		return l.say(fmt.Sprint("ack ", n))
	}
	err := l.say("ping 0") // confirms the generation
	for err == nil {
		for err == nil {
			var n uint64
			c.locked(func() {
				if c.current == l && l.next <= c.made {
					n = l.next
					l.next++
				}
			})
			if n == 0 {
				break
			}
			err = l.send(n)
		}
		select {
		case <-tick.C:
			var n uint64
			c.locked(func() {
				if c.current == l && l.next == c.made+1 && !c.quiet && !c.stay && c.made-c.acked < c.most {
					c.made++
					n = c.made
					l.next++
				}
			})
			if n > 0 {
				err = l.send(n)
			}
		case <-acks.C:
			var leave bool
			c.locked(func() {
				leave = c.leave && c.current == l
				l.saidBye = l.saidBye || leave
			})
			if err = ack(); leave {
				err = l.say(`bye {"code":4000,"reason":"played enough"}`)
			}
		case <-pings.C:
			err = l.say("ping 1")
		case <-l.ended:
			return
		}
	}
	l.ws.CloseNow()
}

func (l *link) send(n uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return l.ws.Write(ctx, websocket.MessageText, strconv.AppendUint(nil, n, 10))
}
