package upstream

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestParseTargetAcceptsGameServerURLs(t *testing.T) {
	for raw, address := range map[string]string{
		"ws://game":                     "game:80",
		"wss://game":                    "game:443",
		"http://game/base":              "game:80",
		"https://game:8443/":            "game:8443",
		"ws://127.0.0.1:9000":           "127.0.0.1:9000",
		"ws://[::1]:9000/x":             "[::1]:9000",
		"wss://[2001:db8::1]":           "[2001:db8::1]:443",
		"WS://Game.Example":             "Game.Example:80",
		"ws://game_1.internal:65535":    "game_1.internal:65535",
		"ws://[fe80::1%25eth0]:9000/ws": "[fe80::1%eth0]:9000",
	} {
		target := &Target{URL: mustParse(t, raw)}
		if got := target.Address(); got != address {
			t.Errorf("%s is dialled at %s, want %s", raw, got, address)
		}
	}
}

func TestParseTargetRefusesOtherURLs(t *testing.T) {
	for _, raw := range []string{
		"", "game:9000", "/path", "//game", "ftp://game", "ws:game", "ws://", "ws:///x", "ws://:9000",
		"ws://game:", "ws://game:0", "ws://game:65536", "ws://game:x", "ws://user@game", "ws://user:hunter2@game",
		"ws://game?x=1", "ws://game/?", "ws://game#f", "ws://game/#", "ws://game//x", "ws://gäme", "ws://ga me", "ws://ga\rme", "ws://game/\n",
		"ws://a%25b", "ws://game,other", "ws://game{id}", "ws://[nonsense]", "ws://user:hunter2@game:port",
	} {
		u, err := ParseTarget(raw)
		if err == nil {
			t.Errorf("ParseTarget(%q) = %v, want an error", raw, u)
			continue
		}
		if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "hunter2") {
			t.Errorf("ParseTarget(%q): the error %q has several lines or a password", raw, text)
		}
	}
}

func TestHostFollowsThePolicy(t *testing.T) {
	for _, c := range []struct {
		url    string
		policy HostPolicy
		client string
		want   string
	}{
		{"ws://game:9000", HostClient, "game.example:8443", "game.example:8443"},
		{"ws://game:9000", HostUpstream, "game.example:8443", "game:9000"},
		{"ws://game:9000", HostClient, "", "game:9000"},
		{"ws://game:9000", HostClient, "a\r\nX: y", "game:9000"},
		{"ws://game:9000", HostClient, "a b", "game:9000"},
		{"wss://game", HostUpstream, "x", "game"},
		{"ws://[fe80::1%25eth0]:9000", HostUpstream, "x", "[fe80::1]:9000"},
		{"ws://[fe80::1%25eth0]", HostUpstream, "x", "[fe80::1]"},
	} {
		target := &Target{URL: mustParse(t, c.url), HostPolicy: c.policy}
		if got := target.host(c.client); got != c.want {
			t.Errorf("%s, policy %d: Host for %q is %q, want %q", c.url, c.policy, c.client, got, c.want)
		}
	}
}

func TestProbeReportsWhetherTheTargetIsReachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := &Target{URL: mustParse(t, "ws://"+ln.Addr().String())}
	if err := target.Probe(context.Background()); err != nil {
		t.Errorf("Probe of a listener: %v", err)
	}
	ln.Close()
	if err := target.Probe(context.Background()); kindOf(err) != Unreachable || err == nil {
		t.Errorf("Probe of a closed port: %v, want unreachable", err)
	}
}

// The proxy environment is for outgoing requests of ordinary programs; a gateway that used
// it could be redirected anywhere. The WebSocket dial does not read it; the transport might.
func TestNoProxyEnvironmentIsRead(t *testing.T) {
	contacted := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the proxy of the environment was contacted")
	}))
	defer contacted.Close()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, contacted.URL)
	}
	g := newGame(t, "ws://game.example:9000", accepting())
	conn, err := g.Dial(context.Background(), Request{Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if tr := g.Target.transport(0); tr.Proxy != nil {
		t.Error("the transport has a proxy function")
	}
}
