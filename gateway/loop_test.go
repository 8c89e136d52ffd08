package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/tokens"
	"reseat/upstream"
)

// gatewayRing makes n gateways, each of which is the upstream of the one before it. It
// returns the first one's door, and a count of the requests to all of them.
func gatewayRing(t *testing.T, n int) (*wstest.Door, *atomic.Int32) {
	t.Helper()
	requests := new(atomic.Int32)
	lines := make([]*wstest.Listener, n)
	for i := range lines {
		lines[i] = wstest.NewListener(64 << 10)
	}
	for i := range lines {
		next := lines[(i+1)%n]
		target := upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example:9000"}}
		target.DialContext = func(context.Context, string, string) (net.Conn, error) { return next.Dial() }
		keys, err := tokens.Load(nil, tokens.Options{})
		if err != nil {
			t.Fatal(err)
		}
		gw, err := gateway.New(gateway.Config{
			Routes:  []policy.Route{{Pattern: "/*", Upstream: target, Policy: testPolicy()}},
			Default: testPolicy(), Keys: keys, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			gw.ServeHTTP(w, r)
		})}
		go server.Serve(lines[i])
		t.Cleanup(func() {
			server.Close()
			gw.Close()
			time.Sleep(20 * time.Second) // fake: all closing handshakes have finished
		})
	}
	return wstest.Knock(t, lines[0]), requests
}

func TestGatewayThatIsItsOwnUpstreamAnswers508(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			door, requests := gatewayRing(t, n)
			_, _, resp, err := door.Handshake("/match/7", []string{"reseat.v1"}, "")
			if err != nil || resp.StatusCode != http.StatusLoopDetected {
				t.Errorf("%d gateways, handshake: %v, %v, want 508", n, resp, err)
			}
			if got := requests.Swap(0); got != int32(n)+1 {
				t.Errorf("%d gateways had %d handshakes, want each one and the first one again", n, got)
			}
			_, br := door.Request("GET /index.html HTTP/1.1\r\nHost: game.example\r\n\r\n")
			if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusLoopDetected {
				t.Errorf("%d gateways, request: %v, %v, want 508", n, resp, err)
			}
			if got := requests.Load(); got != int32(n)+1 {
				t.Errorf("%d gateways had %d requests, want each one and the first one again", n, got)
			}
		})
	}
}

// A client's Via passes only if it consists of at most eight ids.
func TestForgedViaAffectsOnlyItsSender(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		id := strings.Repeat("0123456789abcdef", 2)
		for header, want := range map[string]struct{ hops, status int }{
			"":                                      {1, 101},
			"X-Reseat-Via: " + id + "\r\n":          {2, 101},
			"X-Reseat-Via: evil\r\n":                {1, 101},
			"X-Reseat-Via: " + id + ", evil\r\n":    {1, 101},
			"Reseat_Via: " + id + "\r\n":            {1, 101},
			"Connection: X-Reseat-Via, Upgrade\r\n": {1, 101},
			"X-Reseat-Via: " + strings.Repeat(id+", ", 7) + id + "\r\n": {0, 508},
		} {
			_, _, resp, err := w.Handshake("/", nil, header)
			if err != nil || resp.StatusCode != want.status {
				t.Errorf("%q: %v, %v, want %d", header, resp, err, want.status)
				continue
			}
			if want.hops == 0 {
				continue
			}
			if got := strings.Split(w.game.Next().Req.Header.Get("X-Reseat-Via"), ", "); len(got) != want.hops || got[0] == "evil" {
				t.Errorf("%q: the game server sees %q, want %d ids", header, got, want.hops)
			}
		}
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n"+r.Header.Get("X-Reseat-Via"))
			return true
		}
		_, br := w.Request("GET / HTTP/1.1\r\nHost: game.example\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); len(b) != 32 {
			t.Errorf("of an ordinary request the game server sees %q, want an id", b)
		}
	})
}
