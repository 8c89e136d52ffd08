package handover

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Conn is one end of the channel. One goroutine may receive while others send.
type Conn struct {
	c      *net.UnixConn
	send   sync.Mutex
	unsent []byte // of a message that a deadline has cut off; guarded by send
}

// New returns the Conn of a Unix stream socket, whose descriptor it owns from then on.
func New(fd int) (*Conn, error) {
	f := os.NewFile(uintptr(fd), "upgrade")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("upgrade channel: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("upgrade channel: %w", ErrProtocol)
	}
	return &Conn{c: u}, nil
}

// Pair returns a Conn, and the descriptor of its other end.
func Pair() (*Conn, *os.File, error) {
	fds, err := SocketPair()
	if err != nil {
		return nil, nil, err
	}
	c, err := New(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, nil, err
	}
	return c, os.NewFile(uintptr(fds[1]), "upgrade"), nil
}

// SocketPair returns two connected Unix stream sockets that a child process does not
// inherit.
func SocketPair() ([2]int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fds, fmt.Errorf("socketpair: %w", err)
	}
	return fds, nil
}

// Close closes the channel.
func (c *Conn) Close() error { return c.c.Close() }

// SetDeadline limits calls of Send and Receive, under way and later. The zero time means
// no limit.
func (c *Conn) SetDeadline(t time.Time) { c.c.SetDeadline(t) }

// Withdraw ends the upgrade before Commit, and closes the channel once the peer has been sent
// the reason; then it closes sent. Until then the channel stays open, however long the peer does not
// read: it would take the end of the channel for a crash of this process, and have the sessions
// that this process continues. From here on the peer cannot say Ready any more.
func (c *Conn) Withdraw(why error) (sent <-chan struct{}) {
	c.c.CloseRead()
	c.SetDeadline(time.Time{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.SendAbort(why)
		c.Close()
	}()
	return done
}

// Send sends a message: the concatenation of body, and duplicates of fds. If the peer has
// closed the channel, the error is an *AbortError if it has sent Abort before, and io.EOF
// otherwise. The rest of a message that a deadline has cut off precedes the next one.
func (c *Conn) Send(k Kind, fds []int, body ...[]byte) error {
	size := 0
	for _, b := range body {
		size += len(b)
	}
	if len(fds) > MaxFDs {
		return fmt.Errorf("%d descriptors in a message, at most %d", len(fds), MaxFDs)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	head := appendHead(nil, k, size, len(fds))
	c.send.Lock()
	defer c.send.Unlock()
	err := c.complete()
	if err == nil {
		var n int
		if n, _, err = c.c.WriteMsgUnix(head, oob, nil); err == nil {
			if c.unsent = head[n:]; size > 0 {
				rest := append(net.Buffers{c.unsent}, body...)
				_, err = rest.WriteTo(c.c)
				c.unsent = bytes.Join(rest, nil)
			} else {
				err = c.complete()
			}
		}
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return c.lastWord()
	}
	return err
}

// complete sends what was cut off. Called with send held.
func (c *Conn) complete() error {
	if len(c.unsent) == 0 {
		return nil // a deadline that has passed meanwhile is no failure
	}
	n, err := c.c.Write(c.unsent)
	c.unsent = c.unsent[n:]
	return err
}

// lastWord says why the peer has closed the channel.
func (c *Conn) lastWord() error {
	for {
		m, err := c.Receive()
		switch {
		case err != nil:
			return io.EOF
		case m.Kind == Abort:
			return &AbortError{string(m.Body)}
		}
		m.Close()
	}
}

// Receive receives a message. At the end of the channel it returns io.EOF.
func (c *Conn) Receive() (m Message, err error) {
	var head [headSize]byte
	oob := make([]byte, unix.CmsgSpace(4*MaxFDs))
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	for n := 0; n < headSize; {
		k, oobn, flags, _, err := c.c.ReadMsgUnix(head[n:], oob)
		if errors.Is(err, io.EOF) || err == nil && k == 0 || errors.Is(err, unix.ECONNRESET) {
			err = io.EOF
			if n > 0 {
				err = io.ErrUnexpectedEOF
			}
		}
		if err != nil {
			return m, err
		}
		if n += k; oobn > 0 {
			fds, err := descriptors(oob[:oobn])
			m.FDs = append(m.FDs, fds...)
			if err != nil {
				return m, err
			}
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return m, errors.New("too few descriptors left to receive what was sent")
		}
	}
	kind, size, fds, err := parseHead(head[:])
	switch {
	case err != nil:
		return m, err
	case fds != len(m.FDs):
		return m, fmt.Errorf("%d descriptors came with a message, %d were sent", len(m.FDs), fds)
	}
	m.Kind, m.Body = kind, make([]byte, size)
	if _, err = io.ReadFull(c.c, m.Body); errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		err = io.ErrUnexpectedEOF
	}
	return m, err
}

func descriptors(oob []byte) (fds []int, err error) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		fds = append(fds, more...)
	}
	return fds, nil
}

// Close closes the descriptors of a message that nobody uses. Negative ones are in use.
func (m *Message) Close() {
	for _, fd := range m.FDs {
		CloseFD(fd)
	}
	m.FDs = nil
}

// A Listener accepts successors, by their --takeover.
type Listener struct{ ln *net.UnixListener }

// Listen listens at path, for processes of the same user alone. A socket that nobody
// listens at is replaced. With replace, one that somebody listens at is replaced too.
func Listen(path string, replace bool) (*Listener, error) {
	if !replace {
		switch err := Probe(path); {
		case err == nil:
			return nil, fmt.Errorf("another process listens at %s", path)
		case !errors.Is(err, ErrNobody):
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is not a socket", path)
	}
	// Another name at first, so that path never names a socket with the wrong mode. It is
	// short, since the path of a socket must be.
	temporary := filepath.Join(filepath.Dir(path), "."+strconv.FormatInt(int64(os.Getpid()), 36))
	os.Remove(temporary)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	err = os.Chmod(temporary, 0o600)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		ln.Close()
		os.Remove(temporary)
		return nil, err
	}
	return &Listener{ln}, nil
}

// Accept waits for a successor. It drops those of other users.
func (l *Listener) Accept() (*Conn, error) {
	for {
		c, err := l.ln.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if sameUser(c) {
			return &Conn{c: c}, nil
		}
		c.Close()
	}
}

// Close stops listening. The path is left: it may be a successor's by now.
func (l *Listener) Close() error { return l.ln.Close() }

// Dial connects to the process that listens at path. The error is ErrNobody if there is
// none.
func Dial(path string) (*Conn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return nil, ErrNobody
	case err != nil:
		return nil, err
	case !sameUser(c):
		c.Close()
		return nil, fmt.Errorf("the process at %s runs as another user", path)
	}
	return &Conn{c: c}, nil
}

// sameUser reports whether the process at the other end runs as this one's user:
// SO_PEERCRED, socket(7).
func sameUser(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil || err != nil {
		return false
	}
	return cred.Uid == uint32(os.Geteuid())
}

// Monotonic is the time of the machine's monotonic clock, clock_gettime(2): the same for all
// processes.
func Monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the clock exists on every Linux
	}
	return time.Duration(t.Nano())
}

// CloseFD closes a descriptor. It ignores a negative one.
func CloseFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// Duplicate returns a duplicate of the channel's descriptor, which is the caller's to close. It
// stays open when c is closed.
func (c *Conn) Duplicate() (fd int, err error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(p uintptr) { fd, err = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}
