// Package link carries the clients that one node of a cluster passes on to another, all over one
// connection between the two.
//
// Each client has a Stream. What streams write is collected, and written to the connection as soon as the
// one before is, or at the end of an event loop's turn: what is due at the same time goes out together. A stream
// holds at most window bytes for a slow reader, and the other end sends no more than that; so nobody waits for
// somebody else's client.
//
// Two goroutines move the bytes of a link (Run), or an event loop does (Host): it calls Arrived and TakeDue.
//
// Both ends send a sign of life each beat. A Link from which nothing comes for lostAfter of those ends,
// and all of its streams with it.
package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// window is how many bytes of a stream may be on the way, or wait for their reader.
	window = 64 << 10
	// maxDue bounds what waits to be written to the connection. Who writes more waits.
	maxDue = 256 << 10
	// maxFrame bounds the bytes in a frame.
	maxFrame = 16 << 10
	// maxStreams bounds the streams that the other end may open.
	maxStreams = 1 << 17

	beat      = 2 * time.Second
	lostAfter = 3 // beats
)

// A kind is that of a frame. A frame has a header of 8 bytes: its kind, a number of 24 bits and the id of its
// stream of 32 bits. The number is that of the bytes that follow, or of credit; in a reset 1 for ErrRefused.
type kind uint8

const (
	open   kind = iota // a stream
	data               // bytes of a stream
	end                // no more bytes follow on a stream
	reset              // a stream has ended both ways
	credit             // so many more bytes of a stream may be sent
	alive              // a sign of life
	leave              // no more streams are accepted
)

const headerSize = 8

// Errors of streams.
var (
	// ErrRefused says that the other end has not accepted a stream, and has looked at none of its bytes.
	ErrRefused = errors.New("the other end of the link accepts no stream")
	// ErrLost says that nothing came from the other end for too long.
	ErrLost = errors.New("the other end of the link is silent")

	errReset = errors.New("the other end has ended the stream")
	errFlood = errors.New("the other end of the link sends more than it may")
)

// A Link is one end of a connection between two nodes. Its methods may be called from any goroutine.
type Link struct {
	addr   [2]net.Addr   // local and remote
	accept func(*Stream) // nil: this end opens the streams

	mu      sync.Mutex // guards what follows, and all streams
	changed sync.Cond  // something is due, or err is set
	wake    func()     // something is due, or err is set; nil: nobody needs to be woken
	host    any        // the event loop that moves the bytes; nil: goroutines
	partial []byte     // the beginning of a frame that arrives
	due     []byte     // frames to be written
	isDue   atomic.Bool
	waiting []*Stream // they may send more once due is shorter
	err     error     // why the link has ended
	heard   bool      // anything, since the last beat
	woken   bool      // a goroutine, by what has arrived
	leaving bool      // no more streams are opened
	last    uint32    // id
	streams map[uint32]*Stream
	done    chan struct{} // closed when err is set
}

// New returns a Link. The one end opens the streams, the other has accept, which is called with each in a goroutine
// of its own. What streams write is kept until Run or Host.
func New(accept func(*Stream)) *Link {
	l := &Link{accept: accept, streams: make(map[uint32]*Stream), done: make(chan struct{})}
	l.changed.L = &l.mu
	return l
}

// Begin notes that the link has a connection, between two addresses. Run or Host follow.
func (l *Link) Begin(local, remote net.Addr) {
	defer l.lock()()
	l.addr = [2]net.Addr{local, remote}
	go l.watch()
}

// Run has goroutines move the bytes of the link, over conn, which it owns.
func (l *Link) Run(conn net.Conn) {
	go l.write(conn)
	go l.read(conn)
	go func() { <-l.done; conn.Close() }() // which ends both
}

// Host names the event loop that moves the bytes of the link, for Arrived. wake is called when something is due, or
// the link has ended; it must not block, or call the link.
func (l *Link) Host(on any, wake func()) {
	defer l.lock()()
	l.host, l.wake = on, wake
	if l.Due() {
		wake()
	}
}

func (l *Link) lock() (unlock func()) {
	l.mu.Lock()
	return l.mu.Unlock
}

// Done is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// Open opens a stream.
func (l *Link) Open() (*Stream, error) {
	defer l.lock()()
	if l.err != nil {
		return nil, l.err
	}
	if l.leaving {
		return nil, ErrRefused
	}
	for l.last++; l.streams[l.last] != nil; {
		l.last++
	}
	l.frame(open, l.last, nil)
	return l.stream(l.last), nil
}

// Leave has the other end open no more streams. The link ends with its last one.
func (l *Link) Leave() {
	defer l.lock()()
	l.leaving = true
	l.frame(leave, 0, nil)
	l.endIdleLocked()
}

// Close ends the link and its streams.
func (l *Link) Close() { l.Fail(net.ErrClosed) }

// Fail is Close for a link whose connection has failed.
func (l *Link) Fail(err error) {
	defer l.lock()()
	l.failLocked(err)
}

func (l *Link) failLocked(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	close(l.done)
	l.wakeLocked()
	for _, s := range l.streams {
		s.endLocked(fmt.Errorf("the link has ended: %w", err), nil)
	}
}

func (l *Link) wakeLocked() {
	l.isDue.Store(true)
	l.changed.Broadcast()
	if l.wake != nil {
		l.wake()
	}
}

// endIdleLocked ends a link that has no stream, and gets none.
func (l *Link) endIdleLocked() {
	if l.leaving && l.accept == nil && len(l.streams) == 0 {
		l.failLocked(net.ErrClosed)
	}
}

func (l *Link) stream(id uint32) *Stream {
	s := &Stream{link: l, id: id, send: window, room: window}
	s.changed.L = &l.mu
	l.streams[id] = s
	return s
}

// frame has a frame written. n is the number in it, if that is not the length of p.
func (l *Link) frame(k kind, id uint32, p []byte, n ...int) {
	if l.err != nil {
		return
	}
	number := uint32(len(p))
	if len(n) > 0 {
		number = uint32(n[0])
	}
	if len(l.due) == 0 {
		defer l.wakeLocked()
	}
	l.due = binary.BigEndian.AppendUint32(l.due, uint32(k)<<24|number)
	l.due = binary.BigEndian.AppendUint32(l.due, id)
	l.due = append(l.due, p...)
}

// Due reports whether something is due, or the link has ended.
func (l *Link) Due() bool { return l.isDue.Load() }

// Err returns why the link has ended, nil if it has not.
func (l *Link) Err() error {
	defer l.lock()()
	return l.err
}

// TakeDue takes what is due, in place of out, whose memory it reuses. on is that of Arrived.
func (l *Link) TakeDue(out []byte, on any) []byte {
	defer l.lock()()
	return l.takeLocked(out, on)
}

func (l *Link) takeLocked(out []byte, on any) []byte {
	if cap(out) > maxDue {
		out = nil
	}
	out, l.due = l.due, out[:0]
	l.isDue.Store(l.err != nil)
	if len(l.waiting) > 0 {
		waiting := l.waiting
		l.waiting = nil
		for _, s := range waiting {
			s.waits = false
			s.note(on)
		}
	}
	return out
}

// write writes what is due.
func (l *Link) write(conn net.Conn) {
	var out []byte
	defer l.lock()()
	for l.err == nil {
		if len(l.due) == 0 {
			l.changed.Wait()
			continue
		}
		l.mu.Unlock()
		runtime.Gosched() // goroutines that can run now may have something to write
		l.mu.Lock()
		out = l.takeLocked(out, nil)
		l.mu.Unlock()
		_, err := conn.Write(out)
		l.mu.Lock()
		if err != nil {
			l.failLocked(err)
		}
	}
}

// watch sends signs of life, and ends a link without.
func (l *Link) watch() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for missed := 0; ; {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		l.mu.Lock()
		l.frame(alive, 0, nil)
		missed++
		if l.heard {
			missed = 0
		}
		l.heard = false
		if missed == lostAfter {
			l.failLocked(ErrLost)
		}
		l.mu.Unlock()
	}
}

// read takes what arrives to the streams.
func (l *Link) read(conn net.Conn) {
	buf := make([]byte, 4*maxFrame)
	for {
		n, err := conn.Read(buf)
		l.Arrived(buf[:n], nil)
		if err != nil {
			l.Fail(err)
			return
		}
	}
}

// Arrived takes bytes of the connection to the streams, and reports whether that has woken a goroutine. on is the
// event loop that calls it, nil if a goroutine does.
func (l *Link) Arrived(p []byte, on any) (woken bool) {
	defer l.lock()()
	l.heard, l.woken = l.heard || len(p) > 0, false
	if len(l.partial) > 0 {
		l.partial = append(l.partial, p...)
		p = l.partial
	}
	for l.err == nil && len(p) >= headerSize {
		k, n, id := kind(p[0]), int(binary.BigEndian.Uint32(p)&0xffffff), binary.BigEndian.Uint32(p[4:])
		size := headerSize
		if k == data {
			if n > maxFrame {
				l.failLocked(errFlood)
				break
			}
			size += n
		}
		if len(p) < size {
			break
		}
		if err := l.arrived(k, n, id, p[headerSize:size], on); err != nil {
			l.failLocked(err)
		}
		p = p[size:]
	}
	l.partial = append(l.partial[:0], p...)
	return l.woken
}

// arrived takes one frame. Of a stream that this end has closed already, nothing is of use.
func (l *Link) arrived(k kind, n int, id uint32, p []byte, on any) error {
	s := l.streams[id]
	switch {
	case k == alive:
	case k == leave:
		l.leaving = true
		l.endIdleLocked()
	case k == open && l.accept != nil && s == nil:
		if l.leaving || len(l.streams) >= maxStreams {
			l.frame(reset, id, nil, 1)
			return nil
		}
		l.woken = true
		go l.accept(l.stream(id))
	case k > leave || k == open:
		return fmt.Errorf("frame of kind %d for stream %d", k, id)
	case s == nil:
	case k == data:
		return s.arrived(p, on)
	case k == end:
		s.ended = true
		s.note(on)
	case k == credit:
		s.send += n
		s.note(on)
	case k == reset:
		err := errReset
		if n == 1 {
			err = ErrRefused
		}
		s.endLocked(err, on)
	}
	return nil
}
