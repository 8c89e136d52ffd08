package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"reseat/gateway/admin"
	"reseat/gateway/config"
	"reseat/gateway/events"
	"reseat/gateway/handover"
	"reseat/gateway/listen"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/upgrade"
	"reseat/gateway/webhook"
)

// A takeover is an upgrade, on the successor's side.
type takeover struct {
	ch        *handover.Conn
	offer     offer
	listeners map[string]*listen.Listener
	older     []*handover.Conn

	mu       sync.Mutex // guards sessions and what follows, after adopt
	sessions *upgrade.Takeover
	moved    int
	conns    []injected
	rest     rest
	last     []events.Event   // before the commit
	done     bool             // no further sessions follow
	hook     *webhook.Hook    // nil: none
	posts    []webhook.Queued // for hook, received so far
	events   upgrade.RecentEvents
	decoder  *decoder // until Ready
	collect  func()   // turns the garbage collector on again
}

// An injected is a connection without a complete request.
type injected struct {
	listener string
	conn     net.Conn
}

// errTooLate ends a takeover whose predecessor goes on by itself.
var errTooLate = errors.New("restoring the sessions took so long that the process to take over from continues with them")

// errPredecessorCrashed means that the predecessor has exited without a word.
var errPredecessorCrashed = errors.New("the process to take over from has exited")

// predecessor returns the channel to the process that this one will take over, nil if there
// is none.
func predecessor(set *config.Settings, environ []string) (*handover.Conn, error) {
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, upgradeEnv+"="); ok {
			fd, err := strconv.Atoi(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", upgradeEnv, err)
			}
			return handover.New(fd)
		}
	}
	if set.Takeover == "" {
		return nil, nil
	}
	ch, err := handover.Dial(set.Takeover)
	switch {
	case errors.Is(err, handover.ErrNobody):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("--takeover: %w", err)
	}
	return ch, nil
}

// withoutUpgrade is the environment without what SIGUSR2 has added.
func withoutUpgrade(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(e string) bool { return strings.HasPrefix(e, upgradeEnv+"=") })
}

// meet says hello, and returns what the predecessor offers. It touches nothing of it.
func meet(ch *handover.Conn, set *config.Settings) (*takeover, error) {
	t := &takeover{ch: ch, listeners: make(map[string]*listen.Listener)}
	ch.SetDeadline(time.Now().Add(set.UpgradeTimeout))
	if err := ch.SendJSON(handover.Hello, nil, hello{Version: config.Version(), Formats: session.Formats, PID: os.Getpid(), Posts: set.Webhook != nil}); err != nil {
		return nil, t.failed(err)
	}
	m, err := ch.ExpectJSON(handover.Offer, &t.offer)
	if err != nil {
		return nil, t.failed(err)
	}
	if len(m.FDs) != len(t.offer.Listeners)+t.offer.Older {
		m.Close()
		return nil, t.failed(handover.ErrProtocol)
	}
	wanted := map[string]string{clientsListener: set.Listen, adminListener: set.Admin, nodesListener: set.Cluster.Listen}
	for i, l := range t.offer.Listeners {
		fd := m.FDs[i]
		if wanted[l.Name] != l.Setting { // the settings have changed
			handover.CloseFD(fd)
			continue
		}
		if t.listeners[l.Name], err = listen.Inherit(fd); err != nil {
			return nil, t.failed(err)
		}
	}
	for _, fd := range m.FDs[len(t.offer.Listeners):] {
		if older, err := handover.New(fd); err == nil {
			t.older = append(t.older, older)
		}
	}
	if err := t.fits(set); err != nil {
		ch.SendAbort(err)
		return nil, t.failed(err)
	}
	return t, nil
}

// fits reports why this process cannot hold what is offered.
func (t *takeover) fits(set *config.Settings) error {
	o := &t.offer
	if limit := listen.Descriptors(); limit > 0 && o.Descriptors+reservedDescriptors > limit {
		return fmt.Errorf("%d descriptors are in use, and this process may open %d: raise the limit of open files", o.Descriptors, limit)
	}
	if o.BufferBytes > set.Gateway.BufferTotal {
		return fmt.Errorf("the replay buffers hold %d bytes, and --buffer-total is %d", o.BufferBytes, set.Gateway.BufferTotal)
	}
	return nil
}

// reservedDescriptors is how many a successor needs besides those that it takes over.
const reservedDescriptors = 64

// failed closes what was received, and returns err, or errPredecessorCrashed.
func (t *takeover) failed(err error) error {
	t.ch.Close()
	for _, ln := range t.listeners {
		if ln != nil {
			ln.Close()
		}
	}
	for _, c := range t.conns {
		c.conn.Close()
	}
	for _, ch := range t.older {
		ch.Close()
	}
	if t.sessions != nil {
		t.sessions.Abandon()
		t.collect()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errPredecessorCrashed
	}
	return fmt.Errorf("take over: %w", inTime(err))
}

// inTime names a failure that is a deadline's.
func inTime(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("timeout of --upgrade-timeout or the freeze")
	}
	return err
}

// clock continues the predecessor's clock.
func (t *takeover) clock() *transport.Clock {
	return transport.ContinueClock(session.Time(t.offer.Now) + session.Time(handover.Monotonic()-t.offer.Monotonic))
}

// receive restores everything, up to the commit. Then all is p's.
func (t *takeover) receive(p *process) error {
	if t.offer.Secret != nil {
		p.keys.Inherit(t.offer.Secret)
	}
	reserveMemory(int64(t.offer.Sessions)*memoryPerSession + 2*t.offer.BufferBytes)
	err := p.gateway.Upgrade().InheritRoutes(t.offer.Routes)
	if err == nil {
		err = t.ch.Send(handover.Accept, nil)
	}
	t.sessions = p.gateway.Upgrade().TakeOver(t.offer.Sessions)
	t.decoder = newDecoder(t.decode, t.restoreAll)
	defer t.decoder.finish()
	growth := debug.SetGCPercent(-1) // nobody is served meanwhile, up to the end of adopt
	t.collect = func() { debug.SetGCPercent(growth) }
	t.ch.SetDeadline(time.Now().Add(t.patience()))
	for ready := false; err == nil && !ready; {
		ready, err = t.restore(p)
	}
	if err != nil {
		var abort *handover.AbortError
		if !errors.As(err, &abort) {
			t.ch.SetDeadline(time.Now().Add(time.Second))
			t.ch.SendAbort(inTime(err))
		}
		return t.failed(err)
	}
	if handover.Monotonic() > t.rest.Until {
		return t.failed(errTooLate)
	}
	t.ch.SetDeadline(time.Time{}) // only the predecessor decides now: it may have sent Commit at any moment
	waiting := time.AfterFunc(freezeLimit, func() {
		p.log.Warn("upgrade.waiting", "pid", t.offer.PID, "text", "the process to take over from neither commits nor aborts: if it is stopped, continue it, or kill it and its sessions go on here")
	})
	defer waiting.Stop()
	if err = t.ch.Send(handover.Ready, nil); err == nil {
		err = t.awaitCommit()
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // it has crashed; nobody else can have its sessions
		p.log.Error("upgrade.predecessor_crashed", "text", "it had handed everything over: its sessions go on here")
	case err != nil:
		return t.failed(err)
	}
	return nil
}

// awaitCommit waits for the commit, and keeps the events before it.
func (t *takeover) awaitCommit() error {
	for {
		m, err := t.ch.Receive()
		if err != nil {
			return err
		}
		m.Close()
		switch m.Kind {
		case handover.Commit:
			return nil
		case handover.Abort:
			return &handover.AbortError{Reason: string(m.Body)}
		case handover.Event:
			var e events.Event
			if err := json.Unmarshal(m.Body, &e); err != nil {
				return err
			}
			t.last = append(t.last, e)
		default:
			return handover.ErrProtocol
		}
	}
}

// memoryPerSession is about what restoring and adopting a session allocates in bytes, besides
// its buffers; maxReserved bounds the sum of all.
const (
	memoryPerSession = 12 << 10
	maxReserved      = 512 << 20
)

// reserveMemory has the runtime hold so much free memory, before the freeze: the first
// access to each page takes longer than the rest of restoring a session.
func reserveMemory(n int64) {
	if n = min(n, maxReserved); n <= 0 {
		return
	}
	b := make([]byte, n)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	runtime.KeepAlive(b)
	b = nil
	runtime.GC()
}

// patience is how long the predecessor may take to send everything.
func (t *takeover) patience() time.Duration { return 10*time.Second + freezeLimit }

// restore handles one message, and reports whether it was the last before the commit.
func (t *takeover) restore(p *process) (ready bool, err error) {
	m, err := t.ch.Receive()
	if err != nil {
		return false, err
	}
	defer m.Close()
	switch m.Kind {
	case handover.Abort:
		return false, &handover.AbortError{Reason: string(m.Body)}
	case handover.Tombstones:
		return false, restoreTombstones(p, m.Body)
	case handover.Events:
		return false, json.Unmarshal(m.Body, &t.events)
	case handover.Sessions:
		if err := t.ch.Send(handover.Ack, nil); err != nil {
			return false, err
		}
		t.decoder.put(m)
		m.FDs = nil
	case handover.Conns:
		return false, t.keepConns(&m)
	case handover.Rest:
		r := &t.rest
		if err := json.Unmarshal(m.Body, r); err != nil {
			return false, err
		}
		if err := t.decoder.finish(); err != nil {
			return false, err
		}
		t.events.Add(r.Gateway.Events)
		r.Gateway.Events = t.events
		p.gateway.Upgrade().RestoreRest(r.Gateway)
		if p.recorder != nil {
			p.recorder.Restore(r.Samples)
		}
		return true, nil
	default:
		return false, handover.ErrProtocol
	}
	return false, nil
}

func restoreTombstones(p *process, body []byte) (err error) {
	for len(body) > 0 && err == nil {
		var one []byte
		if one, body, err = handover.CutPart(body); err == nil {
			err = p.gateway.Upgrade().RestoreTombstone(one)
		}
	}
	return err
}

// decode decodes the sessions of a message, whose descriptors it takes.
func (t *takeover) decode(m *handover.Message) (list []upgrade.Decoded, err error) {
	defer m.Close()
	err = eachSession(m, func(s upgrade.Moved) error {
		d, err := t.sessions.Decode(t.offer.Format, s)
		if err != nil {
			closeEnds(s)
			return err
		}
		list = append(list, d)
		return nil
	})
	return list, err
}

// restoreAll restores decoded sessions, up to the first that cannot be.
func (t *takeover) restoreAll(list []upgrade.Decoded) error {
	for i, d := range list {
		if err := t.sessions.Restore(d); err != nil {
			for _, d := range list[i:] {
				closeEnds(d.Moved)
			}
			return err
		}
		t.moved++
	}
	return nil
}

func closeEnds(s upgrade.Moved) {
	handover.CloseFD(s.Up)
	handover.CloseFD(s.Down)
}

// keepConns keeps connections without a complete request.
func (t *takeover) keepConns(m *handover.Message) error {
	var list []lateConn
	if err := json.Unmarshal(m.Body, &list); err != nil {
		return err
	}
	if len(list) != len(m.FDs) {
		return handover.ErrProtocol
	}
	for i, fd := range m.FDs {
		conn, err := rawconn.ConnOf(fd)
		m.FDs[i] = -1
		if err != nil {
			continue // no descriptor: as if the connection had broken
		}
		c := list[i]
		t.conns = append(t.conns, injected{c.Listener, listen.Handed(conn, append(c.Request, c.Early...), c.Peer, c.Secure)})
	}
	return nil
}

// adopt begins to serve: first what was taken over.
func (t *takeover) adopt(p *process) {
	for _, e := range t.last {
		p.gateway.Watch().Events.Publish(e)
	}
	t.sessions.Adopt(t.rest.Left)
	if p.node != nil {
		p.node.elsewhere.Store(false)
	}
	t.ch.Send(handover.Adopted, nil)
	p.listenAll()
	t.collect()
	for _, c := range t.conns {
		p.inject(c)
	}
	t.conns = nil
	took := handover.Monotonic() - t.rest.Frozen
	u := p.upgrader
	u.metrics.add(t.rest.Upgrades)
	u.metrics.results.WithLabelValues(upgradeOK).Inc()
	u.metrics.freeze.Observe(took.Seconds())
	pumped := t.sessions.Pumped() // follow changes it
	u.metrics.sessions.WithLabelValues("moved").Add(float64(t.moved - pumped))
	u.metrics.sessions.WithLabelValues("pumped").Add(float64(pumped))
	u.metrics.sessions.WithLabelValues("kept").Add(float64(len(t.rest.Left)))
	u.metrics.pumped.Store(t)
	u.mu.Lock()
	u.last = admin.Upgrade{
		State: upgradeOK, From: t.offer.Version, To: config.Version(),
		Sessions: admin.UpgradeSessions{Moved: t.moved - pumped, Pumped: pumped, Kept: len(t.rest.Left)}, FreezeMS: float64(took.Microseconds()) / 1000,
	}
	u.older = slices.Clone(t.older) // watchOlder deletes from it
	u.mu.Unlock()
	for _, ch := range t.older {
		go u.watchOlder(ch, nil)
	}
	p.log.Info("upgrade.committed", "pid", os.Getpid(), "from", t.offer.Version, "to", config.Version(), "sessions", t.moved, "pumped", pumped, "kept", len(t.rest.Left), "frozen", took)
	if t.offer.SigningKey != p.keys.SigningKeyID() || t.rest.Gateway.Renewing {
		t.sessions.RenewTokens()
	}
	t.hook = p.hook
	go t.follow(p)
	u.noteForwarding(pumped > 0, t.rest.Pump, t.rest.Older)
	for _, older := range []bool{false, true} {
		time.AfterFunc(map[bool]time.Duration{false: t.rest.Pump, true: t.rest.Older}[older], func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.sessions.EndPumps(older)
		})
	}
}

// follow takes over what the predecessor finishes later.
func (t *takeover) follow(p *process) {
	defer func() {
		t.sessions.NoneLate()
		t.settle(p, func() { t.done = true })
		p.upgrader.watchOlder(t.ch, func(m *handover.Message) { t.late(p, m) })
		t.settle(p, t.continuePosts) // if it has crashed
	}()
	for {
		m, err := t.ch.Receive()
		if err != nil {
			return
		}
		if done := t.late(p, &m); done {
			return
		}
	}
}

// late handles a message after the commit. It reports whether that was the last one.
func (t *takeover) late(p *process, m *handover.Message) (done bool) {
	defer m.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	switch m.Kind {
	case handover.Sessions:
		err = t.lateSessions(p, m)
	case handover.Conns:
		err = t.lateConns(p, m)
	case handover.Tombstones:
		err = restoreTombstones(p, m.Body)
	case handover.Event:
		var e events.Event
		if err = json.Unmarshal(m.Body, &e); err == nil {
			p.gateway.Watch().Events.Publish(e)
		}
	case handover.Posts:
		if len(m.Body) == 0 {
			t.continuePosts()
			t.settleLocked(p)
			return false
		}
		var list []webhook.Queued
		if err = json.Unmarshal(m.Body, &list); err == nil {
			t.posts = append(t.posts, list...)
		}
	case handover.Done:
		return true
	}
	if err != nil {
		p.log.Error("upgrade.late_failed", "err", err)
	}
	return false
}

// settle notes something, and that the predecessor has handed everything over if that was the last.
func (t *takeover) settle(p *process, note func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note()
	t.settleLocked(p)
}

func (t *takeover) settleLocked(p *process) {
	if t.done && !t.offer.Posts {
		p.upgrader.settle()
	}
}

// continuePosts begins to post webhook events: the predecessor does not post any more. Called with
// mu held.
func (t *takeover) continuePosts() {
	if t.hook != nil && t.offer.Posts {
		t.hook.Continue(t.posts)
	}
	t.posts, t.offer.Posts = nil, false
}

// lateSessions serves sessions that follow after the commit. Nobody else has them any more: one
// that cannot be restored is lost, and costs no other.
func (t *takeover) lateSessions(p *process, m *handover.Message) error {
	err := eachSession(m, func(s upgrade.Moved) error {
		d, err := t.sessions.Decode(t.offer.Format, s)
		if err == nil {
			err = t.sessions.Restore(d)
		}
		if err != nil {
			closeEnds(s)
			p.upgrader.metrics.sessions.WithLabelValues("lost").Inc()
			p.log.Error("upgrade.session_lost", "err", err, "text", "its connections are closed")
		}
		return nil
	})
	t.sessions.AdoptLate()
	return err
}

// lateConns serves clients whose requests the predecessor has read.
func (t *takeover) lateConns(p *process, m *handover.Message) error {
	var list []lateConn
	if err := json.Unmarshal(m.Body, &list); err != nil {
		return err
	}
	if len(list) == 1 && len(m.FDs) == 1 && list[0].Answered {
		fd := m.FDs[0]
		m.FDs = nil
		conn, err := rawconn.ConnOf(fd)
		if err != nil {
			return err
		}
		go p.gateway.ResumeAnswered(upgrade.LateConn{Conn: conn, Request: list[0].Request, Early: list[0].Early, Secure: list[0].Secure, Peer: list[0].Peer})
		return nil
	}
	err := t.keepConns(m)
	for _, c := range t.conns {
		p.inject(c)
	}
	t.conns = nil
	return err
}

// inject has one of p's servers accept a connection.
func (p *process) inject(c injected) {
	q := p.handed[c.listener]
	if q == nil {
		c.conn.Close()
		return
	}
	q.Put(c.conn)
}

// counts returns the counters of upgrades, for a successor.
func (m *upgradeMetrics) counts() map[string]float64 {
	all := make(map[string]float64)
	for _, result := range []string{upgradeOK, upgradeRefused, upgradeAborted} {
		all[result] = valueOf(m.results.WithLabelValues(result))
	}
	return all
}

// add adds the counts of a predecessor.
func (m *upgradeMetrics) add(counts map[string]float64) {
	for _, result := range []string{upgradeOK, upgradeRefused, upgradeAborted} {
		m.results.WithLabelValues(result).Add(counts[result])
	}
}

func valueOf(c prometheus.Counter) float64 {
	var d dto.Metric
	if c.Write(&d) != nil {
		return 0
	}
	return d.GetCounter().GetValue()
}
