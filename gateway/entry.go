package gateway

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/tokens"
	"reseat/upstream"
)

// An entry is a session as the gateway knows it: what was fixed when it was
// made, and its driver once the upstream has answered.
type entry struct {
	seq   uint64 // order of creation
	clock *transport.Clock

	ID        string
	Route     string
	Player    string
	Resumable bool
	Since     time.Time

	target upstream.Target  // its game server
	first  upstream.Request // the first handshake; once that is over, what a hard resume asks for again
	player playerKey        // whose session it is, for the registry
	block  netip.Prefix     // where it was begun, for the registry; zero: by the API
	won    bool             // the registry's: its upstream has accepted it

	current atomic.Pointer[terms]
	live    atomic.Pointer[transport.Session]
	peer    atomic.Pointer[string]
	memo    atomic.Pointer[tokens.Memo] // of the newest token
	pongs   bell                        // rung when the client answers a ping, and at the end

	mu       sync.Mutex         // never held over a call of the driver
	breakOff context.CancelFunc // ends the first dial, while that lasts
	pending  []coreFunc         // asked for while connecting
	welcomed chan struct{}      // closed when the first client has been answered and attached, or never will be
	protocol string             // that the upstream chose
	redial   *redial            // a hard resume's, while one is under way
	data     []byte             // the game server's; nil is unset
	tag      uint64             // of this state of it; zero while it is unset
	past     history
}

// A coreFunc is something to be done by the owner of a session's core.
type coreFunc func(*session.Session, session.Time)

// do has f done: at once, or while e is connecting as soon as its first client
// is attached. It is dropped where the session never comes about.
func (e *entry) do(f coreFunc) {
	e.mu.Lock()
	d := e.drive()
	if d == nil {
		e.pending = append(e.pending, f)
	}
	e.mu.Unlock()
	if d != nil {
		d.Do(f)
	}
}

// settle does what was asked for meanwhile.
func (e *entry) settle() {
	e.mu.Lock()
	pending, d := e.pending, e.drive()
	e.pending = nil
	e.mu.Unlock()
	for _, f := range pending {
		if d != nil {
			d.Do(f)
		}
	}
}

// welcome says that the first client is about to be answered. What it returns
// must be called once that client is attached, or never will be.
func (e *entry) welcome() (done func()) {
	c := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.welcomed = c
	return func() { close(c) }
}

// awaitFirst waits while the first client is being answered: it may know of its
// session, and act upon it, before it is attached. That takes handshakeWrite at
// most.
func (e *entry) awaitFirst() {
	e.mu.Lock()
	c := e.welcomed
	e.mu.Unlock()
	if c != nil {
		<-c
	}
}

// terms are what holds for a session and may be changed while others look: the
// route's policy, but for what the upstream asked for, and the group. They are
// replaced, not altered: the sessions of a route begin with the same ones.
type terms struct {
	Policy
	Group string
}

// session is the part that the session's core knows of.
func (t *terms) session() session.Terms {
	before := t.Grace
	if t.GraceBeforeStart != nil {
		before = *t.GraceBeforeStart
	}
	return session.Terms{Grace: t.Grace, GraceBeforeStart: before, Overflow: t.Overflow}
}

// longestGrace is the longer of the two grace periods.
func (t *terms) longestGrace() time.Duration {
	s := t.session()
	return max(s.Grace, s.GraceBeforeStart)
}

func (g *Gateway) newEntry(rt *route, player string, resumable bool, peer netip.Addr) *entry {
	e := &entry{clock: g.clock, ID: newID(), Route: rt.Pattern, Player: player, Resumable: resumable, Since: time.Now(), target: rt.Upstream}
	e.player = playerKey{name: player}
	if rt.Policy.Login != nil {
		e.player.realm = rt.Policy.Login.Realm()
	}
	e.current.Store(rt.terms)
	e.setPeer("")
	if peer.IsValid() {
		e.setPeer(peer.String())
		e.block = blockOf(peer)
	}
	return e
}

func (e *entry) terms() *terms             { return e.current.Load() }
func (e *entry) drive() *transport.Session { return e.live.Load() }

func (e *entry) setPeer(addr string) { e.peer.Store(&addr) }
func (e *entry) lastPeer() string    { return *e.peer.Load() }

// subject is what a token's sub must be: the player, or without one the
// session itself.
func (e *entry) subject() string {
	if e.Player != "" {
		return e.Player
	}
	return e.ID
}

// config is what the session's core is made with. Called with mu held.
func (e *entry) config(protocol string, store *replay.Store) session.Config {
	p := e.terms()
	fill := e.filler()
	c := session.Config{
		ID: e.ID, Resumable: e.Resumable, Kept: e.kept(), Terms: p.session(), Hard: p.Hard, Rate: p.Rate, Tell: p.Tell, Idle: p.IdleTimeout,
		Words:     session.Words{Detach: fill(p.Words.Detach), Resume: fill(p.Words.Resume), Expire: fill(p.Words.Expire)},
		Heartbeat: p.Heartbeat, Answer: p.AnswerTimeout, UpstreamHeartbeat: p.UpstreamHeartbeat,
		BufferBytes: p.BufferBytes, BufferMessages: p.BufferMessages,
		MaxMessage: p.MaxMessage, Protocol: protocol, Store: store, Key: maskingKey,
	}
	for _, r := range p.Replies {
		c.Replies = append(c.Replies, session.Reply{In: fill(r.In), Out: fill(r.Out)})
	}
	for _, b := range p.Beats {
		c.Beats = append(c.Beats, session.Beat{Every: b.Every, Text: fill(b.Text)})
	}
	return c
}

// filler fills {session} and {player} into the operator's words.
func (e *entry) filler() func(string) string {
	return strings.NewReplacer("{session}", inJSON(e.ID), "{player}", inJSON(e.Player)).Replace
}

// inJSON is s as it stands between the quotes of a JSON string.
func inJSON(s string) string {
	b, _ := json.Marshal(s)
	return string(b[1 : len(b)-1])
}

// breakFirst breaks the first dial off, if it still lasts.
func (e *entry) breakFirst() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.breakOff != nil {
		e.breakOff()
	}
}

// begin makes the session itself, once its upstream has answered. client is the
// connection that it is made for, nil where that is still to come.
func (e *entry) begin(d *transport.Driver, store *replay.Store, watch session.Observer, up *upstream.Conn, client net.Conn) *transport.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	core := session.New(e.config(up.Protocol, store), e.clock.Now(), up.Early)
	e.protocol = up.Protocol
	e.breakOff = nil // it would hold on to the whole request
	e.first = e.keptOfFirst()
	store.Charge(sizeOf(&e.first))
	s := d.New(core, up.Conn, client, watch)
	e.live.Store(s)
	return s
}

// keptOfFirst is what a hard resume asks for again of the first handshake. Its headers
// are not: those are the newest handshake's. Called with mu held.
func (e *entry) keptOfFirst() upstream.Request {
	if !e.terms().Hard {
		return upstream.Request{}
	}
	kept := upstream.Request{Path: strings.Clone(e.first.Path), RawQuery: strings.Clone(e.first.RawQuery)}
	for _, p := range e.first.Protocols {
		kept.Protocols = append(kept.Protocols, strings.Clone(p))
	}
	return kept
}

// sizeOf is how much memory what is kept of a first handshake holds, in bytes.
func sizeOf(first *upstream.Request) int {
	n := len(first.Path) + len(first.RawQuery)
	for _, p := range first.Protocols {
		n += len(p) + 16 // its string header
	}
	return n
}

// giveBack is called once the session has ended: what it kept counts no more.
func (e *entry) giveBack(store *replay.Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	store.Charge(-sizeOf(&e.first))
}

// blockOf is what counts as one address: for IPv6 the /64 that one customer has.
func blockOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a = a.Unmap().WithZone(""); a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// A bell wakes all that wait for its next ring.
type bell struct {
	mu sync.Mutex
	c  chan struct{}
}

// next is closed at the next ring.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}

// beginSession makes e's session, once its upstream has answered.
func (g *Gateway) beginSession(e *entry, up *upstream.Conn, client net.Conn) *transport.Session {
	return e.begin(g.driver, g.store, observer{g, e}, up, client)
}
