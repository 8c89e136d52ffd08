package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"reseat/gateway"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/wire"
)

var showing = []string{wire.Subprotocol, "reseat.refusals"}

// wantShown begins a session that offers reseat.refusals, and wants the refusal c; without
// the offer it wants the HTTP status.
func (w *world) wantShown(path, header string, c wire.Closing) {
	w.t.Helper()
	p := w.PlayerRefused(path, header)
	if got := p.WantClosing(c.Code); got != c {
		w.t.Errorf("%s: %+v, want %+v", path, got, c)
	}
	p.WantEnd()
	for _, protocols := range [][]string{{wire.Subprotocol}, {"reseat.refusals"}, nil} {
		conn, _, resp, err := w.Handshake(path, protocols, header)
		if err != nil || resp.StatusCode != c.Status {
			w.t.Errorf("%s with %q: %v %v, want status %d", path, protocols, resp, err, c.Status)
		}
		conn.Close()
	}
}

func TestRefusedLoginIsReportedByClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, said := newLoginWorld(t, "header", false)
		old := "Authorization: Bearer " + signed(t, jwt.MapClaims{"sub": "ann", "aud": "game", "exp": time.Now().Add(-time.Hour).Unix()}) + "\r\n"
		for header, reason := range map[string]string{"": "login: missing", old: "login: expired"} {
			w.wantShown("/m", header, wire.Closing{Code: 4403, Status: 401, Reason: reason})
		}
		if n := strings.Count(said.String(), "handshake.refused"); n != 8 {
			t.Errorf("%d lines for 8 handshakes", n)
		}
	})
}

func TestFullGatewayIsReportedByClose(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.play()
		w.wantShown("/", "", wire.Closing{Code: 4503, Status: 503, Reason: "full", Retry: true, RetryAfter: 5000})
	}, func(c *gateway.Config) { c.MaxSessions = 1 })
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.play()
		w.wantShown("/", "", wire.Closing{Code: 4429, Status: 429, Reason: "too many sessions from this address", Retry: true, RetryAfter: 5000})
	}, func(c *gateway.Config) { c.MaxSessionsPerIP = 1 })
}

func TestPathWithoutRouteIsReportedByClose(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.wantShown("/other", "", wire.Closing{Code: 4403, Status: 404, Reason: "no route"})
	}, func(c *gateway.Config) { c.Routes[0].Pattern = "/match/*" })
}

func TestUnreachableUpstreamIsReportedByClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		dials := 0
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.Routes[0].Upstream.DialContext = func(context.Context, string, string) (net.Conn, error) {
				dials++
				return nil, errors.New("refused")
			}
		})
		p := w.PlayerRefused("/", "")
		if got, want := p.WantClosing(4502), (wire.Closing{Code: 4502, Status: 502, Reason: "upstream: unreachable", Retry: true}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if n := strings.Count(log.String(), "level="); dials != 1 || n != 1 {
			t.Errorf("%d dials, %d lines: %s", dials, n, log.String())
		}
	})
}

func TestUpstreamsRefusalIsReportedByClose(t *testing.T) {
	for answer, want := range map[string]wire.Closing{
		"403 Forbidden\r\n":                            {Code: 4403, Status: 403, Reason: "upstream: 403"},
		"503 Busy\r\nRetry-After: 7\r\n":               {Code: 4403, Status: 503, Reason: "upstream: 503", Retry: true, RetryAfter: 7000},
		"502 Bad\r\n":                                  {Code: 4403, Status: 502, Reason: "upstream: 502", Retry: true},
		"429 Slow\r\nRetry-After: -1\r\n":              {Code: 4403, Status: 429, Reason: "upstream: 429", Retry: true},
		"302 Found\r\nLocation: http://elsewhere/\r\n": {Code: 4403, Status: 302, Reason: "upstream: 302"},
	} {
		inWorld(t, testPolicy(), func(t *testing.T, w *world) {
			w.wantShown("/", "", want)
		}, func(c *gateway.Config) { c.Routes[0].Upstream.DialContext = answering(answer) })
	}
}

// answering is a game server that answers every handshake with status.
func answering(status string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			if req, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
				req.Body.Close()
				far.Write([]byte("HTTP/1.1 " + status + "Content-Length: 0\r\n\r\n"))
			}
		}()
		return near, nil
	}
}

// A page of another site learns nothing, and a request that is not a handshake gets no 101.
func TestOtherRefusalsAreAnsweredByHTTP(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		for header, want := range map[string]int{"Origin: http://elsewhere.example\r\n": 403, "Sec-WebSocket-Key: AAAA\r\n": 400} {
			conn, _, resp, err := w.Handshake("/", showing, header)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%q: %v %v, want %d", header, resp, err, want)
			}
			conn.Close()
		}
	}, func(c *gateway.Config) { c.Hosts = []string{"game.example"} })
}

// protocol section 5: close() without a code is a Close without a body to both.
func TestByeWithoutCodeIsCloseWithoutCode(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Text("last")
		p.Control(`bye {"code":1005,"reason":""}`)
		game.Want("last")
		game.WantClose(frame.NoStatus)
		p.WantClose(frame.NoStatus)
	})
}

// answerHead returns the lines of the answer to raw, without the empty one.
func (w *world) answerHead(raw string) []string {
	w.t.Helper()
	c, r := w.Request(raw)
	defer c.Close()
	var lines []string
	for {
		line, err := r.ReadString('\n')
		if line = strings.TrimSpace(line); line == "" {
			return lines
		}
		if err != nil {
			w.t.Fatalf("after %q: %v", lines, err)
		}
		lines = append(lines, line)
	}
}

const (
	ordinary  = "Host: game.example\r\n\r\n"
	asksForWS = "Host: game.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: "
)

// RFC 9110 sections 15.5.2, 15.5.6, 15.5.8 and 15.5.22, for an answer of the game server's.
func TestRefusalsOfTheGameServerKeepWhatTheirStatusNeeds(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   []string // lines
	}{
		{"426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade", []string{"Upgrade: websocket", "Connection: Upgrade"}},
		{"426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: close, Upgrade", []string{"Upgrade: websocket", "Connection: Upgrade"}},
		{"426 Upgrade Required", []string{"Upgrade: websocket", "Connection: Upgrade"}}, // as the ws package of Node.js
		{"401 Unauthorized\r\nWWW-Authenticate: Bearer", []string{"Www-Authenticate: Bearer"}},
		{"401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nConnection: WWW-Authenticate", []string{"Www-Authenticate: Bearer"}},
		{"405 Method Not Allowed\r\nAllow: GET\r\nConnection: Allow", []string{"Allow: GET"}},
		{"407 Proxy Authentication Required\r\nProxy-Authenticate: Basic", []string{"Proxy-Authenticate: Basic"}},
		{"429 Too Many Requests\r\nRetry-After: 7", []string{"Retry-After: 7"}},
		{"302 Found\r\nLocation: /login", []string{"Location: /login"}},
		{"416 Requested Range Not Satisfiable\r\nContent-Range: bytes */7", []string{"Content-Range: bytes */7"}},
	} {
		inWorld(t, testPolicy(), func(t *testing.T, w *world) {
			w.game.Refuse = func(conn net.Conn, _ *http.Request) bool {
				conn.Write([]byte("HTTP/1.1 " + c.answer + "\r\nX-Hop: 1\r\nKeep-Alive: 9\r\nContent-Length: 0\r\n\r\n"))
				conn.Close()
				return true
			}
			for what, raw := range map[string]string{
				"a handshake": asksForWS + "13\r\n\r\n", "an ordinary request": ordinary, "a last request": "Connection: close\r\n" + ordinary,
			} {
				got := w.answerHead("GET /match/7 HTTP/1.1\r\n" + raw)
				for _, line := range append(c.want, "HTTP/1.1 "+strings.Split(c.answer, "\r\n")[0]) {
					if !slices.Contains(got, line) {
						t.Errorf("%s answered %q: got %q, without %q", what, c.answer, got, line)
					}
				}
				if slices.Contains(got, "Keep-Alive: 9") {
					t.Errorf("%s answered %q: got %q", what, c.answer, got)
				}
			}
		})
	}
}

func TestOwn426NamesTheProtocol(t *testing.T) {
	inWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.HTTPOff = true }), func(t *testing.T, w *world) {
		for what, rest := range map[string]string{
			"a handshake of an old version": asksForWS + "8\r\n\r\n", "one that reads refusals": asksForWS + "8\r\nSec-WebSocket-Protocol: reseat.v1, reseat.refusals\r\n\r\n",
			"an ordinary request": ordinary, "a last request": "Connection: close\r\n" + ordinary,
		} {
			got := w.answerHead("GET / HTTP/1.1\r\n" + rest)
			for _, line := range []string{"HTTP/1.1 426 Upgrade Required", "Upgrade: websocket", "Connection: Upgrade"} {
				if !slices.Contains(got, line) {
					t.Errorf("%s: %q, want %q", what, got, line)
				}
			}
		}
	})
}

// The fields of HTTP/1 are no part of a close, nor of the 101 that carries it.
func TestRefusalByCloseHasNoFieldsOfTheStatus(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.game.Refuse = func(conn net.Conn, _ *http.Request) bool {
			conn.Write([]byte("HTTP/1.1 426 Upgrade Required\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n"))
			conn.Close()
			return true
		}
		got := w.answerHead("GET / HTTP/1.1\r\n" + asksForWS + "13\r\nSec-WebSocket-Protocol: reseat.v1, reseat.refusals\r\n\r\n")
		slices.Sort(got)
		if want := []string{"Connection: Upgrade", "HTTP/1.1 101 Switching Protocols", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "Sec-WebSocket-Protocol: reseat.v1", "Upgrade: websocket"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
