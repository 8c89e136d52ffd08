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
	readSize = 256 << 10 // of a client read
	maxRings = 32        // alarms of one turn, or more where there are very many

	// yieldEvery is how long the loop keeps its processor at most before it asks
	// the scheduler for it anew. From one that has been kept for ten milliseconds
	// the runtime's monitor takes it away whenever the loop waits, and looks for
	// that fifty times a millisecond: it costs a tenth of a processor.
	yieldEvery = 8 * time.Millisecond

	// A loop that turns more often than this waits without telling the scheduler,
	// for no longer than this: telling it costs half as much as waiting does.
	// The scheduler can still interrupt it, by a signal.
	briefly = 2 * time.Millisecond
)

// A Loop is one goroutine that serves the sockets and timers of its sessions.
//
// All but the mailbox is its goroutine's own. Sessions are its to call, one at
// a time; nothing in it waits for anything but epoll_wait.
type Loop struct {
	clock  Clock
	ep     int // the epoll descriptor
	bell   int // an eventfd: there is mail
	events [maxEvents]unix.EpollEvent
	now    session.Time // of this turn; it never goes back
	before session.Time // of the turn before
	ran    session.Time // since when the processor has been kept

	legs     []*leg // by descriptor
	again    []*leg // that may have more to be read
	spare    []*leg // again's memory of the turn before
	due      alarms
	sessions int // that are not over
	closing  bool

	// Lent to the session that is being served.
	buf    []byte
	lend   func() []byte // returns buf
	out    [][]byte
	sender rawconn.Sender

	fresh    []news // of this turn, for the notifier
	notifier *notifier
	load     atomic.Int64
	running  sync.WaitGroup

	mu   sync.Mutex
	mail []func()
	gone bool // the goroutine has ended; then mu guards all of the above
}

// Start starts a Loop; Close ends it.
func Start(clock Clock) (*Loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l := &Loop{clock: clock, ep: ep, bell: bell, buf: make([]byte, readSize), notifier: newNotifier()}
	l.lend = func() []byte { return l.buf }
	// Each ring is an edge of its own, so the bell is never read.
	if err := l.watch(bell, unix.EPOLLIN|unix.EPOLLET); err != nil {
		unix.Close(ep)
		unix.Close(bell)
		return nil, err
	}
	l.running.Go(l.notifier.run)
	l.running.Go(l.run)
	return l, nil
}

// Load is how many sessions the loop has.
func (l *Loop) Load() int64 { return l.load.Load() }

// Close ends the loop once its last session is over. It does not wait.
func (l *Loop) Close() { l.post(func() { l.closing = true }) }

// Wait waits until the loop has ended and all is told.
func (l *Loop) Wait() { l.running.Wait() }

func (l *Loop) watch(fd int, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(fd)}
	if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// adopt has g told what the loop hears of its socket.
func (l *Loop) adopt(g *leg) error {
	for g.fd >= len(l.legs) {
		l.legs = append(l.legs, make([]*leg, max(64, len(l.legs)))...)
	}
	l.legs[g.fd] = g
	return l.watch(g.fd, interest)
}

// forget undoes adopt for a socket that is not closed.
func (l *Loop) forget(fd int) {
	l.legs[fd] = nil
	unix.EpollCtl(l.ep, unix.EPOLL_CTL_DEL, fd, nil)
}

func (l *Loop) run() {
	for {
		n := l.wait()
		l.tick()
		rung := false
		for _, e := range l.events[:n] {
			if int(e.Fd) == l.bell {
				rung = true
			} else if g := l.legs[e.Fd]; g != nil {
				g.s.ready(g, e.Events)
			}
		}
		if rung {
			l.deliver()
		}
		l.ring()
		l.goOn()
		l.tell()
		if l.closing && l.sessions == 0 && l.end() {
			return
		}
	}
}

// tick takes the time, once for a whole turn.
func (l *Loop) tick() {
	l.before, l.now = l.now, max(l.now, l.clock.Now())
	if l.now.Sub(l.ran) >= yieldEvery {
		l.ran = l.now
		runtime.Gosched()
	}
}

// wait waits for sockets, mail or the next alarm.
func (l *Loop) wait() int {
	limit := time.Duration(-1)
	switch {
	case len(l.again) > 0:
		limit = 0
	case len(l.due) > 0:
		limit = max(l.due[0].alarm.Sub(l.now), 0)
	}
	brief := limit >= 0 && limit <= briefly
	switch {
	case brief:
		return epollWait(unix.RawSyscall6, l.ep, &l.events, limit)
	case l.now.Sub(l.before) < briefly:
		if n := epollWait(unix.RawSyscall6, l.ep, &l.events, briefly); n > 0 {
			return n
		}
	}
	return epollWait(unix.Syscall6, l.ep, &l.events, limit)
}

// goOn reads once from each socket that had more than one read takes.
func (l *Loop) goOn() {
	list := l.again
	l.again = l.spare[:0]
	for i, g := range list {
		list[i] = nil
		g.queued = false
		g.s.ready(g, unix.EPOLLIN)
	}
	l.spare = list[:0]
}

// ring calls sessions whose alarms are due; the rest of many in the next turn,
// so that no message waits for all their heartbeats.
func (l *Loop) ring() {
	for range max(maxRings, len(l.due)/64) {
		if len(l.due) == 0 || l.due[0].alarm > l.now {
			return
		}
		l.due.pop().rung()
	}
}

// news has n told at the end of this turn.
func (l *Loop) news(n news) { l.fresh = append(l.fresh, n) }

// tell passes on what has happened in this turn.
func (l *Loop) tell() {
	if len(l.fresh) > 0 {
		l.notifier.put(l.fresh)
		clear(l.fresh)
		l.fresh = l.fresh[:0]
	}
}

// post puts f into the mailbox. Where the loop has ended f is called at once.
func (l *Loop) post(f func()) {
	l.mu.Lock()
	if l.gone {
		defer l.mu.Unlock()
		f()
		return
	}
	l.mail = append(l.mail, f)
	first := len(l.mail) == 1
	l.mu.Unlock()
	if first {
		l.wake()
	}
}

func (l *Loop) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := unix.Write(l.bell, one[:]); err != nil && !errors.Is(err, unix.EAGAIN) {
		panic(fmt.Errorf("eventfd: %w", err)) // it has no other errors
	}
}

// call has f called by the loop and waits until it was.
func (l *Loop) call(f func()) {
	done := make(chan struct{})
	l.post(func() {
		defer close(done)
		f()
	})
	<-done
}

// deliver does what is in the mailbox.
func (l *Loop) deliver() {
	l.mu.Lock()
	mail := l.mail
	l.mail = nil
	l.mu.Unlock()
	l.now = max(l.now, l.clock.Now()) // what is asked shall not be answered before it was
	for _, f := range mail {
		f()
	}
}

// end ends the loop, unless there is mail again.
func (l *Loop) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mail) > 0 {
		return false
	}
	l.gone = true
	unix.Close(l.ep)
	unix.Close(l.bell)
	l.notifier.close()
	return true
}
