package registry

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/policy"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/tokens"
	"reseat/upstream"
)

// A Record is a session as the gateway knows it: what was fixed when it was made, and
// its driver once the upstream has answered. It knows no Gateway. Its methods may be
// called by anyone.
type Record struct {
	seq   uint64 // order of creation
	clock *transport.Clock

	ID        string
	Route     string
	Path      string // of the first request: see Spec
	Player    string
	Resumable bool
	Since     time.Time

	Target upstream.Target  // its game server
	first  upstream.Request // the first handshake; once that is over, what a hard resume asks for again
	player playerKey        // whose session it is, for the registry
	block  netip.Prefix     // where it was begun, for the registry; zero: by the API
	won    bool             // the registry's: its upstream has accepted it

	current atomic.Pointer[Terms]
	live    atomic.Pointer[transport.Session]
	peer    atomic.Pointer[string]
	memo    atomic.Pointer[tokens.Memo] // of the newest token
	pongs   bell                        // rung when the client answers a ping, and at the end

	mu       sync.Mutex         // never held over a call of the driver
	breakOff context.CancelFunc // ends the first dial, while that lasts
	pending  []CoreFunc         // asked for while connecting
	welcomed chan struct{}      // closed when the first client has been answered and attached, or never will be
	protocol string             // that the upstream chose
	data     []byte             // the game server's; nil is unset
	tag      uint64             // of this state of it; zero while it is unset
	ender    string             // see SetEnder
	past     history
}

// A CoreFunc is something to be done by the owner of a session's core.
type CoreFunc func(*session.Session, session.Time)

// Do has f done: at once, or while e is connecting as soon as its first client
// is attached. It is dropped where the session never comes about.
func (e *Record) Do(f CoreFunc) {
	e.mu.Lock()
	d := e.Driver()
	if d == nil {
		e.pending = append(e.pending, f)
	}
	e.mu.Unlock()
	if d != nil {
		d.Do(f)
	}
}

// Settle does what was asked for meanwhile.
func (e *Record) Settle() {
	e.mu.Lock()
	pending, d := e.pending, e.Driver()
	e.pending = nil
	e.mu.Unlock()
	for _, f := range pending {
		if d != nil {
			d.Do(f)
		}
	}
}

// Welcome says that the first client is about to be answered. What it returns
// must be called once that client is attached, or never will be.
func (e *Record) Welcome() (done func()) {
	c := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.welcomed = c
	return func() { close(c) }
}

// AwaitFirst waits while the first client is being answered: it may know of its
// session, and act upon it, before it is attached. That takes handshakeWrite at
// most.
func (e *Record) AwaitFirst() {
	e.mu.Lock()
	c := e.welcomed
	e.mu.Unlock()
	if c != nil {
		<-c
	}
}

// Terms are what holds for a session and may be changed while others look: the
// route's policy, but for what the upstream asked for, and the group. They are
// replaced, not altered: the sessions of a route begin with the same ones.
type Terms struct {
	policy.Policy
	Group string
}

// Session is the part that the session's core knows of.
func (t *Terms) Session() session.Terms {
	before := t.Grace
	if t.GraceBeforeStart != nil {
		before = *t.GraceBeforeStart
	}
	return session.Terms{Grace: t.Grace, GraceBeforeStart: before, Overflow: t.Overflow}
}

// LongestGrace is the longer of the two grace periods.
func (t *Terms) LongestGrace() time.Duration {
	s := t.Session()
	return max(s.Grace, s.GraceBeforeStart)
}

// A Spec is what a Record is made from.
type Spec struct {
	ID, Route, Player string
	// Path is the path that the session was begun with, percent-encoded, without the
	// query. What is longer than maxPath is cut off.
	Path      string
	Realm     any // where the player's name comes from; comparable
	Resumable bool
	Peer      netip.Addr // the client's; zero: made by the control API
	Target    upstream.Target
	Terms     *Terms
}

// maxPath bounds the path that is kept of each session, in bytes.
const maxPath = 200

// NewRecord makes the record of a session that is about to begin.
func NewRecord(clock *transport.Clock, s Spec) *Record {
	e := &Record{
		clock: clock, ID: s.ID, Route: s.Route, Player: s.Player, Path: strings.Clone(frame.Clip(s.Path, maxPath)), Resumable: s.Resumable, Since: time.Now(), Target: s.Target,
		player: playerKey{realm: s.Realm, name: s.Player},
	}
	e.SetTerms(s.Terms)
	e.SetPeer("")
	if s.Peer.IsValid() {
		e.SetPeer(s.Peer.String())
		e.block = BlockOf(s.Peer)
	}
	return e
}

// Terms are those in force.
func (e *Record) Terms() *Terms { return e.current.Load() }

// SetTerms puts others in force. They must not be altered afterwards.
func (e *Record) SetTerms(t *Terms) { e.current.Store(t) }

// Driver drives the session; nil before its upstream has answered, and after its end.
func (e *Record) Driver() *transport.Session { return e.live.Load() }

// SetPeer notes the address of the newest client.
func (e *Record) SetPeer(addr string) { e.peer.Store(&addr) }

// Peer is the address of the newest client, "" before the first.
func (e *Record) Peer() string { return *e.peer.Load() }

// Memo is that of the newest token, nil before the first.
func (e *Record) Memo() *tokens.Memo { return e.memo.Load() }

// SetMemo notes the newest token.
func (e *Record) SetMemo(m *tokens.Memo) { e.memo.Store(m) }

// Answered says that the client has answered a ping, or never will: see Answers.
func (e *Record) Answered() { e.pongs.ring() }

// Protocol is the subprotocol that the upstream chose.
func (e *Record) Protocol() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.protocol
}

// First is the first handshake with the upstream; once that is over, what a hard resume
// asks for again.
func (e *Record) First() upstream.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first
}

// SetFirst notes the first handshake, and what ends it early.
func (e *Record) SetFirst(ask upstream.Request, breakOff context.CancelFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.first, e.breakOff = ask, breakOff
}

// Data is what the game server keeps with the session, nil for nothing, and the tag of
// this state of it.
func (e *Record) Data() (data []byte, tag uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.data, e.tag
}

// SetData keeps data under a new tag. It reports false, and changes nothing, unless want
// (nil: anything) is true of the present tag, zero for none.
func (e *Record) SetData(data []byte, tag uint64, want func(tag uint64) bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if want != nil && !want(e.tag) {
		return false
	}
	e.data, e.tag = data, tag
	return true
}

// SetEnder notes who is about to end the session by the control API: a caller's name, as
// in the audit log. It is called as the owner of the session's core.
func (e *Record) SetEnder(by string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ender = by
}

// Ender is who has ended the session by the control API, "" where nobody has.
func (e *Record) Ender() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ender
}

// Subject is what a token's sub must be: the player, or without one the
// session itself.
func (e *Record) Subject() string {
	if e.Player != "" {
		return e.Player
	}
	return e.ID
}

// config is what the session's core is made with. Called with mu held.
func (e *Record) config(protocol string, store *replay.Store) session.Config {
	p := e.Terms()
	fill := e.filler()
	c := session.Config{
		ID: e.ID, Resumable: e.Resumable, Kept: e.Kept(), Terms: p.Session(), Hard: p.Hard, Rate: p.Rate, Tell: p.Tell, Idle: p.IdleTimeout,
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
func (e *Record) filler() func(string) string {
	return strings.NewReplacer("{session}", inJSON(e.ID), "{player}", inJSON(e.Player)).Replace
}

// inJSON is s as it stands between the quotes of a JSON string.
func inJSON(s string) string {
	b, _ := json.Marshal(s)
	return string(b[1 : len(b)-1])
}

// BreakFirst breaks the first dial off, if it still lasts.
func (e *Record) BreakFirst() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.breakOff != nil {
		e.breakOff()
	}
}

// Begin makes the session itself, once its upstream has answered. client is the
// connection that it is made for, nil where that is still to come.
func (e *Record) Begin(d *transport.Driver, store *replay.Store, watch session.Observer, up *upstream.Conn, client net.Conn) *transport.Session {
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
func (e *Record) keptOfFirst() upstream.Request {
	if !e.Terms().Hard {
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

// GiveBack is called once the session has ended: what it kept counts no more.
func (e *Record) GiveBack(store *replay.Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	store.Charge(-sizeOf(&e.first))
}

// BlockOf is what counts as one address: for IPv6 the /64 that one customer has.
func BlockOf(a netip.Addr) netip.Prefix {
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

// Kept reports whether e is a plain client's session that outlives a drop.
func (e *Record) Kept() bool { return !e.Resumable && e.Terms().PlainResume }

// Client says by what e's client can come back.
func (e *Record) Client() string {
	switch {
	case e.Resumable:
		return "resumable"
	case e.Kept():
		return "cookie"
	}
	return "plain"
}

// Offered reports whether a client can go on with the subprotocol of e's session.
func (e *Record) Offered(protocols []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.protocol == "" || slices.Contains(protocols, e.protocol)
}

// maskingKey is unpredictable, RFC 6455 section 5.3: the runtime's ChaCha8
// generator is seeded by the operating system.
func maskingKey() [4]byte {
	k := rand.Uint32()
	return [4]byte{byte(k), byte(k >> 8), byte(k >> 16), byte(k >> 24)}
}
