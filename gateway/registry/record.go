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

// A Record is a session as the gateway sees it: what was fixed at its creation, and its
// driver once the upstream has answered. It does not know the Gateway. All methods are
// safe for concurrent use.
type Record struct {
	seq   uint64 // order of creation
	clock *transport.Clock

	ID        string
	Route     string
	Path      string // of the first request: see Spec
	Player    string
	Since     time.Time
	Resumable bool
	Durable   bool // another node of the cluster may go on with it
	won       bool // guarded by the registry: the upstream has accepted it

	Target upstream.Target   // its game server
	first  *upstream.Request // the first handshake; once that is over, the part that is sent again, or nil
	player playerKey         // for the registry
	block  netip.Prefix      // the client's address block, for the registry; zero if pre-created

	current atomic.Pointer[Terms]
	live    atomic.Pointer[transport.Session]
	layer   atomic.Int64 // memory that the layers of its client's connections hold
	peer    atomic.Pointer[string]
	memo    atomic.Pointer[tokens.Memo] // of the newest token
	pongs   bell                        // signalled when the client answers a ping, and at the end

	mu       sync.Mutex         // never held over a call of the driver
	breakOff context.CancelFunc // cancels the first dial; nil once that is over
	pending  []CoreFunc         // queued while connecting
	welcomed chan struct{}      // while the first client is answered; closed then
	protocol string             // chosen by the upstream
	data     *userData          // set by the game server; nil if unset
	ender    string             // see SetEnder
	alone    *Alone             // see SetAlone
	epoch    uint64             // requests sent to the upstream
	seat     Seat               // of a durable session
	held     chan struct{}      // see Hold; full while it is held
	past     history
}

// A CoreFunc acts on a session's core. The driver calls it with the core locked.
type CoreFunc func(*session.Session, session.Time)

// Do calls f: at once, or while e is connecting as soon as its first client is attached.
// f is never called if the session never begins.
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

// RunQueued calls the functions that Do has queued.
func (e *Record) RunQueued() {
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

// BeginFirstAnswer notes that the first client is about to be answered. The caller must call done
// once that client is attached, or never will be.
func (e *Record) BeginFirstAnswer() (done func()) {
	c := make(chan struct{})
	e.setWelcomed(c)
	return func() {
		e.setWelcomed(nil)
		close(c)
	}
}

func (e *Record) setWelcomed(c chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.welcomed = c
}

// AwaitFirstAnswer waits while the first client is being answered: the client knows its session,
// and may act upon it, before it is attached. It takes at most handshakeWrite.
func (e *Record) AwaitFirstAnswer() {
	e.mu.Lock()
	c := e.welcomed
	e.mu.Unlock()
	if c != nil {
		<-c
	}
}

// Terms are a session's settings that may change while it lives: the route's policy with
// the upstream's directives applied, and the group. Terms are immutable, since the
// sessions of a route share them: SetTerms replaces them.
type Terms struct {
	policy.Policy
	Group string
}

// Session returns the part that the session's core uses.
func (t *Terms) Session() session.Terms {
	before := t.Grace
	if t.GraceBeforeStart != nil {
		before = *t.GraceBeforeStart
	}
	return session.Terms{Grace: t.Grace, GraceBeforeStart: before, Overflow: t.Overflow, Newest: t.Newest}
}

// LongestGrace returns the longer of the two grace periods.
func (t *Terms) LongestGrace() time.Duration {
	s := t.Session()
	return max(s.Grace, s.GraceBeforeStart)
}

// A Spec describes a new Record.
type Spec struct {
	ID, Route, Player string
	// Path is the path of the first handshake, percent-encoded, without the query. It is
	// cut off after maxPath bytes.
	Path      string
	Realm     any // the source of the player's name; comparable
	Resumable bool
	Peer      netip.Addr // the client's; zero if pre-created
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

// Terms returns the present terms.
func (e *Record) Terms() *Terms { return e.current.Load() }

// SetTerms replaces the terms. t must not change afterwards.
func (e *Record) SetTerms(t *Terms) { e.current.Store(t) }

// Driver returns the session's driver; nil before the upstream has answered, and after the
// end.
func (e *Record) Driver() *transport.Session { return e.live.Load() }

// DriverBegun is Driver, but waits for a Begin in progress: its session's events may be there
// before it has returned.
func (e *Record) DriverBegun() *transport.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Driver()
}

// Block returns the address block of the client that began the session; zero if it was
// pre-created.
func (e *Record) Block() netip.Prefix { return e.block }

// ChargeLayer returns a function that charges memory to store and to e: what a layer of e's
// client's connection holds.
func (e *Record) ChargeLayer(store *replay.Store) func(n int) {
	return func(n int) {
		e.layer.Add(int64(n))
		store.Charge(n)
	}
}

// Memory returns the memory of e that counts towards --buffer-total and that its session's core
// does not know.
func (e *Record) Memory() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.layer.Load() + int64(sizeOf(e.first))
}

// SetPeer records the address of the newest client.
func (e *Record) SetPeer(addr string) { e.peer.Store(&addr) }

// Peer returns the address of the newest client, "" before the first one.
func (e *Record) Peer() string { return *e.peer.Load() }

// Memo returns that of the newest token, nil before the first one.
func (e *Record) Memo() *tokens.Memo { return e.memo.Load() }

// SetMemo records the newest token.
func (e *Record) SetMemo(m *tokens.Memo) { e.memo.Store(m) }

// Answered wakes callers of Answers: the client has answered a ping, or never will.
func (e *Record) Answered() { e.pongs.ring() }

// Protocol returns the subprotocol that the upstream chose.
func (e *Record) Protocol() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.protocol
}

// NextEpoch returns the number of the next request to the upstream, from 1.
func (e *Record) NextEpoch() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epoch++
	return e.epoch
}

// Redials reports whether e's upstream may be dialled more than once.
func (e *Record) Redials() bool { return e.Resumable || e.Kept() && e.Terms().Hard }

// First returns the first handshake with the upstream; once that is over, the part that is
// sent again: see SetAgain.
func (e *Record) First() upstream.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.first == nil {
		return upstream.Request{}
	}
	return *e.first
}

// SetFirst records the first handshake, and the function that cancels it.
func (e *Record) SetFirst(ask upstream.Request, breakOff context.CancelFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.first, e.breakOff = &ask, breakOff
}

// SetAgain replaces what is sent again if the upstream is lost, --upstream-lost redial: the
// headers are those of the newest handshake.
func (e *Record) SetAgain(ask upstream.Request, store *replay.Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	store.Charge(-sizeOf(e.first))
	e.first = e.partToKeep(&ask)
	store.Charge(sizeOf(e.first))
}

// Data returns the data that the game server keeps with the session, nil if there is none,
// and its tag.
func (e *Record) Data() (data []byte, tag uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.data == nil {
		return nil, 0
	}
	return e.data.bytes, e.data.tag
}

// SetData replaces the data and its tag. If want is not nil and reports false for the
// present tag (zero if there is no data), SetData changes nothing and reports false.
func (e *Record) SetData(data []byte, tag uint64, want func(tag uint64) bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	var before uint64
	if e.data != nil {
		before = e.data.tag
	}
	if want != nil && !want(before) {
		return false
	}
	e.data = newUserData(data, tag)
	return true
}

// userData belongs to the game server, which keeps it with a session. Few sessions have any.
type userData struct {
	bytes []byte
	tag   uint64
}

// newUserData returns nil where there is none.
func newUserData(b []byte, tag uint64) *userData {
	if b == nil && tag == 0 {
		return nil
	}
	return &userData{b, tag}
}

// SetEnder notes who is about to end the session by the control API: a caller's name, as
// in the audit log. It is called as the owner of the session's core.
func (e *Record) SetEnder(by string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ender = by
}

// Ender returns the caller of the control API that has ended the session, or "".
func (e *Record) Ender() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ender
}

// Alone describes how the game server has closed the connection of a detached session.
type Alone struct {
	Reason string        // of the event
	Silent time.Duration // of the client, until then
}

// SetAlone notes that this has happened.
func (e *Record) SetAlone(a Alone) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.alone = &a
}

// Alone returns what SetAlone has noted, or nil.
func (e *Record) Alone() *Alone {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.alone
}

// Subject returns the sub of a token: the player, or the session's id if it has none.
func (e *Record) Subject() string {
	if e.Player != "" {
		return e.Player
	}
	return e.ID
}

// config returns the configuration of the session's core. Called with mu held.
func (e *Record) config(protocol string, store *replay.Store) session.Config {
	p := e.Terms()
	fill := e.filler()
	c := session.Config{
		ID: e.ID, Resumable: e.Resumable, PlainResume: e.Kept(), Terms: p.Session(), Hard: p.Hard, Rate: p.Rate, MessageLog: p.MessageLog, Idle: p.IdleTimeout,
		Notices:          session.Notices{Detach: fill(p.Notices.Detach), Resume: fill(p.Notices.Resume), Expire: fill(p.Notices.Expire)},
		GraceUnconfirmed: policy.GraceUnconfirmed, Heartbeat: p.Heartbeat, Answer: p.AnswerTimeout, UpstreamHeartbeat: p.UpstreamHeartbeat,
		BufferBytes: p.BufferBytes, BufferMessages: p.BufferMessages,
		MaxMessage: p.MaxMessage, Protocol: protocol, Store: store, Key: MaskingKey, Durable: e.Durable,
	}
	if p.Redial && e.Resumable {
		c.Redial = p.RedialFor
	}
	for _, r := range p.KeepaliveReplies {
		c.KeepaliveReplies = append(c.KeepaliveReplies, session.KeepaliveReply{In: fill(r.In), Out: fill(r.Out)})
	}
	for _, b := range p.Keepalives {
		if b.Kind == session.KeepaliveText {
			b.Text = fill(b.Text)
		}
		c.Keepalives = append(c.Keepalives, b)
	}
	if (c.Resumable || c.PlainResume) && !p.Hard { // others end, or have no upstream, while the client is away
		c.Keepalive = p.Keepalive
	}
	return c
}

// filler replaces {session} and {player} in an operator's text.
func (e *Record) filler() func(string) string {
	return func(text string) string {
		if !strings.Contains(text, "{") {
			return text
		}
		return strings.NewReplacer("{session}", inJSON(e.ID), "{player}", inJSON(e.Player)).Replace(text)
	}
}

// inJSON escapes s for use between the quotes of a JSON string.
func inJSON(s string) string {
	b, _ := json.Marshal(s)
	return string(b[1 : len(b)-1])
}

// CancelFirstDial cancels the first dial, if it is in flight.
func (e *Record) CancelFirstDial() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.breakOff != nil {
		e.breakOff()
	}
}

// Begin creates the session's core once the upstream has answered. client is its first
// connection, nil for a pre-created session.
func (e *Record) Begin(d *transport.Driver, store *replay.Store, watch session.Observer, up *upstream.Conn, client net.Conn) *transport.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	core := session.New(e.config(up.Protocol, store), e.clock.Now(), up.Early)
	e.protocol = up.Protocol
	e.breakOff = nil // it would keep the whole request in memory
	e.first = e.partToKeep(e.first)
	store.Charge(sizeOf(e.first))
	s := d.New(core, up.Conn, client, watch)
	e.live.Store(s)
	return s
}

// partToKeep is the part of a handshake that is sent again, nil if none is. Only --upstream-lost
// redial needs headers: a hard resume, and one at another node, send those of the newest
// handshake. Called with mu held.
func (e *Record) partToKeep(of *upstream.Request) *upstream.Request {
	t := e.Terms()
	redial := t.Redial && e.Resumable
	if of == nil || !t.Hard && !redial && !e.Durable {
		return nil
	}
	kept := &upstream.Request{Path: strings.Clone(of.Path), RawQuery: strings.Clone(of.RawQuery), ForceQuery: of.ForceQuery}
	if redial {
		kept.Host, kept.Header = strings.Clone(of.Host), of.Header.Clone()
	}
	for _, p := range of.Protocols {
		kept.Protocols = append(kept.Protocols, strings.Clone(p))
	}
	return kept
}

// sizeOf is the memory of a kept handshake, in bytes; zero for nil.
func sizeOf(first *upstream.Request) int {
	if first == nil {
		return 0
	}
	n := len(first.Path) + len(first.RawQuery) + len(first.Host)
	for name, values := range first.Header {
		n += len(name) + 40 // its string header, and that of the slice
		for _, v := range values {
			n += len(v) + 16
		}
	}
	for _, p := range first.Protocols {
		n += len(p) + 16 // its string header
	}
	return n
}

// ReleaseMemory is called once the session has ended: its data and first handshake no longer
// count towards --buffer-total.
func (e *Record) ReleaseMemory(store *replay.Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	store.Charge(-sizeOf(e.first))
}

// BlockOf returns the range that counts as one address: for IPv6 the /64 of one customer.
func BlockOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a = a.Unmap().WithZone(""); a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// A bell wakes all goroutines that wait for its next ring.
type bell struct {
	mu sync.Mutex
	c  chan struct{}
}

// next returns a channel that is closed at the next ring.
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

// Kept reports whether e is a plain client's session that outlives a disconnect.
func (e *Record) Kept() bool { return !e.Resumable && e.Terms().PlainResume }

// Client says how e's client can resume.
func (e *Record) Client() string {
	switch {
	case e.Resumable:
		return "resumable"
	case e.Kept():
		return "cookie"
	}
	return "plain"
}

// Offered reports whether protocols include the subprotocol of e's session.
func (e *Record) Offered(protocols []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.protocol == "" || slices.Contains(protocols, e.protocol)
}

// MaskingKey is unpredictable, RFC 6455 section 5.3: the runtime's ChaCha8
// generator is seeded by the operating system.
func MaskingKey() [4]byte {
	k := rand.Uint32()
	return [4]byte{byte(k), byte(k >> 8), byte(k >> 16), byte(k >> 24)}
}
