// Package sink writes log lines to a writer that may be slow or stuck, and makes
// nobody wait for it: a full disk or a pipe that nobody reads costs lines, which
// are counted, and never a player's message.
package sink

import (
	"io"
	"sync"
	"time"
)

// A Sink is an io.Writer of whole lines. A Write returns at once: the line waits
// for the one goroutine that writes, or is left out where too many wait already.
// The next line that is written tells how many were.
type Sink struct {
	w     io.Writer
	limit int // bytes that may wait
	tell  func(lines int) []byte

	mu      sync.Mutex
	waiting [][]byte
	size    int
	left    int // lines left out since the last one that was taken,
	lost    int // and ever
	closed  bool
	wake    chan struct{} // one slot
	done    chan struct{}
}

// New starts writing to w. At most limit bytes wait; tell makes the line that says
// how many lines were left out. Close ends it.
func New(w io.Writer, limit int, tell func(lines int) []byte) *Sink {
	s := &Sink{w: w, limit: limit, tell: tell, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go s.run()
	return s
}

// Write takes a line. It never fails and never waits.
func (s *Sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case s.size+len(line) > s.limit:
		s.left++
		s.lost++
	default:
		if s.left > 0 {
			s.put(s.tell(s.left))
			s.left = 0
		}
		s.put(append([]byte(nil), line...))
	}
	return len(line), nil
}

// Lost is how many lines were left out so far.
func (s *Sink) Lost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func (s *Sink) put(line []byte) {
	s.waiting = append(s.waiting, line)
	s.size += len(line)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Sink) run() {
	defer close(s.done)
	for {
		lines, closed := s.take()
		for _, line := range lines {
			s.w.Write(line) // where it fails there is nobody to tell
			s.mu.Lock()
			s.size -= len(line)
			s.mu.Unlock()
		}
		if len(lines) > 0 {
			continue
		}
		if closed {
			return
		}
		<-s.wake
	}
}

func (s *Sink) take() (lines [][]byte, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines, s.waiting = s.waiting, nil
	return lines, s.closed
}

// Close takes no more lines, and waits until those that were taken are written,
// for as long as patience at most.
func (s *Sink) Close(patience time.Duration) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	select {
	case <-s.done:
	case <-time.After(patience):
	}
}
