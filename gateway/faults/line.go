package faults

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// A Line is what the connections of one session, or of the plain clients of one page, suffer: their
// present and their later ones. All its methods may be called on nil, a line without faults.
type Line struct {
	mu      sync.Mutex
	conns   map[*Conn]bool
	offline time.Time // until when
	lost    time.Time // until when this node seems to be
	slow    [3]struct {
		Fault
		until time.Time
	} // by Direction
	until   time.Time     // when all effects are over
	changed chan struct{} // closed at each change, and replaced
	plan    context.CancelFunc
	held    int // how many use it: of the lock of Lines
}

// due returns when a chunk of c will have passed, as far as is known, and what is closed when that
// changes.
func (l *Line) due(c *Conn, d Direction, ch chunk) (due time.Time, changed <-chan struct{}) {
	if l == nil {
		return ch.at, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	due = ch.at
	if s := l.slow[d]; time.Now().Before(s.until) {
		due = later(due.Add(s.Latency+time.Duration(ch.luck*float64(s.Jitter))), c.free[d])
		if s.Rate > 0 {
			due = due.Add(time.Duration(len(ch.b)) * time.Second / time.Duration(s.Rate))
		}
	}
	return later(due, later(l.offline, c.silent[d])), l.changed
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// doLocked begins a fault that has a duration.
func (l *Line) doLocked(f Fault) {
	until := time.Now().Add(f.For)
	l.until = later(l.until, until)
	for _, d := range []Direction{Up, Down} {
		if f.Direction != Both && f.Direction != d {
			continue
		}
		switch f.Name {
		case Slow:
			l.slow[d].Fault, l.slow[d].until = f, until
		case Silence:
			for c := range l.conns {
				c.silent[d] = until
			}
		}
	}
	switch f.Name {
	case Offline, Airplane:
		l.offline = until
	case Node:
		l.lost = until
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// clearLocked ends all faults.
func (l *Line) clearLocked() {
	if l.plan != nil {
		l.plan()
		l.plan = nil
	}
	l.offline, l.lost, l.until = time.Time{}, time.Time{}, time.Time{}
	clear(l.slow[:])
	for c := range l.conns {
		c.silent = [3]time.Time{}
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// join adds a connection, which leaves the line that it is on.
func (l *Line) join(c *Conn) {
	if before := c.line.Load(); before != l {
		before.leave(c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
	c.line.Store(l)
}

// leave removes one. l may be nil.
func (l *Line) leave(c *Conn) {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	}
}

// present are the connections that there are.
func (l *Line) present() (list []*Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		list = append(list, c)
	}
	return list
}

// Options are what Lines needs of the gateway. All must be set but Restart.
type Options struct {
	// Client returns the connection of a session's client, below TLS and compression; nil if there
	// is none.
	Client func(session string) net.Conn
	// Close closes a client's connection with 1001; false if no session here has it.
	Close func(net.Conn) bool
	// Restart restarts the game server; false if it was restarted just now. Nil: the gateway has
	// not started it.
	Restart func() bool
	// Cluster: the gateway is a node of one.
	Cluster bool
}

// Lines are the lines of all sessions. Its methods are safe for concurrent use.
type Lines struct {
	opts Options
	over chan struct{} // closed by Stop

	mu      sync.Mutex
	of      map[string]*Line // by session, or by page
	conns   map[*Conn]bool
	running sync.WaitGroup
}

// NewLines returns Lines without a fault. Serve must be called before the first fault.
func NewLines() *Lines {
	return &Lines{over: make(chan struct{}), of: make(map[string]*Line), conns: make(map[*Conn]bool)}
}

// Serve sets what the faults act on.
func (l *Lines) Serve(o Options) { l.opts = o }

// CanLoseNode reports whether there may be another node.
func (l *Lines) CanLoseNode() bool { return l.opts.Cluster }

// CanRestart reports whether there is a game server to restart.
func (l *Lines) CanRestart() bool { return l.opts.Restart != nil }

// Listener puts a relay below each connection that inner accepts.
func (l *Lines) Listener(inner net.Listener) net.Listener { return &listener{inner, l} }

type listener struct {
	net.Listener
	lines *Lines
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.lines.wrap(c), nil
}

func (l *Lines) wrap(tcp net.Conn) *Conn {
	c := newConn(tcp, l)
	l.mu.Lock()
	l.conns[c] = true
	l.mu.Unlock()
	l.running.Go(c.receive)
	l.running.Go(c.send)
	return c
}

func (l *Lines) forget(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	c.line.Load().leave(c)
}

// Stop ends all connections at once, and waits for their goroutines.
func (l *Lines) Stop() {
	close(l.over)
	l.mu.Lock()
	for c := range l.conns {
		c.tcp.Close()
		c.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
}

// line returns the line of a session or page, for use until done. It forgets those without use, connection
// and fault among a few that come in turn: so they stay fewer than those that are in use.
func (l *Lines) line(session string) (_ *Line, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	looked := 0
	for id, line := range l.of { // begins anywhere
		line.mu.Lock()
		if line.held == 0 && len(line.conns) == 0 && time.Now().After(line.until) && line.plan == nil {
			delete(l.of, id)
		}
		line.mu.Unlock()
		if looked++; looked == sweepLines {
			break
		}
	}
	line := l.of[session]
	if line == nil {
		line = &Line{conns: make(map[*Conn]bool), changed: make(chan struct{})}
		l.of[session] = line
	}
	line.held++
	return line, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		line.held--
	}
}

// sweepLines is how many lines are looked at for each that is used.
const sweepLines = 3

// The errors of Apply.
var (
	ErrNoClient  = errors.New("no client is connected")
	ErrNoRestart = errors.New("the gateway did not start the game server, so it cannot restart it")
	ErrTooSoon   = errors.New("the game server was restarted just now")
	ErrNoCluster = errors.New("the gateway is not a node of a cluster")
)

// Apply begins a fault. A preset replaces the one before, and all faults that there are.
func (l *Lines) Apply(session string, f Fault) error {
	if f.Name == Node && !l.opts.Cluster {
		return ErrNoCluster
	}
	line, done := l.line(session)
	defer done()
	if conn, ok := l.opts.Client(session).(*Conn); ok {
		line.join(conn)
	}
	switch f.Name {
	case Silence, Reset, Close:
		if len(line.present()) == 0 {
			return ErrNoClient
		}
	}
	steps := presets[f.Name]
	if steps == nil {
		return l.do(line, f)
	}
	line.mu.Lock()
	defer line.mu.Unlock()
	line.clearLocked()
	ctx, cancel := context.WithCancel(context.Background())
	line.plan, line.until = cancel, time.Now().Add(f.Lasts())
	l.running.Go(func() {
		defer cancel()
		l.run(ctx, line, steps)
	})
	return nil
}

// run takes the steps of a preset, until Clear.
func (l *Lines) run(ctx context.Context, line *Line, steps []step) {
	begun := time.Now()
	for _, next := range steps {
		select {
		case <-time.After(next.at - time.Since(begun)):
			l.do(line, next.Fault) // its connection may be lost already
		case <-ctx.Done():
			return
		case <-l.over:
			return
		}
	}
	line.mu.Lock()
	defer line.mu.Unlock()
	if ctx.Err() == nil {
		line.plan = nil
	}
}

func (l *Lines) do(line *Line, f Fault) error {
	switch f.Name {
	case Reset:
		for _, c := range line.present() {
			c.reset()
		}
	case Close:
		for _, c := range line.present() {
			if !l.opts.Close(c) {
				c.tcp.Close() // its session is at another node
			}
		}
	case Restart:
		if l.opts.Restart == nil {
			return ErrNoRestart
		}
		if !l.opts.Restart() {
			return ErrTooSoon
		}
	default:
		line.mu.Lock()
		line.doLocked(f)
		line.mu.Unlock()
		if f.Name == Airplane || f.Name == Node { // now that the line holds up what the gateway would hear of it
			for _, c := range line.present() {
				c.reset()
			}
		}
	}
	return nil
}

// Lost returns for how long this node still seems to be lost to a session, 0 or less if it does not.
func (l *Lines) Lost(session string) time.Duration {
	line, done := l.line(session)
	defer done()
	line.mu.Lock()
	defer line.mu.Unlock()
	return time.Until(line.lost)
}

// Clear ends all faults of a session.
func (l *Lines) Clear(session string) {
	line, done := l.line(session)
	defer done()
	line.mu.Lock()
	defer line.mu.Unlock()
	line.clearLocked()
}

// Admit adds the connection of a handshake to the line of its session or page, and waits while that is
// offline. It reports false if the client has given up meanwhile, the context has ended, or this node
// seems to be lost: then there is nobody to answer.
func (l *Lines) Admit(ctx context.Context, session string) bool {
	c, ok := ctx.Value(connKey{}).(*Conn)
	if !ok {
		return true
	}
	line, done := l.line(session)
	defer done()
	line.join(c)
	for waited := false; ; waited = true {
		line.mu.Lock()
		left, changed, lost := time.Until(line.offline), line.changed, time.Now().Before(line.lost)
		line.mu.Unlock()
		if lost {
			c.reset()
			return false
		}
		if left <= 0 {
			return !waited || !c.gone.Load()
		}
		select {
		case <-time.After(left):
		case <-changed:
		case <-ctx.Done():
			return false
		case <-l.over:
			return false
		}
	}
}
