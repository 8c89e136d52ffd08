//go:build linux

package server

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/handover"
	"reseat/gateway/internal/test/testcert"
)

// These tests are about processes that stay for a while after an upgrade: they finish
// requests, or forward connections that cannot move.

// secure has clients connect over TLS.
func (s *stage) secure() {
	s.t.Helper()
	s.pair = testcert.New(s.t, "localhost", "127.0.0.1")
	cert, key := s.pair.Write(s.dir)
	s.flags = append(s.flags, "--tls-cert="+cert, "--tls-key="+key)
}

// upgradeOver upgrades by SIGUSR2, and returns the new process's number as soon as that serves:
// the older one may still run.
func (n *node) upgradeOver(pid int) int {
	n.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		mark := n.mark()
		syscall.Kill(pid, syscall.SIGUSR2)
		line := n.wait(mark, "upgrade.begun", "upgrade.refused")
		if line["msg"] == "upgrade.begun" {
			n.wait(mark, "listen.clients")
			return int(line["pid"].(float64))
		}
		// Under the race detector each process takes a second to exit.
		if err := line["err"].(string); !strings.HasPrefix(err, errBusy.Error()) && !strings.Contains(err, "still finish requests") || time.Now().After(end) {
			n.t.Fatal(line)
		}
	}
}

// An ordinary request may take minutes. Each process answers those that it has begun.
func TestUpgradesGoOnWhileOlderProcessesFinishRequests(t *testing.T) {
	s := newStage(t)
	n := s.start()
	p := s.play(n, 4)
	pid := n.cmd.Process.Pid
	var pids []int
	var answers []*http.Response
	for range 10 {
		resp, err := ask.Get("http://" + n.addr + "/slow")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answers, pids = append(answers, resp), append(pids, pid)
		pid = n.upgradeOver(pid)
		p.goOn()
	}
	for _, old := range pids {
		if err := syscall.Kill(old, 0); err != nil {
			t.Errorf("process %d has exited, and owes an answer: %v", old, err)
		}
	}
	close(s.game.slow)
	for i, resp := range answers {
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "begin\nend\n" {
			t.Errorf("answer %d: %q, %v", i, b, err)
		}
	}
	for _, old := range pids {
		if !gone(old) {
			t.Errorf("process %d still runs, and owes no answer", old)
		}
	}
	p.goOn()
	if got := s.game.joined.Load(); got != 4 {
		t.Errorf("the game server had %d connections, want 4", got)
	}
}

func TestThirdProcessThatWouldForwardIsRefused(t *testing.T) {
	s := newStage(t)
	s.secure()
	n := s.start("--upgrade-pump=1h")
	pids := []int{n.cmd.Process.Pid}
	all := []*players{s.play(n, 1)} // a plain client, which cannot be asked to move
	for range 2 {
		pids = append(pids, n.upgradeOver(pids[len(pids)-1]))
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
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		mark := n.mark()
		syscall.Kill(now, syscall.SIGUSR2)
		line := n.wait(mark, "upgrade.refused", "upgrade.begun")
		if err, _ := line["err"].(string); strings.HasPrefix(err, "2 older processes still forward connections") {
			break
		} else if !strings.HasPrefix(err, errBusy.Error()) || time.Now().After(end) {
			t.Fatal(line)
		}
	}
	if u := n.status(); u.State != upgradeRefused || !strings.Contains(u.Error, "--upgrade-pump") {
		t.Errorf("%+v", u)
	}
	goOn()
	all[0].list[0].conn.CloseNow()
	if !gone(pids[0]) {
		t.Error("the oldest process still runs, and forwards nothing")
	}
	all = all[1:]
	n.upgradeOver(now)
	goOn()
}

func TestForwardedClientsLeaveWhenPumpIsOver(t *testing.T) {
	s := newStage(t)
	s.secure()
	n := s.start("--upgrade-pump=3s")
	p := s.play(n, 4)
	old := n.cmd.Process.Pid
	n.upgradeOver(old)
	p.goOn()
	p.noticed()
	for i, l := range p.list {
		code := websocket.CloseStatus(*l.err.Load())
		switch resumable := i%2 == 1; {
		case resumable && !l.moved.Load():
			t.Errorf("player %d was not asked to move", i)
		case !resumable && code != serviceRestart:
			t.Errorf("plain player %d got %d, want %d", i, code, serviceRestart)
		}
	}
	if !gone(old) {
		t.Error("the older process still runs")
	}
}

// serviceRestart is the close code for plain clients.
const serviceRestart = 1012

// A connection to a game server over TLS goes through any number of upgrades, as long as older
// processes may forward it.
func TestGameServerOverTLSIsForwarded(t *testing.T) {
	for _, hard := range []bool{false, true} {
		t.Run(fmt.Sprintf("hard=%v", hard), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			game := httptest.NewTLSServer(http.HandlerFunc(s.game.serve))
			t.Cleanup(game.Close)
			ca := filepath.Join(s.dir, "ca.pem")
			if err := os.WriteFile(ca, certificatePEM(game), 0o600); err != nil {
				t.Fatal(err)
			}
			mode := "soft"
			if hard {
				mode = "hard"
			}
			n := s.start("--upstream=wss"+strings.TrimPrefix(game.URL, "https"), "--upstream-ca="+ca, "--upgrade-pump=10s", "--disconnect="+mode)
			p := s.play(n, 6)
			pid := n.cmd.Process.Pid
			for range 2 {
				pid = n.upgradeOver(pid)
				p.goOn()
			}
			if got := s.game.joined.Load(); got != 6 {
				t.Errorf("the game server had %d connections, want 6", got)
			}
			p.noticed()
			for i, l := range p.list {
				code, want := websocket.CloseStatus(*l.err.Load()), websocket.StatusCode(4502)
				switch {
				case i%2 == 0:
					want = serviceRestart
				case hard:
					want = -1 // the client resumes
				}
				if code != want {
					t.Errorf("player %d got %d, want %d", i, code, want)
				}
			}
			for end := time.Now().Add(patience); hard && s.game.away.Load() < 3; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the game server got %d Closes with 1001, want 3: hard routes are closed, not lost", s.game.away.Load())
				}
			}
		})
	}
}

// certificatePEM is the certificate of a test server.
func certificatePEM(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// A keep-alive connection with a request under way stays with its process. The answer says that it
// ends, and a client that comes again gets to the new process.
func TestKeptAliveConnectionEndsWithItsRequest(t *testing.T) {
	s := newStage(t)
	n := s.start()
	one := &http.Transport{}
	t.Cleanup(one.CloseIdleConnections)
	resp, err := (&http.Client{Transport: one}).Get("http://" + n.addr + "/slow")
	if err != nil {
		t.Fatal(err)
	}
	old := n.cmd.Process.Pid
	n.upgradeOver(old)
	close(s.game.slow)
	lines := bufio.NewReader(resp.Body)
	if b, err := io.ReadAll(lines); err != nil || string(b) != "begin\nend\n" {
		t.Errorf("%q, %v", b, err)
	}
	resp.Body.Close()
	if !gone(old) {
		t.Error("the older process still runs")
	}
	resp, err = (&http.Client{Transport: one}).Get("http://" + n.addr + "/again")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// maxDials is how many dials to a game server are under way at a time, for one path and one client address.
const maxDials = 29

// dialWaiting begins handshakes whose game server has not answered, and returns how they end.
func (s *stage) dialWaiting(n *node, count int, protocols ...string) <-chan *websocket.Conn {
	s.t.Helper()
	conns := make(chan *websocket.Conn, count)
	before := s.game.dials.Load()
	for range count {
		go func() {
			c, _, err := websocket.Dial(s.t.Context(), "ws://"+n.addr+"/wait", &websocket.DialOptions{Subprotocols: protocols})
			if err != nil {
				s.t.Error(err)
			}
			conns <- c
		}()
	}
	for end := time.Now().Add(patience); s.game.dials.Load() < before+int64(min(count, maxDials)); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("the game server is not dialled")
		}
	}
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
	for {
		m, err := r.old.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == handover.Sessions {
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
		if m.Kind == handover.Sessions {
			break
		}
	}
	next.wait(0, "upgrade.session_lost")
	c := <-waiting
	if _, _, err := c.Read(t.Context()); err == nil || websocket.CloseStatus(err) != -1 {
		t.Errorf("%v, want the end of the connection", err)
	}
	for end := time.Now().Add(patience); s.game.left.Load() < 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the game server's connection stays")
		}
	}
	p.goOn()
	if got := next.metric("reseat_upgrade_sessions_total", "lost"); got != 1 {
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
	n.upgradeOver(n.cmd.Process.Pid)
	close(s.game.slow)
	for range count {
		c := <-waiting
		if c == nil {
			t.Fatal("refused")
		}
		l := &lockstep{conn: c, pause: time.Millisecond}
		p.list = append(p.list, l)
		p.ended.Go(func() {
			err := l.run(t.Context())
			l.err.Store(&err)
			c.CloseNow()
		})
	}
	p.goOn()
	<-n.exited
	p.goOn()
	if got := s.game.joined.Load(); got != count+2 {
		t.Errorf("the game server had %d connections, want %d", got, count+2)
	}
}

// Draining and an upgrade exclude each other, whichever comes first.
func TestDrainThatBeginsDuringUpgradeAbortsIt(t *testing.T) {
	s := newStage(t)
	n := s.start("--upgrade-socket="+s.socket, "--drain=1h")
	p := s.play(n, 2)
	f := s.fake()
	f.offered()
	resp, err := ask.Post(n.admin+"/api/v1/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	f.say(handover.Accept)
	f.wantAbort("the gateway is draining")
	n.wait(0, "upgrade.aborted")
	p.goOn()
	if u := n.status(); u.State != upgradeAborted || !strings.Contains(u.Error, "draining") {
		t.Errorf("%+v", u)
	}
}

// A wire is a raw connection that has completed its opening handshake.
type wire struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

// rawGame is a game server whose frames the test writes itself.
func rawGame(t *testing.T) (url string, accepted <-chan *wire) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	conns := make(chan *wire, 1)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(c)
			req, err := http.ReadRequest(r)
			if err != nil { // each start tries whether the game server accepts connections
				c.Close()
				continue
			}
			sum := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
			t.Cleanup(func() { c.Close() })
			conns <- &wire{t, c, r}
		}
	}()
	return "ws://" + ln.Addr().String(), conns
}

func rawClient(t *testing.T, n *node) *wire {
	t.Helper()
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "GET /half HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", n.addr)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	return &wire{t, c, r}
}

// message reads a whole message, and answers no ping.
func (w *wire) message() (text string) {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(patience))
	for {
		var head [2]byte
		if _, err := io.ReadFull(w.r, head[:]); err != nil {
			w.t.Fatal(err)
		}
		if size := int(head[1] & 0x7f); size > 125 {
			w.t.Fatalf("a frame of another size: %x", head)
		}
		body := make([]byte, head[1]&0x7f+head[1]>>7*4)
		if _, err := io.ReadFull(w.r, body); err != nil {
			w.t.Fatal(err)
		}
		if head[1]>>7 == 1 {
			for i := range body[4:] {
				body[4+i] ^= body[i%4]
			}
			body = body[4:]
		}
		if head[0]&0x0f >= 8 {
			continue // a ping or pong
		}
		if text += string(body); head[0]>>7 == 1 {
			return text
		}
	}
}

// rawFrame makes a frame.
func rawFrame(head byte, masked bool, body string) []byte {
	if !masked {
		return append([]byte{head, byte(len(body))}, body...)
	}
	key := []byte{1, 2, 3, 4}
	b := append([]byte{head, 0x80 | byte(len(body))}, key...)
	for i := range len(body) {
		b = append(b, body[i]^key[i%4])
	}
	return b
}

// An upgrade finds frames cut off anywhere, in both directions: a message of two fragments with a
// ping between them.
func TestHalfFramesGoThroughUpgrades(t *testing.T) {
	for _, driver := range []string{"net", "poll"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			url, accepted := rawGame(t)
			n := s.start("--driver="+driver, "--upstream="+url)
			client := rawClient(t, n)
			game := <-accepted
			pid := n.cmd.Process.Pid
			parts := func(masked bool) []byte {
				return slices.Concat(rawFrame(0x01, masked, "first "), rawFrame(0x89, masked, "pi"), rawFrame(0x80, masked, "second"))
			}
			up, down := parts(true), parts(false)
			for cut := 1; cut < len(up); cut++ {
				downCut := min(cut, len(down)-1)
				for _, half := range []struct {
					w *wire
					b []byte
				}{{client, up[:cut]}, {game, down[:downCut]}} {
					if _, err := half.w.Write(half.b); err != nil {
						t.Fatal(err)
					}
				}
				pid = n.upgradeOver(pid)
				client.Write(up[cut:])
				game.Write(down[downCut:])
				if got := game.message(); got != "first second" {
					t.Fatalf("up, cut after %d bytes: %q", cut, got)
				}
				if got := client.message(); got != "first second" {
					t.Fatalf("down, cut after %d bytes: %q", downCut, got)
				}
			}
		})
	}
}
