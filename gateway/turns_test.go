package gateway_test

import (
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
)

func TestHandshakesAtOnceAreLimited(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		release := gateway.HoldSigning(w.gw)
		for range gateway.Turns(w.gw) + 5 {
			go p.TryResume(p.Hello.Token, "0")
		}
		synctest.Wait()
		wstest.Equal(t, "handshakes that are worked on", gateway.Inside(w.gw), gateway.Turns(w.gw))
		release()
		synctest.Wait()
		_, visits := w.gw.Left()
		wstest.Equal(t, "handshakes that are still under way", visits, 0)
	})
}

// Handshakes that wait for something else don't keep others from the gateway, however many they
// are.
func TestHandshakesDoNotWaitForThoseThatWaitForTheGame(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		w.game.Refuse = after(5 * time.Second)
		for i := range 2 * gateway.Turns(w.gw) {
			go w.PlayerWith("/", from(i))
		}
		synctest.Wait()
		wantResumedAtOnce(t, p)
		time.Sleep(10 * time.Second) // all have begun
		for range 2 * gateway.Turns(w.gw) {
			w.game.Next()
		}
	}, trustProxies)
}

func TestHandshakesDoNotWaitForThoseThatWaitForTheCluster(t *testing.T) {
	inCluster(t, 1, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		synctest.Wait() // no write is under way
		d.links[0].Before = func() { time.Sleep(500 * time.Millisecond) }
		for range 2 * gateway.Turns(d.of[0].gw) {
			go d.of[0].PlayerWith("/match/7", "Reseat-Settled: 0 0\r\n")
		}
		time.Sleep(time.Millisecond)
		wantResumedAtOnce(t, p)
		time.Sleep(10 * time.Second) // all have begun
	})
}

func wantResumedAtOnce(t *testing.T, p *wstest.Player) {
	t.Helper()
	began := time.Now()
	p.Drop()
	p.Resume(0)
	wstest.Equal(t, "the resume took", time.Since(began), 0)
}
