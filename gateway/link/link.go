// Package link carries the clients that one node of a cluster passes on to another, all over one
// connection between the two.
//
// Each client has a Stream. What streams write is collected, and written to the connection as soon as the
// one before is: what is due at the same time goes out together. What arrives goes straight into the
// socket of the client, or of its session, if that accepts it: see Stream.PipeTo. A stream holds at
// most window bytes for a slow reader, and the other end sends no more than that; so nobody waits for
// somebody else's client.
//
// Both ends send a sign of life each beat. A Link from which nothing comes for lostAfter of those ends,
// and all of its streams with it.
package link

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
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
	conn   net.Conn
	accept func(*Stream) // nil: this end opens the streams

	mu      sync.Mutex // guards what follows, and all streams
	changed sync.Cond  // due has got shorter or longer, or err is set
	due     []byte     // frames to be written
	err     error      // why the link has ended
	heard   bool       // anything, since the last beat
	leaving bool       // no more streams are opened
	last    uint32     // id
	streams map[uint32]*Stream
	done    chan struct{}
}

// New returns a Link on conn, which it owns. r reads from conn. The one end opens the streams, the other
// has accept, which is called with each in a goroutine of its own.
func New(conn net.Conn, r io.Reader, accept func(*Stream)) *Link {
	l := &Link{conn: conn, accept: accept, streams: make(map[uint32]*Stream), done: make(chan struct{})}
	l.changed.L = &l.mu
	go l.write()
	go l.read(bufio.NewReaderSize(r, 4*maxFrame))
	go l.watch()
	return l
}

// Done is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// Open opens a stream.
func (l *Link) Open() (*Stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
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

// Usable reports whether Open can be of use.
func (l *Link) Usable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && !l.leaving
}

// Leave has the other end open no more streams. The link ends with its last one.
func (l *Link) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
	l.frame(leave, 0, nil)
	l.endIdleLocked()
}

// Close ends the link and its streams.
func (l *Link) Close() { l.fail(net.ErrClosed) }

func (l *Link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failLocked(err)
}

func (l *Link) failLocked(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	go l.conn.Close() // TLS may wait with its last words
	close(l.done)
	l.changed.Broadcast()
	for _, s := range l.streams {
		s.endLocked(fmt.Errorf("the link has ended: %w", err))
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
	number := uint32(len(p))
	if len(n) > 0 {
		number = uint32(n[0])
	}
	if len(l.due) == 0 {
		l.changed.Broadcast()
	}
	l.due = binary.BigEndian.AppendUint32(l.due, uint32(k)<<24|number)
	l.due = binary.BigEndian.AppendUint32(l.due, id)
	l.due = append(l.due, p...)
}

// write writes what is due.
func (l *Link) write() {
	var out []byte
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil {
		if len(l.due) == 0 {
			l.changed.Wait()
			continue
		}
		l.mu.Unlock()
		runtime.Gosched() // whoever can run now may have something to write
		l.mu.Lock()
		out, l.due = l.due, out[:0]
		l.changed.Broadcast()
		l.mu.Unlock()
		_, err := l.conn.Write(out)
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
func (l *Link) read(r *bufio.Reader) {
	for {
		h, err := r.Peek(headerSize)
		if err != nil {
			l.fail(err)
			return
		}
		k, n, id := kind(h[0]), int(binary.BigEndian.Uint32(h)&0xffffff), binary.BigEndian.Uint32(h[4:])
		r.Discard(headerSize)
		var p []byte
		if k == data {
			if n > maxFrame {
				l.fail(errFlood)
				return
			}
			if p, err = r.Peek(n); err != nil {
				l.fail(err)
				return
			}
		}
		l.mu.Lock()
		l.heard = true
		err = l.arrived(k, n, id, p)
		if err != nil {
			l.failLocked(err)
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
		r.Discard(len(p))
	}
}

// arrived takes one frame. Of a stream that this end has closed already, nothing is of use.
func (l *Link) arrived(k kind, n int, id uint32, p []byte) error {
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
		go l.accept(l.stream(id))
	case k > leave || k == open:
		return fmt.Errorf("frame of kind %d for stream %d", k, id)
	case s == nil:
	case k == data:
		return s.arrived(p)
	case k == end:
		s.ended = true
		s.changed.Broadcast()
	case k == credit:
		s.send += n
		s.changed.Broadcast()
	case k == reset:
		err := errReset
		if n == 1 {
			err = ErrRefused
		}
		s.endLocked(err)
	}
	return nil
}
