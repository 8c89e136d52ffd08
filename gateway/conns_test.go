package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/listen"
	"reseat/gateway/policy"
	"reseat/gateway/secure"
	"reseat/gateway/session"
)

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
