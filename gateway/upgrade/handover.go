package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/handover"
	"reseat/gateway/listen"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
)

// adoptWait limits the wait for handover.Adopted.
const adoptWait = 500 * time.Millisecond

// listen receives what the successor says after the commit, until it has gone.
func (g *HandOver) listen() {
	defer close(g.gone)
	once := map[handover.Kind]chan struct{}{handover.Adopted: g.adopted, handover.Serving: g.serving}
	for {
		m, err := g.ch.Receive()
		if err != nil {
			return
		}
		m.Close()
		if c := once[m.Kind]; c != nil {
			close(c)
			delete(once, m.Kind)
		}
	}
}

func (g *HandOver) give() error {
	u := g.u
	g.step = "start"
	g.ch.SetDeadline(time.Now().Add(u.set.Timeout))
	var h hello
	if _, err := g.ch.ExpectJSON(handover.Hello, &h); err != nil {
		return explain(err, "the new process did not come up")
	}
	if g.format = commonFormat(h.Formats); g.format == 0 {
		return fmt.Errorf("the new process (%s) reads no format that this one writes: %v, want one of %v", h.Version, h.Formats, session.Formats)
	}
	u.mu.Lock()
	u.last.To = h.Version
	g.posts = h.Posts && u.set.Webhook
	u.mu.Unlock()
	u.log.Info("upgrade.begun", "from", u.set.Version, "to", h.Version, "pid", h.PID)
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
	g.step = "events"
	if err := g.sendEvents(); err != nil {
		return explainLoss(err)
	}
	return g.freeze()
}

// explainLoss is explain for a successor that has come up.
func explainLoss(err error) error { return explain(err, "the new process left") }

// explain says what a failure of the channel means, nil for none.
func explain(err error, what string) error {
	switch {
	case err == nil:
		return nil
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

func (g *HandOver) offer() error {
	s := g.u.Sessions
	o := offer{
		Version: g.u.set.Version, Format: g.format, PID: os.Getpid(), Sessions: s.Registry.Count(), BufferBytes: s.Store.Used(), Descriptors: s.descriptorsInUse(),
		Secret: s.Keys.Secret(), SigningKey: s.Keys.SigningKeyID(), Routes: s.RouteUpstreams(), Node: g.u.Server.Node(), Pump: g.u.set.Pump, Posts: g.posts,
	}
	o.Monotonic, o.Now = handover.Monotonic(), int64(s.Clock.Now())
	var fds []int
	for _, name := range []string{Clients, Admin, Nodes} {
		ln := g.u.Listeners[name]
		if ln == nil {
			continue
		}
		fd, err := rawconn.Descriptor(ln)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
		o.Listeners = append(o.Listeners, inheritedAddr{name, g.u.set.Listen[name]})
	}
	older := g.u.olderChannels()
	defer closeAll(older)
	o.Older = len(older)
	return g.ch.SendJSON(handover.Offer, append(fds, older...), o)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		handover.CloseFD(fd)
	}
}

// sendTombstones sends those that were not sent yet.
func (g *HandOver) sendTombstones() error {
	for {
		list, last := g.u.Sessions.Registry.Tombstones(g.tombstones, batchTombstones)
		if len(list) == 0 {
			return nil
		}
		var body [][]byte
		for _, t := range list {
			body = append(body, handover.AppendPart(nil, len(t)), t)
		}
		if err := g.ch.Send(handover.Tombstones, nil, body...); err != nil {
			return explainLoss(err)
		}
		g.tombstones = last
	}
}

// sendEvents sends the events so far: the successor decodes them before the freeze.
func (g *HandOver) sendEvents() error {
	recent := g.u.Sessions.RecentEvents(0)
	if n := len(recent.IDs); n > 0 {
		g.events = recent.IDs[n-1]
	}
	return g.ch.SendJSON(handover.Events, nil, recent)
}

// freeze hands everything over. If it fails, everything goes on as before.
func (g *HandOver) freeze() (err error) {
	u, s := g.u, g.u.Sessions
	g.step = "freeze"
	ctx, cancel := context.WithTimeout(g.ctx, freezeLimit)
	defer cancel()
	g.ch.SetDeadline(time.Now().Add(freezeLimit))
	if g.ctx.Err() != nil || s.Draining() { // an abort may have set the deadline just before
		return errors.New("the gateway is draining")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would run while nobody is served; this waits for one that runs
	began, monotonic := time.Now(), handover.Monotonic()
	for _, ln := range u.Listeners {
		ln.Pause()
	}
	pumps := new(pumpList)
	out := &outbox{g: g, pumps: pumps}
	frozen, err := s.Freeze(ctx, g.format, settleTime, out.add)
	if err != nil {
		pumps.abandon()
		u.resumeListeners()
		return err
	}
	conns := s.freezeConns()
	defer func() {
		if err != nil {
			pumps.abandon()
			for _, c := range conns {
				c.Thaw()
			}
			frozen.Thaw()
			u.resumeListeners()
		}
	}()
	u.log.Info("upgrade.frozen", "sessions", frozen.Count(), "time", time.Since(began))
	if err := out.flush(); err != nil {
		return err
	}
	g.step = "transfer"
	r := rest{Left: frozen.Busy, Pump: u.set.Pump, Older: u.forwardedFor(), Frozen: monotonic, Until: monotonic + freezeLimit}
	if err := g.transfer(conns, r); err != nil {
		return explainLoss(err)
	}
	g.step = "ready"
	if err := g.awaitReady(); err != nil {
		return explain(err, "the new process did not restore the sessions")
	}
	if err := g.commit(r.Until); err != nil {
		return err
	}
	go g.listen()
	select { // the successor needs the processors more
	case <-g.adopted:
	case <-g.gone:
	case <-time.After(adoptWait):
	}
	frozen.Commit(&remote{u: u, ch: g.ch})
	for _, c := range conns {
		c.HandedOver()
	}
	pumps.start(u.pump)
	took := time.Since(began)
	u.metrics.results.WithLabelValues(OK).Inc()
	u.log.Info("upgrade.committed", "sessions", frozen.Count(), "kept", len(frozen.Busy), "time", took)
	return nil
}

// commit has the successor go on with what is frozen. If it fails, this process does.
func (g *HandOver) commit(until time.Duration) error {
	g.step = "commit"
	if !g.hold() || g.u.Sessions.Draining() {
		return errors.New("the gateway is draining")
	}
	if handover.Monotonic() > until { // this process was stopped: the successor does not count on it any more
		return fmt.Errorf("the sessions stood still for more than %s", freezeLimit)
	}
	for _, e := range g.u.Sessions.Watch.Events.Held(maxLastEvents) { // before the successor publishes others
		if err := g.ch.SendJSON(handover.Event, nil, e); err != nil {
			return explainLoss(err)
		}
	}
	g.ch.SetDeadline(time.Time{}) // Commit is sent as a whole, or not at all
	return explainLoss(g.ch.Send(handover.Commit, nil))
}

// maxLastEvents bounds the events before Commit: the channel has room for them, and for Commit.
const maxLastEvents = 50

// transfer sends what is not a session.
func (g *HandOver) transfer(conns []frozenConn, r rest) error {
	if err := g.sendTombstones(); err != nil {
		return err
	}
	if err := sendConns(g.ch, conns); err != nil {
		return err
	}
	r.Gateway, r.Samples = g.u.Sessions.Rest(g.events), g.u.Recorder.Samples()
	return g.ch.SendJSON(handover.Rest, nil, r)
}

// An outbox sends frozen sessions in acknowledged batches, so that the successor restores
// some while others are being frozen.
type outbox struct {
	g     *HandOver
	pumps *pumpList
	batch []FrozenSession
	size  int // of the content, in bytes
}

func (o *outbox) add(s FrozenSession) error {
	if err := o.pumps.describe(&s); err != nil {
		return err
	}
	for _, c := range s.Content {
		o.size += len(c)
	}
	if o.batch = append(o.batch, s); len(o.batch) < batchSessions && o.size < batchBytes {
		return nil
	}
	return o.flush()
}

func (o *outbox) flush() error {
	if len(o.batch) == 0 {
		return nil
	}
	o.g.step = "transfer"
	body, fds := sessionsBody(o.batch)
	if err := o.g.ch.Send(handover.Sessions, fds, body...); err != nil {
		return explainLoss(err)
	}
	o.batch, o.size = o.batch[:0], 0
	if o.g.unacked++; o.g.unacked < batchWindow {
		return nil
	}
	o.g.unacked--
	_, err := o.g.ch.Expect(handover.Ack)
	return explainLoss(err)
}

func (g *HandOver) awaitReady() error {
	for ; g.unacked > 0; g.unacked-- {
		if _, err := g.ch.Expect(handover.Ack); err != nil {
			return err
		}
	}
	_, err := g.ch.Expect(handover.Ready)
	return err
}

// A frozenConn is a connection without a complete request, of a listener.
type frozenConn struct {
	listener string
	listen.FrozenConn
}

func (u *Sessions) freezeConns() (list []frozenConn) {
	for name, tracker := range map[string]*listen.ConnTracker{Clients: u.Conns, Admin: u.AdminConns} {
		for _, c := range tracker.Freeze() {
			list = append(list, frozenConn{name, c})
		}
	}
	return list
}

func sendConns(ch *handover.Conn, list []frozenConn) error {
	for part := range slices.Chunk(list, batchSessions) {
		var body []lateConn
		var fds []int
		for _, c := range part {
			body, fds = append(body, lateConn{c.listener, LateConn{Request: c.Request}}), append(fds, c.FD)
		}
		if err := ch.SendJSON(handover.Conns, fds, body); err != nil {
			return err
		}
	}
	return nil
}

func (u *Upgrader) resumeListeners() {
	for _, ln := range u.Listeners {
		ln.Resume()
	}
}

// A remote is the successor at the other end of the channel.
type remote struct {
	u  *Upgrader
	ch *handover.Conn
}

// Conn implements Successor.
func (r *remote) Conn(c LateConn) {
	pumps := new(pumpList)
	end := transport.End{Conn: c.Conn}
	err := pumps.descriptor(&end)
	if err == nil {
		c.Peer = c.Conn.RemoteAddr().String()
		err = r.ch.SendJSON(handover.Conns, []int{end.FD}, []lateConn{{Clients, c}})
	}
	if err == nil && len(pumps.list) > 0 {
		pumps.start(r.u.pump)
		return
	}
	pumps.abandon()
	c.Conn.Close()
	if err != nil {
		r.u.log.Warn("upgrade.connection_lost", "peer", c.Conn.RemoteAddr().String(), "err", err)
	}
}

// Event implements Successor.
func (r *remote) Event(e events.Event) { r.ch.SendJSON(handover.Event, nil, e) }
