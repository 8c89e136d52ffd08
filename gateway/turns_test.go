package gateway_test

import (
	"net"
	"net/http"
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
		if n := gateway.Inside(w.gw); n != gateway.Turns(w.gw) {
			t.Errorf("%d handshakes are worked on, want %d", n, gateway.Turns(w.gw))
		}
		release()
		synctest.Wait()
		if _, visits := w.gw.Left(); visits != 0 {
			t.Errorf("%d handshakes are still under way", visits)
		}
	})
}

// Handshakes that wait for something else don't keep others from the gateway, however many they
// are.
func TestHandshakesDoNotWaitForThoseThatWaitForTheGame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), trustProxies)
		p, _ := w.play()
		p.Sync()
		w.game.Refuse = func(net.Conn, *http.Request) bool {
			time.Sleep(5 * time.Second)
			return false
		}
		for i := range 2 * gateway.Turns(w.gw) {
			go w.PlayerWith("/", from(i))
		}
		synctest.Wait()
		wantResumedAtOnce(t, p)
		time.Sleep(10 * time.Second) // all have begun
		for range 2 * gateway.Turns(w.gw) {
			w.game.Next()
		}
	})
}

func TestHandshakesDoNotWaitForThoseThatWaitForTheCluster(t *testing.T) {
	inCluster(t, 1, durablePolicy(), func(t *testing.T, d *durableNodes) {
		w := d.of[0]
		p, _ := w.play()
		p.Sync()
		synctest.Wait() // no write is under way
		d.links[0].Before = func() { time.Sleep(500 * time.Millisecond) }
		for range 2 * gateway.Turns(w.gw) {
			go w.PlayerWith("/match/7", "Reseat-Settled: 0 0\r\n")
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
	if waited := time.Since(began); waited != 0 {
		t.Errorf("a resume took %v", waited)
	}
}
