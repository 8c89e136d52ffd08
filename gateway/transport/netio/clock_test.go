package netio

import (
	"testing"
	"time"

	"reseat/gateway/session"
)

// clock is a session clock that begins now.
func clock() func() session.Time {
	start := time.Now()
	return func() session.Time { return session.Time(time.Since(start)) + 1 }
}

// clientFlush is how long a client may take what is left to be sent to it.
var clientFlush = new(session.Attachment).FlushTime()

// Whoever took the time first may get the lock second: the session's time does not go
// back with that.
func TestSessionTimeNeverGoesBack(t *testing.T) {
	s := &Session{driver: NewDriver(clock())}
	later := s.driver.now().Add(time.Hour) // of somebody who had the lock first
	s.now = later
	s.enter()
	defer s.mu.Unlock()
	if s.now != later {
		t.Errorf("it went back by %v", later.Sub(s.now))
	}
}
