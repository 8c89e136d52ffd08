package epoll

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

const (
	readSize = 256 << 10 // for a read from a client
	maxRings = 32        // alarms per turn, unless there are very many

	// A turn serves at most maxLegs sockets, and no further one once its effort is maxEffort, so
	// that the mailbox and new connections never wait for more than that. A session that has
	// spent sessionEffort in a turn goes on in the next. The effort is the number of bytes read
	// and written; those of a layer count layerFactor times, since compression handles
	// 50 MB/s where the kernel copies gigabytes.
	maxLegs       = 128
	maxEffort     = 1 << 20
	sessionEffort = 512 << 10
	layerFactor   = 8

	// maxMail is the max number of calls from the mailbox in a turn: as many as there are
	// handshakes at a time on four processors.
	maxMail = 64

	// yieldEvery bounds the time for which the loop keeps its processor before it yields to the
	// scheduler. When a processor has been held for ten milliseconds, the runtime's
	// monitor retakes it in every blocking call, and checks fifty times a millisecond:
	// that costs a tenth of a processor.
	yieldEvery = 8 * time.Millisecond

	// It yields sooner if it has made goroutines runnable: handshakes go before what is
	// relayed.
	yieldWoken = time.Millisecond

	// A loop whose turns are shorter than briefWait waits with a raw system call, for no
	// longer than briefWait: announcing the call to the scheduler costs half as much as
	// the wait. A signal of the scheduler's still interrupts it.
	briefWait = 2 * time.Millisecond
)

// A Loop is one goroutine that serves the sockets and timers of its sessions.
//
// The goroutine owns everything but the mailbox, and what is atomic. It calls the sessions one at a time,
// and blocks only in epoll_wait.
type Loop struct {
	all       *Loops
	index     int // in all.list
	clock     Clock
	ep        int // the epoll descriptor
	wakeFD    int // an eventfd, written when there is mail
	events    [maxEvents]unix.EpollEvent
	now       session.Time // time of this turn; it never goes back
	lastTurn  session.Time // time of the previous turn
	lastYield session.Time // when the loop last yielded its processor
	woke      bool         // goroutines may have become runnable since, see wait

	legs     []*leg // by descriptor
	queue    []*leg // legs to serve, the longest waiting first
	due      alarms
	effort   int // spent so far: see maxEffort
	sessions int // that have not ended
	closing  bool

	// Lent to the session being served.
	buf    []byte
	out    [][]byte
	sender rawconn.Sender
	plain  []byte // input of a layer that is written to,
	sealed []byte // and its output

	notices  []notice // of this turn
	notifier *notifier
	load     atomic.Int64 // sessions, those that are on their way here too
	running  sync.WaitGroup

	connsMu sync.Mutex
	conns   map[int]*Conn // that no session has taken over, by descriptor; nil once the loop stops

	links  []*linked // see relay_linux.go
	relays map[*relay]struct{}
	asleep atomic.Bool // a goroutine that makes something due on a link has to wake the loop

	balance // see balance_linux.go

	mailed  atomic.Bool // there is mail
	mu      sync.Mutex
	mail    []letter
	stopped bool // the goroutine has returned; now mu guards all of the above
}

// A letter is a call that the loop is to make.
type letter struct {
	s *Session // nil: it concerns no single session
	f func()
}

// newLoop makes a Loop, which begin starts, and close stops.
func (all *Loops) newLoop(index int) (*Loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	wakeFD, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l := &Loop{all: all, index: index, clock: all.clock, ep: ep, wakeFD: wakeFD, relays: make(map[*relay]struct{}), buf: make([]byte, readSize), conns: make(map[int]*Conn), notifier: newNotifier()}
	// Each write is an edge of its own, so the eventfd is never read.
	if err := l.watch(wakeFD, unix.EPOLLIN|unix.EPOLLET); err != nil {
		unix.Close(ep)
		unix.Close(wakeFD)
		return nil, err
	}
	return l, nil
}

// begin starts l's goroutines.
func (l *Loop) begin() {
	l.since = l.clock.Now()
	if everyTurn != 0 {
		l.random = rand.New(rand.NewPCG(everyTurn, uint64(l.index)))
	}
	l.running.Go(l.notifier.run)
	l.running.Go(l.run)
}

// close stops the loop once its last session has ended. It does not wait.
func (l *Loop) close() { l.post(func() { l.closing = true }) }

func (l *Loop) watch(fd int, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(fd)}
	if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// adopt routes the events of g's socket to g, which is watched already if it was a Conn's.
func (l *Loop) adopt(g *leg, watched bool) error {
	for g.fd >= len(l.legs) {
		l.legs = append(l.legs, make([]*leg, max(64, len(l.legs)))...)
	}
	l.legs[g.fd] = g
	if watched {
		return nil
	}
	return l.watch(g.fd, interest)
}

// legOf returns the leg of a descriptor, nil if it is no session's.
func (l *Loop) legOf(fd int32) *leg {
	if int(fd) < len(l.legs) {
		return l.legs[fd]
	}
	return nil
}

// forget undoes adopt for a socket that stays open.
func (l *Loop) forget(fd int) {
	l.legs[fd] = nil
	unix.EpollCtl(l.ep, unix.EPOLL_CTL_DEL, fd, nil)
}

func (l *Loop) run() {
	for {
		n := l.wait()
		l.tick()
		l.collect(l.events[:n])
		l.deliver()
		l.fireAlarms()
		l.readLinks()
		l.serve()
		l.notify()
		l.flushLinks()
		l.endTurn()
		if l.closing && l.sessions == 0 {
			l.closeConns()
			l.closeLinks()
			if l.end() {
				return
			}
		}
	}
}

// tick begins a turn: it reads the clock.
func (l *Loop) tick() {
	l.asleep.Store(false)
	l.lastTurn, l.now = l.now, max(l.now, l.clock.Now())
	if since := l.now.Sub(l.lastYield); since >= yieldEvery || l.woke && since >= yieldWoken {
		runtime.Gosched()
		l.now = max(l.now, l.clock.Now())
		l.woke, l.lastYield = false, l.now
	}
	l.began = l.now
	l.startCPU()
}

// collect notes events of sockets. Those of sessions are served later, in the order in which they came.
func (l *Loop) collect(events []unix.EpollEvent) {
	for _, e := range events {
		if g := l.legOf(e.Fd); g != nil {
			if g.noteEvents(e.Events); g.s != nil || g.relay != nil {
				l.enqueue(g)
			}
		} else if int(e.Fd) != l.wakeFD {
			l.noteConn(int(e.Fd), e.Events)
		}
	}
}

// enqueue has g served, in this turn or in a later one.
func (l *Loop) enqueue(g *leg) {
	if !g.queued {
		g.queued = true
		l.queue = append(l.queue, g)
	}
}

// serve serves those who are queued, once each, as far as the turn's limits go.
func (l *Loop) serve() {
	n, limit := 0, l.effort+maxEffort
	for most := min(len(l.queue), maxLegs); n < most && l.effort < limit; n++ {
		g := l.queue[n]
		g.queued = false
		if g.s != nil {
			g.s.ready(g)
		} else {
			g.relay.ready()
		}
	}
	left := copy(l.queue, l.queue[n:])
	clear(l.queue[left:])
	l.queue = l.queue[:left]
}

// wait waits for sockets, mail or the next alarm.
//
// If the loop has made goroutines runnable, it lets them run before it blocks. Otherwise each would have to be
// stolen by another processor, which is woken for it: a mass reconnect (workload W7) took 151 ms, and 132 with this.
func (l *Loop) wait() int {
	if l.woke {
		if n := epollWait(unix.RawSyscall6, l.ep, &l.events, 0); n > 0 {
			return n
		}
		l.woke, l.lastYield = false, l.now
		runtime.Gosched()
	}
	limit := time.Duration(-1)
	switch {
	case len(l.queue) > 0, l.mailed.Load(), l.linksWant():
		limit = 0
	case len(l.due) > 0:
		limit = max(l.due[0].alarm.Sub(l.now), 0)
	}
	brief := limit >= 0 && limit <= briefWait
	switch {
	case brief:
		return epollWait(unix.RawSyscall6, l.ep, &l.events, limit)
	case l.now.Sub(l.lastTurn) < briefWait:
		if n := epollWait(unix.RawSyscall6, l.ep, &l.events, briefWait); n > 0 {
			return n
		}
	}
	return epollWait(unix.Syscall6, l.ep, &l.events, limit)
}

// fireAlarms calls sessions whose alarms are due, a limited number per turn, so that no
// message waits for the heartbeats of all sessions.
func (l *Loop) fireAlarms() {
	for range max(maxRings, len(l.due)/64) {
		if len(l.due) == 0 || l.due[0].alarm > l.now {
			return
		}
		l.due.pop().onAlarm()
	}
}

// report has n delivered at the end of this turn.
func (l *Loop) report(n notice) { l.notices = append(l.notices, n) }

// notify hands this turn's notices to the notifier.
func (l *Loop) notify() {
	if len(l.notices) > 0 {
		l.notifier.put(l.notices)
		clear(l.notices)
		l.notices = l.notices[:0]
	}
}

// post puts f into the mailbox. If the loop has stopped, it calls f at once.
func (l *Loop) post(f func()) { l.mailTo(letter{f: f}) }

// mailTo puts m into the mailbox, or returns false if m is for a session that is not here.
func (l *Loop) mailTo(m letter) bool {
	l.mu.Lock()
	if m.s != nil && m.s.home.Load() != l {
		l.mu.Unlock()
		return false
	}
	if l.stopped {
		defer l.mu.Unlock()
		m.f()
		return true
	}
	l.mail = append(l.mail, m)
	first := len(l.mail) == 1
	l.mailed.Store(true)
	l.mu.Unlock()
	if first {
		l.signal()
	}
	return true
}

func (l *Loop) signal() { rawconn.Wake(l.wakeFD) }

// call runs f on the loop and waits for it.
func (l *Loop) call(f func()) {
	done := make(chan struct{})
	l.post(func() {
		defer close(done)
		f()
	})
	<-done
}

// deliver makes the calls in the mailbox, in order, no more than maxMail. A client that attaches
// is such a call, so it comes before what is relayed for others.
func (l *Loop) deliver() {
	if !l.mailed.Load() {
		return
	}
	l.mu.Lock()
	mail := l.mail
	l.mail = nil
	if len(mail) > maxMail {
		l.mail = slices.Clone(mail[maxMail:])
		mail = mail[:maxMail]
	}
	l.mailed.Store(len(l.mail) > 0)
	l.mu.Unlock()
	l.woke = true
	l.now = max(l.now, l.clock.Now()) // no call may see a time before it was posted
	for _, m := range mail {
		m.f()
	}
}

// end stops the loop, unless more mail has arrived.
func (l *Loop) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mail) > 0 {
		return false
	}
	l.stopped = true
	unix.Close(l.ep)
	unix.Close(l.wakeFD)
	l.notifier.close()
	return true
}
