//go:build linux

package main

import "fmt"

// An ending is how a session ends, and for the last ones also what else is special
// about it.
type ending int

// The endings.
const (
	byeAtRest   ending = iota // bye, after everything has arrived
	byeAtOnce                 // bye right after the last messages
	gameClose                 // the game server closes right after its last message
	gameKill                  // the game server's connection is reset
	legCut                    // the line to the game server breaks at a byte
	expiry                    // the client stays detached for longer than the grace period
	drained                   // SIGTERM
	plain                     // no reseat.v1, no disconnects, a Close after everything has arrived
	cookie                    // no reseat.v1 but --plain-resume cookie, and disconnects; then as plain
	hard                      // --disconnect hard; then as byeAtRest
	dropOldest                // --overflow drop-oldest, detached for too long; then as byeAtRest
	overflowEnd               // --overflow end, detached for too long
	durable                   // --durable on, in a cluster: its gateway may be lost; then as byeAtRest
	durableHard               // the same with --disconnect hard
	endings
)

var endingNames = [endings]string{"bye, at rest", "bye, at once", "closed by the game server", "game server killed",
	"line to the game server cut", "grace period over", "drained", "plain client", "plain client with a cookie",
	"hard disconnects", "overflow: drop-oldest", "overflow: end", "durable", "durable, hard disconnects"}

func (e ending) String() string { return endingNames[e] }

// completeDown reports whether every message that the game server sent must arrive, or
// be reported lost.
func (e ending) completeDown() bool {
	return e != gameKill && e != legCut && e != drained && e != byeAtOnce && e != overflowEnd
}

// completeUp reports the same for the client's.
func (e ending) completeUp() bool {
	return e == byeAtRest || e == byeAtOnce || e == expiry || e == plain || e == cookie || e == dropOldest
}

// reads reports whether the game server reads everything to the end. A killed one
// doesn't, and one that has sent its Close reads no more messages; hard sessions are
// checked separately.
func (e ending) reads() bool { return e != gameKill && e != legCut && e != gameClose && !e.redials() }

// redials reports whether a session may have several game server connections.
func (e ending) redials() bool { return e == hard || e.isDurable() }

// isDurable reports whether a session outlives its gateway.
func (e ending) isDurable() bool { return e == durable || e == durableHard }

// isPlain reports whether the client does not speak reseat.v1.
func (e ending) isPlain() bool { return e == plain || e == cookie }

// small is how many messages a session with too small a buffer keeps.
const small = 30

// A special is an ending whose sessions have their own route.
type special struct {
	letter byte // the first part of their path
	route  string
}

// Plain clients have a long heartbeat: on a busy machine their late answers would end
// their sessions.
var specials = map[ending]special{
	plain:       {'p', "heartbeat=1m;answer-timeout=30s"},
	cookie:      {'c', "plain-resume=cookie"},
	hard:        {'h', "disconnect=hard"},
	dropOldest:  {'o', fmt.Sprint("overflow=drop-oldest;buffer-messages=", small)},
	overflowEnd: {'e', fmt.Sprint("overflow=end;buffer-messages=", small)},
	durable:     {'d', "durable=on"},
	durableHard: {'k', "durable=on;disconnect=hard"},
}

// letter returns the first part of the session's path.
func (e ending) letter() byte {
	if s, ok := specials[e]; ok {
		return s.letter
	}
	return 's'
}

// An end is how an ending appears according to the protocol.
type end struct {
	codes  []int // for the client: of bye's Close, of end, of close
	after  []int // alternatively, in answer to a resume that arrived too late for it
	game   []int // for the game server
	reason string
}

var ends = map[ending]end{
	byeAtRest:   {codes: []int{4000}, after: []int{4404}, game: []int{4000}, reason: "played enough"},
	byeAtOnce:   {codes: []int{4000}, after: []int{4404}, game: []int{4000}, reason: "played enough"},
	gameClose:   {codes: []int{4321}, after: []int{4410}, game: []int{4321}, reason: "match over"},
	gameKill:    {codes: []int{4502}, after: []int{4404}, game: []int{-1}},
	legCut:      {codes: []int{4502}, after: []int{4404}, game: []int{-1, 1002}},
	expiry:      {after: []int{4404}, game: []int{1001}, reason: "grace period over"},
	drained:     {codes: []int{4503}, game: []int{1001}, reason: "draining"},
	plain:       {codes: []int{1000}, game: []int{1000}, reason: "played enough"},
	cookie:      {codes: []int{1000}, game: []int{1000}, reason: "played enough"},
	hard:        {codes: []int{4000}, after: []int{4404}, game: []int{4000}, reason: "played enough"},
	dropOldest:  {codes: []int{4000}, after: []int{4404}, game: []int{4000}, reason: "played enough"},
	durable:     {codes: []int{4000}, after: []int{4404}, game: []int{4000}, reason: "played enough"},
	durableHard: {codes: []int{4000}, after: []int{4404}, game: []int{4000}, reason: "played enough"},
	overflowEnd: {after: []int{4408}, game: []int{1013}, reason: "replay buffer full"},
}
