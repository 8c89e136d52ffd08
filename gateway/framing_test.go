package gateway_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/policy"
)

// T15: a request whose end a proxy may have found elsewhere is the last one on its
// connection, wherever it is answered and whatever the game server's interim answers.
func TestNothingIsServedAfterRequestOfAmbiguousLength(t *testing.T) {
	const (
		both    = "Content-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
		old     = "Connection: keep-alive\r\nContent-Length: 0\r\n\r\n"
		expects = "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
		next    = "GET /ws HTTP/1.1\r\nHost: game.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	)
	for name, c := range map[string]struct {
		line, rest string
		interim    string // from the game server
		status     int
	}{
		"a page":                   {"POST /page HTTP/1.1", both, "", 200},
		"no route":                 {"POST /none HTTP/1.1", both, "", 404},
		"requests are off":         {"POST /off/x HTTP/1.1", both, "", 426},
		"an ambiguous path":        {"POST /a%2fb HTTP/1.1", both, "", 400},
		"the game server":          {"POST /on/x HTTP/1.1", both, "", 204},
		"with an interim answer":   {"POST /on/x HTTP/1.1", both, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nReseat-Group: g\r\n\r\n", 204},
		"with 100 of its own":      {"POST /on/x HTTP/1.1", expects, "HTTP/1.1 100 Continue\r\n\r\n", 204},
		"HTTP/1.0 with keep-alive": {"POST /on/x HTTP/1.0", old, "", 204},
		"HTTP/1.0, chunked":        {"POST /on/x HTTP/1.0", "Connection: keep-alive\r\n" + both, "", 204},
		"HTTP/1.0, a page":         {"GET /page HTTP/1.0", "Connection: keep-alive\r\n\r\n", "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, testPolicy(), func(c *gateway.Config) {
					on, off := c.Routes[0], c.Routes[0]
					on.Pattern, off.Pattern = "/on/*", "/off/*"
					off.Policy.HTTPOff = true
					c.Routes = []policy.Route{on, off, {Pattern: "/ws", Upstream: on.Upstream, Policy: on.Policy}}
				})
				w.gw.Page("/page", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "page") }))
				w.game.Refuse = func(conn net.Conn, r *http.Request) bool {
					if r.Method != http.MethodPost {
						return false
					}
					io.WriteString(conn, c.interim)
					io.Copy(io.Discard, r.Body)
					io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
					return true
				}
				_, br := w.Request(c.line + "\r\nHost: game.example\r\n" + c.rest + next)
				resp := finalAnswer(t, br)
				if resp.StatusCode != c.status || !resp.Close {
					t.Errorf("%v, close %v; want %d and the connection closed", resp.Status, resp.Close, c.status)
				}
				rest, _ := io.ReadAll(io.MultiReader(resp.Body, br))
				if strings.Contains(string(rest), "HTTP/1.1") || w.game.Joined() > 0 {
					t.Errorf("after it came %q", rest)
				}
			})
		})
	}
}

// finalAnswer reads the answer after any interim ones, which must not contain headers for
// the gateway.
func finalAnswer(t *testing.T, br *bufio.Reader) *http.Response {
	t.Helper()
	for {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode >= 200 {
			return resp
		}
		for name := range resp.Header {
			if strings.HasPrefix(name, "Reseat-") {
				t.Errorf("%s of an interim answer reached the client", name)
			}
		}
	}
}

// T15: a folded header line is joined by a space, as RFC 9112 section 5.2 allows: the game
// server gets one line, and no header of its own for the folded part.
func TestFoldedHeaderLineIsJoinedByASpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrackedWorld(t, nil)
		var got http.Header
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			got = r.Header
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			return true
		}
		_, br := w.Request("GET / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n\tX-B: 2\r\n\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusNoContent {
			t.Fatalf("%v, %v; want 204", resp, err)
		}
		if got.Get("X-A") != "1 X-B: 2" || got.Get("X-B") != "" {
			t.Errorf("the game server got X-A %q and X-B %q", got.Get("X-A"), got.Get("X-B"))
		}
	})
}

// T15: the connection is closed after a refusal, even if the announced body never arrives.
func TestRefusedHandshakeDoesNotWaitForItsBody(t *testing.T) {
	for name, header := range map[string]string{
		"a length":              "Content-Length: 600\r\n",
		"in chunks":             "Transfer-Encoding: chunked\r\n",
		"a foreign Origin, too": "Origin: http://elsewhere.example\r\nContent-Length: 600\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, testPolicy(), func(t *testing.T, w *world) {
				conn, br, resp, err := w.Handshake("/match/7", nil, header)
				if err != nil || resp.StatusCode != http.StatusBadRequest {
					t.Fatalf("%v %v, want 400", resp, err)
				}
				began := time.Now()
				conn.SetDeadline(began.Add(time.Minute))
				if _, err := io.Copy(io.Discard, br); err != nil || time.Since(began) > 2*time.Second {
					t.Errorf("the connection ended with %v after %v, want it closed within 2s", err, time.Since(began))
				}
			})
		})
	}
}
