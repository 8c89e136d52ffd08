package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/listen"
	"reseat/gateway/policy"
	"reseat/gateway/secure"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// memory is --buffer-total in these tests.
const memory = 2 << 20

func withMemory(c *gateway.Config) { c.BufferTotal = memory }

// kib is a message of so many KiB.
func kib(n int) string { return strings.Repeat("x", n<<10) }

// flood has a game server send n messages of 8 KiB.
func flood(game *wstest.Peer, n int) {
	go func() {
		for range n {
			game.Text(noise(8 << 10)) // which does not compress
		}
	}()
	synctest.Wait()
}

// hoard begins a session whose client acks nothing, and has its game server flood it.
func (w *world) hoard(header string, n int) (*wstest.Player, *wstest.Peer) {
	w.t.Helper()
	p := w.PlayerWith("/match/7", header)
	game := w.game.Next()
	flood(game, n)
	return p, game
}

// unfinished sends so much of a message of 1 MiB.
func unfinished(p *wstest.Peer, n int) {
	p.Raw(append([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0}, make([]byte, n)...))
}

// Clients that fill the memory, in whichever way, delay nobody who reads and acks.
func TestReaderIsServedWhileOthersHoldAllMemory(t *testing.T) {
	for name, attack := range map[string]func(w *world){
		"attached, reads nothing": func(w *world) {
			p, _ := w.hoard("", 200)
			p.Hold(true)
		},
		"attached, acks nothing": func(w *world) { w.hoard("", 200) },
		"detached": func(w *world) {
			p, _ := w.hoard("", 200)
			p.Drop()
		},
		"plain, reads nothing": func(w *world) {
			p := w.Plain("/match/7")
			p.Hold(true)
			flood(w.game.Next(), 200)
		},
		"an unfinished message": func(w *world) {
			p := w.Player("/match/7")
			w.game.Next()
			go unfinished(p.Peer, 900<<10)
		},
		"a message that trickles in": func(w *world) {
			p := w.Player("/match/7")
			w.game.Next()
			go func() {
				unfinished(p.Peer, 900<<10)
				for range 20 {
					time.Sleep(time.Second)
					p.Raw([]byte{0})
				}
			}()
		},
		"the game server reads nothing": func(w *world) {
			_, p := stalledGame(w.t, w)
			w.game.Refuse = nil
			go func() {
				for range 120 {
					p.Text(kib(8))
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, reader *wstest.Player, game *wstest.Peer) {
				n := uint64(0)
				turn := func() time.Duration {
					n++
					began := time.Now()
					reader.Pass(game, "up")
					game.Pass(reader, kib(1))
					reader.Ack(n)
					reader.Sync()
					return time.Since(began)
				}
				turn()
				most := int64(0)
				for range 6 {
					if w.gw.Watch().BufferBytes() < memory/10*9 {
						attack(w)
					}
					synctest.Wait()
					most = max(most, w.gw.Watch().BufferBytes())
				}
				if most < memory/10*8 || most > memory+memory/10 {
					t.Errorf("%d bytes of %d are used, want nearly all of them, and hardly more", most, memory)
				}
				for range 100 {
					if took := turn(); took > 0 {
						t.Fatalf("message %d of a client that reads takes %v", n, took)
					}
					time.Sleep(50 * time.Millisecond)
				}
				if held := w.gw.Watch().BufferBytes(); held > memory {
					t.Errorf("%d bytes of %d are still used", held, memory)
				}
				w.wantState(reader, session.Attached)
				time.Sleep(20 * time.Second) // nobody sends any more
			}, withMemory)
		})
	}
}

// The fullest session that is not read pays, and everybody hears which one that was.
func TestFullestUnreadSessionEndsThoughItsClientIsAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		w := newWorld(t, testPolicy(), withMemory, logTo(log))
		reader, readerGame := w.play()
		l := w.listen()
		_, last := w.play()
		full, game := w.hoard("", 120)
		l.want(full.Hello.Session, events.Created)
		fuller, fullerGame := w.hoard("", 124)
		w.wantState(full, session.Attached)
		flood(last, 40)
		time.Sleep(2 * time.Second)
		w.wantState(full, session.Attached)
		w.wantState(fuller, session.Ended)
		for range 124 {
			fuller.Want(noise(8 << 10))
		}
		c := fuller.WantClosing(wire.CodeWindowExceeded)
		why := strings.TrimPrefix(c.Reason, "window_exceeded: ")
		if c.Retry || !strings.HasPrefix(why, "memory for replay buffers exhausted: 10") || !strings.Contains(why, " bytes held, attached, unread for 1") {
			t.Errorf("the client hears %+v", c)
		}
		fullerGame.WantClose(wire.CodeTryAgainLater)
		fuller.TryResume(fuller.Hello.Token, "0").WantClosing(wire.CodeWindowExceeded)
		l.want(fuller.Hello.Session, events.Created, events.Overflowed+" "+why, events.Ended+" window_exceeded")
		wantLine(t, log, "buffer.session_evicted", "session="+fuller.Hello.Session, "peer=127.0.0.1", "bytes=10", "state=attached", "unread=1")
		if n := w.metrics()["reseat_sessions_evicted_total{attached}"]; n != 1 {
			t.Errorf("%v sessions are counted", n)
		}
		readerGame.Pass(reader, "unharmed")
		game.Text("on and on")
	})
}

// A client in the middle of a large message would have to take the rest of it before a Close frame: its
// memory is free at once.
func TestEvictionDoesNotWaitForLargeMessage(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		var full []*wstest.Player
		var games []*wstest.Peer
		for range 3 {
			p, game := w.play()
			p.Hold(true)
			full, games = append(full, p), append(games, game)
		}
		for _, game := range games {
			go game.Text(kib(900))
			synctest.Wait() // else all three may be incomplete, which wait for memory longer
		}
		time.Sleep(2 * time.Second)
		ended := 0
		for _, p := range full {
			if w.state(p) == session.Ended.String() {
				ended++
				p.Hold(false)
				if *compression { // which makes one frame of it
					p.Want(kib(900))
					p.WantClosing(wire.CodeWindowExceeded)
				} else {
					p.WantEnd()
				}
				p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeWindowExceeded)
			}
		}
		if ended != 1 || w.gw.Watch().BufferBytes() > memory {
			t.Errorf("%d sessions have ended, and %d bytes are used", ended, w.gw.Watch().BufferBytes())
		}
	}, withMemory)
}

// An address that holds more than its share pays before others do, however much one of these holds.
func TestAddressOverItsShareEndsFirst(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		away, _ := w.hoard(from(1), 50)
		away.Drop()
		w.PlayerWith("/match/7", from(3))
		last := w.game.Next()
		var many []*wstest.Player
		for range 40 {
			if w.gw.Watch().BufferBytes() < memory/10*9 {
				p, _ := w.hoard(from(2), 12)
				many = append(many, p)
			}
		}
		flood(last, 56)
		time.Sleep(2 * time.Second)
		w.wantState(away, session.Detached)
		ended := 0
		for _, p := range many {
			if w.state(p) == session.Ended.String() {
				ended++
			}
		}
		if ended == 0 || ended > len(many)/2 {
			t.Errorf("%d of %d sessions of the address that holds most have ended", ended, len(many))
		}
	}, withMemory, trustProxies)
}

// Sessions that leave just enough for those that exist do not keep new players out.
func TestUnreadSessionsMakeRoomForNewOnes(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		full := 0
		for ; w.gw.Watch().BufferBytes() < memory/10*9; full++ {
			w.hoard(from(full), 15)
		}
		if status := w.refused("/"); status != http.StatusServiceUnavailable {
			t.Fatalf("a new session: %d, want 503", status)
		}
		time.Sleep(time.Second)
		if status := w.refused("/"); status != http.StatusServiceUnavailable {
			t.Errorf("a new session after a second: %d, want 503: clients may still read", status)
		}
		time.Sleep(10 * time.Second)
		w.refused("/")
		synctest.Wait()
		if status := w.refused("/"); status != http.StatusSwitchingProtocols {
			t.Errorf("a new session after a while: %d, want 101", status)
		}
	}, withMemory, trustProxies)
}

// A session that is fuller than any other for a moment, whose client reads, is not ended: not even while the rest
// of a message waits for memory that others hold.
func TestBusyReaderIsNotEvicted(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, busy *wstest.Player, game *wstest.Peer) {
		for range 60 {
			w.hoard("", 10)
			if w.gw.Watch().BufferBytes() > memory/20*17 {
				break
			}
		}
		for n := range uint64(40) {
			busy.Hold(true)
			go game.Text(kib(400))
			time.Sleep(500 * time.Millisecond) // what its link takes
			busy.Hold(false)
			busy.Want(kib(400))
			busy.Ack(n + 1)
			busy.Sync()
		}
		w.wantState(busy, session.Attached)
	}, withMemory)
}

func TestMaxSessionsIsEnforced(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`visit; new refused`) // a plain client is a session, too
		if _, _, err := s.gw.Create(s.t.Context(), nil, gateway.CreateRequest{Path: "/"}); !errors.Is(err, gateway.ErrBusy) {
			t.Errorf("pre-created: %v, want ErrBusy", err)
		}
		s.play(`detach; resume 0; client> ^bye; game< Close 1000; ended; begin; sync`) // a resume is not a new session
	}, func(c *gateway.Config) { c.MaxSessions = 2 })
}

// An IPv6 address stands for its /64.
func TestMaxSessionsPerIPIsEnforced(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		for _, c := range []struct {
			from string
			want int
		}{{"192.0.2.1", 101}, {"192.0.2.1", 429}, {"192.0.2.2", 101}, {"2001:db8::1", 101}, {"2001:db8::ffff", 429}, {"2001:db8:0:1::1", 101}} {
			_, _, resp, err := w.Handshake("/", []string{wire.Subprotocol}, "X-Forwarded-For: "+c.from+"\r\n")
			if err != nil || resp.StatusCode != c.want || c.want == 429 && resp.Header.Get("Retry-After") == "" {
				t.Errorf("a session of %s: %v, %v, want %d", c.from, resp, err, c.want)
			}
		}
	}, trustProxies, func(c *gateway.Config) { c.MaxSessionsPerIP = 1 })
}

// trustProxies has each client say where it comes from.
func trustProxies(c *gateway.Config) {
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

// from is the header of a client that comes from the address n.
func from(n int) string { return fmt.Sprintf("X-Forwarded-For: 198.51.100.%d\r\n", n) }

// At most 64 dials to one game server are in flight, one address has half of them at most, one path
// of it leaves some of these to others, and all queued ones succeed.
func TestDialsToOneUpstreamAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ addresses, paths, least, most int }{
		"one address, one path": {1, 1, 29, 29}, "one address": {1, 200, 32, 32}, "many addresses": {200, 1, 64, 64},
		"two addresses": {2, 1, 40, 45}, // more, the more of one come first
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, testPolicy(), func(t *testing.T, w *world) {
				var now, most atomic.Int64
				w.game.Refuse = func(net.Conn, *http.Request) bool {
					if n := now.Add(1); n > most.Load() {
						most.Store(n)
					}
					time.Sleep(time.Second)
					now.Add(-1)
					return false
				}
				var done sync.WaitGroup
				for i := range 200 {
					done.Go(func() {
						if _, _, resp, err := w.Handshake(fmt.Sprint("/", i%c.paths), []string{wire.Subprotocol}, from(i%c.addresses)); err != nil || resp.StatusCode != 101 {
							t.Error(resp, err)
						}
					})
				}
				done.Wait()
				if n := int(most.Load()); n < c.least || n > c.most {
					t.Errorf("%d dials at once, want %d to %d", n, c.least, c.most)
				}
			}, trustProxies)
		})
	}
}

// A game server that leaves handshakes unanswered does not keep it from other clients: those of
// another address, or, as far as anyone can tell them apart, of another path.
func TestUnansweredHandshakesDelayNoOtherClient(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.game.Refuse = func(_ net.Conn, r *http.Request) bool {
			if r.URL.Path == "/hang" {
				time.Sleep(time.Minute)
			}
			return false
		}
		for range 200 {
			go w.Handshake("/hang", nil, from(1))
		}
		synctest.Wait()
		for n, path := range map[int]string{1: "/match/7", 2: "/hang/on", 3: "/match/7"} {
			began := time.Now()
			p := w.PlayerWith(path, from(n))
			if took := time.Since(began); took > 0 {
				t.Errorf("%s from address %d waits %v", path, n, took)
			}
			p.Sync()
		}
		time.Sleep(time.Minute)
	}, trustProxies)
}

func TestQueuedDialTimesOut(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			time.Sleep(15 * time.Second) // longer than --dial-timeout
			c.Close()
			return true
		}
		var late atomic.Int64
		var done sync.WaitGroup
		for range 70 {
			done.Go(func() {
				if _, err := w.Dial("/", []string{wire.Subprotocol}); err != nil && strings.Contains(err.Error(), "504") {
					late.Add(1)
				}
			})
		}
		done.Wait()
		if late.Load() != 70 {
			t.Errorf("%d of 70 got 504", late.Load())
		}
	})
}

func TestSessionsLeaveReserveOfDescriptors(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		for range 86 { // 64 in reserve, two each; what is left is for other addresses
			w.Player("/")
		}
		if status := w.refused("/"); status != http.StatusServiceUnavailable {
			t.Errorf("one more session of an address with nearly all: %d, want 503", status)
		}
		for n := range 10 {
			w.PlayerWith("/", from(n))
		}
		if status := w.refused("/"); status != http.StatusServiceUnavailable {
			t.Errorf("one more session: %d, want 503", status)
		}
	}, trustProxies, func(c *gateway.Config) { c.Descriptors = 256 })
}

// Proxied requests have two descriptors, like sessions. Endless ones may use at most half of
// them, and those of one address an eighth of that: new sessions and resumes still succeed.
func TestEndlessRequestsLeaveRoomForSessions(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			if r.Header.Get("Upgrade") != "" {
				return false
			}
			<-release
			io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			c.Close()
			return true
		}
		p, _ := w.play()
		p.Sync()
		ask := func(from string) *bufio.Reader {
			_, br := w.Request("GET / HTTP/1.1\r\nHost: game.example\r\nX-Forwarded-For: " + from + "\r\n\r\n")
			synctest.Wait()
			return br
		}
		refused := func(what string, br *bufio.Reader) {
			t.Helper()
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %v %v, want 503 and Retry-After", what, resp, err)
			}
		}
		var under []*bufio.Reader
		for range 8 {
			under = append(under, ask("2001:db8::1"))
		}
		refused("a ninth of one /64", ask("2001:db8::2"))
		for i := range 40 {
			under = append(under, ask(fmt.Sprintf("192.0.2.%d", i)))
		}
		refused("one more than half", ask("198.51.100.1"))
		if n := w.metrics()["reseat_requests_refused_total"]; n != 2 {
			t.Errorf("%v requests refused are counted, want 2", n)
		}
		w.Player("/").Sync() // a new player
		p.Drop()
		p.Resume(0).Sync()
		for range under {
			// One by one: net/http/httputil begins each answer with a timer that fires at
			// once, and two of those at the same moment of a bubble crash the race detector
			// of Go 1.26 with SIGSEGV (runtime, timer.unlockAndRun).
			release <- struct{}{}
			synctest.Wait()
		}
		for _, br := range under {
			if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusNoContent {
				t.Fatalf("%v, %v", resp, err)
			}
		}
		synctest.Wait()
		w.Player("/").Sync() // there is room again
	}, trustProxies, func(c *gateway.Config) { c.Descriptors = 256 }) // 96 for sessions and requests
}

// T28: clients that are closed together get different retry times.
func TestDrainedClientsReconnectAtSpreadTimes(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		var players []*wstest.Player
		for range 100 {
			p, _ := w.play()
			players = append(players, p)
		}
		w.drain(true)
		seconds := make(map[int64]int) // how many in each
		for _, p := range players {
			seconds[p.WantClosing(wire.CodeDraining).RetryAfter/1000]++
		}
		for s, n := range seconds {
			if s < 1 || s > 4 || n > 75 {
				t.Errorf("%d of 100 retry in second %d, want 75 at most in each of the seconds 1 to 4", n, s)
			}
		}
	})
}

// T41: a panic is logged once, with its stack, and counted; its session ends with 1011 and
// the others continue.
func TestPanicIsLoggedOnceWithStackAndCounted(t *testing.T) {
	said := new(wstest.Log)
	inSession(t, testPolicy(), func(t *testing.T, w *world, bad *wstest.Player, badGame *wstest.Peer) {
		good, goodGame := w.play()
		gateway.Fail(w.gw, bad.Hello.Session)
		bad.WantFinal(wire.CodeInternalError)
		badGame.WantClose(wire.CodeInternalError)
		good.Pass(goodGame, "still here?")
		// It is reported after the connections were closed, in a goroutine of its own.
		eventually(t, "the session's fault is logged", func() bool { return said.Count("session.panicked") > 0 })
		log := said.String()
		if strings.Count(log, "msg=session.panicked") != 1 || strings.Count(log, `stack="goroutine `) != 1 || !strings.Contains(log, bad.Hello.Session) {
			t.Errorf("want the fault once, with its stack and its session: %s", log)
		}
		wstest.Equal(t, "faults that are counted", w.metrics()["reseat_session_panics_total"], 1)
	}, logTo(said))
}

// enough is the number of descriptors, of 256, for sessions, requests and idle clients.
const enough = 256 - 32

// A fakeListener is a listener in memory. It fails for lack of descriptors as often as the test
// says.
type fakeListener struct {
	*wstest.Listener
	fails   atomic.Int64
	arrived chan *acceptedConn
}

// An acceptedConn is the gateway's end of a connection.
type acceptedConn struct {
	*wstest.Conn
	closed atomic.Bool
}

func newFakeListener() *fakeListener {
	return &fakeListener{Listener: wstest.NewListener(64 << 10), arrived: make(chan *acceptedConn, 1)}
}

func (p *fakeListener) Accept() (net.Conn, error) {
	if p.fails.Load() > 0 {
		p.fails.Add(-1)
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	c, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	a := &acceptedConn{Conn: c.(*wstest.Conn)}
	select {
	case <-p.arrived:
	default:
	}
	p.arrived <- a
	return a, nil
}

func (a *acceptedConn) Close() error {
	a.closed.Store(true)
	return a.Conn.Close()
}

// An idleConn is an idle connection.
type idleConn struct {
	*wstest.Conn
	*acceptedConn
}

func (p *fakeListener) connect(t *testing.T, text string) idleConn {
	t.Helper()
	c, err := p.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	io.WriteString(c, text)
	synctest.Wait()
	return idleConn{c, <-p.arrived}
}

// A trackedWorld is a world whose connections are tracked as in the program.
type trackedWorld struct {
	*world
	*fakeListener
	open atomic.Int64 // connections to the game
	full atomic.Int64 // dials that fail for lack of a descriptor
}

// newTrackedWorld has 256 descriptors. above, if not nil, wraps the listener of its
// ConnTracker.
func newTrackedWorld(t *testing.T, p policy.Policy, above func(net.Listener) net.Listener) *trackedWorld {
	w := &trackedWorld{fakeListener: newFakeListener()}
	w.world = newWorld(t, p, func(c *gateway.Config) {
		c.Descriptors = 256
		dial := c.Routes[0].Upstream.DialContext
		c.Routes[0].Upstream.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if w.full.Load() > 0 {
				w.full.Add(-1)
				return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
			}
			w.open.Add(1)
			return dial(ctx, network, addr)
		}
	})
	w.gw.Page("/page", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a page") }))
	ln := w.gw.Conns().Listen(w.fakeListener, false)
	if above != nil {
		ln = above(ln)
	}
	serveFrom(t, ln, w.gw, w.gw.Conns())
	offer := w.Offer
	w.Door = wstest.Knock(t, w.fakeListener.Listener)
	w.Offer = offer
	return w
}

// inTracked runs f in a bubble of synctest with a trackedWorld.
func inTracked(t *testing.T, f func(*testing.T, *trackedWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newTrackedWorld(t, testPolicy(), nil)) })
}

// A secureTrackedWorld is a trackedWorld with TLS.
type secureTrackedWorld struct {
	*trackedWorld
	pair *testcert.Pair
}

func newSecureTrackedWorld(t *testing.T, p policy.Policy) *secureTrackedWorld {
	pair := testcert.New(t, "game.example")
	cert, key := pair.Write(t.TempDir())
	certs, err := secure.Open(secure.Config{CertFile: cert, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	return &secureTrackedWorld{newTrackedWorld(t, p, func(ln net.Listener) net.Listener { return certs.Listen(ln) }), pair}
}

// tlsConn returns a connection before its TLS handshake, for one protocol.
func (w *secureTrackedWorld) tlsConn(protocol string) *tls.Conn {
	w.world.t.Helper()
	c, err := w.fakeListener.Dial()
	if err != nil {
		w.world.t.Fatal(err)
	}
	w.world.t.Cleanup(func() { c.Close() })
	return tls.Client(c, w.pair.Client(protocol))
}

// overHTTP2 returns a client that asks by HTTP/2 alone, and counts its connections.
func (w *secureTrackedWorld) overHTTP2() (client *http.Client, dials *int) {
	dials = new(int)
	tr := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		*dials++
		c := w.tlsConn("h2")
		return c, c.Handshake()
	}}
	w.world.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}, dials
}

// serveFrom serves h as the program does.
func serveFrom(t *testing.T, ln net.Listener, h http.Handler, conns *listen.ConnTracker) {
	server := &http.Server{Handler: conns.Handler(h), ConnState: conns.ConnState, ConnContext: listen.ConnContext, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
}

// connectMany opens n idle connections, one after the other.
func (p *fakeListener) connectMany(t *testing.T, n int, text string) (all []idleConn) {
	t.Helper()
	for range n {
		all = append(all, p.connect(t, text))
	}
	return all
}

// wantClosed checks that exactly the first n of all were closed.
func wantClosed(t *testing.T, all []idleConn, n int) {
	t.Helper()
	synctest.Wait()
	for i, s := range all {
		if s.closed.Load() != (i < n) {
			t.Fatalf("idleConn %d of %d: closed is %v; want the first %d closed", i, len(all), s.closed.Load(), n)
		}
	}
}

// resume resumes p, which must succeed at once.
func (w *trackedWorld) resume(p *wstest.Player) *wstest.Player {
	w.t.Helper()
	began := time.Now()
	p.Drop()
	p = p.Resume(0)
	wstest.Equal(w.t, "the resume waited", time.Since(began), 0)
	return p
}

// idleStates are the states in which a connection is idle.
var idleStates = map[string]string{
	"says nothing":              "",
	"half a head":               "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
	"between two requests":      "GET /page HTTP/1.1\r\nHost: x\r\n\r\n",
	"refused, body outstanding": "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 9\r\n\r\n",
	"a refused resume":          refusedResume,
}

const refusedResume = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: reseat.v1, reseat.token.x, reseat.received.0\r\n\r\n"

// T29: idle connections are closed to make room, the longest idle first.
func TestLongestIdleConnectionIsClosedForResume(t *testing.T) {
	for name, text := range idleStates {
		t.Run(name, func(t *testing.T) {
			inTracked(t, func(t *testing.T, w *trackedWorld) {
				p, _ := w.play()
				all := w.connectMany(t, enough-2, text)
				wantClosed(t, all, 0)
				p = w.resume(p) // the replaced client disconnects, its place remains
				wantClosed(t, all, 1)
				all = append(all, w.connectMany(t, 300, text)...)
				w.resume(p).Sync()
				wantClosed(t, all, 301)
				wstest.Equal(t, "counted", w.metrics()["reseat_waiting_closed_total"], 301)
			})
		})
	}
}

// A byte a second is no progress.
func TestSlowRequestHeadDoesNotResetIdleTime(t *testing.T) {
	inTracked(t, func(t *testing.T, w *trackedWorld) {
		p, _ := w.play()
		all := w.connectMany(t, enough-2, "")
		for range 4 {
			for _, s := range all[:10] {
				io.WriteString(s.Conn, "G")
			}
			time.Sleep(time.Second)
		}
		w.resume(p)
		wantClosed(t, all, 1)
	})
}

// wantPage reads the answer to a request for /page.
func wantPage(t *testing.T, what string, c net.Conn) {
	t.Helper()
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %v, %v, want 200", what, resp, err)
	}
}

func TestTLSHandshakesCountAsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSecureTrackedWorld(t, testPolicy())
		request := func() net.Conn {
			c := w.tlsConn("http/1.1")
			fmt.Fprintf(c, "GET /page HTTP/1.1\r\nHost: game.example\r\n\r\n")
			synctest.Wait()
			return c
		}
		first := request() // it has been idle the longest, and is served
		failed := w.connectMany(t, 50, "SSH-2.0-OpenSSH\r\n")
		wantClosed(t, failed, 50)
		all := w.connectMany(t, enough-1, "\x16\x03\x01\x02\x00\x01")
		wantClosed(t, all, 0)
		wantPage(t, "the first", first)
		began := time.Now()
		wantPage(t, "one more", request())
		wstest.Equal(t, "it waited", time.Since(began), 0)
		wstest.Equal(t, "counted", w.metrics()["reseat_waiting_closed_total"], 1) // failed handshakes are not tracked
	})
}

// An HTTP/2 connection is idle when its last request has been served.
func TestHTTP2ConnectionIsIdleBetweenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSecureTrackedWorld(t, testPolicy())
		release := make(chan struct{})
		w.gw.Page("/poll", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		client, dials := w.overHTTP2()
		get := func(path string) error {
			resp, err := client.Get("https://game.example" + path)
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		polled := make(chan error)
		go func() { polled <- get("/poll") }()
		synctest.Wait()
		if err := get("/page"); err != nil {
			t.Errorf("beside a long poll: %v", err)
		}
		all := w.connectMany(t, enough+50, "")
		wantClosed(t, all, 50)
		close(release)
		if err := <-polled; err != nil || *dials != 1 {
			t.Errorf("the long poll: %v, after %d dials", err, *dials)
		}
		synctest.Wait()
		all = append(all, w.connectMany(t, enough, "")...)
		wantClosed(t, all, enough+50) // and the HTTP/2 one, which became idle among them
		if err := get("/page"); err != nil || *dials != 2 {
			t.Errorf("after that: %v, %d dials", err, *dials)
		}
	})
}

// noContent answers a request of no WebSocket with 204, and keeps the connection.
const noContent = "HTTP/1.1 204 No Content\r\n\r\n"

// A connection in use is not closed, however long its request takes.
func TestConnectionInUseIsNotClosed(t *testing.T) {
	inTracked(t, func(t *testing.T, w *trackedWorld) {
		release := make(chan struct{})
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			if r.Header.Get("Upgrade") != "" {
				return false
			}
			<-release
			io.WriteString(c, noContent)
			c.Close()
			return true
		}
		_, polling := w.Request("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		p, game := w.play()
		all := w.connectMany(t, 1000, "")
		wantClosed(t, all, 1000-(enough-4))
		p.Pass(game, "still there")
		close(release)
		if resp, err := http.ReadResponse(polling, nil); err != nil || resp.StatusCode != http.StatusNoContent {
			t.Errorf("a long poll: %v, %v, want 204", resp, err)
		}
	})
}

// Requests that become complete at the same time each need a connection to the game server.
func TestDialsFreeDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		at   int // number of requests that become complete at once: as many as one address may have
		text string
	}{
		"sessions": {29, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"},
		"requests": {8, "GET / HTTP/1.1\r\nHost: x\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			inTracked(t, func(t *testing.T, w *trackedWorld) {
				release := make(chan struct{})
				defer close(release)
				w.game.Refuse = func(c net.Conn, r *http.Request) bool {
					<-release
					return false
				}
				all := w.connectMany(t, enough, c.text)
				for _, s := range all[enough-c.at:] {
					io.WriteString(s.Conn, "\r\n")
				}
				wantClosed(t, all, c.at)
				wstest.Equal(t, "connections to the game", int(w.open.Load()), c.at)
			})
		})
	}
}

// Connections to the game server between two ordinary requests are not needed.
func TestIdleUpstreamConnectionsAreClosedUnderPressure(t *testing.T) {
	inTracked(t, func(t *testing.T, w *trackedWorld) {
		var closed atomic.Bool
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			io.WriteString(c, noContent)
			io.Copy(io.Discard, c)
			closed.Store(true)
			return true
		}
		w.connect(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		w.connectMany(t, enough-1, "")
		wstest.Equal(t, "closed too early", closed.Load(), false)
		w.connect(t, "")
		wstest.Equal(t, "closed while descriptors are short", closed.Load(), true)
	})
}

// If accept fails for lack of a descriptor, the longest idle connection is closed, whatever
// has used them up.
func TestAcceptWithoutDescriptorClosesIdleConnections(t *testing.T) {
	inTracked(t, func(t *testing.T, w *trackedWorld) {
		all := w.connectMany(t, 20, "")
		w.fails.Store(5)
		all = append(all, w.connect(t, "")) // its Accept was in progress; the next ones fail
		time.Sleep(time.Second)
		wantClosed(t, all, 5)
		w.connectMany(t, 1, "")

		nobody := newFakeListener()
		nobody.fails.Store(1)
		if c, err := w.gw.AdminConns().Listen(nobody, false).Accept(); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("without idle connections: %v, %v", c, err)
		}
	})
}

// A dial that fails for lack of a descriptor is not the game server's failure.
func TestDialWithoutDescriptorIsNotAnUpstreamFailure(t *testing.T) {
	inTracked(t, func(t *testing.T, w *trackedWorld) {
		all := w.connectMany(t, 5, "")
		w.full.Store(1)
		w.Player("/").Sync() // with the descriptor of the longest idle connection, at the second try
		wantClosed(t, all, 1)
		w.full.Store(100)
		before := w.metrics()
		_, _, resp, err := w.Handshake("/", nil, "")
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%v %v, want 503 and Retry-After", resp, err)
		}
		w.wantSince(before, "reseat_handshakes_refused_total", map[string]float64{"descriptors": 1})
		w.full.Store(100)
		if _, _, err := w.gw.Create(t.Context(), nil, gateway.CreateRequest{Path: "/"}); !errors.Is(err, gateway.ErrBusy) {
			t.Errorf("pre-created: %v, want ErrBusy", err)
		}
	})
}

// Clients of the client address cannot use up the descriptors of the admin address.
func TestAdminAddressHasItsOwnConnectionLimit(t *testing.T) {
	inTracked(t, func(t *testing.T, w *trackedWorld) {
		admin := newFakeListener()
		serveFrom(t, w.gw.AdminConns().Listen(admin, false), http.NotFoundHandler(), w.gw.AdminConns())
		scrapers := admin.connectMany(t, 16, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		all := w.connectMany(t, 1000, "")
		wantClosed(t, all, 1000-enough)
		wantClosed(t, scrapers, 0)
		scrapers = append(scrapers, admin.connectMany(t, 100, "")...)
		wantClosed(t, scrapers, 100)
		wantClosed(t, all, 1000-enough)
	})
}

// T29: each takeover leaves a connection to close, which takes a while if its client does
// not close it.
func TestLingeringConnectionsOfTakeoversAreBounded(t *testing.T) {
	inTracked(t, func(t *testing.T, w *trackedWorld) {
		p, _ := w.play()
		var old []idleConn
		for range 15 {
			old = append(old, idleConn{p.Conn, <-w.arrived})
			p.Hold(true) // the network delivers nothing any more, not even the close
			p = p.Resume(0)
		}
		time.Sleep(session.LingerTime / 2)
		wantClosed(t, old, 15-session.MaxLingering)
		time.Sleep(new(session.Attachment).FlushTime() + session.LingerTime)
		wantClosed(t, old, 15)
		p.Sync()
	})
}
