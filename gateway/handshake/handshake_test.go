package handshake

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// goodHead is the handshake of RFC 6455 section 1.3, without its last line.
const goodHead = "GET /match/7 HTTP/1.1\r\nHost: game.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"

// read parses a request as sent over the wire; nil if it is invalid.
func read(head string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n")))
	if err != nil {
		return nil
	}
	return r
}

// change replaces one part of goodHead.
func change(old, new string) string { return strings.Replace(goodHead, old, new, 1) }

// wantEach fails for each value that allowed judges otherwise.
func wantEach(t *testing.T, what string, allowed func(string) bool, yes, no []string) {
	t.Helper()
	for i, value := range slices.Concat(yes, no) {
		if got, want := allowed(value), i < len(yes); got != want {
			t.Errorf("%s, %q: allowed %t, want %t", what, value, got, want)
		}
	}
}

const (
	key       = "dGhlIHNhbXBsZSBub25jZQ=="
	asksFor   = "Upgrade: websocket"
	switches  = "Connection: Upgrade"
	ofVersion = "Sec-WebSocket-Version: 13"
	withKey   = "Sec-WebSocket-Key: " + key
)

func TestGoodHandshakesPass(t *testing.T) {
	for _, c := range [][2]string{
		{"", ""}, {asksFor, "upgrade: WebSocket"}, {asksFor, "Upgrade: h2c, websocket"}, {asksFor, "Upgrade: h2c\r\nUpgrade: websocket"},
		{switches, "CONNECTION: keep-alive , uPGRADE\t, y"}, {switches, "Connection: keep-alive\r\nConnection: Upgrade"}, {switches, "Connection: ,,upgrade,,"},
		{"HTTP/1.1\r\n", "HTTP/1.1\r\nContent-Length: 0\r\n"}, {ofVersion, "sec-websocket-version:13"}, {key, "/+/+/+/+/+/+/+/+/+/+/w=="},
		{"\r\n", "\r\nSec-WebSocket-Protocol: a, b\r\nSec-WebSocket-Extensions: permessage-deflate\r\nCookie: a=b\r\n"},
	} {
		head := change(c[0], c[1])
		if r := read(head); r == nil || !Requested(r) || Check(r) != nil {
			t.Errorf("refused: %q", head)
		}
	}
}

// T15: each of these is refused by HTTP, with the status of its fault.
func TestBadHandshakesAreRefused(t *testing.T) {
	for status, changes := range map[int][][2]string{
		http.StatusMethodNotAllowed: {{"GET", "POST"}, {"GET", "HEAD"}, {"GET", "OPTIONS"}, {"GET", "get"}, {"GET", "GETX"}},
		http.StatusUpgradeRequired: {
			{": 13", ": 12"}, {": 13", ": 8"}, {": 13", ": 14"}, {": 13", ": 013"}, {": 13", ": 13, 8"}, {": 13", ": 1 3"}, {": 13", ": "}, {": 13", ": \"13\""},
			{ofVersion + "\r\n", ""}, {ofVersion, ofVersion + "\r\n" + ofVersion}, {ofVersion, ofVersion + "\r\nSec-WebSocket-Version: 8"},
		},
		http.StatusBadRequest: {
			{"HTTP/1.1", "HTTP/1.0"}, {asksFor, asksFor + "\r\nContent-Length: 5"}, {asksFor, asksFor + "\r\nTransfer-Encoding: chunked"},
			{asksFor, asksFor + "\r\nTransfer-Encoding: chunked\r\nContent-Length: 5"}, {switches + "\r\n", ""}, {switches, "Connection: keep-alive"},
			{switches, "Connection: Upgraded"}, {switches, "Connection: \"Upgrade\""}, {switches, "Connection: keep-alive Upgrade"}, {switches, "Connection: Upgrade;q=1"},
			{switches, "Connection: x-upgrade"}, {switches, "Connection: \u00a0upgrade"}, {switches, "Connection: upgr\u0430de"},
			{withKey + "\r\n", ""}, {withKey, withKey + "\r\n" + withKey}, {withKey, withKey + "\r\nSec-WebSocket-Key: "},
			{key, ""}, {key, strings.TrimRight(key, "=")}, {key, key + ", x"}, {key, "AAAAAAAAAAAAAAAAAAAAAB=="}, {key, "_-_-_-_-_-_-_-_-_-_-_w=="},
			{key, "AAAAAAAAAAAAAAAAAAAAA==="}, {key, "not base64 at all!!!!!=="}, {key, "AAAAAAAAAAAAAAAAAAAA"}, {key, "AAAAAAAAAAAAAAAAAAAAAAA="},
		},
	} {
		for _, c := range changes {
			head := change(c[0], c[1])
			r := read(head)
			if r == nil || !Requested(r) {
				t.Errorf("not recognised as a handshake: %q", head)
				continue
			}
			if bad := Check(r); bad == nil || bad.Status != status || bad.Text == "" {
				t.Errorf("%+v, want the status %d: %q", bad, status, head)
			}
		}
	}
}

// A request that does not ask for a WebSocket is an ordinary one, and goes to the proxy.
func TestOrdinaryRequestIsNotAHandshake(t *testing.T) {
	for _, with := range []string{
		"X: y", "Upgrade: h2c", "Upgrade: websockets", "Upgrade: websocket/13", "Upgrade: \"websocket\"", "Upgrade: web socket", "Upgrade: h2c; websocket", "Upgrade: ", "X-Upgrade: websocket",
	} {
		if r := read(change(asksFor, "X: y\r\n"+with)); r == nil || Requested(r) {
			t.Errorf("a handshake: %q", with)
		}
	}
}

// T11: --host.
func TestHostMustBeAllowed(t *testing.T) {
	for _, c := range []struct{ allowed, yes, no []string }{
		{nil, []string{"anything.example", ""}, nil},
		{[]string{"Game.Example"}, []string{"game.example", "GAME.Example:8443", "game.example:80"},
			[]string{"", ":8080", "game.example.", "game.example.evil.example", "evil-game.example", "x.game.example", "game.example:80:80", "game.example/x",
				"game.example@evil.example", "evil.example:game.example", "game"}},
		{[]string{"other.example", "game.example"}, []string{"game.example"}, nil},
		{[]string{"game.example:8443"}, []string{"game.example:8443", "GAME.example:8443"}, []string{"game.example", "game.example:8444"}},
		{[]string{"::1"}, []string{"[::1]:8080", "[::1]"}, nil},
		{[]string{"[::1]"}, []string{"[::1]:8080", "[::1]"}, nil},
		{[]string{"[::1]:8080"}, []string{"[::1]:8080"}, []string{"[::1]:8081"}},
		{[]string{"127.0.0.1"}, []string{"127.0.0.1:8080"}, []string{"127.0.0.2"}},
	} {
		wantEach(t, fmt.Sprintf("--host %q", c.allowed), func(host string) bool { return HostAllowed(c.allowed, host) }, c.yes, c.no)
	}
}

// FuzzHandshakeHead checks that only what RFC 6455 section 4.2.1 requires passes, decided
// by other code.
func FuzzHandshakeHead(f *testing.F) {
	f.Add(goodHead)
	f.Add(goodHead + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")
	f.Add(change("Connection: Upgrade", "Connection: keep-alive,\r\n Upgrade"))
	f.Add(change("Host: game.example", "Host: a\r\nHost: b"))
	f.Fuzz(func(t *testing.T, head string) {
		r := read(head)
		if r == nil || !Requested(r) || Check(r) != nil {
			return
		}
		key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
		connection := strings.ToLower(strings.Join(r.Header["Connection"], ","))
		switch {
		case r.Method != "GET", r.Proto != "HTTP/1.1" && r.ProtoMinor < 2, r.ContentLength != 0, len(r.TransferEncoding) != 0,
			err != nil, len(key) != 16, !slices.Equal(r.Header["Sec-Websocket-Version"], []string{"13"}), len(r.Header["Sec-Websocket-Key"]) != 1,
			!strings.Contains(connection, "upgrade"):
			t.Errorf("passes: %q", head)
		}
	})
}

// A hijacker counts how often its connection is taken.
type hijacker struct {
	*httptest.ResponseRecorder
	taken int
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.taken++
	return nil, nil, net.ErrClosed
}

// The game server would keep a player whom nobody has the token of.
func TestClientThatHasGoneGetsNoAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for want := 1; want >= 0; want-- {
		h := &hijacker{ResponseRecorder: httptest.NewRecorder()}
		_, _, err := new(Answer).Switch(h, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		if err == nil || h.taken != want {
			t.Errorf("taken %d times, want %d; %v", h.taken, want, err)
		}
		cancel()
	}
}
