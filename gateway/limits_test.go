package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func TestMaxSessionsIsEnforced(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		w.Plain("/") // a plain client is a session, too
		w.game.Next()
		_, _, resp, err := w.Handshake("/", nil, "")
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%v %v, want 503 and Retry-After", resp, err)
		}
		if _, _, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/"}); !errors.Is(err, gateway.ErrBusy) {
			t.Errorf("pre-created: %v, want ErrBusy", err)
		}
		w.detach(p)
		p = p.Resume(0) // a resume is not a new session
		p.Control("bye")
		game.WantClose(1000)
		synctest.Wait()
		w.Player("/").Sync()
	}, func(c *gateway.Config) { c.MaxSessions = 2 })
}

func TestMaxSessionsPerIPIsEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			c.MaxSessionsPerIP = 1
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		})
		for addr, want := range map[string]int{"192.0.2.1": 429, "192.0.2.2": 101, "2001:db8::1": 429, "2001:db8:0:1::1": 101} {
			for i, from := range []string{addr, map[string]string{"2001:db8::1": "2001:db8::ffff"}[addr]} {
				if from == "" {
					from = addr
				}
				if want == 101 && i > 0 {
					continue
				}
				_, _, resp, err := w.Handshake("/", []string{wire.Subprotocol}, "X-Forwarded-For: "+from+"\r\n")
				switch {
				case err != nil:
					t.Fatal(err)
				case i == 0 && resp.StatusCode != 101, i == 1 && resp.StatusCode != want:
					t.Errorf("handshake %d from %s: %d", i+1, from, resp.StatusCode)
				case resp.StatusCode == 429 && resp.Header.Get("Retry-After") == "":
					t.Error("429 without Retry-After")
				}
			}
		}
	})
}

// From 90 % of --buffer-total on, new sessions are refused.
func TestNewSessionsAreRefusedWhenMemoryIsLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 1 << 20
		w, p, game := newDetached(t, testPolicy(), func(c *gateway.Config) { c.BufferTotal = total })
		w.wantState(p, session.Detached)
		for w.gw.BufferBytes() < total/10*9 {
			if status := w.refused("/"); status != http.StatusSwitchingProtocols {
				t.Fatalf("with %d of %d bytes: %d", w.gw.BufferBytes(), total, status)
			}
			w.game.Next()
			game.Text(strings.Repeat("x", 8<<10))
			synctest.Wait()
		}
		if w.gw.BufferBytes() == total {
			t.Fatal("all of it is used at once")
		}
		_, _, resp, err := w.Handshake("/", []string{wire.Subprotocol}, "")
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%v %v, want 503 and Retry-After", resp, err)
		}
		p.Resume(0) // not a new session
	})
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			c.Descriptors = 256 // 96 for sessions and requests
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		})
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
	})
}
