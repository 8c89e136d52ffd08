package transport

import (
	"testing"
	"time"
)

// Whoever took the time first may get the lock second: the session's time does not go
// back with that.
func TestSessionTimeNeverGoesBack(t *testing.T) {
	s := &netSession{driver: NewDriver(Net, NewClock())}
	later := s.driver.clock.Now().Add(time.Hour) // of somebody who had the lock first
	s.now = later
	s.enter()
	defer s.mu.Unlock()
	if s.now != later {
		t.Errorf("it went back by %v", later.Sub(s.now))
	}
}
