package demo

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// comeBack connects with the session of a player, who has got n messages so far.
func (g *game) comeBack(name string, n uint64) *peer {
	g.t.Helper()
	conn, _, err := g.handshake("?name="+name, "session-of-"+name)
	if err != nil {
		g.t.Fatalf("back as %s: %v", name, err)
	}
	g.t.Cleanup(func() { conn.CloseNow() })
	return &peer{t: g.t, conn: conn, n: n}
}

func TestPlayerKeepsSeatThroughRestart(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		p, before := g.join("Otter")
		p.steer(1, 0, 0)
		p.steer(2, 0, 0)
		p.until("state")
		synctest.Wait()
		if once, twice := g.server.Restart(), g.server.Restart(); !once || twice {
			t.Errorf("restarted: %t, and at once again: %t", once, twice)
		}
		p.wantClose(websocket.StatusServiceRestart)
		if _, resp, err := g.handshake("?name=Otter", "session-of-Otter"); err == nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("during the restart: %v, %v; want 503 with Retry-After", resp, err)
		}
		time.Sleep(restartTime + tickEvery)
		p = g.comeBack("Otter", p.n)
		if m := p.read(); m.T != "welcome" || m.Seat != before.Seat {
			t.Errorf("%s with seat %d, want welcome with seat %d", m.T, m.Seat, before.Seat)
		}
		p.steer(3, 0, 0)
		synctest.Wait()
		p.until("state")
		if m := p.until("state"); m.In.Got != 3 || m.In.Missed != 0 {
			t.Errorf("%+v, want 3 inputs", m.In)
		}
		if _, m := g.join("Fox"); m.Seat == before.Seat {
			t.Error("another player gets the seat")
		}
	})
}

func TestSeatIsGivenUpAMinuteAfterRestart(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		_, gone := g.join("Otter")
		fox, _ := g.join("Fox")
		g.server.Restart()
		fox.wantClose(websocket.StatusServiceRestart)
		time.Sleep(restartTime + tickEvery)
		fox = g.comeBack("Fox", fox.n)
		fox.read()
		began := time.Now()
		if m := fox.until("leave"); m.Seat != gone.Seat {
			t.Errorf("seat %d is free, want %d", m.Seat, gone.Seat)
		}
		if after := time.Since(began); after < keptFor-time.Second || after > keptFor+time.Second {
			t.Errorf("after %v, want %v", after, keptFor)
		}
		if _, m := g.join("Otter"); m.Seat == gone.Seat {
			t.Error("a player who is late gets the seat back")
		}
	})
}

func TestServerThatHasEndedRestartsNoMore(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		g.join("Otter")
		g.stop()
		if g.server.Restart() {
			t.Error("restarted")
		}
	})
}
