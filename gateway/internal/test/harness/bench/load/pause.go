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
// What each client owes an ack for remains owed: it acks as much later as the pause was
// long. If everything was acked at a pause, the gateway would give up its replay buffers,
// and allocate all of them again after it. Between the two the clients answer pings, when
// Serve is called; the gateway must be patient (proxy.Place, Patient).
func (c *Client) Pause(limit time.Duration) (game.Report, error) {
	c.running, c.paused = false, epoll.Now()
	r, err := c.Game.Order(game.Pause)
	r, err = c.drain(r, err, limit)
	if err != nil {
		return r, err
	}
	return r, c.Serve()
}

// Resume goes on after Pause as if no time had passed.
func (c *Client) Resume() error {
	c.unpause(epoll.Now())
	if _, err := c.Game.Order(game.Resume); err != nil {
		return err
	}
	c.echo()
	return nil
}

// unpause ends the pause, and moves all that would have been due in it.
func (c *Client) unpause(now int64) {
	c.pace.Shift(now - c.paused)
	c.owing.shift(now - c.paused)
	c.running, c.paused, c.called = true, 0, now
}

// Serve handles what has arrived in a pause, without waiting.
func (c *Client) Serve() error {
	if c.paused == 0 {
		return nil
	}
	return c.sound(c.loop.Poll())
}

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
