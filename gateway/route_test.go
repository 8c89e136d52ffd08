package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/wire"
)

// spellings of /ranked/7 that a game server treats as that path, T45.
var spellings = []string{
	"/ranked/7", "/%72anked/7", "/ranke%64/7", "/./ranked/7", "/%2e/ranked/7", "/lobby/../ranked/7", "/lobby/%2e%2e/ranked/7",
	"/lobby/.%2E/ranked/7", "/../ranked/7", "/ranked/./7", "/ranked/x/../7",
}

// ambiguous are paths that some game servers read as /ranked/7, and others do not.
var ambiguous = []string{
	"/ranked%2f7", "/ranked%2F7", "//ranked/7", "/ranked//7", "/ranked%5c7", "/lobby/..%5cranked/7", "/%2572anked/7", "/%2e%2e%2franked/7",
	"/lobby/..;/ranked/7", "/lobby/..;v=1/ranked/7", "/ranked;v=1/7", "/ranked%3bv/7", "/%c0%ae%c0%ae/ranked/7", "/ranked%00/7", "/lobby%0a/../ranked/7",
	"/;/ranked/7", "/;v=1/ranked/7", "/%3b/ranked/7", "/x/%e0%80%ae%e0%80%ae/ranked/7", "/x%f0%80%80%afranked/7", "http:ranked/7", "http:",
}

// newStrictWorld is a world in which /ranked/* requires a login and a certain Origin; all other
// paths require neither.
func newStrictWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, testPolicy(), func(c *gateway.Config) {
		c.Default.Origins = []string{"*"}
		c.Routes[0].Policy.Origins = []string{"*"}
		ranked := c.Routes[0]
		ranked.Pattern = "/ranked/*"
		ranked.Policy.Auth = headerLogin(t)
		ranked.Policy.Origins = []string{"https://play.example"}
		c.Routes = append(c.Routes, ranked)
		if err := gateway.OpenLogins(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	})
}

// status returns the status of the answer to a handshake.
func (w *world) status(path, header string) int {
	w.t.Helper()
	c, _, resp, err := w.Handshake(path, []string{wire.Subprotocol}, header)
	if err != nil {
		w.t.Fatal(err)
	}
	c.Close()
	return resp.StatusCode
}

// get sends an ordinary request with header lines, and returns the answer.
func (w *world) get(path string, header ...string) *http.Response {
	w.t.Helper()
	c, r := w.Request("GET " + path + " HTTP/1.1\r\nHost: game.example\r\n" + strings.Join(header, "") + "\r\n")
	defer c.Close()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		w.t.Fatalf("GET %s: %v", path, err)
	}
	return resp
}

func TestEverySpellingOfPathMeetsItsRoutesRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStrictWorld(t)
		login := bearer(loginOf(t, "ann", time.Hour))
		for _, path := range spellings {
			if got := w.status(path, "Origin: https://play.example\r\n"); got != http.StatusUnauthorized {
				t.Errorf("%s without a login: %d", path, got)
			}
			if got := w.status(path, login+"Origin: https://evil.example\r\n"); got != http.StatusForbidden {
				t.Errorf("%s from a foreign page: %d", path, got)
			}
			if got := w.status(path, login+"Origin: https://play.example\r\n"); got != http.StatusSwitchingProtocols {
				t.Errorf("%s with login and Origin: %d", path, got)
			} else if game := w.game.Next(); game.Req.RequestURI != "/ranked/7" {
				t.Errorf("%s: the game server was asked for %s", path, game.Req.RequestURI)
			}
		}
		w.wantNoDial()
	})
}

func TestAmbiguousPathsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStrictWorld(t)
		for _, path := range ambiguous {
			if got := w.status(path, "Origin: https://evil.example\r\n"); got != http.StatusBadRequest {
				t.Errorf("%s: %d", path, got)
			}
			if resp := w.get(path); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("GET %s: %v", path, resp)
			}
		}
		w.wantNoDial()
		wstest.Equal(t, "a path whose parameter changes no route", w.status("/lobby;v=1/7", ""), http.StatusSwitchingProtocols)
		wstest.Equal(t, "the request of the game server", w.game.Next().Req.RequestURI, "/lobby;v=1/7")
	})
}

func TestUnsafePathsPassIfAllowed(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		for path, want := range map[string]string{"/a%2fb": "/a%2Fb", "//a": "//a", "/a\\b": "/a%5Cb", "/x/..;/y": "/x/..;/y", "/x/../y": "/y"} {
			if got := w.status(path, ""); got != http.StatusSwitchingProtocols {
				t.Errorf("%s: %d", path, got)
			} else if got := w.game.Next().Req.RequestURI; got != want {
				t.Errorf("%s: the game server was asked for %s, want %s", path, got, want)
			}
		}
		if got := w.status("/a%00", ""); got != http.StatusBadRequest {
			t.Errorf("a control character: %d", got)
		}
	}, func(c *gateway.Config) { c.UnsafePaths = true })
}

// A safe path, and any query, even an empty one: RFC 9112 section 3.2.1.
var verbatim = []string{"/a?", "/a??", "/a?=&&b=", "/a?x;y;", "/a?//..%2F%2f", "/a;v=1/b?", "/a/?#", "/?", "/%C3%BC?%c3"}

func TestRequestTargetReachesTheGameServerAsSent(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		for _, path := range verbatim {
			want := strings.ReplaceAll(path, "#", "%23")
			p := w.Player(path)
			game := w.game.Next()
			p.Sync()
			p.Drop()
			game.WantClose(wire.CodeGoingAway)
			p.Resume(0)
			for when, r := range map[string]*http.Request{"at first": game.Req, "at a hard resume": w.game.Next().Req} {
				if r.RequestURI != want {
					t.Errorf("%s %s: the game server was asked for %s", path, when, r.RequestURI)
				}
			}
			if _, _, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: path}); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if got := w.game.Next().Req.RequestURI; got != want {
				t.Errorf("%s created: the game server was asked for %s", path, got)
			}
			var asked []string
			w.game.Refuse = refusing(&asked)
			w.get(path)
			w.game.Refuse = nil
			if !slices.Equal(asked, []string{want}) {
				t.Errorf("%s by an ordinary request: the game server was asked for %q", path, asked)
			}
		}
	})
}

// The base path of --upstream ws://g/public cannot be left, by handshakes or requests.
func TestNoPathEscapesUpstreamsBasePath(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		var asked []string
		w.game.Refuse = refusing(&asked)
		for _, path := range append([]string{"/../admin", "/%2e%2e/admin", "/x/../../admin", "/.%2e/.%2e/admin", "/..;/admin", "/..%2fadmin", "/..\\admin"}, spellings...) {
			w.status(path, "")
			w.get(path)
		}
		for _, uri := range asked {
			if !strings.HasPrefix(uri, "/public/") || strings.Contains(uri, "..") {
				t.Errorf("the game server was asked for %s", uri)
			}
		}
		if len(asked) < 2*len(spellings) {
			t.Errorf("only %d requests reached the game server", len(asked))
		}
	}, func(c *gateway.Config) { c.Routes[0].Upstream.URL.Path = "/public" })
}

// Protocol section 2: path and query of a resume are ignored.
func TestPathOfResumeIsIgnored(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		for _, path := range []string{"//x", "/a%2fb", "/%2572"} {
			p, game := w.play()
			p.Drop()
			c, r, resp, err := w.Handshake(path, []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}, "")
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || !hasHello(r) {
				t.Errorf("%s: %v %v", path, resp, err)
			}
			c.Close()
			game.Conn.Close()
		}
	})
}

// hasHello reports whether hello is the first message in r.
func hasHello(r *bufio.Reader) bool {
	b, err := r.Peek(12)
	return err == nil && strings.Contains(string(b), "\x10hello")
}

func TestPreCreatedSessionGetsNormalPath(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		if _, _, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/lobby/../match/%37"}); err != nil {
			t.Fatal(err)
		}
		if got := w.game.Next().Req.RequestURI; got != "/match/7" {
			t.Errorf("the game server was asked for %s", got)
		}
		if _, _, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/match%2f7"}); err == nil || !strings.Contains(err.Error(), "%2F") {
			t.Errorf("%v, want it refused for the encoded slash", err)
		}
	})
}

// refusing is a game server that refuses everything and records the paths.
func refusing(asked *[]string) func(c net.Conn, r *http.Request) bool {
	return func(c net.Conn, r *http.Request) bool {
		*asked = append(*asked, r.RequestURI)
		fmt.Fprint(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		c.Close()
		return true
	}
}

// In handshakes and in ordinary requests, by the route's own --client-header.
func TestRouteListsTheClientHeadersOfItsGameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			strict := c.Routes[0]
			strict.Pattern, strict.Policy.ClientHeaders = "/strict/*", []string{"Cookie"}
			c.Routes = append(c.Routes, strict)
			c.TrustedHeaders = []string{"X-Gate"}
		})
		w.game.Refuse = func(conn net.Conn, r *http.Request) bool {
			if r.Header.Get("Upgrade") != "" {
				return false
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nX-Got: %s\r\nContent-Length: 0\r\n\r\n", got(r.Header))
			return true
		}
		const sent = "Cookie: a=1\r\nX-Custom: x\r\nX-Gate: forged\r\nX-Real-IP: 6.6.6.6\r\nReseat-Player: root\r\n"
		for path, want := range map[string]string{"/strict/1": "Cookie", "/other": "Cookie X-Custom"} {
			p, head := w.PlayerWith(path, sent), w.game.Next().Req.Header
			if got(head) != want || head.Get("Reseat-Session") != p.Hello.Session || head["Reseat-Player"] != nil || head["X-Forwarded-For"] == nil {
				t.Errorf("%s: the game server sees %v", path, head)
			}
			if resp := w.get(path, sent); resp.Header.Get("X-Got") != want {
				t.Errorf("%s: of an ordinary request the game server sees %v", path, resp)
			}
		}
	})
}

// got names those of the headers that a client has sent.
func got(h http.Header) string {
	var names []string
	for _, name := range []string{"Cookie", "X-Custom", "X-Gate", "X-Real-Ip"} {
		if h[name] != nil {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}
