package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"reseat/gateway"
	"reseat/gateway/admin"
	"reseat/gateway/config"
	"reseat/gateway/events"
	"reseat/gateway/handover"
	"reseat/gateway/listen"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// An upgrader hands the sessions of this process over to a successor. It runs one upgrade
// at a time.
type upgrader struct {
	p       *process
	log     *slog.Logger
	metrics *upgradeMetrics
	listen  map[string]string // settings of the listeners, by name

	// For a process that SIGUSR2 starts.
	binary  string
	socket  string // --upgrade-socket
	args    []string
	environ []string
	stderr  io.Writer
	timeout time.Duration
	pump    time.Duration

	mu      sync.Mutex
	running bool
	cancel  context.CancelFunc // of the upgrade that runs
	ended   chan struct{}      // closed when that has ended
	last    admin.Upgrade
	older   []*handover.Conn // to processes that forward bytes for this one
	settled bool             // the predecessor has handed everything over
	// forwardedUntil is when older processes stop forwarding for this one; zero: they do
	// not.
	forwardedUntil time.Time

	moved chan *handover.Conn // to serve: a successor has taken over
}

func newUpgrader(p *process, set *config.Settings) *upgrader {
	return &upgrader{
		p: p, log: p.log, metrics: newUpgradeMetrics(p.vitals.registry), listen: map[string]string{clientsListener: set.Listen, adminListener: set.Admin},
		binary: ownBinary(), timeout: set.UpgradeTimeout, pump: set.UpgradePump, socket: set.UpgradeSocket, moved: make(chan *handover.Conn, 1),
	}
}

// ownBinary is the path that this process was started by: an upgrade starts what is there
// then, which may be another file, also where the path is a symbolic link.
func ownBinary() string {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		path, _ = os.Executable()
	}
	return path
}

// openUpgradeSocket listens for a successor, where the settings or systemd say so.
func (p *process) openUpgradeSocket(replace bool) (err error) {
	u := p.upgrader
	path := u.socket
	if path == "" {
		for _, e := range u.environ {
			if dirs, ok := strings.CutPrefix(e, "RUNTIME_DIRECTORY="); ok && dirs != "" {
				dir, _, _ := strings.Cut(dirs, ":")
				path = filepath.Join(dir, "upgrade.sock")
			}
		}
	}
	if path == "" {
		return nil
	}
	if p.upgradeSocket, err = handover.Listen(path, replace); err != nil {
		return err
	}
	go u.accept(p.upgradeSocket)
	return nil
}

func (p *process) closeUpgradeSocket() {
	if p.upgradeSocket != nil {
		p.upgradeSocket.Close()
		p.upgradeSocket = nil
	}
}

func ignoredWhileRetiring(s os.Signal) bool { return s == syscall.SIGHUP || s == upgradeSignal }

// errBusy refuses an upgrade because another one is under way.
var errBusy = errors.New("another upgrade is under way")

// onSignal upgrades to a new process of the same program, as SIGUSR2 asks.
func (u *upgrader) onSignal() {
	if err := u.refusal(); err != nil {
		u.refuse(err)
		return
	}
	ch, far, err := handover.Pair()
	if err != nil {
		u.refuse(err)
		return
	}
	child := exec.Command(u.binary, u.args...)
	child.Env = append(slices.Clone(u.environ), upgradeEnv+"=3")
	child.ExtraFiles = []*os.File{far}
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if f, ok := u.stderr.(*os.File); ok {
		child.Stderr = f
	}
	err = child.Start()
	far.Close()
	if err != nil {
		ch.Close()
		u.refuse(err)
		return
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		child.Wait()
	}()
	if u.run(ch) {
		return
	}
	select { // it has been told to exit
	case <-exited:
	case <-time.After(exitTime):
		child.Process.Kill()
	}
}

// exitTime is how long a process may take to exit after an upgrade was aborted.
const exitTime = 5 * time.Second

// refusal says why there can be no upgrade now, nil if there can.
func (u *upgrader) refusal() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.running, !u.settled:
		return errBusy
	case os.Getpid() == 1:
		return errors.New("this process is PID 1: the container would end with it; start the new process beside it with --takeover, in a container that shares the volume of --upgrade-socket")
	case u.p.show != nil:
		return errors.New("the game server of --demo is a part of this process, and would end with it")
	case u.p.gateway.Draining():
		return errors.New("the gateway is draining")
	case len(u.older) >= maxOlder:
		return fmt.Errorf("%d older processes still forward connections; see --upgrade-pump", len(u.older))
	}
	return nil
}

func (u *upgrader) refuse(err error) {
	u.metrics.results.WithLabelValues(upgradeRefused).Inc()
	u.log.Warn("upgrade.refused", "err", err)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.running {
		u.last = admin.Upgrade{State: upgradeRefused, From: config.Version(), Error: err.Error()}
	}
}

// accept serves the upgrade socket, until it is closed.
func (u *upgrader) accept(ln *handover.Listener) {
	for {
		ch, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			if err := u.refusal(); err != nil {
				u.refuse(err)
				ch.SendAbort(err)
				ch.Close()
				return
			}
			u.run(ch)
		}()
	}
}

// run runs one upgrade over ch. It reports whether the successor has everything; otherwise
// this process continues as before.
func (u *upgrader) run(ch *handover.Conn) (ok bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	u.mu.Lock()
	if u.running {
		u.mu.Unlock()
		u.refuse(errBusy)
		ch.SendAbort(errBusy)
		ch.Close()
		return false
	}
	u.running, u.cancel, u.ended = true, cancel, make(chan struct{})
	defer close(u.ended)
	u.last = admin.Upgrade{State: upgradeRunning, From: config.Version()}
	u.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { ch.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	g := &giving{u: u, ch: ch, ctx: ctx}
	err := g.give()
	u.mu.Lock()
	u.running = false
	u.mu.Unlock()
	if err == nil {
		ch.SetDeadline(time.Time{})
		u.moved <- ch
		return true
	}
	var abort *handover.AbortError
	if !errors.As(err, &abort) {
		ch.SetDeadline(time.Now().Add(time.Second))
		ch.SendAbort(err)
	}
	ch.Close()
	u.metrics.results.WithLabelValues(upgradeAborted).Inc()
	u.log.Error("upgrade.aborted", "step", g.step, "err", err, "text", "this process continues; players have not noticed")
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last.State, u.last.Error = upgradeAborted, g.step+": "+err.Error()
	return false
}

// forwardedFor is how long older processes go on forwarding for this one.
func (u *upgrader) forwardedFor() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.forwardedUntil.IsZero() {
		return 0
	}
	return max(time.Until(u.forwardedUntil), 0)
}

// abort aborts the upgrade that runs, if there is one, and waits for its end. It returns the
// channel to the successor if it came too late.
func (u *upgrader) abort() *handover.Conn {
	u.mu.Lock()
	ended := u.ended
	if ended != nil {
		u.cancel()
	}
	u.mu.Unlock()
	if ended != nil {
		<-ended
	}
	select {
	case ch := <-u.moved:
		return ch
	default:
		return nil
	}
}

// status describes the last upgrade.
func (u *upgrader) status() admin.Upgrade {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last.State == "" {
		return admin.Upgrade{State: upgradeNone}
	}
	return u.last
}

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
		fd, err := ln.Descriptor()
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

// An heir is the successor, as the gateway sees it.
type heir struct {
	u  *upgrader
	ch *handover.Conn
}

// Conn implements gateway.Successor.
func (h *heir) Conn(c gateway.LateConn) {
	pumps := new(pumpList)
	fd, err := listen.DescriptorOf(c.Conn)
	if err != nil {
		end := transport.End{Conn: c.Conn}
		err = pumps.descriptor(&end)
		fd = end.FD
	}
	if err == nil {
		err = h.ch.SendJSON(handover.Conns, []int{fd}, []lateConn{{
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
func (p *process) retire(ch *handover.Conn, signals <-chan os.Signal) int {
	p.closeUpgradeSocket()
	gone := make(chan struct{}) // the successor
	serving := make(chan struct{})
	go func() {
		defer close(gone)
		var once sync.Once
		for {
			m, err := ch.Receive()
			if err != nil {
				return
			}
			if m.Close(); m.Kind == handover.Serving {
				once.Do(func() { close(serving) })
			}
		}
	}()
	requests := make(chan struct{})
	go func() {
		defer close(requests)
		p.finishRequests()
	}()
	late := &giving{u: p.upgrader, ch: ch, ctx: context.Background(), format: session.Formats[0], step: "late"}
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	force := time.NewTimer(forceAfter)
	defer force.Stop()
	for finished := requests; ; {
		select {
		case <-gone:
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
		late.sendLate()
		if sessions, visits := p.gateway.Left(); finished == nil && sessions+visits == 0 {
			ch.Send(handover.Done, nil)
			return p.finishPumps(gone, serving, signals)
		}
	}
}

// servingWait is how long a process waits for its successor to serve before it exits.
const servingWait = 10 * time.Second

// finishPumps forwards bytes until nobody needs it, or the time for it is over, and returns
// the exit status. It does not return before the successor serves: systemd would take the
// end of the main process for the end of the unit, and kill the successor, which has not
// said yet that it is the main one.
func (p *process) finishPumps(gone, serving <-chan struct{}, signals <-chan os.Signal) int {
	if n := p.pump.count.Load(); n > 0 {
		p.log.Info("upgrade.pumping", "connections", n, "time", p.upgrader.pump, "text", "this process exits when none is left; see --upgrade-pump")
	}
	limit := time.NewTimer(p.upgrader.pump + pumpSlack)
	defer limit.Stop()
	patience := time.NewTimer(servingWait)
	defer patience.Stop()
	for done := p.pump.done(); done != nil || serving != nil; {
		select {
		case <-done:
			done = nil
		case <-serving:
			serving = nil
		case <-patience.C:
			serving = nil
		case <-gone:
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
	frozen, err := p.gateway.Freeze(ctx, g.format, lateSettle)
	if err != nil {
		return
	}
	if len(frozen.Sessions) == 0 {
		frozen.Thaw()
		return
	}
	pumps := new(pumpList)
	err = g.encode(frozen, pumps)
	for part := range slices.Chunk(frozen.Sessions, batchSessions) {
		if err == nil {
			body, fds := sessionsBody(part)
			err = g.ch.Send(handover.Sessions, fds, body...)
		}
	}
	if err != nil {
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
