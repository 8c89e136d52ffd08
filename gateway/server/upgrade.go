package server

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/upgrade"
	"reseat/gateway/webhook"
)

// This file implements upgrade.Server: what an upgrade asks of a process.

// Refusal implements upgrade.Server.
func (p *process) Refusal() error {
	if p.show != nil {
		return errors.New("the game server of --demo is a part of this process, and would end with it")
	}
	return nil
}

// Node implements upgrade.Server.
func (p *process) Node() (n upgrade.Node) {
	if p.node != nil {
		n = upgrade.Node{NodeID: p.node.ID(), NodeLineage: p.node.Lineage(), Nodes: p.node.Known()}
	}
	return n
}

// Serve implements upgrade.Server.
func (p *process) Serve() {
	if p.node != nil {
		p.node.elsewhere.Store(false)
	}
	p.listenAll()
}

// Inject implements upgrade.Server.
func (p *process) Inject(listener string, c net.Conn) {
	q := p.handed[listener]
	if q == nil {
		c.Close()
		return
	}
	q.Put(c)
}

// ContinuePosts implements upgrade.Server.
func (p *process) ContinuePosts(list []webhook.Queued) {
	if p.hook != nil {
		p.hook.Continue(list)
	}
}

// retire has h finish what could not be handed over at once, and returns the exit status.
func (p *process) retire(h *upgrade.HandOver, signals <-chan os.Signal) int {
	h.Retire(signals, func(s os.Signal) bool { return s != syscall.SIGHUP && s != upgradeSignal })
	p.close()
	return 0
}

// LeaveNode implements upgrade.Server.
func (p *process) LeaveNode() {
	if p.node != nil {
		p.node.elsewhere.Store(true)
		p.node.Stop()
		p.node.links.Leave()
	}
}

// FinishRequests implements upgrade.Server.
func (p *process) FinishRequests(quiet chan<- struct{}) {
	p.gateway.Watch().Events.Close() // event streams end, their readers come again
	ctx, cancel := context.WithTimeout(context.Background(), upgrade.LateGrace)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { p.admin.Shutdown(ctx) })
	both.Go(func() {
		p.clients.SetKeepAlivesEnabled(false) // closes idle connections
		p.finishHandshakes(ctx)
		close(quiet)
		p.clients.Shutdown(ctx)
	})
	both.Wait()
}

// handshakePoll is the interval at which finishHandshakes counts.
const handshakePoll = 20 * time.Millisecond

// finishHandshakes waits for TLS handshakes in flight: their requests come to this process.
func (p *process) finishHandshakes(ctx context.Context) {
	if p.certs == nil {
		return
	}
	p.certs.Stop() // the successor orders them now
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	tick := time.NewTicker(handshakePoll)
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
