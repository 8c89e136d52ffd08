// Package session is the session core: what a player's session is, and what
// becomes of every byte of its two legs. It does no I/O, starts no goroutine,
// takes no lock and reads no clock: a driver calls it, one call at a time, with
// bytes and the time, and writes what it hands out.
//
// A Session outlives its connections. An Attachment is one client connection's
// tenure with a session; whatever arrives for one that has been replaced
// changes nothing.
package session

import (
	"time"

	"reseat/gateway/replay"
	"reseat/tokens/generation"
)

// A Time is a moment on the driver's monotonic clock, in nanoseconds from a
// beginning of its own. Zero means never.
type Time int64

// Add moves t by d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub is the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Overflow says what the first message that does not fit into the replay
// buffer does while the session is detached. Attached, it is always Pause.
type Overflow uint8

// The policies of --overflow.
const (
	Pause      Overflow = iota // nothing more of the upstream is read
	DropOldest                 // as few of the oldest messages as must go, go
	EndSession                 // the session ends with 4408
)

// String is the policy's name in flags.
func (o Overflow) String() string {
	return [...]string{"pause", "drop-oldest", "end"}[o]
}

// Fixed limits of the protocol and of the gateway.
const (
	UnackedMessages = 1024    // limits.unacked_messages
	UnackedBytes    = 1 << 20 // limits.unacked_bytes

	maxControl     = 4 << 10  // a control message may be this large whatever --max-message says
	ackMessages    = 32       // an ack goes at the latest after so many messages,
	ackBytes       = 64 << 10 // so many bytes,
	ackWanted      = 500 * time.Millisecond
	ackLatest      = 900 * time.Millisecond // and a second after the oldest, its way included
	overdueAck     = 60 * time.Second
	stalledMessage = 30 * time.Second
	deadlockWait   = 30 * time.Second // see deadlockedAt
	maxWrite       = 256 << 10        // bytes of one client write
	answerWait     = time.Second      // for the client's answer to our Close
	starvedRetry   = 250 * time.Millisecond
	takeoverLimit  = 20
	takeoverSpan   = 10 * time.Second
	futileLimit    = 5
	futileSpan     = 10 * time.Second
)

// Config is what a session is made with. The driver's owner fills all of it.
// What every message asks for comes last: see Session.
type Config struct {
	ID       string
	Protocol string // the application's, as the upstream chose it
	Words    Words
	// Replies and Beats are heartbeats of the game's own.
	Replies []Reply
	Beats   []Beat
	Store   *replay.Store

	// Key makes an unpredictable masking key for each frame to the upstream.
	Key  func() [4]byte
	Rate Rate

	Resumable bool
	Kept      bool // a plain client that may come back with a cookie, protocol section 9
	Hard      bool // --disconnect hard: while detached there is no upstream
	Tell      Telling
	Terms
	Idle              time.Duration // ends a session in which nothing is said for so long; zero: off
	Heartbeat         time.Duration
	Answer            time.Duration // an unanswered client is dead after so long; zero: only by the heartbeat
	UpstreamHeartbeat time.Duration // zero: none
	BufferBytes       int64
	BufferMessages    int
	MaxMessage        int64
}

// A Session is what outlives a connection: its upstream leg, the counts of both
// directions, the replay buffer and the grace period.
//
// Of thousands of sessions the next message's is in no cache, so that each line
// of it costs more than what is done with it. What every message needs lies side
// by side, from the end of the Config on, and in the same piece of memory:
// BenchmarkManySessions shows what that is worth.
type Session struct {
	cfg Config

	state    State       // of the life cycle, below
	starved  bool        // the store was spent at the last look
	reserved bool        // made ahead of its client
	started  bool        // by the game server: grace.go
	att      *Attachment // while attached
	data     Time        // when the last data message passed
	trip     roundTrip   // of the client, over all its connections
	renewAt  Time        // a token with a later exp is due then
	events   []Event
	stats    Stats

	// Downward, upstream to client: acked <= base <= sent <= numbered.
	acked   uint64 // newest message acked by the client
	sentN   uint64 // newest message known to be written or told as lost,
	sentOff uint64 // and the offset up to which bytes were written
	ring    replay.Buffer
	scan    scanner

	// Upward, client to upstream: told <= written <= admitted.
	up       *Upstream // the present one, or the last
	first    Upstream  // most sessions have no other
	q        upqueue
	writer   *Upstream // whose write of q is under way; nil: nobody's
	received tally
	written  tally
	ackSent  tally
	charged  int // to the store, for what is held of the client's messages
	pace     pacer
	beats    []Time // when each of the Beats is due, while detached

	// The life cycle. Only transitions.go writes this, state and att.
	epoch       uint64 // counts attaches
	ending      Ending // once ended
	closeFrames []byte // what a first client is told that comes after the end
	created     Time
	heard       Time          // the last sign of life on an older connection than att's
	detached    Time          // since when no client is attached; zero while one is
	awaiting    Time          // since when one waits for the upstream, hard; zero: none does
	paused      time.Duration // of the grace timer, since detached
	graceEnd    Time          // while detached
	gen         generation.Line
	expires     Time // the newest token's exp
	takeovers   []Time
	futile      futility
}

// kept reports whether the session outlives a drop.
func (s *Session) kept() bool { return s.cfg.Resumable || s.cfg.Kept }

// A tally is a number of messages and their payload.
type tally struct {
	n     uint64
	bytes uint64
}

func (t *tally) add(payload int64) {
	t.n++
	t.bytes += uint64(payload)
}

// New makes a session whose upstream is connected and which no client is
// attached to yet. early is what the upstream sent right behind its answer.
func New(cfg Config, now Time, early []byte) *Session {
	s := &Session{cfg: cfg, ring: *replay.New(cfg.Store), first: Upstream{heard: now}, created: now, data: now}
	s.up = &s.first
	s.startPacer(now)
	s.feed(now, early)
	return s
}

// feed takes in what the upstream sent right behind its answer.
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

// ParseOverflow reads a policy's name.
func ParseOverflow(s string) (Overflow, bool) {
	for _, o := range []Overflow{Pause, DropOldest, EndSession} {
		if o.String() == s {
			return o, true
		}
	}
	return 0, false
}
