package operate

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

var drained = flag.Int("sessions", 1000, "how many sessions are drained; more than 2000 without -race")

const (
	spoken = 8 // messages that each player sends before the drain, and the game server echoes
	stuck  = 5 // players that read nothing, and have more in flight than sockets hold, 4 MiB with Linux's defaults
)

// A crowd is the players of one gateway that is about to drain. They have not read
// anything yet.
type crowd struct {
	t       *testing.T
	game    *game
	gateway *gateway
	players []*player // the first away of them are detached
	away    int
}

// gather fills a gateway. The stuck players come first: if the gateway closed sessions
// one after another, they would delay the others.
func gather(t *testing.T, most int, flags ...string) *crowd {
	t.Helper()
	enoughDescriptors(t, 2*most+200)
	c := &crowd{t: t, game: newGame(t, 0), players: make([]*player, most), away: most / 20}
	begin := make(chan struct{})
	// A player that reads nothing must stay attached: with the heartbeat alone it does for
	// half a minute.
	c.gateway = start(t, append(flags, "--answer-timeout=0", "--upstream="+c.game.url(), "--route=/flood="+newFlood(t, begin)+";buffer-bytes=8MiB;buffer-messages=100000")...)
	for range stuck {
		c.gateway.stuck("/flood")
	}
	c.eventually("those who will be stuck are in", func() bool { return c.gateway.metric("reseat_sessions", "attached") == stuck })
	c.join()
	c.eventually("every word is taken up by the game, and its answer by the gateway", func() bool {
		return c.gateway.metric("reseat_messages_total", "") == float64(2*spoken*most)
	})
	close(begin)
	c.eventually("the buffers of those who are stuck are full", func() bool {
		return c.gateway.metric("reseat_buffer_bytes", "") > stuck*7<<20
	})
	for _, p := range c.players[:c.away] {
		p.conn.CloseNow()
	}
	c.eventually("some are away", func() bool { return c.gateway.metric("reseat_sessions", "detached") == float64(c.away) })
	return c
}

// stuck starts a session whose client has a small receive buffer and reads nothing.
func (g *gateway) stuck(path string) {
	g.t.Helper()
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	c, err := small.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: reseat.v1\r\n\r\n", path)
}

func enoughDescriptors(t *testing.T, n int) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < uint64(n) {
		t.Fatalf("the players and the game take %d descriptors, and ulimit -n is %d", n, limit.Cur)
	}
}

func (c *crowd) eventually(what string, holds func() bool) {
	c.t.Helper()
	eventually(c.t, what, holds)
}

// join makes all players connect and send their messages.
func (c *crowd) join() {
	c.t.Helper()
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			for i := w; i < len(c.players); i += 16 {
				p := c.gateway.player()
				if err := p.connect(); err != nil {
					c.t.Errorf("player %d: %v", i, err)
					return
				}
				for n := range spoken {
					p.say(word(n))
				}
				c.players[i] = p
			}
		})
	}
	all.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

func word(n int) string { return fmt.Sprint("word ", n, strings.Repeat(" and so on", 10)) }

// await makes all attached players read to the end, and returns a function that waits
// for them.
func (c *crowd) await() (all func()) {
	told := make(chan error, len(c.players))
	there := c.players[c.away:]
	for _, p := range there {
		go func() { told <- p.farewell() }()
	}
	return func() {
		c.t.Helper()
		for range there {
			if err := <-told; err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// farewell reads everything sent before a drain, and then the close.
func (p *player) farewell() error {
	ctx, cancel := p.context()
	defer cancel()
	defer p.conn.CloseNow()
	heard := 0
	for {
		_, b, err := p.conn.Read(ctx)
		verb, arg, _ := bytes.Cut(b, []byte(" "))
		switch {
		case err != nil:
			return fmt.Errorf("after %d words: %v before a close", heard, err)
		case string(verb) == "\x10close":
			c := new(closing)
			if err := json.Unmarshal(arg, c); err != nil || c.Code != 4503 || c.Retry || heard != spoken {
				return fmt.Errorf("%s after %d words, want 4503 for good after %d", b, heard, spoken)
			}
			if _, _, err := p.conn.Read(ctx); websocket.CloseStatus(err) != 4503 {
				return fmt.Errorf("after the close: %v, want a Close frame with 4503", err)
			}
			return nil
		case b[0] == 0x10: // acks and other control messages
		case string(b) != word(heard):
			return fmt.Errorf("got %q, want word %d", b, heard)
		default:
			heard++
		}
	}
}

// wantGameLeft checks that the game server received every message, and a Close with the
// reason for every player.
func (c *crowd) wantGameLeft() {
	c.t.Helper()
	var said []string
	for n := range spoken {
		said = append(said, word(n))
	}
	joins := c.game.joined()
	if len(joins) != len(c.players) {
		c.t.Errorf("the game had %d connections, want %d", len(joins), len(c.players))
	}
	for i, j := range joins {
		c.eventually("the game server knows of every end", func() bool { return j.end() != nil })
		var end websocket.CloseError
		if !errors.As(j.end(), &end) || end.Code != websocket.StatusGoingAway || end.Reason != "draining" {
			c.t.Fatalf("connection %d to the game ended with %v, want 1001 draining", i, j.end())
		}
		j.mu.Lock()
		heard := j.heard
		j.mu.Unlock()
		if !slices.Equal(heard, said) {
			c.t.Fatalf("connection %d: the game heard %q", i, heard)
		}
	}
}

func (j *join) end() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lost
}

// wantExit checks that the process exits with status 0, and logs warnings only about
// the stuck players.
func (g *gateway) wantExit(stuck int) {
	g.t.Helper()
	var lines []map[string]any
	g.heard(&lines, "shutdown.finished")
	for _, l := range lines {
		known := l["msg"] == "token.key_ephemeral"
		if n, cut := l["sessions"].(float64); l["level"] == "WARN" && !known && (!cut || n > float64(stuck)) {
			g.t.Errorf("the log has %v", l)
		}
	}
	g.cmd.Wait()
	if status := g.cmd.ProcessState.ExitCode(); status != 0 {
		g.t.Errorf("exit status %d", status)
	}
}

// Thousands of clients are notified at once: each receives what was sent before, and
// the reason. Clients that read nothing delay no other.
func TestDrainNotifiesAllClientsAtOnce(t *testing.T) {
	for _, driver := range []string{"net", "poll"} {
		t.Run(driver, func(t *testing.T) {
			c := gather(t, *drained, "--driver="+driver)
			cpu := c.gateway.metric("process_cpu_seconds_total", "")
			all := c.await()
			began := time.Now()
			c.gateway.cmd.Process.Signal(syscall.SIGTERM)
			all()
			told := time.Since(began)
			if n := c.gateway.says("drain.over")["sessions"]; n != float64(*drained+stuck) {
				t.Errorf("%v sessions were left at the drain's end, want %d", n, *drained+stuck)
			}
			c.gateway.wantExit(stuck)
			s := c.gateway.cmd.ProcessState
			t.Logf("%d players notified within %v, process ended after %v; %.2f s of the gateway's processor time",
				len(c.players)-c.away, told.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), (s.UserTime()+s.SystemTime()).Seconds()-cpu)
			c.wantGameLeft()
		})
	}
}

// A drain by the API does the same at its end and serves resumes until then. The
// process keeps running; SIGTERM then ends it at once.
func TestDrainByTheAPIKeepsTheProcessRunning(t *testing.T) {
	for _, driver := range []string{"net", "poll"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			c := gather(t, *drained, "--driver="+driver, "--drain=5s")
			c.gateway.ask("POST", "/api/v1/drain", "").want(t, "the drain", 200, "")
			for _, p := range c.players[c.away : c.away+c.away] {
				p.resume()
			}
			c.gateway.player().wantRefused("a new session while it drains", "503")
			c.await()()
			c.wantGameLeft()
			c.eventually("no session is left", func() bool { return c.gateway.metric("reseat_sessions", "") == 0 })
			if resp, err := http.Get(c.gateway.admin + "/readyz"); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("/readyz: %v, %v; want 503", resp, err)
			}
			c.eventually("the descriptors of those who were stuck are back", func() bool { return c.gateway.metric("process_open_fds", "") < 40 })
			c.gateway.cmd.Process.Signal(syscall.SIGTERM)
			c.gateway.wantExit(0)
		})
	}
}

var (
	frozen   = flag.Int("frozen", 500, "how many sessions an upgrade moves; more than 2000 without -race")
	upgrades = flag.Int("upgrades", 5, "how many upgrades follow one another")
)

// Upgrades in a row move all sessions, and their players go on as if nothing had happened.
// The log says how long the sessions stood still, by the gateway's own account.
func TestUpgradesMoveAllSessions(t *testing.T) {
	for i, driver := range []string{"net", "poll"} {
		from := fmt.Sprint("127.0.0.", 2+i) // not the ports that the other driver's players have just left
		t.Run(driver, func(t *testing.T) {
			enoughDescriptors(t, 2**frozen+200)
			g := start(t, "--driver="+driver, "--upstream="+newGame(t, 0).url())
			players := make([]*player, *frozen)
			var all sync.WaitGroup
			for w := range 16 {
				all.Go(func() {
					for i := w; i < len(players); i += 16 {
						p := &player{t: t, url: g.url(), from: from}
						if err := p.connect(); err != nil {
							t.Errorf("player %d: %v", i, err)
							return
						}
						players[i] = p
						t.Cleanup(func() { p.conn.CloseNow() })
					}
				})
			}
			all.Wait()
			if t.Failed() {
				t.FailNow()
			}
			pid := g.cmd.Process.Pid
			t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
			var took []time.Duration
			for n := range *upgrades {
				syscall.Kill(pid, syscall.SIGUSR2)
				pid = int(g.says("upgrade.begun")["pid"].(float64))
				for done := false; !done || len(took) == n; { // two processes write, in either order
					line := g.says("upgrade.committed", "upgrade.done")
					if line["msg"] == "upgrade.done" {
						done = true
						continue
					}
					if line["sessions"] != float64(*frozen) {
						t.Fatalf("%v sessions moved, want %d", line["sessions"], *frozen)
					}
					if d, ok := line["frozen"].(string); ok { // the new process says it
						one, err := time.ParseDuration(d)
						if err != nil {
							t.Fatal(err)
						}
						took = append(took, one)
					}
				}
				for i := n; i < len(players); i += max(len(players)/50, 1) {
					text := fmt.Sprint("upgrade ", n)
					players[i].say(text)
					if got, err := players[i].read(); got != text || err != nil {
						t.Fatalf("player %d: %q, %v, want %q on the same connection", i, got, err, text)
					}
				}
			}
			slices.Sort(took)
			t.Logf("%d sessions, %s: frozen for %v [%v-%v] in %d upgrades", *frozen, driver,
				took[len(took)/2].Round(time.Millisecond), took[0].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took))
		})
	}
}
