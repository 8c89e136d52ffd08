package client_test

import (
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/client"
	"reseat/gateway/policy"
)

// The application hears of each outage once, whatever happens to the client's own connection
// meanwhile, and what it sent arrives.
func TestOutageOfGameServerIsReportedOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var heard []bool
		var away atomic.Bool
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			if away.Load() {
				c.Close()
			}
			return away.Load()
		}
		c, game := w.play(client.Options{OnUpstream: func(lost bool) { heard = append(heard, lost) }})
		for range 2 {
			away.Store(true)
			game.Drop()
			synctest.Wait()
			send(t, c, "meanwhile")
			w.cut()
			time.Sleep(5 * time.Second)
			away.Store(false)
			game = w.game.Next()
			game.Want("meanwhile")
			w.cut()
			time.Sleep(15 * time.Second)
		}
		synctest.Wait()
		if want := []bool{true, false, true, false}; !slices.Equal(heard, want) {
			t.Errorf("heard %v, want %v", heard, want)
		}
	}, func(p *policy.Policy) { p.Redial, p.RedialFor = true, time.Minute })
}
