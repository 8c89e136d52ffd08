package epoll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
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

	// yieldEvery bounds the time for which the loop keeps its processor before it yields to the
	// scheduler. When a processor has been held for ten milliseconds, the runtime's
	// monitor retakes it in every blocking call, and checks fifty times a millisecond:
	// that costs a tenth of a processor.
	yieldEvery = 8 * time.Millisecond

	// A loop whose turns are shorter than briefWait waits with a raw system call, for no
	// longer than briefWait: announcing the call to the scheduler costs half as much as
	// the wait. A signal of the scheduler's still interrupts it.
	briefWait = 2 * time.Millisecond
)

// A Loop is one goroutine that serves the sockets and timers of its sessions.
//
// The goroutine owns everything but the mailbox. It calls the sessions one at a time,
// and blocks only in epoll_wait.
type Loop struct {
	clock     Clock
	ep        int // the epoll descriptor
	wakeFD    int // an eventfd, written when there is mail
	events    [maxEvents]unix.EpollEvent
	now       session.Time // time of this turn; it never goes back
	lastTurn  session.Time // time of the previous turn
	lastYield session.Time // when the loop last yielded its processor
	woke      bool         // goroutines may have become runnable since, see wait

	legs     []*leg // by descriptor
	unread   []*leg // legs that may have more to read
	spare    []*leg // the previous turn's slice of unread, for reuse
	due      alarms
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
	load     atomic.Int64
	running  sync.WaitGroup

	connsMu sync.Mutex
	conns   map[int]*Conn // that no session has taken over, by descriptor; nil once the loop stops

	mu      sync.Mutex
	mail    []func()
	stopped bool // the goroutine has returned; now mu guards all of the above
}

// Start starts a Loop; Close stops it.
func Start(clock Clock) (*Loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	wakeFD, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l := &Loop{clock: clock, ep: ep, wakeFD: wakeFD, buf: make([]byte, readSize), conns: make(map[int]*Conn), notifier: newNotifier()}
	// Each write is an edge of its own, so the eventfd is never read.
	if err := l.watch(wakeFD, unix.EPOLLIN|unix.EPOLLET); err != nil {
		unix.Close(ep)
		unix.Close(wakeFD)
		return nil, err
	}
	l.running.Go(l.notifier.run)
	l.running.Go(l.run)
	return l, nil
}

// Load returns the number of the loop's sessions.
func (l *Loop) Load() int64 { return l.load.Load() }

// Close stops the loop once its last session has ended. It does not wait.
func (l *Loop) Close() { l.post(func() { l.closing = true }) }

// Wait waits until the loop has stopped and all Observers have been notified.
func (l *Loop) Wait() { l.running.Wait() }

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
		if l.serve(l.events[:n]) {
			l.woke = true
			l.deliver()
		}
		l.fireAlarms()
		l.readPending()
		l.notify()
		if l.closing && l.sessions == 0 {
			l.closeConns()
			if l.end() {
				return
			}
		}
	}
}

// tick reads the clock, once per turn.
func (l *Loop) tick() {
	l.lastTurn, l.now = l.now, max(l.now, l.clock.Now())
	if l.now.Sub(l.lastYield) >= yieldEvery {
		l.lastYield = l.now
		runtime.Gosched()
	}
}

// serve handles events of sockets, and reports whether there is mail.
func (l *Loop) serve(events []unix.EpollEvent) (rung bool) {
	for _, e := range events {
		if int(e.Fd) == l.wakeFD {
			rung = true
		} else if g := l.legOf(e.Fd); g != nil {
			g.s.ready(g, e.Events)
		} else {
			l.noteConn(int(e.Fd), e.Events)
		}
	}
	return rung
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
	case len(l.unread) > 0:
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

// readPending reads once from each socket that had more data than one read takes.
func (l *Loop) readPending() {
	list := l.unread
	l.unread = l.spare[:0]
	for i, g := range list {
		list[i] = nil
		g.queued = false
		g.s.ready(g, unix.EPOLLIN)
	}
	l.spare = list[:0]
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

// queue has n delivered at the end of this turn.
func (l *Loop) queue(n notice) { l.notices = append(l.notices, n) }

// notify hands this turn's notices to the notifier.
func (l *Loop) notify() {
	if len(l.notices) > 0 {
		l.notifier.put(l.notices)
		clear(l.notices)
		l.notices = l.notices[:0]
	}
}

// post puts f into the mailbox. If the loop has stopped, it calls f at once.
func (l *Loop) post(f func()) {
	l.mu.Lock()
	if l.stopped {
		defer l.mu.Unlock()
		f()
		return
	}
	l.mail = append(l.mail, f)
	first := len(l.mail) == 1
	l.mu.Unlock()
	if first {
		l.signal()
	}
}

func (l *Loop) signal() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := unix.Write(l.wakeFD, one[:]); err != nil && !errors.Is(err, unix.EAGAIN) {
		panic(fmt.Errorf("eventfd: %w", err)) // no other error is possible
	}
}

// call runs f on the loop and waits for it.
func (l *Loop) call(f func()) {
	done := make(chan struct{})
	l.post(func() {
		defer close(done)
		f()
	})
	<-done
}

// deliver runs the functions in the mailbox.
func (l *Loop) deliver() {
	l.mu.Lock()
	mail := l.mail
	l.mail = nil
	l.mu.Unlock()
	l.now = max(l.now, l.clock.Now()) // no call may see a time before it was posted
	for _, f := range mail {
		f()
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
