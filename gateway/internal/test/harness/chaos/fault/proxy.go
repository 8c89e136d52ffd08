package fault

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxLine  = 16 << 10 // of a request
	chopped  = 4 << 10  // how many bytes of a connection are written in small pieces
	lineWait = 10 * time.Second
)

// A Proxy forwards connections to a target, following their plans.
type Proxy struct {
	Target string
	// Plan returns the plan of a connection for the path of its request.
	Plan func(path string) Plan
	// Told means that each connection starts with a line for the proxy alone, which
	// contains the path: the proxy can't read an encrypted request.
	Told bool
	// Struck is called when a connection has met its fault.
	Struck func(path string, p Plan)
	ln     net.Listener
	all    sync.WaitGroup
	ctx    context.Context
	stop   context.CancelFunc
}

// Serve starts to serve at ln, and returns.
func (p *Proxy) Serve(ln net.Listener) {
	p.ln = ln
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.all.Go(p.accept)
}

// Close closes all connections and waits for them.
func (p *Proxy) Close() {
	p.stop()
	p.ln.Close()
	p.all.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

// serve forwards one connection.
func (p *Proxy) serve(near *net.TCPConn) {
	defer near.Close()
	defer context.AfterFunc(p.ctx, func() { near.Close() })()
	head, path := requestLine(near)
	if path == "" {
		return
	}
	if p.Told {
		_, head, _ = bytes.Cut(head, []byte("\r\n"))
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(p.ctx, "tcp", p.Target)
	if err != nil {
		reset(near)
		return
	}
	far := conn.(*net.TCPConn)
	defer far.Close()
	defer context.AfterFunc(p.ctx, func() { far.Close() })()
	l := &link{plan: p.Plan(path), near: near, far: far}
	l.struck = func() { p.Struck(path, l.plan) }
	l.run(head)
}

// requestLine reads a connection's first bytes, at least up to the end of a line.
func requestLine(c net.Conn) (head []byte, path string) {
	c.SetReadDeadline(time.Now().Add(lineWait))
	defer c.SetReadDeadline(time.Time{})
	b := make([]byte, maxLine)
	for n := 0; n < len(b); {
		m, err := c.Read(b[n:])
		n += m
		if line, _, ok := bytes.Cut(b[:n], []byte("\r\n")); ok {
			f := strings.Fields(string(line))
			if len(f) != 3 {
				return nil, ""
			}
			return b[:n], f[1]
		}
		if err != nil {
			break
		}
	}
	return nil, ""
}

func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// A link is a forwarded connection.
type link struct {
	plan      Plan
	near, far *net.TCPConn
	struck    func()

	once   sync.Once
	mute   [2]atomic.Bool // swallow data: to near, to far
	stall  sync.RWMutex   // write-locked during a stall
	passed [2]int         // each owned by its direction
	late   [2]bool        // likewise: the initial delay is over
}

const (
	ToNear = iota
	ToFar
)

func (l *link) run(head []byte) {
	var both sync.WaitGroup
	both.Go(func() { l.pass(ToFar, io.MultiReader(bytes.NewReader(head), l.near), l.far) })
	both.Go(func() { l.pass(ToNear, l.far, l.near) })
	both.Wait()
}

// pass copies one direction until it ends.
func (l *link) pass(way int, from io.Reader, to *net.TCPConn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 && !l.forward(way, b[:n], to) {
			return
		}
		if err != nil {
			l.ended(way, err, to)
			return
		}
	}
}

// ended forwards the end of one side, unless a fault has separated them.
func (l *link) ended(way int, err error, to *net.TCPConn) {
	switch {
	case l.mute[way].Load():
	case err == io.EOF:
		to.CloseWrite()
	default:
		reset(to)
	}
}

// forward writes data up to the byte of the fault.
func (l *link) forward(way int, b []byte, to *net.TCPConn) (goOn bool) {
	counted := l.plan.Kind != None && l.plan.Up == (way == ToFar)
	if left := l.plan.After - l.passed[way]; counted && left >= 0 && left < len(b) {
		if !l.write(way, b[:left], to) {
			return false
		}
		l.passed[way] = l.plan.After + 1
		l.once.Do(l.strike)
		b = b[left:]
		return l.write(way, b, to)
	}
	l.passed[way] += len(b)
	return l.write(way, b, to)
}

// write writes at the line's rate.
func (l *link) write(way int, b []byte, to *net.TCPConn) bool {
	if l.plan.Late > 0 && !l.late[way] {
		l.late[way] = true
		time.Sleep(l.plan.Late)
	}
	for len(b) > 0 {
		l.stall.RLock()
		l.stall.RUnlock() //lint:ignore SA2001 only waits until a stall is over
		if l.mute[way].Load() {
			return true // swallowed, as if it had been sent
		}
		n := len(b)
		if l.plan.Chop > 0 && l.passed[way] < chopped {
			n = min(n, l.plan.Chop)
		}
		if l.plan.Rate > 0 {
			n = min(n, max(1, l.plan.Rate/50))
			time.Sleep(time.Duration(n) * time.Second / time.Duration(l.plan.Rate))
		}
		if _, err := to.Write(b[:n]); err != nil {
			l.near.Close()
			l.far.Close()
			return false
		}
		b = b[n:]
	}
	return true
}

// strike applies the plan's fault. What is left of the connection ends after the plan's
// Hold.
func (l *link) strike() {
	l.struck()
	switch l.plan.Kind {
	case Stall:
		l.stall.Lock()
		time.AfterFunc(l.plan.Hold, l.stall.Unlock)
		return
	case Reset, EarlyReset:
		reset(l.near)
		reset(l.far)
	case FinToFar:
		l.far.CloseWrite()
		l.mute[ToFar].Store(true)
	case FinToNear:
		l.near.CloseWrite()
		l.mute[ToNear].Store(true)
	case DeafFar, EarlyDeaf:
		l.silence()
		reset(l.near)
	case DeafNear:
		l.silence()
		reset(l.far)
	case Silence:
		l.silence()
	case SilentToFar:
		l.mute[ToFar].Store(true)
	case SilentToNear:
		l.mute[ToNear].Store(true)
	case SilenceEnds:
		l.stall.Lock()
		time.AfterFunc(l.plan.Hold, func() {
			l.stall.Unlock()
			l.lapse()
		})
		return
	}
	l.lapse()
}

func (l *link) silence() {
	l.mute[ToNear].Store(true)
	l.mute[ToFar].Store(true)
}

// lapse resets both sides after the plan's Hold.
func (l *link) lapse() {
	time.AfterFunc(l.plan.Hold, func() {
		reset(l.near)
		reset(l.far)
	})
}
