package operate

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// Sessions end with their process. A resuming client learns that from the next process
// with the same key, or from one that can't verify its token.
func TestResumeAfterAKillIsRefusedAsUnknown(t *testing.T) {
	key := func(text string) string {
		return "--token-key-file=" + write(t, filepath.Join(t.TempDir(), "key"), strings.Repeat(text, 4))
	}
	ga := newGame(t, 5*time.Millisecond)
	one, two := key("01234567"), key("abcdefgh")
	for name, c := range map[string]struct {
		key  string
		code int
	}{"the same key": {one, 4404}, "another key": {two, 4401}} {
		t.Run(name, func(t *testing.T) {
			at := "127.0.0.1:" + freePort(t)
			g := start(t, "--listen="+at, "--upstream="+ga.url(), one)
			players := make([]*player, 50)
			for i := range players {
				players[i] = g.join()
				players[i].next()
			}
			g.cmd.Process.Kill()
			g.cmd.Wait()
			start(t, "--listen="+at, "--upstream="+ga.url(), c.key)
			for _, p := range players {
				var told *closing
				if err := p.connect(); !errors.As(err, &told) || told.Code != c.code || told.Retry {
					t.Errorf("a resume gets %v, want a final %d", err, c.code)
				}
			}
		})
	}
}

// A client that steals a token between a disconnect and the resume gets the session,
// because the gateway can't tell them apart. The player's own token is superseded then,
// and its use is logged with both addresses.
func TestStolenTokenIsReportedWithBothAddresses(t *testing.T) {
	ga := newGame(t, 5*time.Millisecond)
	g := start(t, "--upstream="+ga.url())
	robbed := g.join()
	robbed.next()
	robbed.conn.CloseNow()
	thief := (&player{url: robbed.url, from: "127.0.0.2", session: robbed.session, token: robbed.token, received: robbed.received}).join(t)
	for thief.say("mine now"); len(thief.unacked) > 0; { // the ack shows that the new token is confirmed
		thief.next()
	}
	var told *closing
	if err := robbed.connect(); !errors.As(err, &told) || told.Code != 4401 || told.Retry {
		t.Errorf("the superseded token gets %v, want a final 4401", err)
	}
	if line := g.says("token.replayed"); line["peer"] != "127.0.0.1" || line["held_by"] != "127.0.0.2" || line["session"] != robbed.session || line["level"] != "WARN" {
		t.Errorf("reported as %v", line)
	}
	thief.next()
	if thief.resumes > 0 || g.metric("reseat_tokens_replayed_total", "") != 1 {
		t.Errorf("the thief was disconnected %d times, %v replayed tokens are counted", thief.resumes, g.metric("reseat_tokens_replayed_total", ""))
	}
}

// floods are what a stranger or a faulty client can do without end, each until ctx is
// done.
var floods = map[string]func(ctx context.Context, t *testing.T, url string){
	"messages of a client that acks nothing": func(ctx context.Context, t *testing.T, url string) {
		for ctx.Err() == nil {
			p := &player{t: t, url: url}
			if p.connect() != nil {
				continue
			}
			for ctx.Err() == nil && p.conn.Write(ctx, websocket.MessageBinary, make([]byte, 1000)) == nil {
			}
			p.conn.CloseNow()
		}
	},
	"pings": func(ctx context.Context, t *testing.T, url string) {
		p := &player{t: t, url: url}
		if p.connect() != nil {
			return
		}
		defer p.conn.CloseNow()
		go func() {
			for ctx.Err() == nil {
				if _, _, err := p.conn.Read(ctx); err != nil {
					return
				}
			}
		}()
		for ctx.Err() == nil && p.conn.Write(ctx, websocket.MessageText, []byte("\x10ping "+strings.Repeat("x", 32))) == nil {
		}
	},
	"empty messages of a plain client": func(ctx context.Context, t *testing.T, url string) {
		c, _, err := websocket.Dial(ctx, url, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for ctx.Err() == nil && c.Write(ctx, websocket.MessageBinary, nil) == nil {
		}
	},
	"resumes with bad tokens": func(ctx context.Context, t *testing.T, url string) {
		for ctx.Err() == nil {
			p := &player{t: t, url: url, token: strings.Repeat("x.", 1000)}
			if p.connect(); p.conn != nil {
				p.conn.CloseNow()
			}
		}
	},
	"new sessions that are left at once": func(ctx context.Context, t *testing.T, url string) {
		for ctx.Err() == nil {
			p := &player{t: t, url: url}
			if p.connect() == nil {
				p.tell("bye")
			}
			if p.conn != nil {
				p.conn.CloseNow()
			}
		}
	},
}

// Whatever one client does without end, another session receives all its messages, in
// order and over one connection, and afterwards the gateway holds nothing of the flood.
// The test logs the other's round trip times, and does not assert them.
func TestFloodCostsAnotherSessionNoMessage(t *testing.T) {
	for name, flood := range floods {
		for _, driver := range []string{"net", "poll"} {
			t.Run(name+", "+driver, func(t *testing.T) {
				ga := newGame(t, 0)
				g := start(t, "--upstream="+ga.url(), "--driver="+driver, "--grace=1s")
				p := g.join()
				ctx, stop := context.WithTimeout(context.Background(), time.Second)
				defer stop()
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() { flood(ctx, t, g.url()) })
				}
				var trips []time.Duration
				for ctx.Err() == nil || len(trips) < 20 {
					word, began := fmt.Sprint("word ", len(trips)), time.Now()
					p.wantEcho(word)
					trips = append(trips, time.Since(began))
				}
				all.Wait()
				slices.Sort(trips)
				t.Logf("%d round trips beside it: median %v, 99%% within %v", len(trips), trips[len(trips)/2], trips[len(trips)*99/100])
				if p.resumes > 0 {
					t.Errorf("the other session was cut %d times", p.resumes)
				}
				eventually(t, "only the other session is left", func() bool { return len(g.sessions()) == 1 })
				eventually(t, "its goroutines have ended", func() bool { return g.metric("go_goroutines", "") < 60 })
			})
		}
	}
}
