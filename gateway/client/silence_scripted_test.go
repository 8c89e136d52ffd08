package client_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
)

// Members of a hello: with the answer rule, and with suspicion only.
var (
	answering  = map[string]any{"answer_ms": 5000}
	suspicious = map[string]any{"answer_ms": 0, "heartbeat_ms": 3600_000}
)

// again sends the hello of a resume.
func again(g *wstest.Peer, of map[string]any, received, replay int) {
	m := map[string]any{"resumed": true, "received": received, "replay": replay}
	for k, v := range of {
		m[k] = v
	}
	hello(g, m)
}

// lively sends the client ten data messages a second for one second, and discards what
// it sends meanwhile. Together they are larger than a Close.
func (s *stage) lively(g *wstest.Peer) {
	s.Helper()
	text := strings.Repeat("x", 200)
	for range 10 {
		time.Sleep(100 * time.Millisecond)
		g.Text(text)
		s.want(text)
	}
	words(g)
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

// wantAfter waits for the next handshake, which must come d after began, and for the
// client to have its 101.
func (s *stage) wantAfter(began time.Time, d time.Duration) *wstest.Peer {
	s.Helper()
	g := s.door.Next()
	if took := time.Since(began); took != d {
		s.Errorf("a handshake after %v, want %v", took, d)
	}
	synctest.Wait()
	return g
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

// ---- suspicion

func TestMoveRequestedUnderSuspicionIsMadeAfterwards(t *testing.T) {
	for range 20 { // the move is at a random moment
		onStage(t, suspicious, func(s *stage, g *wstest.Peer) {
			s.lively(g)
			s.late.Store(int64(time.Hour))
			g.Control(`move {"within_ms":20000}`)
			time.Sleep(16 * time.Second) // an attempt is under way from 4 s on
			before := s.dials.Load()
			for range 5 {
				g.Control("grace 30000")
				time.Sleep(time.Second)
			}
			if s.dials.Load() == before {
				s.Error("the move was forgotten")
			}
		})
	}
}

func TestCloseUnderSuspicionIsSentOnTheNextConnection(t *testing.T) {
	onStage(t, suspicious, func(s *stage, g *wstest.Peer) {
		s.lively(g)
		began := time.Now()
		s.dark.Store(true)
		time.Sleep(4500 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- s.Close(4000, "enough") }()
		s.heard(g, "^ack 10", "^ping 1", `^bye {"code":4000,"reason":"enough"}`)
		s.dark.Store(false)
		next := s.wantAfter(began, 8*time.Second)
		again(next, suspicious, 0, 0)
		s.heard(next, "^ack 10", `^bye {"code":4000,"reason":"enough"}`)
		next.Close(4000, "enough")
		if err := <-closed; err != nil {
			s.Error(err)
		}
	})
}

func TestFalseAlarmsMakeAttemptsRarer(t *testing.T) {
	onStage(t, suspicious, func(s *stage, g *wstest.Peer) {
		s.late.Store(int64(time.Second))
		var attempts []time.Duration
		began, last := time.Now(), s.dials.Load()
		for range 100 { // ten minutes of a line that stalls for 5 s every 6 s
			s.lively(g)
			for range 50 {
				time.Sleep(100 * time.Millisecond)
				if n := s.dials.Load(); n > last {
					attempts, last = append(attempts, time.Since(began)), n
				}
			}
		}
		if len(attempts) < 5 || len(attempts) > 9 {
			s.Errorf("%d attempts in ten minutes: %v", len(attempts), attempts)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.lost) != len(attempts) || len(s.resumes) != len(attempts) {
			s.Errorf("%d losses and %d resumes", len(s.lost), len(s.resumes))
		}
	})
}

// ---- the budget

// At most one ping in 30 s, whatever the pace of a healthy line.
func TestPingsOnAHealthyLineAreFew(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const ms = time.Millisecond
	bursts := func(n int, pause time.Duration) func(int) time.Duration {
		return func(i int) time.Duration { return []time.Duration{100 * ms, pause}[i%n/(n-1)] }
	}
	for name, pause := range map[string]func(i int) time.Duration{
		"ten times a second":      func(int) time.Duration { return 100 * ms },
		"every 1.9 s":             func(int) time.Duration { return 1900 * ms },
		"every 2.1 s":             func(int) time.Duration { return 2100 * ms },
		"bursts every 9 s":        bursts(10, 9*time.Second),
		"bursts every 29 s":       bursts(10, 29*time.Second),
		"two seconds each minute": bursts(20, 59*time.Second),
		"at random up to 10 s":    func(int) time.Duration { return time.Duration(random.Int64N(int64(10 * time.Second))) },
		"lively, then slow":       func(i int) time.Duration { return []time.Duration{100 * ms, 5 * time.Second}[i/1000%2] },
		"ever slower":             func(i int) time.Duration { return time.Duration(i*i) * ms },
		"nothing at all":          func(int) time.Duration { return time.Hour },
		"a few and then nothing":  func(i int) time.Duration { return []time.Duration{100 * ms, time.Hour}[min(i/20, 1)] },
	} {
		for _, trip := range []time.Duration{ms, 300 * ms, 1500 * ms} {
			t.Run(fmt.Sprint(name, ", ", trip), func(t *testing.T) {
				onStage(t, answering, func(s *stage, g *wstest.Peer) { s.wantFewPings(g, pause, trip) })
			})
		}
	}
}

// wantFewPings plays a gateway that sends data at a pace, else its heartbeat, and answers pings after a round trip.
func (s *stage) wantFewPings(g *wstest.Peer, pause func(i int) time.Duration, trip time.Duration) {
	var last time.Time // when the newest ping arrived
	next, beat := time.Now().Add(pause(0)), time.Now().Add(15*time.Second)
	for i, end := 0, time.Now().Add(5*time.Minute); time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		now := time.Now()
		for _, w := range words(g) {
			if arg, ok := strings.CutPrefix(w, "^ping "); ok {
				if since := now.Sub(last); since < 30*time.Second {
					s.Fatalf("ping %s comes %v after the one before", arg, since)
				}
				last = now
				time.AfterFunc(trip, func() { g.Control("pong " + arg) })
			}
		}
		switch {
		case !now.Before(next):
			i++
			g.Text("x")
			s.want("x")
			next, beat = now.Add(pause(i)), now.Add(15*time.Second)
		case !now.Before(beat):
			g.Control("ping beat")
			beat = now.Add(15 * time.Second)
		}
	}
	s.wantLost(0)
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
