package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"reseat/gateway"
	"reseat/gateway/config"
	"reseat/gateway/handover"
	"reseat/gateway/listen"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
)

// A giving is one upgrade, on the predecessor's side.
type giving struct {
	u      *upgrader
	ch     *handover.Conn
	ctx    context.Context
	step   string // for the log, if it fails
	format int
	unacked,
	tombstones uint64
}

func (g *giving) give() error {
	u := g.u
	g.step = "start"
	g.ch.SetDeadline(time.Now().Add(u.timeout))
	var h hello
	if _, err := g.ch.ExpectJSON(handover.Hello, &h); err != nil {
		return explain(err, "the new process did not come up")
	}
	if g.format = commonFormat(h.Formats); g.format == 0 {
		return fmt.Errorf("the new process (%s) reads no format that this one writes: %v, want one of %v", h.Version, h.Formats, session.Formats)
	}
	u.mu.Lock()
	u.last.To = h.Version
	u.mu.Unlock()
	u.log.Info("upgrade.begun", "from", config.Version(), "to", h.Version, "pid", h.PID)
	g.step = "offer"
	if err := g.offer(); err != nil {
		return err
	}
	if _, err := g.ch.Expect(handover.Accept); err != nil {
		return explain(err, "the new process did not accept")
	}
	g.step = "tombstones"
	if err := g.sendTombstones(); err != nil {
		return err
	}
	return g.freeze()
}

// explain says what a failure of the channel means.
func explain(err error, what string) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: it has exited", what)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: timeout", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// commonFormat is the newest format that both sides know, 0 if there is none.
func commonFormat(theirs []int) int {
	for _, f := range session.Formats {
		if slices.Contains(theirs, f) {
			return f
		}
	}
	return 0
}

func (g *giving) offer() error {
	p := g.u.p
	o := offer{
		Version: config.Version(), Format: g.format, PID: os.Getpid(), Sessions: p.gateway.Living(), BufferBytes: p.gateway.BufferBytes(), Descriptors: p.gateway.DescriptorsInUse(),
		Secret: p.keys.Secret(), SigningKey: p.keys.SigningKeyID(), Routes: p.gateway.RouteUpstreams(), Pump: g.u.pump,
	}
	o.Monotonic, o.Now = handover.Monotonic(), int64(p.gateway.Clock().Now())
	var fds []int
	for _, name := range []string{clientsListener, adminListener} {
		ln := p.listeners[name]
		if ln == nil {
			continue
		}
		fd, err := rawconn.Descriptor(ln)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
		o.Listeners = append(o.Listeners, inheritedAddr{name, g.u.listen[name]})
	}
	g.u.mu.Lock()
	older := slices.Clone(g.u.older)
	g.u.mu.Unlock()
	for _, ch := range older {
		fd, err := ch.Descriptor()
		if err != nil {
			continue // it has ended
		}
		fds = append(fds, fd)
		o.Older++
	}
	return g.ch.SendJSON(handover.Offer, fds, o)
}

// sendTombstones sends those that were not sent yet.
func (g *giving) sendTombstones() error {
	for {
		list, last := g.u.p.gateway.Tombstones(g.tombstones, batchTombstones)
		if len(list) == 0 {
			return nil
		}
		var body [][]byte
		for _, t := range list {
			body = append(body, handover.AppendPart(nil, len(t)), t)
		}
		if err := g.ch.Send(handover.Tombstones, nil, body...); err != nil {
			return explain(err, "the new process left")
		}
		g.tombstones = last
	}
}

// freeze hands everything over. If it fails, everything goes on as before.
func (g *giving) freeze() (err error) {
	p, u := g.u.p, g.u
	g.step = "freeze"
	ctx, cancel := context.WithTimeout(g.ctx, freezeLimit)
	defer cancel()
	g.ch.SetDeadline(time.Now().Add(freezeLimit))
	if g.ctx.Err() != nil || p.gateway.Draining() { // an abort may have set the deadline just before
		return errors.New("the gateway is draining")
	}
	began, monotonic := time.Now(), handover.Monotonic()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nobody is served meanwhile
	for _, ln := range p.listeners {
		ln.Pause()
	}
	frozen, err := p.gateway.Freeze(ctx, g.format, settleTime)
	if err != nil {
		p.resumeListeners()
		return err
	}
	conns := p.freezeConns()
	pumps := new(pumpList)
	defer func() {
		if err != nil {
			pumps.abandon()
			conns.thaw()
			frozen.Thaw()
			p.resumeListeners()
		}
	}()
	if err := g.encode(frozen, pumps); err != nil {
		return err
	}
	u.log.Info("upgrade.frozen", "sessions", len(frozen.Sessions), "time", time.Since(began))
	g.step = "transfer"
	if err := g.transfer(frozen, conns); err != nil {
		return explain(err, "the new process left")
	}
	g.step = "ready"
	if err := g.awaitReady(); err != nil {
		return explain(err, "the new process could not take over")
	}
	g.step = "commit"
	if g.ctx.Err() != nil || p.gateway.Draining() {
		return errors.New("the gateway is draining")
	}
	if err := g.ch.SendJSON(handover.Commit, nil, commit{Left: frozen.Busy, Pump: u.pump, Older: u.forwardedFor(), Frozen: monotonic}); err != nil {
		return explain(err, "the new process left")
	}
	frozen.Commit(&heir{u: u, ch: g.ch})
	conns.moved()
	pumps.start(p.pump)
	took := time.Since(began)
	u.metrics.results.WithLabelValues(upgradeOK).Inc()
	u.log.Info("upgrade.committed", "sessions", len(frozen.Sessions), "kept", len(frozen.Busy), "time", took)
	return nil
}

// encode completes what is sent of each session.
func (g *giving) encode(frozen *gateway.Frozen, pumps *pumpList) error {
	frozen.Encode()
	for i := range frozen.Sessions {
		s := &frozen.Sessions[i]
		for _, end := range []*transport.End{&s.Up, &s.Down} {
			if err := pumps.descriptor(end); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *giving) transfer(frozen *gateway.Frozen, conns frozenConns) error {
	if err := g.sendTombstones(); err != nil {
		return err
	}
	if err := g.sendSessions(frozen.Sessions); err != nil {
		return err
	}
	if err := conns.send(g.ch); err != nil {
		return err
	}
	p := g.u.p
	b, err := json.Marshal(rest{Gateway: p.gateway.Rest(), Samples: p.recorder.Samples(), Upgrades: g.u.metrics.counts()})
	if err != nil {
		return err
	}
	return g.ch.Send(handover.Rest, nil, b)
}

// sendSessions sends sessions in acknowledged batches.
func (g *giving) sendSessions(list []gateway.FrozenSession) error {
	for len(list) > 0 {
		n, size := 0, 0
		for n < len(list) && n < batchSessions && size < batchBytes {
			for _, c := range list[n].Content {
				size += len(c)
			}
			n++
		}
		body, fds := sessionsBody(list[:n])
		if err := g.ch.Send(handover.Sessions, fds, body...); err != nil {
			return err
		}
		list = list[n:]
		if g.unacked++; g.unacked < batchWindow {
			continue
		}
		if _, err := g.ch.Expect(handover.Ack); err != nil {
			return err
		}
		g.unacked--
	}
	return nil
}

func (g *giving) awaitReady() error {
	for ; g.unacked > 0; g.unacked-- {
		if _, err := g.ch.Expect(handover.Ack); err != nil {
			return err
		}
	}
	_, err := g.ch.Expect(handover.Ready)
	return err
}

// frozenConns are connections without a complete request, by listener.
type frozenConns map[string][]listen.FrozenConn

func (p *process) freezeConns() frozenConns {
	return frozenConns{clientsListener: p.gateway.Conns().Freeze(), adminListener: p.gateway.AdminConns().Freeze()}
}

func (f frozenConns) each(do func(listen.FrozenConn)) {
	for _, list := range f {
		for _, c := range list {
			do(c)
		}
	}
}

func (f frozenConns) thaw()  { f.each(func(c listen.FrozenConn) { c.Thaw() }) }
func (f frozenConns) moved() { f.each(func(c listen.FrozenConn) { c.Moved() }) }

func (f frozenConns) send(ch *handover.Conn) error {
	for name, list := range f {
		for part := range slices.Chunk(list, batchSessions) {
			var body []lateConn
			var fds []int
			for _, c := range part {
				body, fds = append(body, lateConn{Listener: name, Request: c.Request}), append(fds, c.FD)
			}
			if err := ch.SendJSON(handover.Conns, fds, body); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *process) resumeListeners() {
	for _, ln := range p.listeners {
		ln.Resume()
	}
}
