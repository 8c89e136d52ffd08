package epoll

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"reseat/gateway/transport/rawconn"
)

// A Conn is a TCP connection that waits on a Loop until a session of that Loop takes it
// over. The kernel learns of it once: the runtime's poller never sees it, and it is neither
// duplicated nor registered again for the session. That saves a fifth of a short connection's processor
// time (workload W8: 190 µs with connections of package net, 148 with these).
//
// It may have one reader and one writer at a time. Everything else is safe for concurrent
// use.
type Conn struct {
	loop  *Loop
	fd    int
	local net.Addr     // of the listener, if that is known, so that most connections need not ask
	peer  net.Addr     // nil: ask
	refs  atomic.Int32 // uses of fd, and closed

	// Signals with one slot each. The receiver tries again, and may find nothing.
	mayRead, mayWrite chan struct{}

	edge   atomic.Bool // something may have arrived since the last read began
	more   atomic.Bool // the last read filled its buffer
	ending atomic.Bool // the peer has sent all it will send

	limits  sync.Mutex // guards in and out; never held while waiting
	in, out limit
}

// closed, in Conn.refs, says that the descriptor is closed after its last use.
const closed = 1 << 30

// A limit is the deadline of one direction. It has a timer only while somebody waits, since
// most connections are done before they would.
type limit struct {
	at      time.Time // zero: none
	blocked bool      // somebody waits
	timer   *time.Timer
}

// Dial opens a connection. The error is one of package net, or ctx's.
func (l *Loop) Dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	fd, err := openSocket(to)
	if err != nil {
		return nil, dialError(to, err)
	}
	name, size := sockaddr(to)
	err = connect(fd, name, size)
	if err == unix.EINPROGRESS { // over loopback it is there already
		err = connect(fd, name, size)
	}
	if err != nil && err != unix.EALREADY {
		unix.Close(fd)
		return nil, dialError(to, os.NewSyscallError("connect", err))
	}
	c := l.newConn(fd)
	watched := c.begin()
	for watched == nil && err != nil {
		select {
		case <-c.mayWrite:
		case <-ctx.Done():
			c.Close()
			return nil, ctx.Err()
		}
		if err = connect(fd, name, size); err != nil && err != unix.EALREADY {
			watched = os.NewSyscallError("connect", err)
		}
	}
	if watched != nil {
		c.Close()
		return nil, dialError(to, watched)
	}
	return c, nil
}

// openSocket returns a socket with the options that package net would set.
func openSocket(to netip.AddrPort) (fd int, err error) {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := rawconn.SetOptions(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sockaddr converts an address without a zone.
func sockaddr(to netip.AddrPort) (unsafe.Pointer, uintptr) {
	port := [2]byte{byte(to.Port() >> 8), byte(to.Port())} // in network order
	if to.Addr().Is6() {
		a := unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: *(*uint16)(unsafe.Pointer(&port)), Addr: to.Addr().As16()}
		return unsafe.Pointer(&a), unsafe.Sizeof(a)
	}
	a := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: *(*uint16)(unsafe.Pointer(&port)), Addr: to.Addr().As4()}
	return unsafe.Pointer(&a), unsafe.Sizeof(a)
}

// connect begins to connect, or returns how that stands: EALREADY while it goes on. It does not
// block, see package rawconn.
func connect(fd int, name unsafe.Pointer, size uintptr) error {
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(name), size)
	switch errno {
	case 0, unix.EISCONN:
		return nil
	case unix.EINTR:
		return unix.EALREADY
	}
	return errno
}

func dialError(to netip.AddrPort, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err}
}

var errStopped = errors.New("the event loop stops")

// Accepted returns the Conn of an accepted connection, with TCP_NODELAY, and owns the
// descriptor even if there is an error. local is the address of the listener.
func (l *Loop) Accepted(fd int, local, peer net.Addr) (*Conn, error) {
	c := l.newConn(fd)
	c.local, c.peer = local, peer
	c.more.Store(true) // the request may be there
	if err := c.begin(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (l *Loop) newConn(fd int) *Conn {
	return &Conn{loop: l, fd: fd, mayRead: make(chan struct{}, 1), mayWrite: make(chan struct{}, 1)}
}

// begin has the loop watch c.
func (c *Conn) begin() error {
	l := c.loop
	l.connsMu.Lock()
	defer l.connsMu.Unlock()
	if l.conns == nil {
		return errStopped
	}
	l.conns[c.fd] = c
	return l.watch(c.fd, interest)
}

// noteConn records events of a descriptor that belongs to no session.
func (l *Loop) noteConn(fd int, events uint32) {
	l.connsMu.Lock()
	c := l.conns[fd]
	l.connsMu.Unlock()
	if c != nil {
		l.woke = true
		c.note(events)
	}
}

// closeConns closes what still waits on the loop, which is about to stop.
func (l *Loop) closeConns() {
	l.connsMu.Lock()
	conns := l.conns
	l.conns = nil
	l.connsMu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

func (c *Conn) note(events uint32) {
	if events&hasEnded != 0 {
		c.ending.Store(true)
	}
	if events&mayRead != 0 {
		c.edge.Store(true)
		signal(c.mayRead)
	}
	if events&mayWrite != 0 {
		signal(c.mayWrite)
	}
}

func signal(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// hold keeps the descriptor from being closed until drop. It reports false if it is closed.
func (c *Conn) hold() bool {
	for {
		n := c.refs.Load()
		if n&closed != 0 {
			return false
		}
		if c.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *Conn) drop() {
	if c.refs.Add(-1) == closed {
		unix.Close(c.fd) // this also removes it from the epoll set
	}
}

// end is hold for the caller that closes c, or takes the descriptor out of it. It reports
// false if another has.
func (c *Conn) end() bool {
	for {
		n := c.refs.Load()
		if n&closed != 0 {
			return false
		}
		if c.refs.CompareAndSwap(n, n+1|closed) {
			break
		}
	}
	c.loop.connsMu.Lock()
	delete(c.loop.conns, c.fd)
	c.loop.connsMu.Unlock()
	signal(c.mayRead)
	signal(c.mayWrite)
	return true
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	failed := c.wait(&c.in, c.mayRead, func() bool {
		if !c.edge.Load() && !c.more.Load() && !c.ending.Load() {
			return false // the loop would have reported it
		}
		n, err = c.receive(p)
		return n > 0 || err != nil
	})
	return n, cmp.Or(failed, err)
}

// receive reads once. It returns 0 and no error if there is nothing to read now.
func (c *Conn) receive(p []byte) (int, error) {
	c.edge.Store(false)
	n, err := rawconn.Receive(c.fd, p)
	c.more.Store(n == len(p))
	return n, systemError("read", err)
}

// Unread notes that a read by SyscallConn has left something in the socket.
func (c *Conn) Unread() { c.more.Store(true) }

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (n int, err error) {
	failed := c.wait(&c.out, c.mayWrite, func() bool {
		k, _, failed := rawconn.Send(c.fd, p[n:])
		n, err = n+k, systemError("write", failed)
		return n == len(p) || err != nil
	})
	return n, cmp.Or(failed, err)
}

// TryWrite writes as much of p as the socket accepts now. more says that more follows at once:
// the system may keep p until then, for 200 ms at most.
func (c *Conn) TryWrite(p []byte, more bool) (n int, err error) {
	err = c.use(func(fd int) (err error) {
		n, _, err = rawconn.SendMore(fd, p, more)
		return systemError("write", err)
	})
	return n, err
}

// systemError returns err as package net would.
func systemError(call string, err error) error {
	if errno, ok := err.(unix.Errno); ok {
		return os.NewSyscallError(call, errno)
	}
	return err
}

// wait calls attempt, which makes system calls that do not block, whenever slot is signalled,
// until it returns true.
func (c *Conn) wait(m *limit, slot chan struct{}, attempt func() bool) error {
	for {
		switch {
		case !c.hold():
			signal(slot) // for another
			return net.ErrClosed
		case c.expired(m):
			c.drop()
			return os.ErrDeadlineExceeded
		}
		done := attempt()
		c.drop()
		if done {
			return nil
		}
		c.block(m, slot)
	}
}

func (c *Conn) expired(m *limit) bool {
	c.limits.Lock()
	defer c.limits.Unlock()
	return !m.at.IsZero() && time.Until(m.at) <= 0
}

// block waits for slot, which is signalled when m passes, too.
func (c *Conn) block(m *limit, slot chan struct{}) {
	c.limits.Lock()
	m.blocked = true
	if !m.at.IsZero() {
		m.timer = time.AfterFunc(time.Until(m.at), func() { signal(slot) })
	}
	c.limits.Unlock()
	<-slot
	c.limits.Lock()
	defer c.limits.Unlock()
	m.blocked = false
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	if !c.end() {
		return net.ErrClosed
	}
	c.drop()
	return nil
}

// take takes the descriptor, which stays registered with epoll, out of c; negative if c is
// closed.
func (c *Conn) take() (fd int) {
	if !c.end() {
		return -1
	}
	for c.refs.Load() != closed|1 {
		runtime.Gosched() // for system calls that do not block
	}
	return c.fd
}

// TCP takes the connection out of c, as one of package net.
func (c *Conn) TCP() (net.Conn, error) {
	fd := c.take()
	if fd < 0 {
		return nil, net.ErrClosed
	}
	unix.EpollCtl(c.loop.ep, unix.EPOLL_CTL_DEL, fd, nil)
	return rawconn.ConnOf(fd)
}

// CloseWrite shuts down the writing side.
func (c *Conn) CloseWrite() error {
	return c.use(func(fd int) error { return systemError("shutdown", unix.Shutdown(fd, unix.SHUT_WR)) })
}

// SetLinger is that of a net.TCPConn.
func (c *Conn) SetLinger(sec int) error {
	return c.use(func(fd int) error {
		l := unix.Linger{Linger: int32(max(sec, 0))}
		if sec >= 0 {
			l.Onoff = 1
		}
		return systemError("setsockopt", unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &l))
	})
}

// use calls f with the descriptor.
func (c *Conn) use(f func(fd int) error) error {
	if !c.hold() {
		return net.ErrClosed
	}
	defer c.drop()
	return f(c.fd)
}

// SyscallConn implements syscall.Conn. See Unread.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c}, nil }

type rawConn struct{ c *Conn }

func (r rawConn) Control(f func(fd uintptr)) error {
	return r.c.use(func(fd int) error { f(uintptr(fd)); return nil })
}

func (r rawConn) Read(f func(fd uintptr) (done bool)) error {
	c := r.c
	return c.wait(&c.in, c.mayRead, func() bool {
		c.edge.Store(false)
		c.more.Store(false)
		return f(uintptr(c.fd))
	})
}

func (r rawConn) Write(f func(fd uintptr) (done bool)) error {
	c := r.c
	return c.wait(&c.out, c.mayWrite, func() bool { return f(uintptr(c.fd)) })
}

// LocalAddr implements net.Conn. For an accepted connection it is the listener's, which may
// be a wildcard.
func (c *Conn) LocalAddr() net.Addr {
	if c.local != nil {
		return c.local
	}
	return c.ask(syscall.Getsockname)
}

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr {
	if c.peer != nil {
		return c.peer
	}
	return c.ask(syscall.Getpeername)
}

func (c *Conn) ask(of func(fd int) (syscall.Sockaddr, error)) net.Addr {
	var name syscall.Sockaddr
	c.use(func(fd int) (err error) { name, err = of(fd); return err })
	return rawconn.AddrOf(name)
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.limit(&c.in, c.mayRead, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.limit(&c.out, c.mayWrite, t)
	return nil
}

func (c *Conn) limit(m *limit, slot chan struct{}, t time.Time) {
	c.limits.Lock()
	defer c.limits.Unlock()
	m.at = t
	if m.blocked {
		signal(slot) // it waits for the new deadline
	}
}

// A Handle stands for a connection that a session takes over.
type Handle struct {
	fd        int
	conn      *Conn
	layer     Layered
	forwarded bool
}

// Descriptor returns the Handle of a descriptor, which a session that takes it owns. A
// negative one stands for a connection that is unusable.
func Descriptor(fd int) Handle { return Handle{fd: fd} }

// Forwarded is Descriptor for an end of a socket pair. Another process forwards between the other end and
// the peer.
func Forwarded(fd int) Handle { return Handle{fd: fd, forwarded: true} }

// Above returns the Handle of a connection above the socket of which fd is a duplicate. A session that takes it
// owns both.
func Above(fd int, conn Layered) Handle { return Handle{fd: fd, layer: conn} }

// Layered reports whether h is a Handle of Above.
func (h Handle) Layered() bool { return h.layer != nil }

// Handle returns the Handle of c. Until a session takes it over, the caller owns c.
func (c *Conn) Handle() Handle { return Handle{conn: c} }

// Loop returns the loop that c waits on.
func (c *Conn) Loop() *Loop { return c.loop }

// Release closes a descriptor that no session has taken.
func (h Handle) Release() {
	if h.conn == nil {
		rawconn.Release(h.fd)
	}
}

// begin makes h the connection of g, a leg of s, and starts watching it. It may close the leg. It is called by the
// loop.
func (h Handle) begin(s *Session, g *leg) { s.begin(g, h.open(s.loop, g)) }

// open makes h the connection of g, and reports whether l watches it already. g's descriptor is negative if the
// connection is unusable.
func (h Handle) open(l *Loop, g *leg) (watched bool) {
	c := h.conn
	if c == nil {
		g.fd, g.forwarded = h.fd, h.forwarded
		if h.layer != nil {
			g.putLayer(h.layer)
		}
		return false
	}
	g.fd = c.take()
	here := c.loop == l
	if !here && g.fd >= 0 {
		unix.EpollCtl(c.loop.ep, unix.EPOLL_CTL_DEL, g.fd, nil)
	}
	g.ending = c.ending.Load()
	g.readable = c.edge.Load() || c.more.Load() || g.ending
	return here
}
