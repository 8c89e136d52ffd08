package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
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
			if _, _, err := w.gw.Create(t.Context(), nil, gateway.CreateRequest{Path: path}); err != nil {
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
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		for _, path := range []string{"//x", "/a%2fb", "/%2572"} {
			w.resumeAt(p, path).WantControl(wire.VerbHello)
		}
	})
}

func TestPreCreatedSessionGetsNormalPath(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		if _, _, err := w.gw.Create(t.Context(), nil, gateway.CreateRequest{Path: "/lobby/../match/%37"}); err != nil {
			t.Fatal(err)
		}
		if got := w.game.Next().Req.RequestURI; got != "/match/7" {
			t.Errorf("the game server was asked for %s", got)
		}
		if _, _, err := w.gw.Create(t.Context(), nil, gateway.CreateRequest{Path: "/match%2f7"}); err == nil || !strings.Contains(err.Error(), "%2F") {
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

// In handshakes and in ordinary requests.
func TestTrustedHeaderDoesNotPassFromAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
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
		const want = "Cookie X-Custom"
		p, head := w.PlayerWith("/match/1", sent), w.game.Next().Req.Header
		if got(head) != want || head.Get("Reseat-Session") != p.Hello.Session || head["Reseat-Player"] != nil || head["X-Forwarded-For"] == nil {
			t.Errorf("the game server sees %v", head)
		}
		if resp := w.get("/match/1", sent); resp.Header.Get("X-Got") != want {
			t.Errorf("of an ordinary request the game server sees %v", resp)
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
	inTracked(t, func(t *testing.T, w *trackedWorld) {
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
	eachInBubble(t, map[string]string{
		"a length":              "Content-Length: 600\r\n",
		"in chunks":             "Transfer-Encoding: chunked\r\n",
		"a foreign Origin, too": "Origin: http://elsewhere.example\r\nContent-Length: 600\r\n",
	}, func(t *testing.T, header string) {
		conn, br, resp, err := newWorld(t, testPolicy()).Handshake("/match/7", nil, header)
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Fatalf("%v %v, want 400", resp, err)
		}
		began := time.Now()
		conn.SetDeadline(began.Add(time.Minute))
		if _, err := io.Copy(io.Discard, br); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("the connection ended with %v after %v, want it closed within 2s", err, time.Since(began))
		}
	})
}

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
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			c.Routes[0].Upstream.DialContext = func(context.Context, string, string) (net.Conn, error) { return next.Dial() }
		})
		server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			w.gw.ServeHTTP(rw, r)
		})}
		go server.Serve(lines[i])
		t.Cleanup(func() { server.Close() })
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
		if h := w.Player("/").Hello; h.PartBytes != 0 || h.Partial != nil {
			t.Errorf("part_bytes %d without the offer, partial %+v", h.PartBytes, h.Partial)
		}
		p = w.Player("/", "reseat.partial.7")
		for _, h := range []wire.Hello{p.Hello, p.Resume(0).Hello} {
			if h.PartBytes != session.PartBytes || h.Partial == nil {
				t.Errorf("part_bytes %d, partial %+v", h.PartBytes, h.Partial)
			}
		}
	})
}

func TestOrdinaryRequestsOverHTTP2ReachTheGame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSecureTrackedWorld(t, testPolicy())
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			body, _ := io.ReadAll(r.Body)
			text := r.Method + " " + r.RequestURI + " " + r.Host + " " + r.Header.Get("X-Forwarded-Proto") + " " + string(body)
			resp := http.Response{ProtoMajor: 1, ProtoMinor: 1, StatusCode: http.StatusCreated, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}
			resp.Write(c)
			return true
		}
		client, _ := w.overHTTP2()
		resp, err := client.Post("https://game.example/matchmaking?size=2", "text/plain", strings.NewReader("me"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if want := "POST /matchmaking?size=2 game.example https me"; resp.ProtoMajor != 2 || resp.StatusCode != http.StatusCreated || string(body) != want || err != nil {
			t.Errorf("%s %s %q, %v; want HTTP/2, 201 and %q", resp.Proto, resp.Status, body, err, want)
		}
	})
}

func TestUpgradeRequiredOverHTTP2OmitsConnectionFields(t *testing.T) {
	for _, off := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newSecureTrackedWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.HTTPOff = off }))
			client, _ := w.overHTTP2()
			w.game.Refuse = answering("426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade")
			resp, err := client.Get("https://game.example/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUpgradeRequired || resp.Header["Upgrade"] != nil || resp.Header["Connection"] != nil {
				t.Errorf("--http off %t: %s with %v, want 426 without connection-specific fields (RFC 9113 section 8.2.2)", off, resp.Status, resp.Header)
			}
		})
	}
}

func TestSessionIDsAre128RandomBits(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		seen := map[string]bool{}
		for range 100 {
			p, _ := w.play()
			if id := p.Hello.Session; len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" || seen[id] {
				t.Fatalf("id %q, want 32 digits, and another one each time", id)
			}
			seen[p.Hello.Session] = true
		}
	})
}

// What the handshake of a resume says to hold is not sent again, and hello says what the gateway holds.
func TestLargeMessagesGoOnAtResume(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		p := w.Player("/", "reseat.partial.4096")
		game := w.game.Next()
		game.Text(strings.Repeat("down", 2500))
		p.Control(`parts {"bytes":6000,"text":true}`)
		p.Binary(strings.Repeat("u", 4096))
		synctest.Wait()
		p.Drop()
		q := p.Resume(0)
		if got := *q.Hello.Partial; got != (wire.Partial{Down: 4096, Up: 4096}) {
			t.Fatalf("hello says %+v", got)
		}
		wstest.Equal(t, "parts", q.WantControl(wire.VerbParts).Data, `{"bytes":10000,"text":true,"from":4096}`)
		q.Control(`parts {"bytes":6000,"text":true,"from":4096}`)
		q.Binary(strings.Repeat("u", 1904))
		game.Want(strings.Repeat("u", 6000))
	})
}
