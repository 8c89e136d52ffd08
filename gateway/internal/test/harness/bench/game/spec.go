//go:build linux

// Package game is the benchmark's game server: what stands behind every proxy.
// It runs as a process of its own, so that its CPU time is counted apart, on one
// thread. It sends what its Spec says and checks every message that arrives.
package game

import (
	"time"

	"reseat/gateway/internal/test/harness/bench/message"
	"reseat/gateway/internal/test/harness/bench/stat"
)

// A Mode is what the server does with its sessions.
type Mode string

// The modes.
const (
	Quiet Mode = "quiet" // sends nothing
	Tick  Mode = "tick"  // a message to each session every so often
	Echo  Mode = "echo"  // a message for each that comes
	Fire  Mode = "fire"  // messages as fast as they are taken, 32 KiB a write
)

// A Spec says what a server is to do. Sessions are named by the path of their
// handshake, /s/0 to /s/(Sessions-1).
type Spec struct {
	Mode     Mode
	Sessions int
	Down, Up message.Kind
	Every    time.Duration // between a session's ticks, which are spread evenly over all sessions
	Grain    time.Duration // ticks that fall into one are sent together
	Limit    int           // ticks of each session in all; zero: no limit
}

// A Report is where the server stands.
type Report struct {
	Sent, Taken uint64         // data messages down and up, since the beginning
	CPU         time.Duration  // of the process, since its beginning
	Up          stat.Quantiles // how long messages upward took, since the last reset
	Late        stat.Quantiles // how much later than planned ticks were sent, likewise
	Faults      message.Faults
}

// A command is a line on the server's standard input. Each is answered by a
// Report on a line of the standard output.
type command string

const (
	cmdStart  command = "start"  // to send
	cmdStop   command = "stop"   // sending
	cmdReset  command = "reset"  // the latencies
	cmdReport command = "report" // nothing but that
)

// A greeting is the first line of the standard output.
type greeting struct{ Address string }
