package gateway_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// T25: empty messages fill a replay buffer too, by their number, and the frames kept of them
// are counted as memory.
func TestEmptyMessagesFillTheBufferToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPolicy()
		p.Overflow = session.DropOldest
		w := newWorld(t, p)
		player, game := w.play()
		w.detach(player)
		const sent = 20_000
		for range sent {
			game.Binary("")
		}
		synctest.Wait()
		held := w.metrics()["reseat_buffer_bytes"]
		if least := float64(2 * p.BufferMessages); held < least || held > 1<<20 {
			t.Errorf("%v bytes are counted for %d empty messages, want at least %v and below 1 MiB", held, p.BufferMessages, least)
		}
		player = player.Resume(0)
		if h := player.Hello; h.Replay != uint64(p.BufferMessages) || h.Lost != sent-h.Replay {
			t.Errorf("replay %d, lost %d; want %d kept of %d", h.Replay, h.Lost, p.BufferMessages, sent)
		}
	})
}

// T28: clients that are closed together get different retry times.
func TestDrainedClientsReconnectAtSpreadTimes(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		var players []*wstest.Player
		for range 100 {
			p, _ := w.play()
			players = append(players, p)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go w.gw.Drain(ctx)
		seconds := make(map[int64]int) // how many in each
		for _, p := range players {
			again := p.WantClosing(wire.CodeDraining).RetryAfter
			if again < 1000 || again >= 5000 {
				t.Errorf("must retry after %d ms, want 1 to 5 s", again)
			}
			seconds[again/1000]++
		}
		for s := range int64(4) {
			if n := seconds[s+1]; n > 75 {
				t.Errorf("%d of 100 retry in second %d", n, s+1)
			}
		}
	})
}

// T41: a panic is logged once, with its stack, and counted; its session ends with 1011 and
// the others continue.
func TestPanicIsLoggedOnceWithStackAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(syncBuffer)
		w := newWorld(t, testPolicy(), func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(said, nil)) })
		bad, badGame := w.play()
		good, goodGame := w.play()
		gateway.Fail(w.gw, bad.Hello.Session)
		if c := bad.WantClosing(wire.CodeInternalError); c.Retry {
			t.Error("1011 says retry")
		}
		badGame.WantClose(wire.CodeInternalError)
		good.Pass(goodGame, "still here?")
		time.Sleep(time.Second)
		log := said.String()
		if strings.Count(log, "msg=session.panicked") != 1 || strings.Count(log, `stack="goroutine `) != 1 || !strings.Contains(log, bad.Hello.Session) {
			t.Errorf("want the fault once, with its stack and its session: %s", log)
		}
		if n := w.metrics()["reseat_session_panics_total"]; n != 1 {
			t.Errorf("%v faults are counted, want 1", n)
		}
	})
}
