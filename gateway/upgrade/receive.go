package upgrade

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/handover"
	"reseat/gateway/listen"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/webhook"
)

// A Predecessor is the process before this one, which hands its sessions over.
type Predecessor struct {
	set       Settings
	ch        *handover.Conn
	offer     offer
	listeners map[string]*listen.Listener
	older     []*handover.Conn
	u         *Upgrader // set by Receive

	restoring sync.WaitGroup // of messages with sessions, up to Ready
	slots     chan struct{}  // one for each that is being restored

	mu       sync.Mutex // guards sessions and what follows, while restoring and after Adopt
	sessions *Incoming
	count    int   // of sessions, up to the commit
	failure  error // of restoring
	conns    []injected
	rest     rest
	last     []events.Event   // before the commit
	done     bool             // no further sessions follow
	posts    []webhook.Queued // received so far
	events   RecentEvents
	collect  func() // turns the garbage collector on again
}

// An injected is a connection without a complete request.
type injected struct {
	listener string
	conn     net.Conn
}

// errTooLate ends a hand-over whose predecessor continues by itself.
var errTooLate = errors.New("restoring the sessions took so long that the older process continues with them")

// ErrCrashed means that the predecessor has exited without a word.
var ErrCrashed = errors.New("the older process has exited")

// Meet says hello to the predecessor, and returns it with its offer, nil if there is none. It touches
// nothing of what is offered.
func Meet(set Settings) (*Predecessor, error) {
	ch, err := channel(set)
	if ch == nil {
		return nil, err
	}
	return meet(ch, set)
}

// channel returns the channel to the predecessor, nil if there is none.
func channel(set Settings) (*handover.Conn, error) {
	for _, e := range set.Environ {
		if v, ok := strings.CutPrefix(e, channelEnv+"="); ok {
			fd, err := strconv.Atoi(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", channelEnv, err)
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

func meet(ch *handover.Conn, set Settings) (*Predecessor, error) {
	t := &Predecessor{set: set, ch: ch, listeners: make(map[string]*listen.Listener)}
	ch.SetDeadline(time.Now().Add(set.Timeout))
	if err := ch.SendJSON(handover.Hello, nil, hello{Version: set.Version, Formats: session.Formats, PID: os.Getpid(), Posts: set.Webhook}); err != nil {
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
	for i, l := range t.offer.Listeners {
		fd := m.FDs[i]
		if set.Listen[l.Name] != l.Setting { // the settings have changed
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
	if err := t.fits(); err != nil {
		ch.SendAbort(err)
		return nil, t.failed(err)
	}
	return t, nil
}

// fits reports why this process cannot hold what is offered.
func (t *Predecessor) fits() error {
	o := &t.offer
	if limit := listen.Descriptors(); limit > 0 && o.Descriptors+reservedDescriptors > limit {
		return fmt.Errorf("%d descriptors are in use, and this process may open %d: raise the limit of open files", o.Descriptors, limit)
	}
	if o.BufferBytes > t.set.BufferTotal {
		return fmt.Errorf("the replay buffers hold %d bytes, and --buffer-total is %d", o.BufferBytes, t.set.BufferTotal)
	}
	return nil
}

// reservedDescriptors are kept free in a successor besides those that are handed over.
const reservedDescriptors = 64

// failed closes what was received, and returns err, or ErrCrashed.
func (t *Predecessor) failed(err error) error {
	t.restoring.Wait()
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
		return ErrCrashed
	}
	return fmt.Errorf("hand-over: %w", inTime(err))
}

// inTime names a failure that is a deadline's.
func inTime(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("timeout of --upgrade-timeout or the freeze")
	}
	return err
}

// Clock continues the predecessor's clock.
func (t *Predecessor) Clock() *transport.Clock {
	return transport.ContinueClock(session.Time(t.offer.Now) + session.Time(handover.Monotonic()-t.offer.Monotonic))
}

// Listener returns the predecessor's listener, if it was opened with the setting of this process.
func (t *Predecessor) Listener(name string) *listen.Listener { return t.listeners[name] }

// Node describes the predecessor as a node, which this process continues.
func (t *Predecessor) Node() Node { return t.offer.Node }

// Posts reports whether ContinuePosts will be called.
func (t *Predecessor) Posts() bool { return t.offer.Posts }

// Refuse tells the predecessor that this process cannot start, and returns the error.
func (t *Predecessor) Refuse(err error) error {
	t.ch.SendAbort(err)
	return t.failed(err)
}

// Serving tells the predecessor that this process serves, and is the main one for systemd.
func (t *Predecessor) Serving() { t.ch.Send(handover.Serving, nil) }

// Receive restores everything, up to the commit. Then all is u's.
func (t *Predecessor) Receive(u *Upgrader) error {
	t.u = u
	s := u.Sessions
	if t.offer.Secret != nil {
		s.Keys.Inherit(t.offer.Secret)
	}
	reserveMemory(int64(t.offer.Sessions)*memoryPerSession + 2*t.offer.BufferBytes)
	err := s.InheritRoutes(t.offer.Routes)
	if err == nil {
		err = t.ch.Send(handover.Accept, nil)
	}
	t.sessions = s.Incoming(t.offer.Sessions)
	t.slots = make(chan struct{}, runtime.GOMAXPROCS(0))
	growth := debug.SetGCPercent(-1) // nobody is served meanwhile, up to the end of adopt
	t.collect = func() { debug.SetGCPercent(growth) }
	t.ch.SetDeadline(time.Now().Add(patience))
	for ready := false; err == nil && !ready; {
		ready, err = t.restore()
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
		u.log.Warn("upgrade.waiting", "pid", t.offer.PID, "text", "the older process neither commits nor aborts: if it is stopped, continue it, or kill it and its sessions go on here")
	})
	defer waiting.Stop()
	if err = t.ch.Send(handover.Ready, nil); err == nil {
		err = t.awaitCommit()
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // it has crashed; nobody else can have its sessions
		u.log.Error("upgrade.predecessor_crashed", "text", "it had handed everything over: its sessions go on here")
	case err != nil:
		return t.failed(err)
	}
	return nil
}

// awaitCommit waits for the commit, and keeps the events before it.
func (t *Predecessor) awaitCommit() error {
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

// memoryPerSession estimates the bytes that restoring and adopting a session allocates, besides
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

// patience limits the time in which the predecessor sends everything.
const patience = 10*time.Second + freezeLimit

// restore handles one message, and reports whether it was the last before the commit.
func (t *Predecessor) restore() (ready bool, err error) {
	m, err := t.ch.Receive()
	if err != nil {
		return false, err
	}
	defer m.Close()
	switch m.Kind {
	case handover.Abort:
		return false, &handover.AbortError{Reason: string(m.Body)}
	case handover.Tombstones:
		return false, t.restoreTombstones(m.Body)
	case handover.Events:
		return false, json.Unmarshal(m.Body, &t.events)
	case handover.Sessions:
		if err := t.ch.Send(handover.Ack, nil); err != nil {
			return false, err
		}
		t.restoreSessions(m)
		m.FDs = nil
	case handover.Conns:
		return false, t.keepConns(&m)
	case handover.Rest:
		r := &t.rest
		if err := json.Unmarshal(m.Body, r); err != nil {
			return false, err
		}
		if t.restoring.Wait(); t.failure != nil {
			return false, t.failure
		}
		t.events.Add(r.Gateway.Events)
		r.Gateway.Events = t.events
		t.u.Sessions.RestoreRest(r.Gateway)
		t.u.Recorder.Restore(r.Samples)
		return true, nil
	default:
		return false, handover.ErrProtocol
	}
	return false, nil
}

func (t *Predecessor) restoreTombstones(body []byte) (err error) {
	for len(body) > 0 && err == nil {
		var one []byte
		if one, body, err = handover.CutPart(body); err == nil {
			err = t.u.Sessions.RestoreTombstone(one)
		}
	}
	return err
}

// restoreSessions restores the sessions of a message, whose descriptors it takes, beside those of
// others: all sessions stand still meanwhile.
func (t *Predecessor) restoreSessions(m handover.Message) {
	t.slots <- struct{}{}
	t.restoring.Go(func() {
		defer func() { <-t.slots }()
		defer m.Close()
		err := eachSession(&m, func(s Received) error {
			d, err := t.sessions.Decode(t.offer.Format, s)
			if err == nil {
				err = t.restoreOne(d)
			}
			if err != nil {
				closeEnds(s)
			}
			return err
		})
		t.mu.Lock()
		defer t.mu.Unlock()
		t.failure = cmp.Or(t.failure, err)
	})
}

func (t *Predecessor) restoreOne(d Decoded) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.sessions.Restore(d)
	if err == nil {
		t.count++
	}
	return err
}

// keepConns keeps connections without a complete request.
func (t *Predecessor) keepConns(m *handover.Message) error {
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
