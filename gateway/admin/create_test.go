package admin

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/wire"
)

const sessions = "/api/v1/sessions"

// created is the answer to POST /sessions.
type created struct{ ID, Token string }

// make creates a session before its client connects.
func (w *world) make(body string) (m created, game *wstest.Peer) {
	w.t.Helper()
	rec := w.send("POST", sessions, body)
	if err := json.Unmarshal(rec.Body.Bytes(), &m); err != nil || rec.Code != http.StatusCreated || rec.Header().Get("Location") != sessions+"/"+m.ID {
		w.t.Fatalf("POST %s: %d %v %s, %v", body, rec.Code, rec.Header(), rec.Body, err)
	}
	return m, w.game.Next()
}

// come connects the client of such a session.
func (w *world) come(m created) *wstest.Peer {
	w.t.Helper()
	p, err := w.Dial("/anywhere", []string{wire.Subprotocol, "reseat.token." + m.Token, "reseat.received.0"})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func TestSessionIsCreatedBeforeItsClient(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.game.Choose = "chess.v2"
		m, game := w.make(`{"path":"/match/7?seat=3","subprotocols":["chess.v2","chess.v1"],"player":"J\u00fcrgen","group":"red","data":"r\u00f6les","grace":"2m"}`)
		r := game.Req
		if r.URL.String() != "/match/7?seat=3" || r.Header.Get("Sec-WebSocket-Protocol") != "chess.v2, chess.v1" || r.Header.Get("Reseat-Player") != "Jürgen" || r.Header.Get("Reseat-Session") != m.ID {
			t.Errorf("the game server is asked %s %v", r.URL, r.Header)
		}
		w.wantObject("GET", sessions+"/"+m.ID, "", "state", "detached", "player", "Jürgen", "group", "red", "grace", "2m", "route", "/match/*", "resumable", true, "started", false)
		if rec := w.call("GET", sessions+"/"+m.ID+"/data"); rec.Body.String() != "röles" {
			t.Errorf("data is %q", rec.Body)
		}
		game.Text("welcome")
		time.Sleep(119 * time.Second)
		p := w.come(m)
		p.WantControl(wire.VerbHello)
		p.Want("welcome")
		p.Text("here")
		game.Want("here")
	})
}

func TestDataOtherThanTextIsKeptVerbatim(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, value := range []string{`{"seat": 3,  "name":"r\u00f6le"}`, `[1,  "r\u00f6le", null]`, `3.50`, `-1e3`, `true`, `false`, `{}`, `[]`} {
			m, _ := w.make(`{"path":"/match/7","data": ` + value + ` }`)
			if rec := w.call("GET", sessions+"/"+m.ID+"/data"); rec.Body.String() != value {
				t.Errorf("data is %s, want %s", rec.Body, value)
			}
		}
	})
}

func TestBadRequestsAreRefusedBeforeDial(t *testing.T) {
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	long := strings.Repeat("x", 257)
	inWorld(t, func(t *testing.T, w *world) {
		for body, word := range map[string]string{
			"": "JSON object", "null": "JSON object", "[]": "JSON object", `"x"`: "JSON object", "7": "JSON object", "{": "valid JSON", `{"path"}`: "valid JSON", `{"path":"/match/7"`: "valid JSON", `{"path":"/match/7",}`: "valid JSON", "{'path':1}": "valid JSON", "path=/match/7": "JSON object",
			`{"path":"/match/7"} {}`: "valid JSON", `{"path":"/match/7"}x`: "valid JSON", "\xff": "UTF-8", "{\"path\":\"/match/\xff\"}": "UTF-8", `{"path":"/match/\ud800"}`: "path: want Unicode",
			"{}": "path: want", `{"path":""}`: "path", `{"path":"match/7"}`: "path", `{"path":"ws://evil/match/7"}`: "path", `{"path":null}`: "path: want a string, got null", `{"path":7}`: "got a number", `{"path":["/"]}`: "got a list", `{"path":{}}`: "got an object", `{"path":true}`: "got a boolean", `{"path":"/match/%zz"}`: "path",
			`{"path":"/match/7","path":"/match/8"}`: "repeated JSON member", `{"Path":"/match/7"}`: "unknown member", `{"path":"/match/7","ttl":1}`: `unknown member "ttl"; known are data, grace, group, path, player, subprotocols, upstream`, `{"path":"/match/7","` + long + `":1}`: "unknown member",
			`{"path":"/match/7","grace":45}`: "grace: want a string, got a number", `{"path":"/match/7","grace":"45"}`: "grace", `{"path":"/match/7","grace":"-1s"}`: "grace", `{"path":"/match/7","grace":"1ns"}`: "grace", `{"path":"/match/7","grace":"8761h"}`: "grace", `{"path":"/match/7","grace":""}`: "grace", `{"path":"/match/7","grace":"0"}`: "grace",
			`{"path":"/match/7","player":"a\nb"}`: "player", `{"path":"/match/7","player":" a"}`: "player", `{"path":"/match/7","player":"ann\u200b"}`: "player", `{"path":"/match/7","player":"` + long + `"}`: "player", `{"path":"/match/7","group":"\u001b[31m"}`: "group", `{"path":"/match/7","group":"\u202e"}`: "group",
			`{"path":"/match/7","subprotocols":"a"}`: "list of strings", `{"path":"/match/7","subprotocols":[1]}`: "list of strings", `{"path":"/match/7","subprotocols":["a b"]}`: "subprotocols", `{"path":"/match/7","subprotocols":[null]}`: "subprotocols", `{"path":"/match/7","subprotocols":["reseat.v1"]}`: "subprotocols", `{"path":"/match/7","subprotocols":["reseat.token.x"]}`: "subprotocols",
			`{"path":"/match/7","subprotocols":["a"` + strings.Repeat(`,"a"`, 64) + `]}`: "at most 64",
			`{"path":"/match/7","data":null}`:                                            "data: want a string or another JSON value, got null", `{"path":"/match/7","data":["\ud800"]}`: "data: want Unicode", `{"path":"/match/7","data":{"a":"\ud800"}}`: "data: want Unicode", `{"path":"/match/7","data":` + deep + `}`: "valid JSON", `{"path":"/match/7","upstream":"game:9000"}`: "upstream", `{"path":"/match/7","upstream":"ws://u:p@game:9000"}`: "upstream",
		} {
			w.wantRefused("POST", sessions, body, http.StatusBadRequest, word)
		}
		synctest.Wait()
		// Only a grace period of zero passes the first checks: the answer of the game server
		// may name another one, so it is dialled.
		if n := w.game.Joined(); n != 1 {
			t.Errorf("%d dials", n)
		}
		w.wantList("")
	})
}

func TestDataUpTo64KiBIsAcceptedInAnyEscaping(t *testing.T) {
	const most = gateway.MaxData
	inWorld(t, func(t *testing.T, w *world) {
		for _, unit := range []string{"x", `\n`, `\u0001`, `\u00e9`} {
			n := most
			if unit == `\u00e9` {
				n = most / 2 // two bytes each
			}
			body := `{"path":"/match/7","data":"` + strings.Repeat(unit, n)
			m, _ := w.make(body + `"}`)
			if rec := w.call("GET", sessions+"/"+m.ID+"/data"); rec.Body.Len() != most {
				t.Errorf("%s: %d bytes kept", unit, rec.Body.Len())
			}
			w.wantRefused("POST", sessions, body+unit+`"}`, http.StatusRequestEntityTooLarge, "65536")
		}
		w.wantRefused("POST", sessions, `{"path":"/match/7","data":"`+strings.Repeat(" ", maxJSON)+`"}`, http.StatusRequestEntityTooLarge, "at most")
		m, _ := w.make(`{"path":"/match/7","data":""}`)
		if rec := w.call("GET", sessions+"/"+m.ID+"/data"); rec.Code != http.StatusOK || rec.Body.Len() != 0 {
			t.Errorf("empty data: %d %s", rec.Code, rec.Body)
		}
	})
}

func TestOnlyAllowedUpstreamsAreAccepted(t *testing.T) {
	allow := func(c *gateway.Config, _ *Options) {
		c.UpstreamAllow = []string{"game-*.internal:9000", "10.0.*.*:*", "[2001:db8::1]:80", "*:7777"}
	}
	var dialled []string
	spy := func(c *gateway.Config, _ *Options) {
		dial := c.Routes[0].Upstream.DialContext
		c.Routes[0].Upstream.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled = append(dialled, addr)
			return dial(ctx, network, addr)
		}
	}
	inWorld(t, func(t *testing.T, w *world) {
		for _, u := range []string{"ws://game-7.internal:9000", "http://GAME-7.internal:9000/base", "ws://10.0.3.7", "ws://10.0.3.7:1", "ws://[2001:DB8::1]:80", "ws://any.where.example:7777"} {
			w.make(`{"path":"/match/7","upstream":"` + u + `"}`)
		}
		if got := strings.Join(dialled, " "); got != "game-7.internal:9000 GAME-7.internal:9000 10.0.3.7:80 10.0.3.7:1 [2001:DB8::1]:80 any.where.example:7777" {
			t.Errorf("dialled %s", got)
		}
		for _, u := range []string{"ws://game.internal:9000", "ws://game-7.internal:9001", "ws://game-7.internal", "ws://game-7.x.internal:9000", "ws://game-7.internal.evil:9000", "ws://10.1.3.7:9000", "ws://10.0.3.7.evil:80", "ws://[::ffff:10.0.3.7]:80", "ws://[2001:db8::2]:80", "ws://game.example:9000", "ws://169.254.169.254"} {
			w.wantRefused("POST", sessions, `{"path":"/match/7","upstream":"`+u+`"}`, http.StatusForbidden, "--upstream-allow")
		}
		w.wantRefused("POST", sessions, `{"path":"/nowhere","upstream":"ws://10.0.3.7"}`, http.StatusNotFound, "path")
	}, allow, spy)
}

func TestGameServerRefusalIsReturned(t *testing.T) {
	for name, c := range map[string]struct {
		answer           string // of the game server; "" for none
		status, upstream int
	}{
		"refusal":  {"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nSECRET", 502, 403},
		"redirect": {"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\nContent-Length: 0\r\n\r\n", 502, 302},
		"200":      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 502, 200},
		"nonsense": {"SSH-2.0-SECRET\r\n", 502, 0},
		"silence":  {"", 504, 0},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.game.Refuse = func(conn net.Conn, _ *http.Request) bool {
				if c.answer != "" {
					io.WriteString(conn, c.answer)
					conn.Close()
				}
				return true
			}
			rec := w.send("POST", sessions, `{"path":"/match/7"}`)
			wantProblem(t, rec, c.status, "upstream")
			var d details
			if json.Unmarshal(rec.Body.Bytes(), &d); d.Upstream != c.upstream || strings.Contains(rec.Body.String(), "SECRET") {
				t.Errorf("%s: %s, want an upstream_status of %d", name, rec.Body, c.upstream)
			}
			w.wantList("")
		})
	}
	inWorld(t, func(_ *testing.T, w *world) {
		w.wantRefused("POST", sessions, `{"path":"/match/7"}`, http.StatusBadGateway, "refused")
	}, func(c *gateway.Config, _ *Options) {
		c.Routes[0].Upstream.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	})
}

func TestEndDuringDialIsConflict(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		asked := make(chan string)
		w.game.Refuse = func(_ net.Conn, r *http.Request) bool { asked <- r.Header.Get("Reseat-Session"); return true }
		go func() {
			id := <-asked
			w.gw.Control().End("", id, 1000, "")
		}()
		w.wantRefused("POST", sessions, `{"path":"/match/7"}`, http.StatusConflict, "ended")
		w.wantList("")
	})
}

func TestDuplicatePlayerIsConflict(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m, _ := w.make(`{"path":"/match/7","player":"ann"}`)
		w.come(m).WantControl(wire.VerbHello)
		w.wantRefused("POST", sessions, `{"path":"/match/7","player":"ann"}`, http.StatusConflict, "player")
		w.make(`{"path":"/match/7","player":"bob"}`)
		if n := len(w.list("?player=ann").Sessions); n != 1 {
			t.Errorf("ann has %d sessions", n)
		}
	}, func(c *gateway.Config, _ *Options) { c.Routes[0].Policy.Duplicate = policy.Reject })
}
