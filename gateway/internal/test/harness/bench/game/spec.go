//go:build linux

// Package game is the benchmark's game server, the upstream of every proxy. It runs on
// one thread in a process of its own, so that its CPU time is counted separately. It
// sends what its Spec says and checks every message that arrives.
package game

import (
	"time"

	"reseat/gateway/internal/test/harness/bench/message"
)

// A Mode is how the server sends.
type Mode string

// The modes.
const (
	Tick Mode = "tick" // a message to each session periodically
	Echo Mode = "echo" // a message in answer to each
	Fire Mode = "fire" // messages as fast as they are accepted, 32 KiB per write
)

// Program is the first argument of a process that is to call Serve.
const Program = "serve-game"

// A Spec configures a server. Sessions are named by the path of their handshake, /s/0
// to /s/(Sessions-1), behind any prefix.
type Spec struct {
	Mode     Mode
	Sessions int
	Down, Up message.Kind
	Every    time.Duration // interval of a session's ticks, which are spread evenly over all sessions
	Grain    time.Duration // ticks within the same grain are sent together
	Limit    int           // total ticks per session; zero: no limit
	Idle     int           // sessions, the last ones, that get no ticks
}

// A Report is the state of the server.
type Report struct {
	Sent, Taken uint64 // data messages down and up, in total
	Faults      message.Faults
}

// A Command is a line on the server's standard input. The server answers each with a
// Report on a line of standard output.
type Command string

// The commands.
const (
	Start  Command = "start"  // start sending
	Stop   Command = "stop"   // stop sending, after finishing what was started
	Pause  Command = "pause"  // the same, until Resume
	Resume Command = "resume" // go on as if there had been no pause
	State  Command = "state"  // only report
)
