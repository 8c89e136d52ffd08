//go:build linux

// Package load implements the benchmark's clients: any number of sessions on one
// thread, plain ones or with reseat.v1. It sends what its Setup says and checks every
// message that arrives.
package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/frames"
	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/message"
	"reseat/gateway/internal/test/harness/bench/stat"
)

// A Setup configures the clients.
type Setup struct {
	Targets   []netip.AddrPort // sessions begin at each in turn
	Game      *game.Handle     // at the other end
	Resumable bool             // they speak reseat.v1
	Sessions  int
	InFlight  int // handshakes at once
	Down, Up  message.Kind
	Every     time.Duration // interval of a session's messages; zero: none but what Echo sends
	Grain     time.Duration // messages within the same grain are sent together
	Echo      bool          // a message at the start, and one in answer to each
	Once      bool          // Echo: only the one at the start
	Storm     bool          // after one echo each session is closed
	First     int           // the id of the first session
	Prefix    string        // of the paths of handshakes
	Deflate   bool          // permessage-deflate is offered, and must be negotiated
}

// A Client is all clients together.
type Client struct {
	Setup

	// Latency is how long messages took, downward or for the echo, while Measuring.
	Latency   stat.Hist
	Measuring bool
	Faults    message.Faults

	Bytes    int64  // received, with frames' headers
	Received uint64 // data messages, in total
	Written  uint64 // likewise, including resent ones
	made     uint64 // likewise, without resent ones

	Open     int       // sessions
	Finished int       // Storm: sessions
	CaughtUp int       // sessions that have received their whole replay
	Resumes  stat.Hist // how long that took each, including the connect
	todo     int       // the next session to connect
	flight   int       // handshakes in flight
	sessions []session

	loop    *epoll.Loop
	pace    *epoll.Pace
	running bool
	paused  int64  // since when nothing is sent; zero: not paused
	now     int64  // when the current bytes were read
	out     []byte // what the current session is about to write
	plain   []byte // a message, before it is masked
	random  *rand.PCG
	deflate *frames.Deflater
	owing   owing

	// Meanwhile is called now and then while the clients are being served; nil: nothing is.
	Meanwhile func() error
	called    int64
}

// meanwhileEvery is how long others may have to wait: less than a gateway waits for an
// answer, and more than a slice takes.
const meanwhileEvery = int64(time.Second)

// ErrFaults is the reason for stopping a run: see Faults.
var ErrFaults = errors.New("messages or connections were lost or damaged")

// New makes the clients, without connecting them.
func New(s Setup) (*Client, error) {
	loop, err := epoll.New()
	if err != nil {
		return nil, err
	}
	c := &Client{Setup: s, loop: loop, random: rand.NewPCG(uint64(epoll.Now()), 0), deflate: frames.NewDeflater()}
	c.sessions = make([]session, s.Sessions)
	c.todo = len(c.sessions)
	for i := range c.sessions {
		c.sessions[i].init(c, uint32(s.First+i))
	}
	return c, nil
}

// Close closes all connections.
func (c *Client) Close() {
	for i := range c.sessions {
		if conn := c.sessions[i].conn; conn != nil {
			conn.Reset()
		}
	}
	c.loop.Close()
}

// Connect connects all sessions, or resumes the disconnected ones.
func (c *Client) Connect(limit time.Duration) error {
	c.todo = 0
	what := func() string { return fmt.Sprintf("%d of %d sessions connected", c.Open, c.Sessions) }
	return c.Until(what, limit, func() bool { return c.Open == c.Sessions })
}

// Back resumes all sessions, and waits until each has received what it missed.
func (c *Client) Back(limit time.Duration) error {
	if err := c.Connect(limit); err != nil {
		return err
	}
	what := func() string { return fmt.Sprintf("%d of %d sessions replayed", c.CaughtUp, c.Sessions) }
	return c.Until(what, limit, func() bool { return c.CaughtUp == c.Sessions })
}

// All connects every session once, and waits until each has disconnected: Storm.
func (c *Client) All(limit time.Duration) error {
	c.todo = 0
	what := func() string { return fmt.Sprintf("%d of %d connections served", c.Finished, c.Sessions) }
	return c.Until(what, limit, func() bool { return c.Finished == c.Sessions })
}

// Start starts sending, here and at the game server.
func (c *Client) Start() error {
	c.running = true
	if c.Every > 0 {
		c.pace = epoll.NewPace(epoll.Now(), c.Every, c.Grain, c.Sessions, 0)
	}
	c.echo()
	_, err := c.Game.Order(game.Start)
	return err
}

// echo makes each session's first message, for Echo.
func (c *Client) echo() {
	if !c.Echo {
		return
	}
	for i := range c.sessions {
		c.sessions[i].make()
	}
}

// Stop stops sending at both ends, and waits until every message has arrived. Messages
// that have not arrived by then count as missing.
func (c *Client) Stop(limit time.Duration) (game.Report, error) {
	c.running, c.pace = false, nil
	r, err := c.Game.Order(game.Stop)
	return c.drain(r, err, limit)
}

// drain waits until every message has arrived; r is the game server's state.
func (c *Client) drain(r game.Report, err error, limit time.Duration) (game.Report, error) {
	for end := epoll.Now() + int64(limit); err == nil && !c.settled(r) && epoll.Now() < end; r, err = c.Game.Order(game.State) {
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

// Until serves the clients until done returns true. After limit it returns an error:
// what describes the progress.
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

// turn does what is due, and waits for one event, at most until end.
func (c *Client) turn(end int64) error {
	c.dialMore()
	now := epoll.Now()
	if c.Meanwhile != nil && now-c.called > meanwhileEvery {
		c.called = now
		if err := c.Meanwhile(); err != nil {
			return err
		}
	}
	if c.paused > 0 {
		return c.wait(end)
	}
	c.pace.Run(now, func(i int, _ int64) { c.sessions[i].make() })
	c.owing.settle(now)
	if next, ok := c.pace.Next(); ok {
		end = min(end, next)
	}
	if next, ok := c.owing.next(); ok {
		end = min(end, next)
	}
	return c.wait(end)
}

// wait waits for one event, at most until end, and handles it.
func (c *Client) wait(end int64) error { return c.sound(c.loop.Wait(end)) }

// sound returns err, or that there was a fault.
func (c *Client) sound(err error) error {
	if err == nil && c.Faults.Any() {
		return ErrFaults
	}
	return err
}

// target is where a session's next connection goes.
func (c *Client) target(id uint32) netip.AddrPort { return c.Targets[int(id)%len(c.Targets)] }

// addressOf returns the address that a session connects from. A gateway leaves a part of its descriptors to
// other addresses than the one with the most sessions: see registry.
func addressOf(id uint32) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + id%250)}) }

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

// key returns a new masking key. It must be unpredictable in a browser, not in a
// benchmark.
func (c *Client) key() [4]byte {
	n := uint32(c.random.Uint64())
	return [4]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
}
