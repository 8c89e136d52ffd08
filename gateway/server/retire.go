package server

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/handover"
	"reseat/gateway/transport"
	"reseat/gateway/upgrade"
)

// An heir is the successor, as the gateway sees it.
type heir struct {
	u  *upgrader
	ch *handover.Conn
}

// Conn implements upgrade.Successor.
func (h *heir) Conn(c upgrade.LateConn) {
	pumps := new(pumpList)
	end := transport.End{Conn: c.Conn}
	err := pumps.descriptor(&end)
	if err == nil {
		err = h.ch.SendJSON(handover.Conns, []int{end.FD}, []lateConn{{
			Listener: clientsListener, Request: c.Request, Early: c.Early, Answered: c.Answered, Secure: c.Secure, Peer: c.Conn.RemoteAddr().String(),
		}})
	}
	if err == nil && len(pumps.list) > 0 {
		pumps.start(h.u.p.pump)
		return
	}
	pumps.abandon()
	c.Conn.Close()
	if err != nil {
		h.u.log.Warn("upgrade.connection_lost", "peer", c.Conn.RemoteAddr().String(), "err", err)
	}
}

// Event implements upgrade.Successor.
func (h *heir) Event(e events.Event) { h.ch.SendJSON(handover.Event, nil, e) }

const (
	lateEvery = 20 * time.Millisecond // between two attempts to hand over what was busy
	lateGrace = 65 * time.Second      // for ordinary requests in flight
	// forceAfter is when clients are disconnected that keep their session from moving, since they
	// do not read what is being written to them.
	forceAfter = 10 * time.Second
	// pumpSlack is how much longer than --upgrade-pump this process forwards, so that the
	// successor can have the clients leave.
	pumpSlack = 2 * time.Second
	// lateSettle is how long a late freeze waits for reads and writes in flight.
	lateSettle = 5 * time.Millisecond
)

// retire finishes what the successor could not take over, and returns the exit status.
func (p *process) retire(g *giving, signals <-chan os.Signal) int {
	ch := g.ch
	p.closeUpgradeSocket()
	if p.node != nil {
		p.node.elsewhere.Store(true)
		p.node.Stop()
		p.node.links.Leave()
	}
	quiet, requests := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(requests)
		p.finishRequests(g, quiet)
	}()
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	force := time.NewTimer(forceAfter)
	defer force.Stop()
	for begun := quiet; ; {
		select {
		case <-g.gone:
			p.log.Info("upgrade.done", "text", "the new process has exited")
			return p.exit()
		case <-force.C:
			p.gateway.DisconnectAll()
		case s := <-signals:
			if !ignoredWhileRetiring(s) {
				p.log.Info("upgrade.done", "signal", s.String())
				return p.exit()
			}
		case <-begun:
			begun = nil
		case <-tick.C:
		}
		g.sendLate()
		sessions, visits := p.gateway.Upgrade().Left()
		g.sendTombstones() // of sessions that have ended in this process
		if begun == nil && sessions+visits == 0 {
			ch.Send(handover.Done, nil) // the successor can have one by now
			return p.finish(g, requests, signals)
		}
	}
}

// servingWait is how long a process waits for its successor to serve before it exits.
const servingWait = 10 * time.Second

// finish forwards bytes until nobody needs it, or the time for it is over, waits for the requests
// that are being served, and returns the exit status. It does not return before the successor
// serves: systemd would take the end of the main process for the end of the unit, and kill the
// successor, which has not said yet that it is the main one.
func (p *process) finish(g *giving, requests <-chan struct{}, signals <-chan os.Signal) int {
	serving := g.serving
	if clients, waiting := p.gateway.Conns().Counts(); clients > waiting {
		p.log.Info("upgrade.finishing", "requests", clients-waiting, "time", lateGrace, "text", "this process exits when they have been answered")
	}
	if n := p.pump.count.Load(); n > 0 {
		p.log.Info("upgrade.pumping", "connections", n, "time", p.upgrader.pump, "text", "this process exits when none is left; see --upgrade-pump")
	}
	limit := time.NewTimer(p.upgrader.pump + pumpSlack)
	defer limit.Stop()
	patience := time.NewTimer(servingWait)
	defer patience.Stop()
	for done, passed := p.pump.done(), p.gateway.Owner().Passed(); done != nil || passed != nil || requests != nil || serving != nil; {
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
			p.log.Info("upgrade.done", "text", "the new process has exited")
			return p.exit()
		case <-limit.C:
			if n := p.pump.count.Load(); n > 0 {
				p.log.Info("upgrade.pump_over", "connections_closed", n, "text", "--upgrade-pump is over")
			}
			p.pump.close()
			passed = nil // these are cut as well, and resume
		case s := <-signals:
			if !ignoredWhileRetiring(s) {
				p.log.Info("upgrade.done", "signal", s.String())
				return p.exit()
			}
		}
	}
	p.log.Info("upgrade.done")
	return p.exit()
}

// sendLate hands over sessions that could not be frozen with the others.
func (g *giving) sendLate() {
	p := g.u.p
	if sessions, _ := p.gateway.Upgrade().Left(); sessions == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pumps := new(pumpList)
	var list []upgrade.FrozenSession // all are frozen before any is sent: the successor serves them at once
	frozen, err := p.gateway.Upgrade().Freeze(ctx, g.format, lateSettle, func(s upgrade.FrozenSession) error {
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
	frozen.Commit(&heir{u: g.u, ch: g.ch})
	pumps.start(p.pump)
}

// finishRequests waits for requests in flight, and closes connections as they become idle.
// It closes quiet as soon as none can come to this process any more, but from a connection that
// had one under way: those go on until they are answered.
func (p *process) finishRequests(g *giving, quiet chan<- struct{}) {
	p.gateway.Watch().Events.Close() // event streams end, their readers come again
	ctx, cancel := context.WithTimeout(context.Background(), lateGrace)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { p.admin.Shutdown(ctx) })
	both.Go(func() {
		p.clients.SetKeepAlivesEnabled(false) // closes idle connections
		p.finishHandshakes(ctx)
		close(quiet)
		p.clients.Shutdown(ctx)
	})
	both.Go(func() { p.finishPosts(g) })
	both.Wait()
}

// batchPosts is how many webhook events go into a message.
const batchPosts = 500

// finishPosts finishes the posts in flight, and hands over what is queued. The events of a session
// stay in order, since the successor posts nothing meanwhile.
func (p *process) finishPosts(g *giving) {
	if !g.posts {
		p.closeHook()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), hookEnd)
	defer cancel()
	list := p.hook.HandOver(ctx)
	for part := range slices.Chunk(list, batchPosts) {
		g.ch.SendJSON(handover.Posts, nil, part)
	}
	g.ch.Send(handover.Posts, nil) // these were all
	p.hook = nil
}

// finishHandshakes waits for TLS handshakes in flight, which closing the listener would cancel.
func (p *process) finishHandshakes(ctx context.Context) {
	if p.certs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	for {
		if _, waiting := p.gateway.Conns().Counts(); waiting == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// exit releases what is left.
func (p *process) exit() int {
	p.pump.close()
	p.close()
	return 0
}
