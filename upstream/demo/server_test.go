package demo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

func TestWelcomeHasSessionAndWholeState(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		p, m := g.join("Otter")
		if p.conn.Subprotocol() != Subprotocol {
			t.Errorf("subprotocol %q, want %q", p.conn.Subprotocol(), Subprotocol)
		}
		if m.Session != "session-of-Otter" {
			t.Errorf("session %q, want that of the header", m.Session)
		}
		if m.Seat != wandererCount+1 || len(m.Players) != wandererCount+1 || len(m.Gems) != gemCount {
			t.Errorf("welcome %+v, want seat %d, everybody and every gem", m, wandererCount+1)
		}
	})
}

func TestLettersArriveInOrderAfterASecond(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		p, _ := g.join("Otter")
		other, _ := g.join("Heron")
		p.until("state")
		p.steer(1, 0, 0)
		p.write(`{"s":2,"t":"letters","count":500}`)
		began := time.Now()
		for k := 1; k <= 500; k++ {
			if m := p.until("letter"); m.K != k || m.Of != 500 {
				t.Fatalf("letter %d of %d, want %d of 500", m.K, m.Of, k)
			}
		}
		if took := time.Since(began); took < lettersAfter-tickEvery || took > lettersAfter+2*tickEvery {
			t.Errorf("they came after %v", took)
		}
		if m := p.until("state"); m.In.Got != 2 || m.In.Missed != 0 {
			t.Errorf("the request must count as an input: %+v", m.In)
		}
		for range 2 * tickRate {
			if p.read().T == "letter" || other.read().T == "letter" {
				t.Fatal("one more letter, or a letter for another")
			}
		}
	})
}

func TestWelcomeIsSentAgainOnRequest(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		a, first := g.join("Otter")
		b, _ := g.join("Heron")
		a.write(`{"s":1,"t":"full"}`)
		m := a.until("welcome")
		if m.Seat != first.Seat || m.Session != first.Session || len(m.Players) != len(first.Players)+1 || len(m.Gems) != gemCount {
			t.Errorf("%+v, want the seat of %+v and Heron besides", m, first)
		}
		if s := a.until("state"); s.In.Got != 1 || s.In.Missed != 0 || s.Tick <= m.Tick {
			t.Errorf("the state after it: %+v, want the request counted, and a later tick than %d", s, m.Tick)
		}
		for range tickRate {
			if m := b.read(); m.T == "welcome" {
				t.Fatal("a welcome for another")
			}
		}
	})
}

func TestInputsMoveOnlyTheirOwnPlayer(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		a, aw := g.join("Otter")
		b, bw := g.join("Heron")
		before := b.until("state")
		a.until("sit")
		a.steer(1, 0, 1)
		a.until("state")
		b.until("state")
		after := b.until("state")
		if p, q := at(t, before, aw.Seat), at(t, after, aw.Seat); q[2] <= p[2] {
			t.Errorf("the player that was steered down went from %v to %v", p, q)
		}
		if p, q := at(t, before, bw.Seat), at(t, after, bw.Seat); p != q {
			t.Errorf("the other player went from %v to %v", p, q)
		}
	})
}

func TestClosedConnectionLosesSeatAndScoreAtOnce(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		watcher, _ := g.join("Watcher")
		p, first := g.join("Otter")
		watcher.until("sit")
		p.conn.CloseNow()
		m := watcher.until("leave")
		if m.Seat != first.Seat {
			t.Fatalf("seat %d left, want %d", m.Seat, first.Seat)
		}
		if _, ok := watcher.until("state").standing(first.Seat); ok {
			t.Error("the player is still in the state after it left")
		}
		_, again := g.join("Otter")
		sit := watcher.until("sit")
		if again.Seat == first.Seat || sit.Player.Seat != again.Seat {
			t.Errorf("came back to seat %d and was announced at %d, want a new one after %d", again.Seat, sit.Player.Seat, first.Seat)
		}
		if sit.Player.Name != "Otter" || sit.Player.Wanderer || sit.Player.Score != 0 {
			t.Errorf("came back as %+v, want Otter with score 0", sit.Player)
		}
	})
}

func TestEveryTakenGemIsAnnouncedWithItsNewPlace(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		p, w := g.join("Otter")
		gems := w.Gems
		scores := map[int]int{}
		for ticks := 0; ticks < 30*tickRate; {
			switch m := p.read(); m.T {
			case "gem":
				gems[m.Gem[0]] = m.Gem
				scores[m.By]++
			case "state":
				ticks++
			}
		}
		if len(scores) == 0 {
			t.Fatal("nobody took a gem in 30 seconds")
		}
		_, later := g.join("Heron")
		for m := p.read(); m.T != "sit"; m = p.read() {
			if m.T == "gem" {
				gems[m.Gem[0]] = m.Gem
			}
		}
		for i, want := range later.Gems {
			if gems[i] != want {
				t.Errorf("gem %d was announced at %v and is at %v", i, gems[i], want)
			}
		}
	})
}

func TestSlowClientIsDisconnectedWithoutBlockingTheTick(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		slow, w := g.join("Slow")
		quick, _ := g.join("Quick")
		// Slow reads nothing. Quick must have every tick on time all along.
		last, left := quick.until("state"), false
		began := time.Now()
		for ticks := 0; !left; {
			switch m := quick.read(); m.T {
			case "state":
				if m.Tick != last.Tick+1 {
					t.Fatalf("tick %d follows %d", m.Tick, last.Tick)
				}
				last, ticks = m, ticks+1
				if late := time.Since(began) - time.Duration(ticks)*tickEvery; late > tickEvery {
					t.Fatalf("tick %d came %v late", m.Tick, late)
				}
				if ticks > 2*queueMessages {
					t.Fatal("the slow client keeps its seat")
				}
			case "leave":
				left = m.Seat == w.Seat
			}
		}
		slow.wantClose(-1)
	})
}

func TestBadInputEndsTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		send func(p *peer)
		want websocket.StatusCode
	}{
		"no JSON":  {func(p *peer) { p.write("hello") }, websocket.StatusPolicyViolation},
		"too long": {func(p *peer) { p.write(strings.Repeat(" ", maxInputBytes+1)) }, websocket.StatusMessageTooBig},
		"binary": {func(p *peer) {
			p.conn.Write(context.Background(), websocket.MessageBinary, []byte(`{"s":1,"t":"steer","x":0,"y":0}`))
		}, websocket.StatusUnsupportedData},
		"a flood": {func(p *peer) {
			for s := range uint64(inputBurst + 1) {
				p.steer(s+1, 0, 0)
			}
		}, websocket.StatusPolicyViolation},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
				p, w := g.join("Otter")
				watcher, _ := g.join("Watcher")
				c.send(p)
				p.wantClose(c.want)
				if m := watcher.until("leave"); m.Seat != w.Seat {
					t.Errorf("seat %d left, want %d", m.Seat, w.Seat)
				}
			})
		})
	}
}

func TestRefusalsHaveTheirStatus(t *testing.T) {
	play(t, Config{Seed: 1, Seats: wandererCount + 1}, func(t *testing.T, g *game) {
		for name, c := range map[string]struct {
			url  string
			want int
		}{
			"another path": {"http://demo/other", http.StatusNotFound},
			"no handshake": {"http://demo" + Path, http.StatusUpgradeRequired},
		} {
			resp, err := g.client.Get(c.url)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != c.want {
				t.Errorf("%s: status %d, want %d", name, resp.StatusCode, c.want)
			}
		}
		if _, resp, err := g.handshake("?name=%3Cb%3E", ""); err == nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("a bad name: %v, want status 400", err)
		}
		p, _ := g.join("Otter")
		late, _, err := g.handshake("", "")
		if err != nil {
			t.Fatalf("no free seat: %v", err)
		}
		var closed websocket.CloseError
		if _, _, err := late.Read(t.Context()); !errors.As(err, &closed) || closed.Code != websocket.StatusTryAgainLater {
			t.Errorf("no free seat: %v, want a Close with 1013", err)
		}
		p.conn.CloseNow()
		synctest.Wait()
		g.join("Heron")
	})
}

func TestFailedHandshakeLeavesNoPlayer(t *testing.T) {
	play(t, Config{Seed: 1, Seats: wandererCount + 1}, func(t *testing.T, g *game) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://demo"+Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Upgrade", "h2c")
		req.Header.Set("Connection", "Upgrade")
		resp, err := g.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode < 400 {
			t.Fatalf("status %d, want a refusal", resp.StatusCode)
		}
		synctest.Wait()
		g.join("Otter") // the only free seat
	})
}

func TestStoppingClosesEveryConnectionAndRefusesNewOnes(t *testing.T) {
	play(t, Config{Seed: 1}, func(t *testing.T, g *game) {
		p, _ := g.join("Otter")
		q, _ := g.join("Heron")
		stopped := make(chan struct{})
		go func() { g.stop(); close(stopped) }()
		p.wantClose(websocket.StatusGoingAway)
		q.wantClose(websocket.StatusGoingAway)
		<-stopped
		if _, resp, err := g.handshake("", ""); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("after the end: %v, want status 503", err)
		}
	})
}

// at returns the standing of a seat, which must be taken.
func at(t *testing.T, m heard, seat int) standing {
	t.Helper()
	s, ok := m.standing(seat)
	if !ok {
		t.Fatalf("nobody sits at seat %d in %+v", seat, m)
	}
	return s
}
