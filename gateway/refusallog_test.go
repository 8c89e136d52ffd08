package gateway_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"reseat/gateway"
	"reseat/gateway/wire"
)

// wantLine waits for the log line with msg, which must contain all parts.
func wantLine(t *testing.T, said *bytes.Buffer, msg string, parts ...string) {
	t.Helper()
	synctest.Wait()
	line := ""
	for l := range strings.Lines(said.String()) {
		if strings.Contains(l, "msg="+msg+" ") {
			line = l
		}
	}
	for _, part := range parts {
		if !strings.Contains(line, part) {
			t.Errorf("%s is not in the line of %q: %s", part, msg, line)
		}
	}
}

// The log says why a login got 401, in the words of the metric, and nothing of the login.
func TestRefusedLoginIsLoggedWithReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, said := newLoginWorld(t, "header", false)
		ask := func(reason, header string) {
			w.Handshake("/match/7", []string{wire.Subprotocol}, header)
			wantLine(t, said, "handshake.refused", "status=401", "why=unauthorized", "path=/match/7", "login="+reason)
		}
		token := signed(t, jwt.MapClaims{"sub": "ann", "aud": "game", "exp": time.Now().Unix()})
		ask("expired", "Authorization: Bearer "+token+"\r\n")
		ask("missing", "")
		if strings.Contains(said.String(), token) {
			t.Errorf("the log contains the login: %s", said)
		}
	})
}

// The line names the path: a game server that gets the wrong path answers 404, and nothing
// else shows it.
func TestUpstreamRefusalIsLoggedWithPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(bytes.Buffer)
		w := newWorld(t, testPolicy(), func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(said, nil)) })
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
			return true
		}
		w.Handshake("/match/7?token=secret", []string{wire.Subprotocol}, "")
		wantLine(t, said, "upstream.refused", "route=/*", "path=/match/7 ", `err="upstream refused with status 404"`)
		if strings.Contains(said.String(), "secret") {
			t.Errorf("the log contains the query: %s", said)
		}
	})
}

// The line has the flag ready to paste, unless a shell would read more than that in it.
func TestRefusedOriginAndHostAreLoggedWithTheFlagThatAllowsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(bytes.Buffer)
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			c.Log, c.Hosts = slog.New(slog.NewTextHandler(said, nil)), []string{"game.example"}
		})
		for _, c := range []struct{ host, origin, msg, want string }{
			{"game.example", "https://Play.example", "origin.refused", "add --origin https://play.example;"},
			{"game.example", "http://localhost:3000", "origin.refused", "add --origin http://localhost:3000;"},
			{"game.example", "null", "origin.refused", "add its origin;"},
			{"game.example", "https://a.example;reboot", "origin.refused", "add its origin;"},
			{"play.example:8443", "https://game.example", "handshake.refused", "add --host play.example:8443\""},
			{"$(reboot)", "https://game.example", "handshake.refused", "add this name\""},
		} {
			said.Reset()
			conn, _ := w.Request("GET / HTTP/1.1\r\nHost: " + c.host + "\r\nOrigin: " + c.origin + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			wantLine(t, said, c.msg, c.want)
			conn.Close()
		}
	})
}
