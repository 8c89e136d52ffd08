package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/policy"
	"reseat/gateway/session"
)

// A client asks by HTTP whether a gateway is there, where its browser holds WebSockets back.
func TestProbeIsAnsweredAtEveryPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, loggedIn(policy.Takeover), func(c *gateway.Config) {
			c.Hosts, c.Routes[0].Pattern = []string{"game.example"}, "/match/*"
		})
		ask := func(method, target string, fields ...string) *httptest.ResponseRecorder {
			r, rec := httptest.NewRequest(method, target, nil), httptest.NewRecorder()
			for i := 0; i < len(fields); i += 2 {
				r.Header.Set(fields[i], fields[i+1])
			}
			w.gw.ServeHTTP(rec, r)
			return rec
		}
		for _, draining := range []bool{false, true} {
			for _, method := range []string{"GET", "HEAD"} {
				for _, path := range []string{"/", "/match/7", "/nowhere", "/a%2fb//c"} {
					rec := ask(method, "http://game.example"+path+"?reseat.alive", "Origin", "https://foreign.example")
					h := rec.Header()
					if rec.Code != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Cache-Control") != "no-store" || h.Get("Cross-Origin-Resource-Policy") != "cross-origin" {
						t.Errorf("%s %s, draining %v: %d %v", method, path, draining, rec.Code, h)
					}
				}
			}
			go w.gw.Drain(t.Context())
			synctest.Wait()
		}
		for name, rec := range map[string]*httptest.ResponseRecorder{
			"another host":     ask("GET", "http://other.example/?reseat.alive"),
			"another query":    ask("GET", "http://game.example/?reseat.alive=1"),
			"more query":       ask("GET", "http://game.example/?a&reseat.alive"),
			"another method":   ask("POST", "http://game.example/?reseat.alive"),
			"a bad handshake":  ask("GET", "http://game.example/?reseat.alive", "Connection", "Upgrade", "Upgrade", "websocket"),
			"another upgrade":  ask("GET", "http://game.example/?other", "Connection", "Upgrade", "Upgrade", "h2c"),
			"no route, no ask": ask("GET", "http://game.example/"),
		} {
			if rec.Code == http.StatusNoContent {
				t.Errorf("%s is answered as a probe", name)
			}
		}
		time.Sleep(time.Minute)
	})
}

// The client says so in each handshake, of a resume too.
func TestHelloAnswersOffers(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		p := w.Player("/", "reseat.parts")
		first, q := p.Hello, p.Resume(0)
		if first.PartBytes != session.PartBytes || q.Hello.PartBytes != session.PartBytes || !first.Probe {
			t.Errorf("part_bytes %d, and after the resume %d; probe %v", first.PartBytes, q.Hello.PartBytes, first.Probe)
		}
		if h := w.Player("/").Hello; h.PartBytes != 0 {
			t.Errorf("part_bytes %d without the offer", h.PartBytes)
		}
	})
}
