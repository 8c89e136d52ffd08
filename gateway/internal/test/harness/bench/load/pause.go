//go:build linux

package load

import (
	"time"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/game"
)

// Pause stops sending at both ends, and waits until every message has arrived: as with
// Stop, one that has not arrived by then is missing. Resume goes on.
//
// What each client owes an ack for is acked, so that the gateway waits for nothing and
// has nothing to ask. The client forgets that again: after the pause it acks when it
// would have without one. Between the two it answers pings, when Serve is called.
func (c *Client) Pause(limit time.Duration) (game.Report, error) {
	c.running, c.paused = false, epoll.Now()
	r, err := c.Game.Pause()
	r, err = c.drain(r, err, limit)
	if err != nil {
		return r, err
	}
	c.park()
	return r, c.Serve()
}

// park acks everything.
func (c *Client) park() {
	for i := range c.sessions {
		if s := &c.sessions[i]; s.v1.owed > 0 {
			s.sayAck()
			s.flush()
		}
	}
}

// Resume goes on after Pause as if no time had passed.
func (c *Client) Resume() error {
	c.unpause(epoll.Now())
	if _, err := c.Game.Resume(); err != nil {
		return err
	}
	c.echo()
	return nil
}

// unpause ends the pause, and moves all that would have been due in it.
func (c *Client) unpause(now int64) {
	c.pace.Shift(now - c.paused)
	c.owing.shift(now - c.paused)
	c.running, c.paused = true, 0
}

// Serve handles what has arrived, without waiting.
func (c *Client) Serve() error { return c.sound(c.loop.Poll()) }

// shift moves the acks that are owed later by d nanoseconds.
func (o *owing) shift(d int64) {
	for i := o.head; i < len(o.list); i++ {
		debt := &o.list[i]
		if debt.s.v1.since == debt.since {
			debt.s.v1.since += d
		}
		debt.since += d
	}
}
