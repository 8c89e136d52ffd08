package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/client"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/newest"
	"reseat/gateway/policy"
	"reseat/gateway/wire"
)

// protocol section 5.1: the newest hello's route comes back with each resume, if it is one.
func TestResumeOffersTheRouteOfTheNewestHello(t *testing.T) {
	onBareStage(t, func(s *stage) {
		routed := func(g *wstest.Peer) (list []string) {
			for _, p := range wire.Protocols(g.Req.Header) {
				if strings.HasPrefix(p, wire.PrefixRoute) {
					list = append(list, p)
				}
			}
			return list
		}
		g := s.dial(map[string]any{"route": "n1"})
		if got := routed(g); got != nil {
			s.Errorf("the first handshake offers %q", got)
		}
		for _, tt := range []struct{ route, next string }{
			{"n1", "n2"}, {"n2", "blank s"}, {"", "a,b"}, {"", strings.Repeat("x", 33)}, {"", strings.Repeat("x", 32)}, {strings.Repeat("x", 32), ""}, {"", "n1"},
		} {
			g.Close(4410, "closed by a proxy")
			g = s.door.Next()
			var want []string
			if tt.route != "" {
				want = []string{wire.PrefixRoute + tt.route}
			}
			if got := routed(g); fmt.Sprint(got) != fmt.Sprint(want) {
				s.Errorf("the resume offers %q, want %q", got, want)
			}
			hello(g, map[string]any{"route": tt.next})
			g.Text("something new")
			s.Read(s.Context())
		}
	})
}

func TestAttemptsArePacedAndSpread(t *testing.T) {
	onBareStage(t, func(s *stage) {
		s.dial(nil)
		s.down.Store(true)
		began := time.Now()
		s.cut()
		synctest.Wait()
		if n := s.dials.Load(); n != 2 {
			s.Errorf("%d connections at once, want the first and one more", n)
		}
		err := s.wantEnd()
		if n := s.dials.Load(); n < 30 || n > 150 || !errors.Is(err, client.ErrLost) {
			s.Errorf("%d attempts in %v, then %v", n, time.Since(began), err)
		}
	})
}

// A gateway that disconnects after every hello is not flooded with attempts.
func TestFailedConnectionsBackOff(t *testing.T) {
	onBareStage(t, func(s *stage) {
		s.dial(nil).Drop()
		began := time.Now()
		for range 40 {
			g := s.door.Next()
			hello(g, map[string]any{"resumed": true})
			synctest.Wait()
			g.Drop()
		}
		if took := time.Since(began); took < 20*time.Second {
			s.Errorf("40 connections in %v", took)
		}
	})
}

func TestDialReturnsDescriptiveErrors(t *testing.T) {
	dial := func(s *stage, o client.Options) error {
		o.HTTPClient = s.client()
		c, err := client.Dial(s.Context(), "ws://game.example/", &o)
		if err == nil {
			c.CloseNow()
			s.Error("no error")
		}
		return err
	}
	onBareStage(t, func(s *stage) {
		s.door.Refuse = func(c net.Conn, _ *http.Request) bool {
			io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 8\r\n\r\ndraining")
			return true
		}
		var refused *client.HandshakeError
		if err := dial(s, client.Options{}); !errors.As(err, &refused) || refused.StatusCode != 503 || refused.Body != "draining" {
			s.Errorf("503: %v", err)
		}
		s.door.Refuse = func(c net.Conn, _ *http.Request) bool {
			io.WriteString(c, "HTTP/1.1 307 Temporary Redirect\r\nLocation: ws://elsewhere.example/\r\nContent-Length: 0\r\n\r\n")
			return true
		}
		if err := dial(s, client.Options{Token: "secret"}); !errors.As(err, &refused) || refused.StatusCode != 307 || s.dials.Load() != 2 {
			s.Errorf("307: %v after %d connections", err, s.dials.Load())
		}
		s.door.Refuse = nil
		s.door.Choose = ""
		if err := dial(s, client.Options{}); !errors.Is(err, client.ErrNotReseat) {
			s.Errorf("no subprotocol: %v", err)
		}
		s.door.Next()
		s.door.Choose = wire.Subprotocol
		began := time.Now()
		if err := dial(s, client.Options{}); !errors.Is(err, client.ErrNotReseat) || time.Since(began) != 5*time.Second {
			s.Errorf("no hello: %v after %v", err, time.Since(began))
		}
		s.door.Next()
		s.down.Store(true)
		if err := dial(s, client.Options{}); err == nil || !strings.Contains(err.Error(), "the network is down") {
			s.Errorf("no network: %v", err)
		}
	})
}

func TestDialReportsSupersededToken(t *testing.T) {
	onBareStage(t, func(s *stage) {
		done := make(chan error, 1)
		go func() {
			_, err := client.Dial(s.Context(), "ws://game.example/", &client.Options{HTTPClient: s.client(), Token: "superseded"})
			done <- err
		}()
		g := s.door.Next()
		if got := stated(g); got != "true superseded 0" {
			s.Errorf("the handshake states %s", got)
		}
		time.Sleep(14 * time.Second) // a resume waits 15 s
		g.Control(`close {"code":4401,"reason":"superseded","retry":false}`)
		var end *client.CloseError
		if err := <-done; !errors.As(err, &end) || end.Code != 4401 || end.FromServer {
			s.Errorf("%v, want code 4401 of the gateway", err)
		}
	})
}

func TestDialContextDoesNotOutliveDial(t *testing.T) {
	onBareStage(t, func(s *stage) {
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		if _, err := client.Dial(ctx, "ws://game.example/", &client.Options{HTTPClient: s.client()}); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("no hello in time: %v", err)
		}
		s.door.Next()
		ctx, cancel = context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		go func() { hello(s.door.Next(), nil) }()
		c, err := client.Dial(ctx, "ws://game.example/", &client.Options{HTTPClient: s.client()})
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := c.Write(s.Context(), client.MessageText, []byte("on and on")); err != nil {
			s.Error(err)
		}
		c.CloseNow()
	})
}

// The library would return an empty message if the stream ended right after a header.
func TestMessageCutAfterItsHeaderIsNotDelivered(t *testing.T) {
	for _, torn := range []string{"\x81\x05", "\x81\x7e\x01\x00", "\x81\x05he", "\x01\x02he\x80\x03"} {
		onStage(t, nil, func(s *stage, g *wstest.Peer) {
			token := fmt.Sprintf("t%d", tokensMade)
			g.Raw([]byte(torn))
			g.Conn.Close()
			next := s.door.Next()
			if got := stated(next); got != "true "+token+" 0" {
				s.Errorf("%q: resumes with %s", torn, got)
			}
			hello(next, map[string]any{"resumed": true, "replay": 1})
			next.Text("hello")
			s.want("hello")
		})
	}
}

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

// A narrow connection carries so many bytes a second each way.
type narrow struct {
	net.Conn
	rate   int
	bytes  *atomic.Int64
	closed chan struct{}
	close  sync.Once
}

func (c *narrow) pass(n int) {
	c.bytes.Add(int64(n))
	select {
	case <-time.After(time.Duration(n) * time.Second / time.Duration(c.rate)):
	case <-c.closed:
	}
}

func (c *narrow) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *narrow) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), 1400)])
	c.pass(n)
	return n, err
}

func (c *narrow) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = c.Conn.Write(b[n:min(n+1400, len(b))])
		c.pass(k)
		n += k
	}
	return n, err
}

// A cut costs what was on its way, and no side takes a line for dead on which a large message comes or goes.
func TestLargeMessagesGoOnWhereTheyWereCut(t *testing.T) {
	inWorld(t, func(w *world) {
		const rate, size = 12_000, 600_000
		var bytes atomic.Int64
		w.wrap = func(c net.Conn) net.Conn {
			return &narrow{Conn: c, rate: rate, bytes: &bytes, closed: make(chan struct{})}
		}
		var resumes atomic.Int32
		c, game := w.play(client.Options{OnResume: func(client.Resumed) { resumes.Add(1) }})
		large := strings.Repeat("0123456789", size/10)
		for _, way := range []struct {
			name       string
			send, take func()
		}{
			{"down", func() { game.Text(large) }, func() { c.want(large) }},
			{"up", func() { c.say(large) }, func() { game.Want(large) }},
		} {
			bytes.Store(0)
			resumes.Store(0)
			began := time.Now()
			over := make(chan struct{})
			go func() {
				for {
					select {
					case <-time.After(7 * time.Second):
						w.cut()
					case <-over:
						return
					}
				}
			}()
			way.send()
			way.take()
			close(over)
			if took, native := time.Since(began), time.Duration(size/rate)*time.Second; took > native*3/2 || bytes.Load() > size*3/2 {
				t.Errorf("%s: %v and %d bytes, natively %v and %d", way.name, took, bytes.Load(), native, size)
			}
			if n := resumes.Load(); n < 5 || n > 11 {
				t.Errorf("%s: %d resumes", way.name, n)
			}
		}
	}, func(p *policy.Policy) { p.MaxMessage = 1 << 20 })
}

func TestReplacedMessagesAreSkipped(t *testing.T) {
	rules, err := newest.Parse([]string{"tick=tick"})
	if err != nil {
		t.Fatal(err)
	}
	inWorld(t, func(w *world) {
		var skipped, told uint64
		c, game := w.play(client.Options{
			OnResume: func(r client.Resumed) { told += r.Skipped },
			OnSkip:   func(n uint64) { skipped += n },
		})
		game.Text("tick 0")
		c.want("tick 0")
		w.down.Store(true)
		w.cut()
		synctest.Wait()
		for range 100 {
			game.Text("tick 1")
		}
		game.Text("hello")
		game.Text("tick 2")
		game.Text("tick 3")
		synctest.Wait()
		w.down.Store(false)
		c.want("hello", "tick 3")
		if skipped != 101 || told != 101 {
			t.Errorf("skipped %d, and %d at the resume, want 101", skipped, told)
		}
	}, func(p *policy.Policy) { p.Newest = rules })
}
