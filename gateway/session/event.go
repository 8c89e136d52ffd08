package session

import (
	"time"

	"reseat/tokens/generation"
)

// A Kind names what happened to a session.
type Kind uint8

// The events of a session. Each transition is exactly one.
const (
	Created    Kind = iota // the first attach
	Resumed                // attached again, from detached
	Superseded             // attached again, from attached: the older connection lost
	Dropped                // detached: no connection is attached any more
	Over                   // ended, with a Reason; the last event but Replayed
	Replayed               // the last message that a resume had to replay was written
	Overflowed             // the replay buffer overflowed while detached
	Pong                   // the client answered a ping: Took is the round trip
	Renew                  // a token with a later exp is due: call SendToken
	Started                // marked started by the game server
	Message                // a data message was numbered or admitted; only where Config.Tell is on
)

// An Event is one thing that happened to a session, for logs, metrics and
// other observers.
type Event struct {
	Kind   Kind
	Epoch  uint64
	Reason string        // why, for Dropped, Over and Overflowed
	Detail string        // Over: more of it, in words
	Took   time.Duration // Resumed, Over: time detached; Replayed: since the handshake came; Pong: round trip
	Silent time.Duration // Dropped, and Over where a client was attached: since its last sign of life
	Away   time.Duration // Resumed, Superseded: since the last sign of life on an older connection
	Replay uint64        // Resumed, Superseded: messages to replay
	Lost   uint64        // Resumed, Superseded: messages dropped
	Peer   string        // Created, Resumed, Superseded, Dropped: the client's address
	Was    string        // Superseded: the older client's
	Info   *Info         // Over: the session as it was when the event was handed over

	// Message.
	Down, Text bool
	Size       int64
	Head       string // the beginning of its payload
}

func (s *Session) emit(e Event) {
	e.Epoch = s.epoch
	s.events = append(s.events, e)
}

// Events hands over what has happened since the last call.
func (s *Session) Events() []Event {
	if len(s.events) == 0 {
		return nil
	}
	e := s.events
	s.events = nil
	for i := range e {
		if e[i].Kind == Over {
			info := s.Info()
			e[i].Info = &info
		}
	}
	return e
}

// Stats are counts over a session's whole life.
type Stats struct {
	ToClient, ToUpstream           uint64 // data messages, each once
	ToClientBytes, ToUpstreamBytes uint64 // their payload
	Replayed                       uint64 // messages sent to a client a second time or late
	Dropped                        uint64 // messages lost to --overflow
}

// Info is a session as the control API shows it.
type Info struct {
	State    State
	Started  bool
	Terms    Terms
	Grace    time.Duration // that holds now
	Epoch    uint64
	Ending   Ending
	Created  Time
	Detached Time // since when; zero while attached
	GraceEnd Time // until when it is kept; zero while it is not detached

	Received, Written uint64 // of the client's messages: admitted, written upstream
	Sent, Acked       uint64 // of the upstream's messages: numbered, acked
	BufferMessages    int
	BufferBytes       int64
	RTT               time.Duration // smoothed, over all connections; zero: not measured
	Heard             Time          // the client's last sign of life; zero: none yet
	Stats             Stats
	Tokens            generation.Line
}

// Info describes the session as it is now.
func (s *Session) Info() Info {
	i := Info{
		State: s.state, Started: s.started, Terms: s.cfg.Terms, Grace: s.keep(), Epoch: s.epoch, Ending: s.ending, Created: s.created, Detached: s.detached,
		Received: s.received.n, Written: s.written.n,
		Sent: s.ring.Last().N, Acked: s.acked,
		BufferMessages: s.ring.Messages(), BufferBytes: s.ring.Bytes(), Stats: s.stats, Tokens: s.gen,
		RTT: s.trip.smoothed, Heard: s.heard,
	}
	if s.state == Detached {
		i.GraceEnd = s.graceEnd
	}
	if s.att != nil {
		i.Heard = s.att.heard
	}
	return i
}

// An Observer observes a session. A driver calls its methods one at a time for each
// session, never with a lock held. They must not block for long.
type Observer interface {
	// Events reports what has happened, in order.
	Events([]Event)
	// Panicked reports a fault in the session's code, which has ended it.
	Panicked(value any, stack []byte)
	// Closed reports that the session has ended and both its legs are closed. It is the
	// last call.
	Closed()
}
