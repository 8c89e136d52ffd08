// Package session is the session core: it decides what happens to every byte of
// a session's two legs, the client's and the upstream's. It does no I/O, starts no
// goroutine, takes no lock and reads no clock. A driver calls it, one call at a time,
// with bytes and the time, and writes what it returns.
//
// A Session outlives its connections. An Attachment is one client connection of a
// session, an Upstream one connection to the game server. Input for a connection
// that the session has replaced changes nothing: protocol section 8.
package session

import (
	"time"

	"reseat/gateway/replay"
	"reseat/tokens/generation"
)

// A Time is a moment on the driver's monotonic clock, in nanoseconds since an origin
// that the driver chooses. Zero means never.
type Time int64

// Add moves t by d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Overflow selects what a session does when a message does not fit into its replay buffer
// while it is detached. While it is attached the policy is always Pause: a slow client
// slows its game server down, protocol section 5.3.
type Overflow uint8

// The policies of --overflow.
const (
	Pause      Overflow = iota // stop reading the upstream
	DropOldest                 // drop as few of the oldest messages as possible
	EndSession                 // end the session with 4408
)

// String returns the policy's name in flags.
func (o Overflow) String() string {
	return [...]string{"pause", "drop-oldest", "end"}[o]
}

// Fixed limits of the protocol and of the gateway.
const (
	UnackedMessages = 1024    // limits.unacked_messages
	UnackedBytes    = 1 << 20 // limits.unacked_bytes

	maxControl     = 4 << 10                // max size of a control message, even where --max-message is smaller: protocol section 11
	ackMessages    = 32                     // protocol section 5.2: ack after so many messages,
	ackBytes       = 64 << 10               // after so many bytes,
	ackWanted      = 500 * time.Millisecond // with any other output once an ack has waited so long,
	ackLatest      = 900 * time.Millisecond // and alone after this, which leaves 100 ms of the second for the way
	overdueAck     = 60 * time.Second       // protocol section 5.3: for a message that was sent before an answered ping
	stalledMessage = 30 * time.Second       // protocol section 11: an unfinished message that does not grow
	deadlockWait   = 30 * time.Second       // see deadlockedAt
	maxWrite       = 256 << 10              // max bytes of one write to a client, so that control frames wait for no more
	answerWait     = time.Second            // protocol section 11: for the client's answer to our Close frame
	starvedRetry   = 250 * time.Millisecond // between two attempts to get memory for a read
	takeoverLimit  = 20                     // protocol section 11: too many takeovers
	takeoverSpan   = 10 * time.Second
	futileLimit    = 5 // protocol section 11: no progress
	futileSpan     = 10 * time.Second
)

// Config describes a new session. The driver's owner fills in all of it. The fields
// that every message needs come last: see Session.
type Config struct {
	ID       string
	Protocol string // the application's subprotocol, as the upstream accepted it
	Notices  Notices
	// KeepaliveReplies and Keepalives keep the game's own heartbeats going while the client is
	// detached. Keepalive is about those of the client's that are not among them.
	KeepaliveReplies []KeepaliveReply
	Keepalives       []Keepalive
	Store            *replay.Store

	// Key makes an unpredictable masking key for each frame to the upstream: RFC 6455
	// section 5.3.
	Key  func() [4]byte
	Rate Rate

	Resumable   bool // the client speaks reseat.v1
	PlainResume bool // a plain client that may return with a cookie: protocol section 9
	Hard        bool // --disconnect hard: a detached session has no upstream
	Durable     bool // another node may go on with it: see durable.go
	Keepalive   KeepaliveMode
	Redial      time.Duration // --upstream-lost redial: for how long a lost upstream is replaced; zero: it is not
	MessageLog  MessageLog
	Terms
	GraceUnconfirmed  time.Duration // at most so long is a session kept whose client has confirmed no hello
	Idle              time.Duration // max time without a data message; zero: no limit
	Heartbeat         time.Duration
	Answer            time.Duration // protocol section 5.4, answer_ms; zero: only the heartbeat detaches
	UpstreamHeartbeat time.Duration // between pings to a silent upstream; zero: none
	BufferBytes       int64
	BufferMessages    int
	MaxMessage        int64
}

// A Session is what outlives a connection: its upstream leg, the message counts of
// both directions, the replay buffer and the grace period.
//
// A gateway holds thousands of sessions, and the one that the next message belongs
// to is in no CPU cache. Each cache line it touches then costs more than the work
// itself, so the fields that every message needs lie side by side, from the end of
// Config on, in one allocation. BenchmarkManySessions measures the effect.
type Session struct {
	cfg Config

	state      State       // of the life cycle: see transitions.go
	starved    bool        // the store had no memory at the last read
	reserved   bool        // created before its client connected
	started    bool        // marked started by the game server: see grace.go
	pageLeft   bool        // its client said that its page is being left, and is gone
	takesSkips bool        // its client takes the verb `skip`,
	replacing  bool        // and newer messages may replace older ones: see newest.go
	att        *Attachment // while attached
	data       Time        // when the last data message passed
	trip       roundTrip   // of the client, kept across connections: protocol section 5.4
	renewAt    Time        // when the client must get a token with a later exp
	events     []Event
	stats      Stats

	// Downward, upstream to client: acked <= base <= sent <= numbered.
	acked   uint64 // newest message that the client acked
	sentN   uint64 // newest message known to be written, or skipped as lost,
	sentOff uint64 // and the stream offset up to which bytes were written
	ring    replay.Buffer
	large   uint64 // no message behind this offset has more than PartBytes
	scan    scanner
	states  *states // nil: no message could ever be replaced

	// Upward, client to upstream: ackSent <= written <= received, protocol section 5.2.
	up         *Upstream // the current one, or the last
	first      Upstream  // saves an allocation: most sessions have only this one
	q          upqueue
	writer     *Upstream // whose write of q is in flight; nil: none
	received   tally     // counted and queued: hello.received, protocol section 5.1
	written    tally     // written to the upstream whole
	ackSent    tally     // acked to the client
	charged    int       // bytes charged to the store for queued and unfinished client messages
	incoming   *incoming // a client message in parts; nil: none is unfinished
	pace       pacer
	keepalives *keepalives // nil: there was none yet
	outage     outage      // of the upstream
	durable    *durable    // nil: only this node can serve it

	// Only transitions.go writes these, state and att: the life cycle.
	epoch    uint64        // counts attaches
	outcome  *outcome      // nil: it has not ended
	detached Time          // since when no client is attached; zero: one is
	awaiting Time          // since when a client waits for a new upstream (hard); zero: none does
	paused   time.Duration // total pause of the grace timer since detached
	graceEnd Time          // while detached

	// Only admission.go writes this.
	faults *faults // nil: there is none

	// Attaches, and what happens between them, write these.
	created Time
	heard   Time // last sign of life on connections before att
	gen     generation.Line
	expires Time // exp of the newest token
}

// An outcome is what is kept of the end of a session.
type outcome struct {
	Ending
	closeFrames []byte // for a first client that attaches afterwards
}

// survivesDisconnect reports whether the session survives a disconnect of its client.
func (s *Session) survivesDisconnect() bool { return s.cfg.Resumable || s.cfg.PlainResume }

// A tally counts messages and the bytes of their payload.
type tally struct {
	n     uint64
	bytes uint64
}

// add counts one message.
func (t *tally) add(payload int64) {
	t.n++
	t.bytes += uint64(payload)
}

// New makes a session in state Connecting. Its upstream is connected; no client is
// attached yet. early holds the bytes that the upstream sent right after its
// handshake response, possibly in the same packet.
func New(cfg Config, now Time, early []byte) *Session {
	s := &Session{cfg: cfg, ring: *replay.New(cfg.Store), first: Upstream{heard: now}, created: now, data: now}
	s.up = &s.first
	if cfg.Durable {
		s.durable = &durable{owned: now.Add(ownedFor)}
	}
	s.startPacer(now)
	s.feed(now, early)
	return s
}

// feed processes the bytes that the upstream sent right after its handshake
// response. Room may be smaller than early, so it takes several rounds.
func (s *Session) feed(now Time, early []byte) {
	for len(early) > 0 && s.readsFrom(s.up) {
		room := s.ring.Room(false)
		if room == nil {
			s.loseUpstream(now, 0, "no memory for replay buffers")
			return
		}
		n := copy(room, early)
		s.up.read(s, now, room[:n])
		early = early[n:]
	}
}

// ParseOverflow parses a policy's name in flags.
func ParseOverflow(s string) (Overflow, bool) {
	for _, o := range []Overflow{Pause, DropOldest, EndSession} {
		if o.String() == s {
			return o, true
		}
	}
	return 0, false
}
