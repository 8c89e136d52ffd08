package gateway_test

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"

	"reseat/gateway"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func TestNoMoreSessionsThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policy(), func(c *gateway.Config) { c.MaxSessions = 2 })
		p, game := w.play()
		w.Plain("/") // a plain client is a session, too
		w.game.Next()
		_, _, resp, err := w.Handshake("/", nil, "")
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%v %v, want 503 and Retry-After", resp, err)
		}
		if _, _, err := w.gw.Create(t.Context(), gateway.Wish{Path: "/"}); !errors.Is(err, gateway.ErrBusy) {
			t.Errorf("made ahead: %v, want ErrBusy", err)
		}
		p.Sync()
		p.Drop()
		w.wantState(p, session.Detached)
		p = p.Resume(0) // a resume is no new session
		p.Control("bye")
		game.WantClose(1000)
		synctest.Wait()
		w.Player("/").Sync()
	})
}

func TestNoMoreSessionsFromOneAddressThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policy(), func(c *gateway.Config) {
			c.MaxSessionsPerIP = 1
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		})
		for addr, want := range map[string]int{"192.0.2.1": 429, "192.0.2.2": 101, "2001:db8::1": 429, "2001:db8:0:1::1": 101} {
			for i, from := range []string{addr, map[string]string{"2001:db8::1": "2001:db8::ffff"}[addr]} {
				if from == "" {
					from = addr
				}
				if want == 101 && i > 0 {
					continue
				}
				_, _, resp, err := w.Handshake("/", []string{wire.Subprotocol}, "X-Forwarded-For: "+from+"\r\n")
				switch {
				case err != nil:
					t.Fatal(err)
				case i == 0 && resp.StatusCode != 101, i == 1 && resp.StatusCode != want:
					t.Errorf("handshake %d from %s: %d", i+1, from, resp.StatusCode)
				case resp.StatusCode == 429 && resp.Header.Get("Retry-After") == "":
					t.Error("429 without Retry-After")
				}
			}
		}
	})
}
