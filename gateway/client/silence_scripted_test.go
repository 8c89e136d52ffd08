package client_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
)

// answering are members of a hello with the answer rule.
var answering = map[string]any{"answer_ms": 5000}

// again sends the hello of a resume.
func again(g *wstest.Peer, of map[string]any, received, replay int) {
	m := map[string]any{"resumed": true, "received": received, "replay": replay}
	for k, v := range of {
		m[k] = v
	}
	hello(g, m)
}

// wantLost fails unless OnDetach was called with these errors, and OnResume as often
// as resumes says.
func (s *stage) wantLost(resumes int, losses ...string) {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []string
	for _, err := range s.lost {
		got = append(got, err.Error())
	}
	if fmt.Sprint(got) != fmt.Sprint(losses) || len(s.resumes) != resumes {
		s.Fatalf("losses %q and resumes %+v, want %q and %d resumes", got, s.resumes, losses, resumes)
	}
}

// ---- the answer rule

// The pong is withheld, since it would promise an ack. The client sends a ping instead,
// for each of the gateway's.
func TestPingsAreAnsweredWhileTheApplicationDoesNotRead(t *testing.T) {
	onStage(t, answering, func(s *stage, g *wstest.Peer) {
		words(g)
		g.Text("unread")
		for i := range 40 {
			g.Control("ping are you there")
			s.heard(g, fmt.Sprint("^ping ", i+1))
			g.Control(fmt.Sprint("pong ", i+1))
			time.Sleep(2400 * time.Millisecond)
		}
		s.want("unread")
		s.heard(g, "^ack 1", "^pong are you there")
		s.wantLost(0)
	})
}

func TestBytesOfALargeMessageCountAsActivity(t *testing.T) {
	onStage(t, answering, func(s *stage, g *wstest.Peer) {
		s.say("up")
		g.Raw([]byte("\x81\x14"))
		for range 20 {
			time.Sleep(2 * time.Second)
			g.Raw([]byte("x"))
		}
		s.want(strings.Repeat("x", 20))
		time.Sleep(time.Second)
		s.heard(g, "^ack 0", "up", "^ack 1")
		s.wantLost(0)
	})
}

// A slow connection delays each write.
type slow struct {
	net.Conn
	each   *atomic.Int64 // in ns
	closed chan struct{}
	once   *sync.Once
}

func (c slow) Write(b []byte) (int, error) {
	select {
	case <-time.After(time.Duration(c.each.Load())):
		return c.Conn.Write(b)
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c slow) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func TestProgressOfALargeMessageCountsAsActivity(t *testing.T) {
	onBareStage(t, func(s *stage) {
		var each atomic.Int64
		s.wrap = func(c net.Conn) net.Conn { return slow{c, &each, make(chan struct{}), new(sync.Once)} }
		g := s.dial(answering)
		words(g)
		each.Store(int64(time.Second))
		large := strings.Repeat("x", 60<<10)
		s.say(large)
		time.Sleep(17 * time.Second)
		if got := words(g); len(got) != 1 || got[0] != large {
			s.Errorf("%d messages came", len(got))
		}
		s.wantLost(0)
	})
}

func TestSuspendedClientProbesItsConnection(t *testing.T) {
	onBareStage(t, func(s *stage) {
		s.hang = func() { time.Sleep(20 * time.Second) }
		s.dial(answering).Drop()
		g := s.door.Next()
		again(g, answering, 0, 0)
		time.Sleep(21 * time.Second)
		s.heard(g, "^ack 0", "^ping 1")
	})
}

// ---- fast reconnects

func TestUnansweredAttemptsTimeOutEarly(t *testing.T) {
	onBareStage(t, func(s *stage) {
		s.dial(nil)
		s.dark.Store(true)
		s.cut()
		synctest.Wait()
		last, n := time.Now(), s.dials.Load()
		for attempts, began := 0, time.Now(); time.Since(began) < 40*time.Second; {
			time.Sleep(time.Millisecond)
			if m := s.dials.Load(); m > n {
				if since := time.Since(last); since > 5*time.Second+time.Millisecond || since < 4*time.Second-time.Millisecond {
					s.Errorf("attempt %d, %v after the one before", attempts, since)
				}
				last, n, attempts = time.Now(), m, attempts+1
			}
		}
	})
}

// A handshake of four round trips of 1.5 s takes longer than the attempt timeout. The
// client has measured a fast line.
func TestSlowLineGetsThrough(t *testing.T) {
	onBareStage(t, func(s *stage) {
		s.dial(nil)
		s.late.Store(int64(6 * time.Second))
		began := time.Now()
		s.cut()
		hello(s.door.Next(), map[string]any{"resumed": true})
		synctest.Wait()
		if len(s.resumes) == 0 {
			hello(s.door.Next(), map[string]any{"resumed": true})
			synctest.Wait()
		}
		if took := time.Since(began); len(s.resumes) != 1 || took > 12*time.Second {
			s.Errorf("resumes %+v after %v", s.resumes, took)
		}
	})
}
