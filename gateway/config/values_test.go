package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"reseat/gateway/newest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/upstream"
)

// wants are values that a flag accepts, and what becomes of each.
type wants map[string]any

// goodValues are values that each flag accepts, and the field that they set: see field.
var goodValues = []struct {
	flag, field string
	values      wants
}{
	{"listen", "Listen", wants{":0": ":0", "[::1]:8080": "[::1]:8080", "[fe80::1%eth0]:80": "[fe80::1%eth0]:80", "game.example:65535": "game.example:65535"}},
	{"admin", "Admin", wants{"off": "", "127.9.9.9:0": "127.9.9.9:0", "[::1]:9000": "[::1]:9000", "LocalHost:9000": "LocalHost:9000", "[::ffff:127.0.0.1]:9000": "[::ffff:127.0.0.1]:9000"}},
	{"admin-token-file", "AdminTokenFile", wants{"keys/admin token": "keys/admin token"}},
	{"viewer-token-file", "ViewerTokenFile", wants{"viewer": "viewer"}},
	{"upstream-allow", "Gateway.UpstreamAllow", wants{
		"Game.Example:9000": []string{"game.example:9000"}, "game-*.internal:*": []string{"game-*.internal:*"}, "*:65535": []string{"*:65535"}, "10.0.*.*:80": []string{"10.0.*.*:80"},
		"[2001:DB8::1]:80": []string{"[2001:db8::1]:80"},
	}},
	{"tls-cert", "TLS.CertFile", wants{"tls/cert.pem": "tls/cert.pem"}},
	{"tls-key", "TLS.KeyFile", wants{"tls/key.pem": "tls/key.pem"}},
	{"acme-domain", "TLS.Domains", wants{"Play.Game.Example": []string{"play.game.example"}, "xn--mnchen-3ya.example": []string{"xn--mnchen-3ya.example"}}},
	{"acme-directory", "TLS.Directory", wants{"https://ca.example:14000/dir": "https://ca.example:14000/dir"}},
	{"acme-cache", "TLS.Cache", wants{"/var/lib/reseat": "/var/lib/reseat"}},
	{"webhook", "Webhook", wants{"https://u:p@api.example:8443/events?key=1": "https://u:p@api.example:8443/events?key=1", "http://[::1]": "http://[::1]"}},
	{"takeover", "Takeover", wants{"/run/reseat/upgrade.sock": "/run/reseat/upgrade.sock", "/" + strings.Repeat("x", 106): "/" + strings.Repeat("x", 106)}},
	{"upgrade-socket", "UpgradeSocket", wants{"/run/reseat/upgrade.sock": "/run/reseat/upgrade.sock", "/" + strings.Repeat("x", 106): "/" + strings.Repeat("x", 106)}},
	{"upgrade-timeout", "UpgradeTimeout", wants{"30s": 30 * time.Second}},
	{"cluster", "Cluster.URLs", wants{"tls://10.0.0.1": []string{"tls://10.0.0.1:4222"}, "plaintext://10.0.0.1": []string{"nats://10.0.0.1:4222"}, "nats://127.0.0.1": []string{"nats://127.0.0.1:4222"}, "tls://user:pass@nats.example:4333": []string{"tls://user:pass@nats.example:4333"}}},
	{"cluster-name", "Cluster.Name", wants{"prod_1": "prod_1"}},
	{"cluster-creds", "Cluster.CredsFile", wants{"nats.creds": "nats.creds"}},
	{"cluster-ca", "Cluster.CAFile", wants{"nats.pem": "nats.pem"}},
	{"cluster", "Cluster.Plaintext", wants{"plaintext://10.0.0.1": true, "nats://127.0.0.1": false}},
	{"node-name", "Cluster.NodeName", wants{"n1.example": "n1.example"}},
	{"node-listen", "Cluster.Listen", wants{"127.0.0.1:9999": "127.0.0.1:9999"}},
	{"node-advertise", "Cluster.Advertise", wants{"10.0.0.7:8082": "10.0.0.7:8082"}},
	{"node-dead-after", "Cluster.DeadAfter", wants{"3s": 3 * time.Second}},
	{"upgrade-pump", "UpgradePump", wants{"1h": time.Hour, "0": 0 * time.Second}},
	{"webhook-secret-file", "WebhookSecretFile", wants{"keys/hook": "keys/hook"}},
	{"upstream", "Upstream.URL", wants{"wss://game.example/live": "wss://game.example/live", "http://127.0.0.1:9000": "http://127.0.0.1:9000"}},
	{"route", "Last.Pattern", wants{"/room/{id}=ws://rooms:9000": "/room/{id}", "/room/{id:[a-z=]+}/*=ws://rooms:9000": "/room/{id:[a-z=]+}/*"}},
	{"upstream-host", "Upstream.HostPolicy", wants{"client": upstream.HostClient, "upstream": upstream.HostUpstream}},
	{"upstream-heartbeat", "Policy.UpstreamHeartbeat", wants{"off": 0 * time.Second, "0": 0 * time.Second, "20s": 20 * time.Second}},
	{"dial-timeout", "Policy.DialTimeout", wants{"1.5s": 1500 * time.Millisecond}},
	{"http", "Policy.HTTPOff", wants{"proxy": false, "off": true}},
	{"dev", "Dev", wants{"true": true, "off": false}},
	{"dev-token-file", "DevTokenFile", wants{"keys/dev": "keys/dev"}},
	{"demo", "Demo", wants{"true": true, "on": true, "off": false, "1": true, "false": false, "0": false}},
	{"grace", "Policy.Grace", wants{"0": 0 * time.Second, "0s": 0 * time.Second, "1h30m": 90 * time.Minute, "720h": 720 * time.Hour}},
	{"grace-before-start", "Policy.GraceBeforeStart", wants{"5s": 5 * time.Second, "0": 0 * time.Second}},
	{"compression", "Policy.Compression", wants{"off": policy.Compression{}, "on": policy.Compression{On: true, Window: 4096}, "no-window": policy.Compression{On: true}, "32KiB": policy.Compression{On: true, Window: 32768}}},
	{"disconnect", "Policy.Hard", wants{"hard": true, "soft": false}},
	{"upstream-lost", "Policy.Redial", wants{"redial": true, "end": false}},
	{"redial-for", "Policy.RedialFor", wants{"2m": 2 * time.Minute}},
	{"durable", "Policy.Durable", wants{"off": false}},
	{"failover-redeliver", "Policy.Redeliver", wants{"on": true, "off": false}},
	{"plain-resume", "Policy.PlainResume", wants{"cookie": true, "off": false}},
	{"idle-timeout", "Policy.IdleTimeout", wants{"10m": 10 * time.Minute, "off": 0 * time.Second, "0": 0 * time.Second}},
	{"max-rate", "Policy.Rate.Messages", wants{"20": 20.0, "off": 0.0}},
	{"max-bytes-rate", "Policy.Rate.Bytes", wants{"64KiB": 65536.0}},
	{"flood", "Policy.Rate.End", wants{"end": true, "pace": false}},
	{"max-sessions", "Gateway.MaxSessions", wants{"1000": 1000, "0": 0}},
	{"max-sessions-per-ip", "Gateway.MaxSessionsPerIP", wants{"5": 5}},
	{"drain", "Gateway.Drain", wants{"2m": 2 * time.Minute, "0": time.Nanosecond}},
	{"on-detach", "Policy.Notices.Detach", wants{"release my keys": "release my keys"}},
	{"on-resume", "Policy.Notices.Resume", wants{`{"t":"back","s":"{session}"}`: `{"t":"back","s":"{session}"}`}},
	{"on-expire", "Policy.Notices.Expire", wants{"ä": "ä"}},
	{"keepalive-reply", "Policy.KeepaliveReplies", wants{"engine.io": []session.KeepaliveReply{{In: "2", Out: "3"}}, `{"op":"ping"}=>{"op":"pong"}=>`: []session.KeepaliveReply{{In: `{"op":"ping"}`, Out: `{"op":"pong"}=>`}}}},
	{"keepalive-send", "Policy.Keepalives", wants{
		"5s/binary:000aFF": []session.Keepalive{{Every: 5 * time.Second, Text: "\x00\n\xff", Kind: session.KeepaliveBinary}}, "5s/ping:": []session.Keepalive{{Every: 5 * time.Second, Kind: session.KeepalivePing}},
		"25s:a:b": []session.Keepalive{{Every: 25 * time.Second, Text: "a:b"}},
	}},
	{"keepalive-send", "Policy.Keepalive", wants{"hint": session.KeepaliveHint, "auto": session.KeepaliveAuto, "off": session.KeepaliveOff, "5s:x": session.KeepaliveHint}},
	{"auth-jwks", "Policy.Auth.JWKS", wants{"https://login.example/keys?x=1": "https://login.example/keys?x=1", "keys/jwks.json": "keys/jwks.json"}},
	{"auth-key-file", "Policy.Auth.KeyFile", wants{"keys/login.pem": "keys/login.pem"}},
	{"auth-from", "Policy.Auth.From", wants{"query:token,cookie:sid,header,protocol:auth.": "[query:token cookie:sid header protocol:auth.]"}},
	{"auth-issuer", "Policy.Auth.Issuer", wants{"https://login.example/": "https://login.example/"}},
	{"auth-audience", "Policy.Auth.Audience", wants{"game": "game"}},
	{"auth-forward", "Policy.Auth.Conceal", wants{"off": true, "on": false}},
	{"duplicate", "Policy.Duplicate", wants{"takeover": policy.Takeover, "reject": policy.Reject, "allow": policy.Allow}},
	{"buffer-bytes", "Policy.BufferBytes", wants{"1": int64(1), "64KiB": int64(65536), "1.5MiB": int64(1572864)}},
	{"buffer-messages", "Policy.BufferMessages", wants{"1": 1}},
	{"buffer-total", "Gateway.BufferTotal", wants{"2GiB": int64(2 << 30), "1MiB": int64(1 << 20)}},
	{"overflow", "Policy.Overflow", wants{"pause": session.Pause, "drop-oldest": session.DropOldest, "end": session.EndSession}},
	{"newest", "Policy.Newest", wants{"tick=T ": rules("tick=T "), "e=json:/type=state&/entity": rules("e=json:/type=state&/entity"), "b=hex:0A1b": rules("b=hex:0A1b"), "t=text:json:": rules("t=text:json:")}},
	{"max-message", "Policy.MaxMessage", wants{"125": int64(125), "1GiB": int64(1 << 30)}},
	{"answer-timeout", "Policy.AnswerTimeout", wants{"0": 0 * time.Second, "3s": 3 * time.Second}},
	{"trusted-header", "Gateway.TrustedHeaders", wants{"x-real-ip": []string{"X-Real-Ip"}}},
	{"heartbeat", "Policy.Heartbeat", wants{"100ms": 100 * time.Millisecond}},
	{"token-key-file", "TokenKeyFiles", wants{"keys/a b.pem": []string{"keys/a b.pem"}}},
	{"token-ttl", "Gateway.TokenTTL", wants{"1s": time.Second}},
	{"token-audience", "TokenAudience", wants{"staging": "staging"}},
	{"origin", "Policy.Origins", wants{
		"*": []string{"*"}, "https://*.game.example": []string{"https://*.game.example"}, "HTTPS://Game.Example:443": []string{"https://game.example"}, "http://game.example:443": []string{"http://game.example:443"},
		"*://localhost:*": []string{"*://localhost:*"}, "http://192.168.*.1:80*": []string{"http://192.168.*.1:80*"}, "http://[::1]:3000": []string{"http://[::1]:3000"},
		"capacitor://localhost": []string{"capacitor://localhost"},
	}},
	{"host", "Gateway.Hosts", wants{"Game.Example": []string{"game.example"}, "game.example:8443": []string{"game.example:8443"}, "[::1]": []string{"[::1]"}, "[::1]:8080": []string{"[::1]:8080"}}},
	{"trusted-proxy", "Gateway.TrustedProxies", wants{"10.0.0.0/8": prefix("10.0.0.0/8"), "192.0.2.1": prefix("192.0.2.1/32"), "::ffff:192.0.2.1": prefix("192.0.2.1/32"), "2001:db8::/32": prefix("2001:db8::/32")}},
	{"log-level", "LogLevel", wants{"debug": slog.LevelDebug, "error": slog.LevelError}},
	{"log-messages", "Policy.MessageLog", wants{"off": session.MessageLog{}, "size": session.MessageLog{On: true}, "prefix:64": session.MessageLog{On: true, Prefix: 64}}},
	{"driver", "Gateway.Driver", wants{"auto": transport.Auto, "net": transport.Net, "poll": transport.Poll}},
	{"loops", "Gateway.Loops", wants{"auto": 0, "1": 1, "16": 16}},
	{"log-format", "LogFormat", wants{"text": "text", "json": "json"}},
}

func rules(value string) newest.Rules {
	r, err := newest.Parse([]string{value})
	if err != nil {
		panic(err)
	}
	return *r
}

func prefix(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }

// field reads a field of the settings by its path: of the first route, if it begins with Policy or Upstream, and of the
// last, if with Last.
func field(s *Settings, name string) any {
	routes := s.Gateway.Routes
	v := reflect.ValueOf(struct {
		*Settings
		Policy   policy.Policy
		Upstream upstream.Target
		Last     policy.Route
	}{s, routes[0].Policy, routes[0].Upstream, routes[len(routes)-1]})
	for name := range strings.SplitSeq(name, ".") {
		v = reflect.Indirect(v).FieldByName(name)
	}
	return v.Interface()
}

// badValues are refused by each flag.
var badValues = map[string][]string{
	"listen":              {"", "8080", "game.example", ":", ":http", ":65536", ":-1", "::1:80", "256.1.1.1:80", "a b:80", "a/b:80", "http://x:80"},
	"admin":               {"", "Off", "8081", ":8081", "0.0.0.0:8081", "[::]:8081", "192.0.2.1:8081", "game.example:8081", "127.0.0.1", "localhost.example:1"},
	"tls-cert":            {"", "a\x00b"},
	"tls-key":             {"", "a\x00b"},
	"acme-domain":         {"", "localhost", "game", "*.game.example", "192.0.2.1", "::1", "game.example:443", "https://game.example", "a_b.example", "-a.example", "a..b", "game.example.", "münchen.example"},
	"acme-directory":      {"", "http://ca.example/dir", "ca.example", "https://", "https://u:p@ca.example/", "https://ca.example/#x"},
	"acme-cache":          {"", "a\x00b"},
	"webhook":             {"", "api.example", "ws://api.example/", "https://", "https://:443/", "https://api.example/#x", "https://api.exa mple/", "/events"},
	"webhook-secret-file": {"", "a\x00b"},
	"takeover":            {"", "a\x00b", "/" + strings.Repeat("x", 107)},
	"upgrade-socket":      {"", "a\x00b", "/" + strings.Repeat("x", 107)},
	"upgrade-timeout":     {"", "0", "-1s", "5", "2h"},
	"upgrade-pump":        {"", "-1s", "5", "25h"},
	"cluster":             {"", "10.0.0.1:4222", "http://x:4222", "nats://", "nats://x/y", "nats://a b"},
	"cluster-name":        {"", "a.b", "a*", "a b", strings.Repeat("x", 33)},
	"cluster-creds":       {"", "a\x00b"},
	"cluster-ca":          {"", "a\x00b"},
	"node-name":           {"", "a b", "a/b", strings.Repeat("x", 64)},
	"node-listen":         {"", "8082", ":http"},
	"node-advertise":      {"", "10.0.0.7", ":8082", "0.0.0.0:8082", "10.0.0.7:0", "x:y"},
	"node-dead-after":     {"", "0", "5", "100ms", "2h"},
	"upstream":            {"", "game:9000", "ftp://game:9000", "ws://", "//game", "ws://game:port"},
	"route":               {"", "ws://game:9000", "/x", "/x=", "=ws://game", "x/*=ws://game:9000", "/x=ftp://game", "/{x=ws://game", "/x=ws://game;", "/x=ws://game;grace"},
	"admin-token-file":    {"", "a\x00b"},
	"viewer-token-file":   {"", "a\x00b"},
	"upstream-allow":      {"", "game", "game:", ":9000", "game:0", "game:09000", "game:65536", "game:90*", "game:http", "ws://game:9000", "game:9000/x", "u@game:9000", "a..b:80", "::1:80", "[::1]", "[10.0.0.1]:80", "[fe80::1%eth0]:80", "ga?e:80", "[a-z]:80", "g\\*:80", "a b:80", "256.1.1.1:80"},
	"upstream-host":       {"", "both", "Client"},
	"upstream-ca":         {"", "/no/such/file", "line\nbreak"},
	"upstream-heartbeat":  {"", "5", "-1s", "1us", "25h", "never"},
	"dial-timeout":        {"", "10", "0", "-1s", "25h"},
	"http":                {"", "on", "426"},
	"dev":                 {"yes", "2"},
	"dev-token-file":      {"", "a\x00b"},
	"demo":                {"yes", "ON", "TRUE", "2"},
	"grace":               {"", "45", "45 s", "-1s", "1ns", "8761h", "1d", "99999999999h", "3e2s", "\x00", "45s\n"},
	"grace-before-start":  {"", "45", "-1s", "8761h"},
	"disconnect":          {"", "Hard", "none"},
	"upstream-lost":       {"", "Redial", "drop"},
	"redial-for":          {"", "0", "30", "-1s", "25h", "off"},
	"durable":             {"", "yes", "On"},
	"failover-redeliver":  {"", "no", "On"},
	"compression":         {"", "yes", "permessage-deflate", "On", "0", "12", "4096", "3KiB", "64KiB"},
	"idle-timeout":        {"", "5", "-1s", "8761h", "never"},
	"max-rate":            {"", "0", "-1", "1.5", "10/s", "none"},
	"max-bytes-rate":      {"", "0", "-1", "1MB", "none"},
	"flood":               {"", "drop"},
	"max-sessions":        {"", "-1", "1k", "none"},
	"max-sessions-per-ip": {"", "-1", "1k", "none"},
	"plain-resume":        {"", "on", "Cookie"},
	"on-detach":           {"", "\xff", strings.Repeat("x", 4097)},
	"on-resume":           {"", "\xff", strings.Repeat("x", 4097)},
	"on-expire":           {"", "\xff", strings.Repeat("x", 4097)},
	"keepalive-reply":     {"", "2", "2=>", "=>3", "2->3", "socket.io", "\xff=>3", "2=>\xff"},
	"keepalive-send": {"", "ping", "on", "Auto", "25:ping", "0:ping", "25s:", ":ping", "25s", "9ms:x", "25h:x", "1s:\xff",
		"1s/text:x", "1s/binary:", "1s/binary:0", "1s/binary:0g", "1s/ping:" + strings.Repeat("00", 126), "/ping:", "1s/binary:" + strings.Repeat("00", 4097)},
	"auth-jwks":       {"", "ftp://x/keys", "https://", "://x", "http://x/#f"},
	"auth-key-file":   {"", "a\x00b"},
	"auth-from":       {"", "body", "query", "query:", "header,,cookie:x", "protocol:"},
	"auth-issuer":     {"", "a b"},
	"auth-audience":   {"", "a b"},
	"auth-forward":    {"", "yes"},
	"drain":           {"", "10", "-1s", "25h"},
	"duplicate":       {"", "Takeover", "deny"},
	"buffer-bytes":    {"", "0", "-1", "+1", "1MB", "1mib", "1 MiB", "1.3KiB", "0.5", "1e6", "0x10", "1/2", "8589934592GiB", "99999999999999999999999", "1025GiB", "KiB", "1.KiB"},
	"buffer-messages": {"", "0", "-1", "+1", "1KiB", "1.0", "1073741825", "99999999999999999999"},
	"buffer-total":    {"", "0", "63KiB", "-1GiB", "1GB", "2000GiB"},
	"overflow":        {"", "drop", "Pause", "drop_oldest"},
	"newest":          {"", "tick", "tick=", "=T", "a b=T", "a=hex:0", "a=hex:", "a=text:", "a=json:", "a=json:type", "a=json:/a~", strings.Repeat("a", 33) + "=T"},
	"max-message":     {"", "0", "2GiB", "1MB"},
	"answer-timeout":  {"", "9ms", "5", "-5s", "25h", "off"},
	"heartbeat":       {"", "0", "9ms", "15", "-15s", "25h"},
	"token-key-file":  {"", "a\x00b"},
	"token-ttl":       {"", "0", "99ms", "3600", "-1h", "8761h"},
	"token-audience":  {"", "a b", "a\nb", strings.Repeat("a", 256)},
	"origin":          {"", "null", "game.example", "https://", "https://game.example/", "https://game.example/path", "://x", "https://a b", "https://a..b", "https://ä.example", "https://x:0x1", "https://x:70000", "https://x:", "https://[::1", "https://u@x", "1a://x", "**://"},
	"config":          {"", "/no/such/file", ".", "a\x00b"},
	"host":            {"", "http://x", "x/", "x:", "x:y", "::1", "[x]", "a..b", "*.x", "1.2.3"},
	"trusted-header":  {"", "a b", "a:b", "Reseat-Player", "ä"},
	"trusted-proxy":   {"", "10.0.0.0/33", "10.1.2.3/8", "10/8", "game.example", "10.0.0.1:80", "fe80::1%eth0", "::ffff:10.0.0.0/104", "loopback"},
	"log-level":       {"", "trace", "INFO", "info+1", "0"},
	"log-messages":    {"", "on", "prefix", "prefix:", "prefix:0", "prefix:1025", "prefix:-1"},
	"log-format":      {"", "logfmt", "JSON"},
	"driver":          {"", "epoll", "Net"},
	"loops":           {"", "0", "-1", "257", "Auto", "2.5"},
}

func TestEveryFlagTakesItsGoodValues(t *testing.T) {
	for _, c := range goodValues {
		for text, want := range c.values {
			t.Run(c.flag+"="+text, func(t *testing.T) {
				checkGoodValue(t, c.flag, text, func(how string, s *Settings) {
					t.Helper()
					got := field(s, c.field)
					if _, ok := want.(string); ok {
						got = fmt.Sprint(got)
					}
					if got = reflect.Indirect(reflect.ValueOf(got)).Interface(); !reflect.DeepEqual(got, want) {
						t.Errorf("%s: got %#v, want %#v", how, got, want)
					}
				})
			})
		}
	}
}

// checkGoodValue sets a flag in each way that there is.
func checkGoodValue(t *testing.T, flag, value string, check func(how string, s *Settings)) {
	t.Helper()
	base, also := game, needs[flag]
	switch flag {
	case "upstream":
		base = "--log-level=info"
	case "auth-from", "auth-issuer", "auth-audience", "auth-forward":
		base += ";auth-key-file=login.pem"
	}
	check("flag with =", mustParse(t, nil, append(also, base, "--"+flag+"="+value)...))
	if lookup(flag).arg != "" {
		check("flag with a blank", mustParse(t, nil, append(also, base, "--"+flag, value)...))
	}
	if lookup(flag).perRoute() {
		check("route", mustParse(t, nil, base+";"+flag+"="+value))
		check("route in a file", mustParse(t, nil, inRouteOfFile(t, base, flag, value)))
	}
	if flag != "route" { // --route would override what is tested here
		also = append(also, base)
	}
	check("environment", mustParse(t, []string{envName(flag) + "=" + value}, also...))
	check("file", mustParse(t, nil, append(also, inFile(t, flag, value))...))
}

var inCluster = []string{"--token-key-file=key", "--cluster=nats://127.0.0.1"}

// needs are the flags that other flags require.
var needs = map[string][]string{
	"tls-cert":       {"--tls-key=key.pem"},
	"tls-key":        {"--tls-cert=cert.pem"},
	"acme-directory": {"--acme-domain=game.example"},
	"acme-cache":     {"--acme-domain=game.example"},

	"cluster":         {"--token-key-file=key"},
	"cluster-name":    inCluster,
	"cluster-creds":   inCluster,
	"cluster-ca":      inCluster,
	"node-name":       inCluster,
	"node-listen":     inCluster,
	"node-advertise":  inCluster,
	"node-dead-after": inCluster,

	"dev-token-file":      {"--dev"},
	"webhook":             {"--webhook-secret-file=secret"},
	"webhook-secret-file": {"--webhook=https://api.example/events"},
}

func TestEveryFlagRefusesItsBadValues(t *testing.T) {
	for flag, values := range badValues {
		for _, v := range values {
			t.Run(fmt.Sprintf("%s=%q", flag, v), func(t *testing.T) {
				said := wantRefusedValue(t, flag, v)
				if !strings.Contains(said, "want ") {
					t.Errorf("%q does not say what is accepted", said)
				}
				if v == "" && lookup(flag).arg != "" {
					wantRefused(t, "--"+flag, nil, game, "--"+flag)
					wantRefused(t, "--"+flag, nil, game, "--"+flag, "--demo")
				}
			})
		}
	}
}

// wantRefusedValue tries a bad value as a flag, in the environment, in a file and in a
// route of both kinds, and checks that all of them have the same error.
func wantRefusedValue(t *testing.T, flag, v string) string {
	t.Helper()
	if flag == "route" {
		_, err := Parse([]string{"--route=" + v}, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "--route") {
			t.Fatalf("Parse(--route=%q): %v, want an error that names --route", v, err)
		}
		wantLine(t, err.Error())
		return err.Error()
	}
	said := wantRefused(t, "--"+flag, nil, game, "--"+flag+"="+v)
	if v != "" && !strings.Contains(v, "\n") {
		env := wantRefused(t, envName(flag)+" (--"+flag+")", []string{envName(flag) + "=" + v}, game)
		if env != said {
			t.Errorf("environment: %q, flag: %q", env, said)
		}
	}
	if flag != "config" && utf8.ValidString(v) {
		if file := wantRefused(t, configName+": "+flag, nil, game, inFile(t, flag, v)); file != said {
			t.Errorf("file: %q, flag: %q", file, said)
		}
	}
	if f := lookup(flag); f.perRoute() && (v != "" || f.off == nil) { // an empty value turns it off there
		local := wantRefused(t, `--route "/game/*": `+flag, nil, game+";"+flag+"="+v)
		if local != said {
			t.Errorf("route: %q, flag: %q", local, said)
		}
	}
	return said
}

// A flag without a test value has an untested parser.
func TestEveryFlagHasValuesInTheTests(t *testing.T) {
	good := map[string]bool{"upstream-ca": true, "config": true} // in tests of their own
	for _, c := range goodValues {
		good[c.flag] = true
	}
	for i := range table {
		f := &table[i]
		if f.onlyArg() {
			continue
		}
		if !good[f.name] || len(badValues[f.name]) == 0 {
			t.Errorf("--%s: a good and a bad value must be tested", f.name)
		}
	}
}

func TestUpstreamCAIsRead(t *testing.T) {
	one, two := certificate(t, "one"), certificate(t, "two")
	s := mustParse(t, nil, "--upstream-ca", one, game, "--route", "/two/*=wss://two;upstream-ca="+two, "--route", "/three/*=wss://three")
	for i, file := range []string{one, two, one} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		if !pool.Equal(s.Gateway.Routes[i].Upstream.RootCAs) {
			t.Errorf("route %s does not trust %s alone", s.Gateway.Routes[i].Pattern, file)
		}
	}
	if s := mustParse(t, nil, game); s.Gateway.Routes[0].Upstream.RootCAs != nil {
		t.Error("without the flag: got a pool, want nil for the system's")
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "--upstream-ca", nil, game, "--upstream-ca", empty)
}

// certificate writes a self-signed certificate and returns the file's name.
func certificate(t *testing.T, serial string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: new(big.Int).SetBytes([]byte(serial)), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), serial+".pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestWebhooksPasswordIsNotShown(t *testing.T) {
	for _, bad := range []string{"ftp://u:SECRET@api.example", "https://u:SECRET@api.exa mple/"} {
		if text := wantRefused(t, "--webhook", nil, game, "--webhook-secret-file=secret", "--webhook="+bad); strings.Contains(text, "SECRET") {
			t.Errorf("%q: %s", bad, text)
		}
	}
}

func TestRouteTurnsOffGlobalTextsAndTimers(t *testing.T) {
	global := []string{"--on-detach=d", "--on-resume=r", "--on-expire=e", "--keepalive-reply=engine.io", "--keepalive-send=1s:m",
		"--idle-timeout=1m", "--upstream-heartbeat=5s", "--answer-timeout=3s", "--grace-before-start=5m"}
	const empty = ";on-detach=;on-resume=;on-expire=;keepalive-reply=;keepalive-send=;idle-timeout=;upstream-heartbeat=;answer-timeout=;grace-before-start="
	s := mustParse(t, nil, append(global, "--route=/a/*=ws://game:1", "--route=/b/*=ws://game:1"+empty)...)
	want := s.Gateway.Routes[0].Policy
	off := s.Gateway.Routes[1].Policy
	if want.Notices.Detach != "d" || len(want.KeepaliveReplies) != 1 || want.IdleTimeout != time.Minute {
		t.Fatalf("the first route: %+v", want)
	}
	want.Notices, want.KeepaliveReplies, want.Keepalives = session.Notices{}, nil, nil
	want.IdleTimeout, want.UpstreamHeartbeat, want.AnswerTimeout, want.GraceBeforeStart = 0, 0, 0, nil
	if !reflect.DeepEqual(off, want) {
		t.Errorf("the second route: %+v, want %+v", off, want)
	}
	for _, setting := range []string{"grace", "origin", "max-message", "auth-key-file", "compression"} {
		wantRefused(t, `--route "/a/*"`, nil, "--route=/a/*=ws://game:1;"+setting+"=")
	}
	wantRefused(t, "--on-detach", nil, game, "--on-detach=")
}

// FuzzParse parses arbitrary routes and sizes. Nothing may panic; a refusal must be a
// UsageError of one printable line; an accepted size must survive formatting and parsing,
// and an accepted route must be complete.
func FuzzParse(f *testing.F) {
	for _, c := range goodValues {
		for value := range c.values {
			f.Add("/game/*=ws://game:9000;"+c.flag+"="+value, "1MiB")
		}
	}
	for flag, values := range badValues {
		for _, v := range values {
			f.Add("/game/*=ws://game:9000;"+flag+"="+v, "64KiB")
		}
	}
	for _, v := range badValues["route"] {
		f.Add(v, "1.5MiB")
	}
	for _, v := range badValues["buffer-bytes"] {
		f.Add("/{id:[0-9]{1,3}}/*=https://game/x?y=z", v)
	}
	f.Fuzz(func(t *testing.T, route, size string) {
		if strings.Contains(route, "upstream-ca") {
			return // would read a file that the bytes name
		}
		s, err := Parse([]string{"--route", route, "--buffer-bytes=" + size}, nil)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkTaken(t, s)
	})
}

func checkRefusal(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrHelp) || errors.Is(err, ErrVersion) {
		return
	}
	var usage *UsageError
	if !errors.As(err, &usage) {
		t.Fatalf("%T %v, want a *UsageError", err, err)
	}
	if strings.ContainsFunc(err.Error(), func(r rune) bool { return !strconv.IsPrint(r) }) {
		t.Fatalf("%q is not one printable line", err)
	}
}

func checkTaken(t *testing.T, s *Settings) {
	t.Helper()
	n := s.Gateway.Default.BufferBytes
	if again, err := size(1, maxBuffer)(formatSize(n)); err != nil || again != n {
		t.Fatalf("%d is written %q, which reads as %d, %v", n, formatSize(n), again, err)
	}
	for _, r := range s.Gateway.Routes {
		p := r.Policy
		if r.Pattern[0] != '/' || r.Upstream.URL == nil || r.Upstream.URL.Host == "" {
			t.Fatalf("route %+v is not whole", r)
		}
		if p.Grace < 0 || p.Heartbeat < minHeartbeat || p.DialTimeout <= 0 || p.MaxMessage < 1 || p.BufferMessages < 1 {
			t.Fatalf("policy %+v is out of bounds", p)
		}
	}
}
