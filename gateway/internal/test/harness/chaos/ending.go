//go:build linux

package main

import (
	"fmt"
	"slices"
)

// An ending is how a session ends, and for the last ones also what else is special
// about it.
type ending int

// The endings.
const (
	byeAtRest     ending = iota // bye, after everything has arrived
	byeAtOnce                   // bye right after the last messages
	gameClose                   // the game server closes right after its last message
	gameKill                    // the game server's connection is reset
	legCut                      // the line to the game server breaks at a byte
	expiry                      // the client stays detached for longer than the grace period
	drained                     // SIGTERM
	plain                       // no reseat.v1, no disconnects, a Close after everything has arrived
	cookie                      // no reseat.v1 but --plain-resume cookie, and disconnects; then as plain
	hard                        // --disconnect hard; then as byeAtRest
	dropOldest                  // --overflow drop-oldest, detached for too long; then as byeAtRest
	overflowEnd                 // --overflow end, detached for too long
	durable                     // --durable on, in a cluster: its gateway may be lost; then as byeAtRest
	durableHard                 // the same with --disconnect hard
	countingGame                // the same with the counting game as the game server
	durableNewest               // durable, with states as newestFirst
	newestFirst                 // three of four messages are states, --newest; then as inParts
	inParts                     // one of eight messages is large, and goes in parts; then as byeAtRest
)

// small is how many messages a session with too small a buffer keeps.
const small = 30

// A rule is how an ending appears according to the protocol.
type rule struct {
	name   string
	letter byte   // the first part of the path: others than 's' have a route of their own
	route  string // its settings
	codes  []int  // for the client: of bye's Close, of end, of close
	after  []int  // alternatively, in answer to a resume that arrived too late for it
	game   []int  // for the game server
	reason string
	// Which messages must have arrived, or be reported lost: those that the game server sent, those that the client
	// sent, and those of the client's that were acked: a game server that is killed, or has sent its Close, reads no
	// more, and sessions with several connections are checked separately.
	down, up, acked bool
}

// Plain clients have a long heartbeat: on a busy machine their late answers would end
// their sessions.
var rules = []rule{
	byeAtRest:     {"bye, at rest", 's', "", bye, gone, bye, enough, true, true, true},
	byeAtOnce:     {"bye, at once", 's', "", bye, gone, bye, enough, false, true, true},
	gameClose:     {"closed by the game server", 's', "", []int{4321}, []int{4410}, []int{4321}, "match over", true, false, false},
	gameKill:      {"game server killed", 's', "", []int{4502}, gone, []int{-1}, "", false, false, false},
	legCut:        {"line to the game server cut", 's', "", []int{4502}, gone, []int{-1, 1002}, "", false, false, false},
	expiry:        {"grace period over", 'x', "grace=EXPIRY", nil, gone, []int{1001}, "grace period over", true, true, true},
	drained:       {"drained", 's', "", []int{4503}, nil, []int{1001}, "draining", false, false, true},
	plain:         {"plain client", 'p', "heartbeat=1m;answer-timeout=30s", []int{1000}, nil, []int{1000}, enough, true, true, true},
	cookie:        {"plain client with a cookie", 'c', "plain-resume=cookie", []int{1000}, nil, []int{1000}, enough, true, true, true},
	hard:          {"hard disconnects", 'h', "disconnect=hard", bye, gone, bye, enough, true, false, false},
	dropOldest:    {"overflow: drop-oldest", 'o', fmt.Sprint("overflow=drop-oldest;buffer-messages=", small), bye, gone, bye, enough, true, true, true},
	overflowEnd:   {"overflow: end", 'e', fmt.Sprint("overflow=end;buffer-messages=", small), nil, []int{4408}, []int{1013}, "replay buffer full", false, false, true},
	durable:       {"durable", 'd', "durable=on", bye, gone, bye, enough, true, false, false},
	durableHard:   {"durable, hard disconnects", 'k', "durable=on;disconnect=hard", bye, gone, bye, enough, true, false, false},
	newestFirst:   {"newest first", 'w', newest, bye, gone, bye, enough, true, true, true},
	inParts:       {"large messages in parts", 'l', "overflow=pause", bye, gone, bye, enough, true, true, true},
	durableNewest: {"durable, newest first", 'm', "durable=on;" + newest, bye, gone, bye, enough, true, false, false},
	countingGame:  {"counting game", 'n', "durable=on;disconnect=hard", bye, gone, bye, enough, true, true, true},
}

var bye, gone = []int{4000}, []int{4404}

const (
	enough = "played enough"
	newest = `newest=a=state1 ;newest=b=text:state2 ;newest=c=json:/state=3`
)

func (e ending) String() string { return rules[e].name }

// String is the name.
func (r rule) String() string { return fmt.Sprintf("%q", r.name) }

// endingOf returns the ending with a name, negative if there is none.
func endingOf(name string) ending {
	for e, r := range rules {
		if r.name == name {
			return ending(e)
		}
	}
	return -1
}

// redials reports whether a session may have several game server connections.
func (e ending) redials() bool { return e == hard || e.isDurable() }

// isDurable reports whether a session outlives its gateway.
func (e ending) isDurable() bool {
	return e == durable || e == durableHard || e == countingGame || e == durableNewest
}

// takesParts reports whether one of eight messages is large, and goes in parts.
func (e ending) takesParts() bool { return e == inParts || e.hasStates() }

// hasStates reports whether three of four messages are states.
func (e ending) hasStates() bool { return e == newestFirst || e == durableNewest }

// ofKind returns the ending of the sessions whose paths begin so; byeAtRest for all that have no route of their own.
func ofKind(kind byte) ending {
	return ending(slices.IndexFunc(rules, func(r rule) bool { return r.letter == kind }))
}

// isPlain reports whether the client does not speak reseat.v1.
func (e ending) isPlain() bool { return e == plain || e == cookie }
