// Package asynclog writes log lines to a writer that may be slow or stuck without
// making a caller wait: a full disk, or a pipe that nobody reads, costs log lines,
// which are counted, and never delays a message.
package asynclog

import (
	"io"
	"sync"
	"time"
)

// A Writer is an io.Writer of whole lines, safe for concurrent use. Write queues the line
// for one goroutine that writes, or drops it if the queue is full. Before the next queued
// line comes a notice of how many were dropped.
type Writer struct {
	w      io.Writer
	max    int // bytes in the queue, the line being written included
	notice func(lines int) []byte

	mu      sync.Mutex // guards the fields below; never held while writing to w
	queue   [][]byte
	size    int
	pending int // lines dropped since the last one that was queued
	dropped int // in total
	closed  bool
	change  sync.Cond     // of queue and closed
	done    chan struct{} // closed when run returns
}

// New starts writing to w, until Close. At most maxBytes are queued; notice makes the
// line that says how many lines were dropped.
func New(w io.Writer, maxBytes int, notice func(lines int) []byte) *Writer {
	l := &Writer{w: w, max: maxBytes, notice: notice, done: make(chan struct{})}
	l.change.L = &l.mu
	go l.run() // Close waits for it
	return l
}

// Write queues a copy of line. It never fails and never blocks; after Close it
// discards the line.
func (l *Writer) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case l.size+len(line) > l.max:
		l.pending++
		l.dropped++
	default:
		if l.pending > 0 {
			l.pushLocked(l.notice(l.pending))
			l.pending = 0
		}
		l.pushLocked(append([]byte(nil), line...))
	}
	return len(line), nil
}

// Dropped returns how many lines were dropped so far.
func (l *Writer) Dropped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

func (l *Writer) pushLocked(line []byte) {
	l.queue = append(l.queue, line)
	l.size += len(line)
	l.change.Signal()
}

func (l *Writer) run() {
	defer close(l.done)
	for lines := l.popAll(); len(lines) > 0; lines = l.popAll() {
		for _, line := range lines {
			l.w.Write(line) // an error could be reported nowhere else
			l.mu.Lock()
			l.size -= len(line)
			l.mu.Unlock()
		}
	}
}

// popAll waits for lines. It returns none once the Writer is closed and all were written.
func (l *Writer) popAll() (lines [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.change.Wait()
	}
	lines, l.queue = l.queue, nil
	return lines
}

// Close waits until the queued lines are written, for timeout at most.
func (l *Writer) Close(timeout time.Duration) {
	l.mu.Lock()
	l.closed = true
	l.change.Signal()
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(timeout):
	}
}
