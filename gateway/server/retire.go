package server

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/handover"
	"reseat/gateway/transport"
)

// An heir is the successor, as the gateway sees it.
type heir struct {
	u  *upgrader
	ch *handover.Conn
}

// Conn implements gateway.Successor.
func (h *heir) Conn(c gateway.LateConn) {
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

// Event implements gateway.Successor.
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
	}
	requests := make(chan struct{})
	go func() {
		defer close(requests)
		p.finishRequests()
	}()
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	force := time.NewTimer(forceAfter)
	defer force.Stop()
	for finished := requests; ; {
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
		case <-finished:
			finished = nil
		case <-tick.C:
		}
		g.sendLate()
		if sessions, visits := p.gateway.Left(); finished == nil && sessions+visits == 0 {
			ch.Send(handover.Done, nil)
			return p.finishPumps(g, signals)
		}
	}
}

// servingWait is how long a process waits for its successor to serve before it exits.
const servingWait = 10 * time.Second

// finishPumps forwards bytes until nobody needs it, or the time for it is over, and returns
// the exit status. It does not return before the successor serves: systemd would take the
// end of the main process for the end of the unit, and kill the successor, which has not
// said yet that it is the main one.
func (p *process) finishPumps(g *giving, signals <-chan os.Signal) int {
	serving := g.serving
	if n := p.pump.count.Load(); n > 0 {
		p.log.Info("upgrade.pumping", "connections", n, "time", p.upgrader.pump, "text", "this process exits when none is left; see --upgrade-pump")
	}
	limit := time.NewTimer(p.upgrader.pump + pumpSlack)
	defer limit.Stop()
	patience := time.NewTimer(servingWait)
	defer patience.Stop()
	for done, passed := p.pump.done(), p.gateway.Passed(); done != nil || passed != nil || serving != nil; {
		select {
		case <-done:
			done = nil
		case <-passed:
			passed = nil
		case <-serving:
			serving = nil
		case <-patience.C:
			serving = nil
		case <-g.gone:
			p.log.Info("upgrade.done", "text", "the new process has exited")
			return p.exit()
		case <-limit.C:
			p.log.Info("upgrade.done", "connections_closed", p.pump.count.Load(), "text", "--upgrade-pump is over")
			return p.exit()
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
	if sessions, _ := p.gateway.Left(); sessions == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pumps := new(pumpList)
	var list []gateway.FrozenSession // all are frozen before any is sent: the successor serves them at once
	frozen, err := p.gateway.Freeze(ctx, g.format, lateSettle, func(s gateway.FrozenSession) error {
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
func (p *process) finishRequests() {
	p.gateway.Events().Close() // event streams end, their readers come again
	ctx, cancel := context.WithTimeout(context.Background(), lateGrace)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { p.admin.Shutdown(ctx) })
	both.Go(func() {
		p.finishHandshakes(ctx)
		p.clients.Shutdown(ctx)
	})
	both.Go(p.closeHook)
	both.Wait()
}

// finishHandshakes waits for TLS handshakes in flight, which closing the listener would cancel.
func (p *process) finishHandshakes(ctx context.Context) {
	if p.certs == nil {
		return
	}
	p.clients.SetKeepAlivesEnabled(false) // closes idle connections
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
