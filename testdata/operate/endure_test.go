package operate

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/common/expfmt"
)

// metric returns the sum of a metric's series whose labels contain label; "" means all.
func (g *gateway) metric(name, label string) (sum float64) {
	g.t.Helper()
	families, err := new(expfmt.TextParser).TextToMetricFamilies(bytes.NewReader(g.get("/metrics")))
	if err != nil {
		g.t.Fatal(err)
	}
	for _, m := range families[name].GetMetric() {
		if label == "" || strings.Contains(fmt.Sprint(m.Label), `"`+label+`"`) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// eventually waits until holds returns true.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience; <-time.After(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("it never came about that %s", what)
}

// listens reports whether somebody accepts connections at an address.
func listens(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// raw connects to the gateway and sends text.
func (g *gateway) raw(text string) (net.Conn, error) {
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		return nil, err
	}
	g.t.Cleanup(func() { c.Close() })
	_, err = io.WriteString(c, text)
	return c, err
}

// With almost no descriptors left the gateway refuses new sessions, keeps existing
// ones, and serves resumes.
func TestSessionsSurviveDescriptorExhaustion(t *testing.T) {
	for _, driver := range []string{"net", "poll"} {
		t.Run(driver, func(t *testing.T) {
			ga := newGame(t, 0)
			g := startWith(t, 64, "--upstream="+ga.url(), "--driver="+driver)
			var players []*player
			for range 64 {
				p := g.player()
				if err := p.connect(); err != nil {
					if !strings.Contains(err.Error(), "503") {
						t.Errorf("after %d sessions: %v, want 503", len(players), err)
					}
					break
				}
				players = append(players, p)
				defer func() { p.conn.CloseNow() }()
			}
			if len(players) < 10 || len(players) > 31 {
				t.Fatalf("%d sessions with 64 descriptors", len(players))
			}
			for i, p := range players {
				if i%2 == 0 {
					p.conn.CloseNow()
				}
				p.wantEcho("still here?")
			}
			if n := g.metric("reseat_handshakes_refused_total", "descriptors"); n == 0 {
				t.Error("no refusal is counted")
			}
		})
	}
}

// Requests that strangers never finish don't keep descriptors forever, and leave those
// that resumes need.
func TestSlowRequestsLeaveRoomForResumes(t *testing.T) {
	for name, slow := range map[string]struct{ scheme, text string }{
		"head":                  {"ws", "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "},
		"idle":                  {"ws", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		"body":                  {"ws", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx"},
		"TLS, nothing":          {"wss", ""},
		"TLS, half a handshake": {"wss", halfHello},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ga := newGame(t, 0)
			flags := []string{"--upstream=" + ga.url()}
			var trust *tls.Config
			if slow.scheme == "wss" {
				flags, trust = secured(t, flags)
			}
			g := startWith(t, 200, flags...)
			p := (&player{url: slow.scheme + "://" + g.addr, tls: trust}).join(t)
			for range 400 {
				g.raw(slow.text)
			}
			for range 3 {
				p.conn.CloseNow()
				p.wantEcho("let me in")
			}
		})
	}
}

// --buffer-total holds back a game server that floods detached or stalled players: the
// gateway uses no memory beyond it. A stalled player is held back, or notified that it reads too
// little.
func TestFastGameServersAreBoundedByBufferTotal(t *testing.T) {
	defer func(p string) { program = p }(program)
	program = ownBuild // the race detector needs many times as much memory
	for _, driver := range []string{"net", "poll"} {
		t.Run(driver, func(t *testing.T) { heldToMemory(t, driver) })
	}
}

func heldToMemory(t *testing.T, driver string) {
	const total = 32 << 20
	begin := make(chan struct{})
	close(begin)
	ga := newFlood(t, begin)
	// A player that reads nothing must stay attached: with the heartbeat alone it does for
	// half a minute.
	g := start(t, "--answer-timeout=0", "--upstream="+ga, "--driver="+driver, fmt.Sprint("--buffer-total=", total))
	base := g.metric("process_resident_memory_bytes", "")
	var away, slow []*player
	for i := range 100 {
		p := g.player()
		if p.connect() != nil {
			break // the buffers are nearly exhausted already
		}
		defer func() { p.conn.CloseNow() }()
		if i%2 == 0 {
			p.conn.CloseNow()
			away = append(away, p)
		} else {
			slow = append(slow, p) // attached, and reads nothing
		}
	}
	var most, held float64
	for range 40 {
		<-time.After(100 * time.Millisecond)
		most = max(most, g.metric("process_resident_memory_bytes", ""))
		held = max(held, g.metric("reseat_buffer_bytes", ""))
	}
	t.Logf("%d away, %d slow: %.0f MiB resident at first, %.0f MiB at most, buffers %.1f of %d MiB", len(away), len(slow), base/(1<<20), most/(1<<20), held/(1<<20), total>>20)
	if held > total*1.1 {
		t.Errorf("the buffers held %.0f bytes, want at most %d and a tenth", held, total)
	}
	if most-base > 4*total {
		t.Errorf("%.0f bytes of memory were taken for buffers of %d", most-base, total)
	}
	for _, p := range slow[:min(3, len(slow))] {
		for n := range 1000 {
			_, err := p.read()
			if err == nil {
				continue
			}
			p.conn.CloseNow()
			var told *closing
			if err := p.connect(); !errors.As(err, &told) || told.Code != 4408 {
				t.Errorf("a stalled player lost the connection after %d messages, and its resume gets %v, want 4408", n, err)
			}
			break
		}
	}
}

// newFlood returns a game server that sends as fast as possible once begin is closed.
func newFlood(t *testing.T, begin <-chan struct{}) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		ctx := c.CloseRead(r.Context())
		<-begin
		for message := make([]byte, 1024); err == nil; {
			err = c.Write(ctx, websocket.MessageBinary, message)
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

// Even continuous SIGHUPs disturb no session.
func TestSIGHUPFloodDisturbsNoSession(t *testing.T) {
	key := tokenKey(t)
	ga := newGame(t, 5*time.Millisecond)
	g := start(t, "--upstream="+ga.url(), "--token-key-file="+key)
	p := g.join()
	for n := 1; n <= 200; n++ {
		for range 20 {
			g.cmd.Process.Signal(syscall.SIGHUP)
		}
		p.counts(1)
		if n%50 == 0 {
			p.conn.CloseNow()
		}
	}
	if n := g.metric("reseat_reloads_total", "failed"); n > 0 || p.resumes != 3 {
		t.Errorf("%v reloads failed, %d resumes", n, p.resumes)
	}
}
