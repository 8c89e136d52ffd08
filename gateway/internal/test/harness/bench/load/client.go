//go:build linux

// Package load is the benchmark's clients: any number of sessions on one
// thread, plain ones or such as speak reseat.v1. It sends what its Setup says
// and checks every message that arrives.
package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/message"
	"reseat/gateway/internal/test/harness/bench/stat"
)

// A Setup says what the clients are.
type Setup struct {
	Target    netip.AddrPort
	Game      *game.Handle // at the other end
	Resumable bool         // they speak reseat.v1
	Sessions  int
	InFlight  int // handshakes at once
	Down, Up  message.Kind
	Every     time.Duration // between a session's messages; zero: none but what Echo sends
	Grain     time.Duration // messages that fall into one are sent together
	Echo      bool          // a message at the start, and one for each that comes
	Once      bool          // Echo: only the one at the start
	Storm     bool          // after one echo each session is closed
}

// A Client is all of them.
type Client struct {
	Setup

	// Latency is how long messages took, downward or for the echo, while
	// Measuring.
	Latency   stat.Hist
	Measuring bool
	Late      stat.Hist // how much later than planned they were sent, likewise
	Faults    message.Faults

	Received uint64 // data messages, ever
	Written  uint64 // likewise, repeated ones included
	made     uint64 // likewise, without

	Open     int       // sessions
	Finished int       // Storm: sessions
	CaughtUp int       // sessions that have had all that was to be replayed
	Resumes  stat.Hist // how long that took each, from the connect on
	todo     int       // the next session to connect
	flight   int       // handshakes under way
	sessions []session

	loop    *epoll.Loop
	pace    *epoll.Pace
	running bool
	now     int64  // when the present bytes were read
	out     []byte // what the present session is about to write
	random  *rand.PCG
	owing   owing
}

// ErrFaults is why a run was broken off: see Faults.
var ErrFaults = errors.New("messages or connections were lost or damaged")

// New makes the clients. They are not connected yet.
func New(s Setup) (*Client, error) {
	loop, err := epoll.New()
	if err != nil {
		return nil, err
	}
	c := &Client{Setup: s, loop: loop, random: rand.NewPCG(uint64(epoll.Now()), 0)}
	c.sessions = make([]session, s.Sessions)
	c.todo = len(c.sessions)
	for i := range c.sessions {
		c.sessions[i].init(c, uint32(i))
	}
	return c, nil
}

// Close ends all connections at once.
func (c *Client) Close() {
	for i := range c.sessions {
		if conn := c.sessions[i].conn; conn != nil {
			conn.Reset()
		}
	}
	c.loop.Close()
}

// Connect connects all sessions, or resumes those that were cut.
func (c *Client) Connect(limit time.Duration) error {
	c.todo = 0
	what := func() string { return fmt.Sprintf("%d of %d sessions connected", c.Open, c.Sessions) }
	return c.Until(what, limit, func() bool { return c.Open == c.Sessions })
}

// All connects every session once, and waits until each has gone again: Storm.
func (c *Client) All(limit time.Duration) error {
	c.todo = 0
	what := func() string { return fmt.Sprintf("%d of %d connections served", c.Finished, c.Sessions) }
	return c.Until(what, limit, func() bool { return c.Finished == c.Sessions })
}

// Start begins to send, here and at the game server.
func (c *Client) Start() error {
	c.running = true
	if c.Every > 0 {
		c.pace = epoll.NewPace(epoll.Now(), c.Every, c.Grain, c.Sessions, 0)
	}
	if c.Echo {
		for i := range c.sessions {
			c.sessions[i].make()
		}
	}
	_, err := c.Game.Begin()
	return err
}

// Stop ends sending at both ends, and waits until every message has arrived.
// What has not by then is missing.
func (c *Client) Stop(limit time.Duration) (game.Report, error) {
	c.running, c.pace = false, nil
	r, err := c.Game.End()
	for end := epoll.Now() + int64(limit); err == nil && !c.settled(r) && epoll.Now() < end; r, err = c.Game.Report() {
		if err := c.Run(5 * time.Millisecond); err != nil {
			return r, err
		}
	}
	if err == nil && !c.settled(r) {
		c.Faults.Gap++
		c.Faults.Say("down %d messages of %d arrived, up %d of %d", c.Received, r.Sent, r.Taken, c.made)
	}
	c.Faults.Add(r.Faults)
	if c.Faults.Any() {
		return r, ErrFaults
	}
	return r, err
}

func (c *Client) settled(r game.Report) bool {
	return r.Taken == c.made && r.Sent == c.Received || r.Faults.Any()
}

// Run serves the clients for a time.
func (c *Client) Run(d time.Duration) error {
	for end := epoll.Now() + int64(d); epoll.Now() < end; {
		if err := c.turn(end); err != nil {
			return err
		}
	}
	return nil
}

// Until serves the clients until done. After limit it is an error: what says how far it came.
func (c *Client) Until(what func() string, limit time.Duration, done func() bool) error {
	for end := epoll.Now() + int64(limit); !done(); {
		if err := c.turn(end); err != nil {
			return fmt.Errorf("%s: %w", what(), err)
		}
		if epoll.Now() >= end {
			return fmt.Errorf("%s in %v", what(), limit)
		}
	}
	return nil
}

// turn does what is due, and waits for one thing to happen, but not beyond end.
func (c *Client) turn(end int64) error {
	c.dialMore()
	now := epoll.Now()
	c.pace.Run(now, func(i int, due int64) {
		c.sessions[i].make()
		if c.Measuring {
			c.Late.Record(epoll.Now() - due)
		}
	})
	c.owing.settle(now)
	if next, ok := c.pace.Next(); ok {
		end = min(end, next)
	}
	if next, ok := c.owing.next(); ok {
		end = min(end, next)
	}
	if err := c.loop.Wait(end); err != nil {
		return err
	}
	if c.Faults.Any() {
		return ErrFaults
	}
	return nil
}

func (c *Client) dialMore() {
	for c.flight < c.InFlight && c.todo < len(c.sessions) {
		s := &c.sessions[c.todo]
		c.todo++
		if s.state == away {
			s.dial()
		}
	}
}

// Cut resets the connections of all sessions at once.
func (c *Client) Cut() {
	for i := range c.sessions {
		c.sessions[i].cut()
	}
	c.Open, c.CaughtUp = 0, 0
}

// key is a fresh masking key. That nobody can foresee it matters to a browser,
// not to a benchmark.
func (c *Client) key() [4]byte {
	n := uint32(c.random.Uint64())
	return [4]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
}
