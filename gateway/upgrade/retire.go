package upgrade

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"reseat/gateway/handover"
)

const (
	lateEvery = 20 * time.Millisecond // between two attempts to hand over what was busy
	// LateGrace limits ordinary requests in flight.
	LateGrace = 65 * time.Second
	// forceAfter is the time after which clients are disconnected that keep their session from being
	// handed over, since they do not read what is being written to them.
	forceAfter = 10 * time.Second
	// pumpSlack is added to --upgrade-pump in this process, so that the
	// successor can have the clients leave.
	pumpSlack = 2 * time.Second
	// lateSettle limits the wait of a late freeze for reads and writes in flight.
	lateSettle = 5 * time.Millisecond
)

// Retire finishes what could not be handed over at once, until it has, or until a signal that
// ends the process.
func (g *HandOver) Retire(signals <-chan os.Signal, ends func(os.Signal) bool) {
	u := g.u
	defer u.pump.close()
	if u.socket != nil {
		u.socket.Close()
	}
	u.Server.LeaveNode()
	quiet, requests := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(requests)
		var both sync.WaitGroup
		both.Go(func() { u.Server.FinishRequests(quiet) })
		both.Go(g.finishPosts)
		both.Wait()
	}()
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	force := time.NewTimer(forceAfter)
	defer force.Stop()
	for begun := quiet; ; {
		select {
		case <-g.gone:
			u.log.Info("upgrade.done", "text", "the new process has exited")
			return
		case <-force.C:
			u.Sessions.disconnectAll()
		case s := <-signals:
			if ends(s) {
				u.log.Info("upgrade.done", "signal", s.String())
				return
			}
		case <-begun:
			begun = nil
		case <-tick.C:
		}
		g.sendLate()
		sessions, visits := u.Sessions.Left()
		g.sendTombstones() // of sessions that have ended in this process
		if begun == nil && sessions+visits == 0 {
			g.ch.Send(handover.Done, nil) // the successor can have one by now
			g.finish(requests, signals, ends)
			return
		}
	}
}

// servingWait limits the wait of a process that could exit for its successor to serve.
const servingWait = 10 * time.Second

// finish forwards bytes until nobody needs it, or the time for it is over, and waits for the requests
// that are being served. It does not return before the successor serves: systemd would take the end
// of the main process for the end of the unit, and kill the successor, which has not said yet that it
// is the main one.
func (g *HandOver) finish(requests <-chan struct{}, signals <-chan os.Signal, ends func(os.Signal) bool) {
	u, serving := g.u, g.serving
	if clients, waiting := u.Sessions.Conns.Counts(); clients > waiting {
		u.log.Info("upgrade.finishing", "requests", clients-waiting, "time", LateGrace, "text", "this process exits when they have been answered")
	}
	if n := u.pump.count.Load(); n > 0 {
		u.log.Info("upgrade.pumping", "connections", n, "time", u.set.Pump, "text", "this process exits when none is left; see --upgrade-pump")
	}
	limit := time.NewTimer(u.set.Pump + pumpSlack)
	defer limit.Stop()
	patience := time.NewTimer(servingWait)
	defer patience.Stop()
	for done, passed := u.pump.done(), u.Sessions.Owner.Passed(); done != nil || passed != nil || requests != nil || serving != nil; {
		select {
		case <-done:
			done = nil
		case <-passed:
			passed = nil
		case <-requests:
			requests = nil
		case <-serving:
			serving = nil
		case <-patience.C:
			serving = nil
		case <-g.gone:
			u.log.Info("upgrade.done", "text", "the new process has exited")
			return
		case <-limit.C:
			if n := u.pump.count.Load(); n > 0 {
				u.log.Info("upgrade.pump_over", "connections_closed", n, "text", "--upgrade-pump is over")
			}
			u.pump.close()
			passed = nil // these are cut as well, and resume
		case s := <-signals:
			if ends(s) {
				u.log.Info("upgrade.done", "signal", s.String())
				return
			}
		}
	}
	u.log.Info("upgrade.done")
}

// sendLate hands over sessions that could not be frozen with the others.
func (g *HandOver) sendLate() {
	u := g.u
	if sessions, _ := u.Sessions.Left(); sessions == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pumps := new(pumpList)
	var list []FrozenSession // all are frozen before any is sent: the successor serves them at once
	frozen, err := u.Sessions.Freeze(ctx, g.format, lateSettle, func(s FrozenSession) error {
		err := pumps.describe(&s)
		list = append(list, s)
		return err
	})
	if err != nil {
		pumps.abandon()
		return
	}
	for part := range slices.Chunk(list, batchSessions) {
		if err == nil {
			body, fds := sessionsBody(part)
			err = g.ch.Send(handover.Sessions, fds, body...)
		}
	}
	if err != nil || len(list) == 0 {
		pumps.abandon()
		frozen.Thaw()
		return
	}
	frozen.Commit(&remote{u: u, ch: g.ch})
	pumps.start(u.pump)
}

// batchPosts limits the webhook events in a message.
const batchPosts = 500

// finishPosts finishes the posts in flight, and hands over what is queued. The events of a session
// stay in order, since the successor posts nothing meanwhile.
func (g *HandOver) finishPosts() {
	list := g.u.Server.FinishPosts(g.posts)
	if !g.posts {
		return
	}
	for part := range slices.Chunk(list, batchPosts) {
		g.ch.SendJSON(handover.Posts, nil, part)
	}
	g.ch.Send(handover.Posts, nil) // these were all
}
