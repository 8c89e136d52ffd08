//go:build linux

package server

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"reseat/gateway/frame"
	"reseat/gateway/handover"
	"reseat/gateway/upgrade"
)

// These tests are about processes that stay for a while after an upgrade: they finish
// requests, or forward connections that cannot move.

// request begins an ordinary request that ends when the game server says so.
func (s *stage) request(n *node, client *http.Client) *http.Response {
	s.t.Helper()
	resp, err := client.Get("http://" + n.addr + "/slow")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func wantAnswered(t *testing.T, resp *http.Response) {
	t.Helper()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "begin\nend\n" {
		t.Errorf("answer %q, %v", b, err)
	}
}

// An ordinary request may take minutes. Each process answers those that it has begun.
func TestUpgradesGoOnWhileOlderProcessesFinishRequests(t *testing.T) {
	s := newStage(t)
	n := s.start()
	p := s.play(n, 4)
	pid := n.pid()
	var pids []int
	var answers []*http.Response
	for range 10 {
		answers, pids = append(answers, s.request(n, ask)), append(pids, pid)
		pid = n.upgrade(pid)
		p.goOn()
	}
	for _, old := range pids {
		if err := syscall.Kill(old, 0); err != nil {
			t.Errorf("process %d has exited, and owes an answer: %v", old, err)
		}
	}
	close(s.game.slow)
	for _, resp := range answers {
		wantAnswered(t, resp)
	}
	for _, old := range pids {
		gone(t, old)
	}
	p.goOn()
	s.wantJoined(4)
}

// A keep-alive connection with a request under way stays with its process. The answer says that it
// ends, and a client that comes again gets to the new process.
func TestKeptAliveConnectionEndsWithItsRequest(t *testing.T) {
	s := newStage(t)
	n := s.start()
	one := &http.Transport{}
	t.Cleanup(one.CloseIdleConnections)
	resp := s.request(n, &http.Client{Transport: one})
	n.upgrade(n.pid())
	close(s.game.slow)
	wantAnswered(t, resp)
	resp.Body.Close()
	gone(t, n.pid())
	wantAnswered(t, s.request(n, &http.Client{Transport: one}))
}

func TestThirdProcessThatWouldForwardIsRefused(t *testing.T) {
	s := newStage(t)
	s.secure()
	n := s.start("--upgrade-pump=1h")
	pids := []int{n.pid()}
	all := []*players{s.play(n, 1)} // a plain client, which cannot be asked to move
	for range 2 {
		pids = append(pids, n.upgrade(pids[len(pids)-1]))
		all = append(all, s.play(n, 1))
	}
	goOn := func() {
		t.Helper()
		for _, p := range all {
			p.goOn()
		}
	}
	goOn()
	now := pids[len(pids)-1]
	until(t, func() error {
		mark := n.mark()
		syscall.Kill(now, syscall.SIGUSR2)
		line := n.wait(mark, "upgrade.refused", "upgrade.begun")
		err, _ := line["err"].(string)
		if strings.HasPrefix(err, "2 older processes still forward connections") {
			return nil
		}
		if !strings.HasPrefix(err, busy) {
			t.Fatal(line)
		}
		return errors.New(err)
	})
	n.wantStatus(upgrade.Refused, "--upgrade-pump")
	goOn()
	all[0].list[0].conn.CloseNow()
	gone(t, pids[0])
	all = all[1:]
	n.upgrade(now)
	goOn()
}

// serviceRestart is the close code for plain clients.
const serviceRestart websocket.StatusCode = 1012

// tlsGame serves the stage's game over TLS, and returns the flags for it.
func (s *stage) tlsGame() []string {
	s.t.Helper()
	game := httptest.NewTLSServer(s.game)
	s.t.Cleanup(game.Close)
	ca := writeFile(s.t, filepath.Join(s.dir, "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: game.Certificate().Raw})))
	return []string{"--upstream=wss" + strings.TrimPrefix(game.URL, "https"), "--upstream-ca=" + ca}
}

// A connection over TLS goes through upgrades, as long as older processes may forward it.
func TestConnectionsOverTLSAreForwarded(t *testing.T) {
	for _, mode := range []string{"soft", "hard"} {
		t.Run(mode, func(t *testing.T) {
			s := newStage(t)
			n := s.start(append(s.tlsGame(), "--upgrade-pump=1h", "--disconnect="+mode)...)
			p := s.play(n, 6)
			pid := n.pid()
			for range 2 {
				pid = n.upgrade(pid)
				p.goOn()
			}
			s.wantJoined(6)
		})
	}
}

func TestForwardedConnectionsEndWhenPumpIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		mode      string // "" for clients over TLS, else --disconnect of a game server over TLS
		resumable websocket.StatusCode
	}{
		"clients":           {"", websocket.StatusServiceRestart},
		"game server":       {"soft", 4502},
		"hard, game server": {"hard", -1}, // the client resumes
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			args := []string{"--upgrade-pump=3s"}
			if c.mode == "" {
				s.secure()
			} else {
				args = append(args, append(s.tlsGame(), "--disconnect="+c.mode)...)
			}
			n := s.start(args...)
			p := s.play(n, 6)
			n.upgrade(n.pid())
			p.noticed()
			for i, l := range p.list {
				resumable, code := i%2 == 1, websocket.CloseStatus(*l.err.Load())
				switch {
				case resumable && c.mode == "" && !l.moved.Load():
					t.Errorf("player %d was not asked to move", i)
				case resumable && c.mode != "" && code != c.resumable, !resumable && code != serviceRestart:
					t.Errorf("player %d, resumable %t, got %d", i, resumable, code)
				}
			}
			if c.mode == "hard" {
				reaches(t, "Closes with 1001: hard routes are closed, not lost", &s.game.away, 3)
			}
			gone(t, n.pid())
		})
	}
}

// maxDials is how many dials to a game server are under way at a time, for one path and one client address.
const maxDials = 29

// dialWaiting begins handshakes whose game server has not answered, and returns how they end.
func (s *stage) dialWaiting(n *node, count int) <-chan *websocket.Conn {
	s.t.Helper()
	conns := make(chan *websocket.Conn, count)
	for range count {
		go func() {
			c, err := s.dial(n, "/wait")
			if err != nil {
				s.t.Error(err)
			}
			conns <- c
		}()
	}
	reaches(s.t, "dials of the game server", &s.game.dials, min(count, maxDials))
	return conns
}

// After COMMIT nobody else has a late session: one that the successor cannot read ends, and costs
// no other.
func TestLateSessionThatCannotBeReadIsClosedAndCounted(t *testing.T) {
	s := newStage(t)
	n := s.start("--upgrade-socket=" + s.socket)
	p := s.play(n, 4)
	waiting := s.dialWaiting(n, 1)
	r, next := s.between(n)
	r.until(handover.Commit)
	if err := r.new.Send(handover.Commit, nil); err != nil {
		t.Fatal(err)
	}
	next.wait(0, "upgrade.committed")
	close(s.game.slow)
	for passed := handover.Commit; passed != handover.Sessions; {
		m, err := r.old.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if passed = m.Kind; passed == handover.Sessions {
			record, _, err := handover.CutPart(m.Body[1:])
			if err != nil {
				t.Fatal(err)
			}
			for i := range record {
				record[i] = 0xff
			}
		}
		err = r.new.Send(m.Kind, m.FDs, m.Body)
		m.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	next.wait(0, "upgrade.session_lost")
	c := <-waiting
	if _, _, err := c.Read(t.Context()); err == nil || websocket.CloseStatus(err) != -1 {
		t.Errorf("%v, want the end of the connection", err)
	}
	reaches(t, "ended connections to the game server", &s.game.left, 1)
	p.goOn()
	if got := next.metrics("reseat_upgrade_sessions_total")["lost"]; got != 1 {
		t.Errorf("%v lost, want 1", got)
	}
	if got := s.game.left.Load(); got != 1 {
		t.Errorf("%d connections to the game server have ended, want 1", got)
	}
}

// Sessions whose game server answers after the freeze follow: more than fit in a message, and more
// than are dialled at a time.
func TestManyLateSessionsFollow(t *testing.T) {
	s := newStage(t)
	n := s.start()
	p := s.play(n, 2)
	const count = 150
	waiting := s.dialWaiting(n, count)
	n.upgrade(n.pid())
	close(s.game.slow)
	for range count {
		c := <-waiting
		if c == nil {
			t.Fatal("refused")
		}
		p.add(c)
	}
	p.goOn()
	<-n.exited
	p.goOn()
	s.wantJoined(count + 2)
}

// A half is one end of a WebSocket whose frames the test writes by itself, in part: the library reads, and writes nothing.
type half struct {
	*websocket.Conn
	raw net.Conn
}

type rawKey struct{}

// halves returns both ends of a session of n, whose game server is another.
func (s *stage) halves(driver string) (n *node, client, game half) {
	s.t.Helper()
	joined := make(chan half, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := websocket.Accept(w, r, nil); err == nil {
			joined <- half{c, r.Context().Value(rawKey{}).(net.Conn)}
		}
	}))
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, rawKey{}, c) }
	server.Start()
	s.t.Cleanup(server.Close)
	n = s.start("--driver="+driver, "--upstream="+server.URL)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		client.raw, err = new(net.Dialer).DialContext(ctx, network, addr)
		return client.raw, err
	}}
	var err error
	if client.Conn, _, err = websocket.Dial(s.t.Context(), "ws://"+n.addr+"/half", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { client.CloseNow() })
	return n, client, <-joined
}

// An upgrade finds frames cut off anywhere, in both directions: a message of two fragments with a
// ping between them.
func TestHalfFramesGoThroughUpgrades(t *testing.T) {
	for _, driver := range []string{"net", "poll"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			n, client, game := newStage(t).halves(driver)
			pid, key := n.pid(), [4]byte{1, 2, 3, 4}
			first := frame.AppendMasked(nil, frame.Text, key, []byte("first "))
			first[0] = frame.Text // not the last
			up := slices.Concat(first, frame.AppendMasked(nil, frame.Ping, key, []byte("pi")), frame.AppendMasked(nil, frame.Continuation, key, []byte("second")))
			first = frame.Append(nil, frame.Text, []byte("first "))
			first[0] = frame.Text
			down := slices.Concat(first, frame.Append(nil, frame.Ping, []byte("pi")), frame.Append(nil, frame.Continuation, []byte("second")))
			for cut := 1; cut < len(up); cut++ {
				downCut := min(cut, len(down)-1)
				client.raw.Write(up[:cut])
				game.raw.Write(down[:downCut])
				pid = n.upgrade(pid)
				client.raw.Write(up[cut:])
				game.raw.Write(down[downCut:])
				for what, reader := range map[string]half{"up": game, "down": client} {
					if _, got, err := reader.Read(t.Context()); string(got) != "first second" {
						t.Fatalf("%s, cut after %d bytes: %q, %v", what, cut, got, err)
					}
				}
			}
		})
	}
}
