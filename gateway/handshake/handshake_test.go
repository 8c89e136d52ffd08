package handshake

import (
	"bufio"
	"context"
	"encoding/base64"
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

func TestGoodHandshakesPass(t *testing.T) {
	for _, head := range []string{
		goodHead,
		change("Upgrade: websocket", "upgrade: WebSocket"),
		change("Upgrade: websocket", "Upgrade: h2c, websocket"),
		change("Upgrade: websocket", "Upgrade: h2c\r\nUpgrade: websocket"),
		change("Connection: Upgrade", "CONNECTION: keep-alive , uPGRADE"),
		change("Connection: Upgrade", "Connection: keep-alive\r\nConnection: Upgrade"),
		change("HTTP/1.1\r\n", "HTTP/1.1\r\nContent-Length: 0\r\n"),
		change("Sec-WebSocket-Version: 13", "sec-websocket-version:13"),
		goodHead + "Sec-WebSocket-Protocol: a, b\r\nSec-WebSocket-Extensions: permessage-deflate\r\nCookie: a=b\r\n",
	} {
		r := read(head)
		if r == nil || !Requested(r) || Check(r) != nil {
			t.Errorf("refused: %q", head)
		}
	}
}

// T15: each of these is refused by HTTP, with the status of its fault.
func TestBadHandshakesAreRefused(t *testing.T) {
	key := "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	for status, heads := range map[int][]string{
		http.StatusMethodNotAllowed: {
			change("GET", "POST"), change("GET", "HEAD"), change("GET", "PUT"), change("GET", "OPTIONS"), change("GET", "get"), change("GET", "GETX"),
		},
		http.StatusUpgradeRequired: {
			change("Version: 13", "Version: 12"), change("Version: 13", "Version: 8"), change("Version: 13", "Version: 14"), change("Version: 13", "Version: 013"),
			change("Version: 13", "Version: 13, 8"), change("Version: 13", "Version: 1 3"), change("Version: 13", "Version: "), change("Version: 13", "Version: \"13\""),
			change("Sec-WebSocket-Version: 13\r\n", ""), goodHead + "Sec-WebSocket-Version: 13\r\n", goodHead + "Sec-WebSocket-Version: 8\r\n",
		},
		http.StatusBadRequest: {
			change("HTTP/1.1", "HTTP/1.0"),
			goodHead + "Content-Length: 5\r\n", goodHead + "Transfer-Encoding: chunked\r\n", goodHead + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
			change("Connection: Upgrade\r\n", ""), change("Connection: Upgrade", "Connection: keep-alive"), change("Connection: Upgrade", "Connection: Upgraded"),
			change("Connection: Upgrade", "Connection: \"Upgrade\""), change("Connection: Upgrade", "Connection: keep-alive Upgrade"), change("Connection: Upgrade", "Connection: Upgrade;q=1"),
			change(key+"\r\n", ""), change(key, key+"\r\n"+key), change("dGhlIHNhbXBsZSBub25jZQ==", ""), change("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ"),
			change("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ==, x"), change("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZR=="),
		},
	} {
		for _, head := range heads {
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
	for _, with := range []string{"", "Upgrade: h2c\r\n", "Upgrade: websockets\r\n", "Upgrade: websocket/13\r\n", "Upgrade: \"websocket\"\r\n", "Upgrade: web socket\r\n", "Upgrade: h2c; websocket\r\n", "Upgrade: \r\n", "X-Upgrade: websocket\r\n"} {
		if r := read(change("Upgrade: websocket\r\n", with)); r == nil || Requested(r) {
			t.Errorf("a handshake: %q", with)
		}
	}
}

func TestKeyIsSixteenBytesInBase64Once(t *testing.T) {
	encode := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, keys := range [][]string{{encode(16)}, {"dGhlIHNhbXBsZSBub25jZQ=="}, {"/+/+/+/+/+/+/+/+/+/+/w=="}} {
		if !validKey(keys) {
			t.Errorf("%q is refused", keys)
		}
	}
	for _, keys := range [][]string{
		nil, {}, {""}, {encode(0)}, {encode(15)}, {encode(17)}, {encode(32)}, {encode(16), encode(16)}, {encode(16), ""},
		{strings.TrimRight(encode(16), "=")}, {"AAAAAAAAAAAAAAAAAAAAAB=="}, {"_-_-_-_-_-_-_-_-_-_-_w=="}, {"AAAAAAAAAAAAAAAAAAAAA==="}, {" " + encode(16)}, {encode(16) + "x"}, {"not base64 at all!!!!!=="},
	} {
		if validKey(keys) {
			t.Errorf("%q is accepted", keys)
		}
	}
}

func TestTokenIsFoundInAnyLineAndCase(t *testing.T) {
	for _, tt := range []struct {
		lines []string
		want  bool
	}{
		{[]string{"upgrade"}, true}, {[]string{"Upgrade"}, true}, {[]string{"UPGRADE"}, true}, {[]string{"keep-alive, Upgrade"}, true},
		{[]string{"keep-alive", "x , upgrade\t, y"}, true}, {[]string{",,upgrade,,"}, true},
		{nil, false}, {[]string{""}, false}, {[]string{"upgraded"}, false}, {[]string{"x-upgrade"}, false}, {[]string{"up grade"}, false}, {[]string{"upgrade;x"}, false},
		{[]string{"upgrade x"}, false}, {[]string{"\u00a0upgrade"}, false}, {[]string{"upgr\u0430de"}, false},
	} {
		if got := hasToken(http.Header{"Connection": tt.lines}, "Connection", "upgrade"); got != tt.want {
			t.Errorf("%q: %t", tt.lines, got)
		}
	}
}

// T11: --host.
func TestHostMustBeAllowed(t *testing.T) {
	for _, tt := range []struct {
		allowed []string
		host    string
		want    bool
	}{
		{nil, "anything.example", true},
		{nil, "", true},
		{[]string{"game.example"}, "game.example", true},
		{[]string{"game.example"}, "GAME.Example:8443", true},
		{[]string{"Game.Example"}, "game.example:80", true},
		{[]string{"other.example", "game.example"}, "game.example", true},
		{[]string{"game.example:8443"}, "game.example:8443", true},
		{[]string{"game.example:8443"}, "GAME.example:8443", true},
		{[]string{"game.example:8443"}, "game.example", false},
		{[]string{"game.example:8443"}, "game.example:8444", false},
		{[]string{"::1"}, "[::1]:8080", true},
		{[]string{"::1"}, "[::1]", true},
		{[]string{"[::1]"}, "[::1]:8080", true},
		{[]string{"[::1]"}, "[::1]", true},
		{[]string{"[::1]:8080"}, "[::1]:8080", true},
		{[]string{"[::1]:8080"}, "[::1]:8081", false},
		{[]string{"127.0.0.1"}, "127.0.0.1:8080", true},
		{[]string{"127.0.0.1"}, "127.0.0.2", false},
		{[]string{"game.example"}, "", false},
		{[]string{"game.example"}, ":8080", false},
		{[]string{"game.example"}, "game.example.", false},
		{[]string{"game.example"}, "game.example.evil.example", false},
		{[]string{"game.example"}, "evil-game.example", false},
		{[]string{"game.example"}, "x.game.example", false},
		{[]string{"game.example"}, "game.example:80:80", false},
		{[]string{"game.example"}, "game.example/x", false},
		{[]string{"game.example"}, "game.example@evil.example", false},
		{[]string{"game.example"}, "evil.example:game.example", false},
		{[]string{"game.example"}, "game", false},
	} {
		if got := HostAllowed(tt.allowed, tt.host); got != tt.want {
			t.Errorf("Host %q with --host %q: %t, want %t", tt.host, tt.allowed, got, tt.want)
		}
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
