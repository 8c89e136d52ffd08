package session

import (
	"time"

	"reseat/tokens/generation"
)

// Events are the only way in which a session reports what happens. Tests and the simulation
// check that each transition emits exactly one, so that counters and logs agree.

// A Kind is the kind of an Event.
type Kind uint8

// The events of a session. Each transition emits exactly one.
const (
	Created          Kind = iota // first attach, or reserved for a client that has not connected yet
	Resumed                      // attached again, was detached
	Superseded                   // attached again while attached: the older connection was superseded
	Disconnected                 // detached: the session has no client connection
	SessionEnded                 // ended, with a Reason; no event but Replayed follows
	Replayed                     // the last message that a resume had to replay was written
	Overflowed                   // the replay buffer overflowed while detached
	Pong                         // the client answered a ping: Took is the round trip
	Renew                        // the client needs a token with a later exp: call SendToken
	Started                      // the game server marked the session started
	UpstreamLost                 // the upstream's connection ended and must be replaced: dial, then Reconnect or FailRedial
	UpstreamBack                 // it is replaced
	Confirmed                    // a client has confirmed a generation of a durable session
	AskOwner                     // may this node act for a durable session? Call Owned or Fence
	Left                         // the upstream of a session that is handed off will send nothing more: Freeze it
	Stays                        // the session is not handed off: its game server has ended it
	StatesNoticed                // what waited for a client mostly looks like states; Detail: a value of --newest for them
	KeepaliveNoticed             // the client sends Keepalive at a steady pace
	KeepaliveSent                // one was sent while the client is detached; Own: the client's own
	UpstreamClosed               // the game server has closed the connection of a detached session, which ends once its client knows
	Message                      // a data message was numbered or received; only where Config.MessageLog is on
)

// An Event is one thing that happened to a session. Logs, metrics, webhooks and the
// event stream are made from events.
type Event struct {
	Kind    Kind
	Epoch   uint64
	Reason  string        // Disconnected, SessionEnded, Overflowed, UpstreamLost, UpstreamClosed: why
	Detail  string        // SessionEnded: details for people; StatesNoticed
	Elapsed time.Duration // Resumed, SessionEnded: time detached; UpstreamBack: time without an upstream; UpstreamLost, UpstreamClosed: time detached; Replayed: since the handshake arrived; Pong: round trip
	Silent  time.Duration // Disconnected, SessionEnded of an attached session, UpstreamClosed, UpstreamLost of a detached one: since the client's last sign of life
	Outage  time.Duration // Resumed, Superseded: since the last sign of life on an older connection
	Replay  uint64        // Resumed, Superseded: messages to replay
	Lost    uint64        // Resumed, Superseded: messages dropped by --overflow
	Skipped uint64        // Resumed, Superseded: messages that newer ones have replaced
	Peer    string        // Created, Resumed, Superseded, Disconnected: the client's address
	OldPeer string        // Superseded: the older client's address
	Moved   string        // Resumed, Superseded: as in hello.moved
	Own     bool          // KeepaliveSent
	// KeepaliveNoticed; UpstreamClosed, and UpstreamLost of a detached session: what was noticed of the client, and is
	// not sent.
	Keepalive Keepalive
	Info      *Info // SessionEnded: a snapshot, taken when Events returned the event

	// Of Message.
	Down, Text bool   // direction and type
	Size       int64  // bytes of payload
	Head       string // the beginning of the payload
}

// emit queues an event until Events is called: observers must never run inside a
// transition, where they would see half of it.
func (s *Session) emit(e Event) {
	e.Epoch = s.epoch
	s.events = append(s.events, e)
}

// Events returns what has happened since the last call, in order.
func (s *Session) Events() []Event {
	if len(s.events) == 0 {
		return nil
	}
	e := s.events
	s.events = nil
	for i := range e {
		if e[i].Kind == SessionEnded {
			info := s.Info()
			e[i].Info = &info
		}
	}
	return e
}

// Stats counts over the whole life of a session.
type Stats struct {
	ToClient, ToUpstream           uint64 // data messages, each counted once
	ToClientBytes, ToUpstreamBytes uint64 // their payload
	Replayed                       uint64 // messages sent again, or for the first time after a resume
	Dropped                        uint64 // messages dropped by --overflow drop-oldest
	Skipped                        uint64 // messages that newer ones have replaced
}

// Info is a snapshot of a session for the control API.
type Info struct {
	State    State
	Started  bool
	Terms    Terms
	Grace    time.Duration // the one in effect: before or after the start
	Epoch    uint64
	Ending   Ending
	Created  Time
	Detached Time // since when; zero: attached
	GraceEnd Time // when the session ends; zero: not detached

	Received, Written uint64 // client messages: received, written to the upstream
	Sent, Acked       uint64 // upstream messages: numbered, acked by the client
	BufferMessages    int
	BufferBytes       int64
	Memory            int64         // held for both directions, incomplete messages included
	Unread            Time          // since when the oldest of it waits for the peer; zero: none does
	RTT               time.Duration // smoothed, over all connections; zero: unknown
	Heard             Time          // the client's last sign of life; zero: none yet
	Keepalive         Keepalive     // what the client sends at a steady pace; Every is zero: nothing
	States            string        // as StatesNoticed said last; "": nothing
	Stats             Stats
	Tokens            generation.Line
}

// Info returns a snapshot of the session.
func (s *Session) Info() Info {
	i := Info{
		State: s.state, Started: s.started, Terms: s.cfg.Terms, Grace: s.keep(), Epoch: s.epoch, Created: s.created, Detached: s.detached,
		Received: s.received.n, Written: s.written.n,
		Sent: s.ring.Last().N, Acked: s.acked,
		BufferMessages: s.ring.Messages(), BufferBytes: s.ring.Bytes(), Stats: s.stats, Tokens: s.gen,
		RTT: s.trip.smoothed, Heard: s.heard, Keepalive: s.noticed(),
	}
	if s.states != nil {
		i.States = s.states.noticed
	}
	if s.outcome != nil {
		i.Ending = s.outcome.Ending
	}
	if s.state == Detached {
		i.GraceEnd = s.graceEnd
	}
	if s.att != nil {
		i.Heard = s.att.heard
	}
	i.Memory, i.Unread = s.ring.Memory()+int64(s.charged), s.unreadSince()
	if s.states != nil {
		i.Memory += int64(s.states.size)
	}
	return i
}

// incompleteWait lets an incomplete message of the upstream wait for memory longer than an unread one.
const incompleteWait = 5 * time.Second

// unreadSince returns since when the oldest bytes that the session holds wait: for the
// client, for the rest of their message, or for the upstream. Zero: it holds none.
func (s *Session) unreadSince() Time {
	t := Time(s.ring.Since())
	switch messages := s.ring.Messages(); {
	case t == 0 && messages > 0: // a predecessor read them
		t = max(s.detached, s.created)
	case t > 0 && messages == 0: // the client can take nothing of a message whose rest may wait for memory
		t = t.Add(incompleteWait)
	}
	if s.att != nil {
		t = earlier(t, s.att.in.began)
	}
	if s.q.charge > 0 {
		t = earlier(t, max(s.up.took, s.created))
	}
	if s.incoming != nil {
		t = earlier(t, s.incoming.began)
	}
	return t
}

// An Observer receives the events of a session. A driver calls its methods one at a
// time for each session and holds no lock meanwhile. They must not block for long.
type Observer interface {
	// Events reports what has happened, in order.
	Events([]Event)
	// Panicked reports a bug in the session's code, which has ended the session.
	Panicked(value any, stack []byte)
	// Closed reports that the session has ended and both its connections are closed. It
	// is the last call.
	Closed()
}
