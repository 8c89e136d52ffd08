package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/upstream"
)

// goodValues are values that each flag accepts, and what becomes of them. For a flag that
// a route can have, the value is read from the route /game/*.
var goodValues = []struct {
	flag, value string
	get         func(*Settings) any
	want        any
}{
	{"listen", ":0", func(s *Settings) any { return s.Listen }, ":0"},
	{"listen", "[::1]:8080", func(s *Settings) any { return s.Listen }, "[::1]:8080"},
	{"listen", "[fe80::1%eth0]:80", func(s *Settings) any { return s.Listen }, "[fe80::1%eth0]:80"},
	{"listen", "game.example:65535", func(s *Settings) any { return s.Listen }, "game.example:65535"},
	{"admin", "off", func(s *Settings) any { return s.Admin }, ""},
	{"admin", "127.9.9.9:0", func(s *Settings) any { return s.Admin }, "127.9.9.9:0"},
	{"admin", "[::1]:9000", func(s *Settings) any { return s.Admin }, "[::1]:9000"},
	{"admin", "LocalHost:9000", func(s *Settings) any { return s.Admin }, "LocalHost:9000"},
	{"admin", "[::ffff:127.0.0.1]:9000", func(s *Settings) any { return s.Admin }, "[::ffff:127.0.0.1]:9000"},
	{"admin-token-file", "keys/admin token", func(s *Settings) any { return s.AdminTokenFile }, "keys/admin token"},
	{"viewer-token-file", "viewer", func(s *Settings) any { return s.ViewerTokenFile }, "viewer"},
	{"upstream-allow", "Game.Example:9000", allowed, []string{"game.example:9000"}},
	{"upstream-allow", "game-*.internal:*", allowed, []string{"game-*.internal:*"}},
	{"upstream-allow", "*:65535", allowed, []string{"*:65535"}},
	{"upstream-allow", "10.0.*.*:80", allowed, []string{"10.0.*.*:80"}},
	{"upstream-allow", "[2001:DB8::1]:80", allowed, []string{"[2001:db8::1]:80"}},
	{"tls-cert", "tls/cert.pem", func(s *Settings) any { return s.TLS.CertFile }, "tls/cert.pem"},
	{"tls-key", "tls/key.pem", func(s *Settings) any { return s.TLS.KeyFile }, "tls/key.pem"},
	{"acme-domain", "Play.Game.Example", func(s *Settings) any { return s.TLS.Domains }, []string{"play.game.example"}},
	{"acme-domain", "xn--mnchen-3ya.example", func(s *Settings) any { return s.TLS.Domains }, []string{"xn--mnchen-3ya.example"}},
	{"acme-directory", "https://ca.example:14000/dir", func(s *Settings) any { return s.TLS.Directory }, "https://ca.example:14000/dir"},
	{"acme-cache", "/var/lib/reseat", func(s *Settings) any { return s.TLS.Cache }, "/var/lib/reseat"},
	{"webhook", "https://u:p@api.example:8443/events?key=1", func(s *Settings) any { return s.Webhook.String() }, "https://u:p@api.example:8443/events?key=1"},
	{"webhook", "http://[::1]", func(s *Settings) any { return s.Webhook.String() }, "http://[::1]"},
	{"takeover", "/run/reseat/upgrade.sock", func(s *Settings) any { return s.Takeover }, "/run/reseat/upgrade.sock"},
	{"takeover", "/" + strings.Repeat("x", 106), func(s *Settings) any { return s.Takeover }, "/" + strings.Repeat("x", 106)},
	{"upgrade-socket", "/run/reseat/upgrade.sock", func(s *Settings) any { return s.UpgradeSocket }, "/run/reseat/upgrade.sock"},
	{"upgrade-socket", "/" + strings.Repeat("x", 106), func(s *Settings) any { return s.UpgradeSocket }, "/" + strings.Repeat("x", 106)},
	{"upgrade-timeout", "30s", func(s *Settings) any { return s.UpgradeTimeout }, 30 * time.Second},
	{"cluster", "tls://10.0.0.1", func(s *Settings) any { return s.Cluster.URLs }, []string{"tls://10.0.0.1:4222"}},
	{"cluster", "nats://127.0.0.1", func(s *Settings) any { return s.Cluster.URLs }, []string{"nats://127.0.0.1:4222"}},
	{"cluster", "tls://user:pass@nats.example:4333", func(s *Settings) any { return s.Cluster.URLs }, []string{"tls://user:pass@nats.example:4333"}},
	{"cluster-name", "prod_1", func(s *Settings) any { return s.Cluster.Name }, "prod_1"},
	{"cluster-creds", "nats.creds", func(s *Settings) any { return s.Cluster.CredsFile }, "nats.creds"},
	{"cluster-ca", "nats.pem", func(s *Settings) any { return s.Cluster.CAFile }, "nats.pem"},
	{"cluster-plaintext", "on", func(s *Settings) any { return s.Cluster.Plaintext }, true},
	{"node-name", "n1.example", func(s *Settings) any { return s.Cluster.NodeName }, "n1.example"},
	{"node-listen", "127.0.0.1:9999", func(s *Settings) any { return s.Cluster.Listen }, "127.0.0.1:9999"},
	{"node-advertise", "10.0.0.7:8082", func(s *Settings) any { return s.Cluster.Advertise }, "10.0.0.7:8082"},
	{"node-cert", "node.pem", func(s *Settings) any { return s.Cluster.Cert }, "node.pem"},
	{"node-key", "node.key", func(s *Settings) any { return s.Cluster.Key }, "node.key"},
	{"node-ca", "nodes.pem", func(s *Settings) any { return s.Cluster.CA }, "nodes.pem"},
	{"node-dead-after", "3s", func(s *Settings) any { return s.Cluster.DeadAfter }, 3 * time.Second},
	{"upgrade-pump", "1h", func(s *Settings) any { return s.UpgradePump }, time.Hour},
	{"upgrade-pump", "0", func(s *Settings) any { return s.UpgradePump }, time.Duration(0)},
	{"webhook-secret-file", "keys/hook", func(s *Settings) any { return s.WebhookSecretFile }, "keys/hook"},
	{"upstream", "wss://game.example/live", upstreamURL, "wss://game.example/live"},
	{"upstream", "http://127.0.0.1:9000", upstreamURL, "http://127.0.0.1:9000"},
	{"route", "/room/{id}=ws://rooms:9000", lastPattern, "/room/{id}"},
	{"route", "/room/{id:[a-z=]+}/*=ws://rooms:9000", lastPattern, "/room/{id:[a-z=]+}/*"},
	{"upstream-host", "client", firstHost, upstream.HostClient},
	{"upstream-host", "upstream", firstHost, upstream.HostUpstream},
	{"upstream-heartbeat", "off", ofPolicy(func(p policy.Policy) any { return p.UpstreamHeartbeat }), time.Duration(0)},
	{"upstream-heartbeat", "0", ofPolicy(func(p policy.Policy) any { return p.UpstreamHeartbeat }), time.Duration(0)},
	{"upstream-heartbeat", "20s", ofPolicy(func(p policy.Policy) any { return p.UpstreamHeartbeat }), 20 * time.Second},
	{"dial-timeout", "1.5s", ofPolicy(func(p policy.Policy) any { return p.DialTimeout }), 1500 * time.Millisecond},
	{"http", "proxy", ofPolicy(func(p policy.Policy) any { return p.HTTPOff }), false},
	{"http", "off", ofPolicy(func(p policy.Policy) any { return p.HTTPOff }), true},
	{"demo", "true", func(s *Settings) any { return s.Demo }, true},
	{"demo", "on", func(s *Settings) any { return s.Demo }, true},
	{"demo", "off", func(s *Settings) any { return s.Demo }, false},
	{"demo", "1", func(s *Settings) any { return s.Demo }, true},
	{"demo", "false", func(s *Settings) any { return s.Demo }, false},
	{"demo", "0", func(s *Settings) any { return s.Demo }, false},
	{"grace", "0", ofPolicy(func(p policy.Policy) any { return p.Grace }), time.Duration(0)},
	{"grace", "0s", ofPolicy(func(p policy.Policy) any { return p.Grace }), time.Duration(0)},
	{"grace", "1h30m", ofPolicy(func(p policy.Policy) any { return p.Grace }), 90 * time.Minute},
	{"grace", "720h", ofPolicy(func(p policy.Policy) any { return p.Grace }), 720 * time.Hour},
	{"grace-unconfirmed", "1ms", ofPolicy(func(p policy.Policy) any { return p.GraceUnconfirmed }), time.Millisecond},
	{"grace-before-start", "5s", ofPolicy(func(p policy.Policy) any { return *p.GraceBeforeStart }), 5 * time.Second},
	{"grace-before-start", "0", ofPolicy(func(p policy.Policy) any { return *p.GraceBeforeStart }), time.Duration(0)},
	{"compression", "on", ofPolicy(func(p policy.Policy) any { return p.Compression }), true},
	{"compression", "off", ofPolicy(func(p policy.Policy) any { return p.Compression }), false},
	{"compression-window", "0", ofPolicy(func(p policy.Policy) any { return p.CompressionWindow }), 0},
	{"compression-window", "32KiB", ofPolicy(func(p policy.Policy) any { return p.CompressionWindow }), 32768},
	{"disconnect", "hard", ofPolicy(func(p policy.Policy) any { return p.Hard }), true},
	{"disconnect", "soft", ofPolicy(func(p policy.Policy) any { return p.Hard }), false},
	{"upstream-lost", "redial", ofPolicy(func(p policy.Policy) any { return p.Redial }), true},
	{"upstream-lost", "end", ofPolicy(func(p policy.Policy) any { return p.Redial }), false},
	{"redial-for", "2m", ofPolicy(func(p policy.Policy) any { return p.RedialFor }), 2 * time.Minute},
	{"durable", "off", ofPolicy(func(p policy.Policy) any { return p.Durable }), false},
	{"failover-redeliver", "on", ofPolicy(func(p policy.Policy) any { return p.Redeliver }), true},
	{"failover-redeliver", "off", ofPolicy(func(p policy.Policy) any { return p.Redeliver }), false},
	{"plain-resume", "cookie", ofPolicy(func(p policy.Policy) any { return p.PlainResume }), true},
	{"plain-resume", "off", ofPolicy(func(p policy.Policy) any { return p.PlainResume }), false},
	{"idle-timeout", "10m", ofPolicy(func(p policy.Policy) any { return p.IdleTimeout }), 10 * time.Minute},
	{"idle-timeout", "off", ofPolicy(func(p policy.Policy) any { return p.IdleTimeout }), time.Duration(0)},
	{"idle-timeout", "0", ofPolicy(func(p policy.Policy) any { return p.IdleTimeout }), time.Duration(0)},
	{"max-rate", "20", ofPolicy(func(p policy.Policy) any { return p.Rate.Messages }), 20.0},
	{"max-rate", "off", ofPolicy(func(p policy.Policy) any { return p.Rate.Messages }), 0.0},
	{"max-bytes-rate", "64KiB", ofPolicy(func(p policy.Policy) any { return p.Rate.Bytes }), 65536.0},
	{"flood", "end", ofPolicy(func(p policy.Policy) any { return p.Rate.End }), true},
	{"flood", "pace", ofPolicy(func(p policy.Policy) any { return p.Rate.End }), false},
	{"max-sessions", "1000", func(s *Settings) any { return s.Gateway.MaxSessions }, 1000},
	{"max-sessions", "0", func(s *Settings) any { return s.Gateway.MaxSessions }, 0},
	{"max-sessions-per-ip", "5", func(s *Settings) any { return s.Gateway.MaxSessionsPerIP }, 5},
	{"drain", "2m", func(s *Settings) any { return s.Gateway.Drain }, 2 * time.Minute},
	{"drain", "0", func(s *Settings) any { return s.Gateway.Drain }, time.Nanosecond},
	{"on-detach", "release my keys", ofPolicy(func(p policy.Policy) any { return p.Notices.Detach }), "release my keys"},
	{"on-resume", `{"t":"back","s":"{session}"}`, ofPolicy(func(p policy.Policy) any { return p.Notices.Resume }), `{"t":"back","s":"{session}"}`},
	{"on-expire", "ä", ofPolicy(func(p policy.Policy) any { return p.Notices.Expire }), "ä"},
	{"keepalive-reply", "engine.io", ofPolicy(func(p policy.Policy) any { return p.KeepaliveReplies }), []session.KeepaliveReply{{In: "2", Out: "3"}}},
	{"keepalive-reply", `{"op":"ping"}=>{"op":"pong"}=>`, ofPolicy(func(p policy.Policy) any { return p.KeepaliveReplies }), []session.KeepaliveReply{{In: `{"op":"ping"}`, Out: `{"op":"pong"}=>`}}},
	{"keepalive-send", "5s/binary:000aFF", ofPolicy(func(p policy.Policy) any { return p.Keepalives }), []session.Keepalive{{Every: 5 * time.Second, Text: "\x00\n\xff", Kind: session.KeepaliveBinary}}},
	{"keepalive-send", "5s/ping:", ofPolicy(func(p policy.Policy) any { return p.Keepalives }), []session.Keepalive{{Every: 5 * time.Second, Kind: session.KeepalivePing}}},
	{"keepalive", "hint", ofPolicy(func(p policy.Policy) any { return p.Keepalive }), session.KeepaliveHint},
	{"keepalive", "auto", ofPolicy(func(p policy.Policy) any { return p.Keepalive }), session.KeepaliveAuto},
	{"keepalive", "off", ofPolicy(func(p policy.Policy) any { return p.Keepalive }), session.KeepaliveOff},
	{"keepalive-send", "25s:a:b", ofPolicy(func(p policy.Policy) any { return p.Keepalives }), []session.Keepalive{{Every: 25 * time.Second, Text: "a:b"}}},
	{"auth-jwks", "https://login.example/keys?x=1", auth(func(a policy.Auth) any { return a.JWKS }), "https://login.example/keys?x=1"},
	{"auth-jwks", "keys/jwks.json", auth(func(a policy.Auth) any { return a.JWKS }), "keys/jwks.json"},
	{"auth-key-file", "keys/login.pem", auth(func(a policy.Auth) any { return a.KeyFile }), "keys/login.pem"},
	{"auth-from", "query:token,cookie:sid,header,protocol:auth.", auth(func(a policy.Auth) any { return fmt.Sprint(a.From) }), "[query:token cookie:sid header protocol:auth.]"},
	{"auth-issuer", "https://login.example/", auth(func(a policy.Auth) any { return a.Issuer }), "https://login.example/"},
	{"auth-audience", "game", auth(func(a policy.Auth) any { return a.Audience }), "game"},
	{"auth-forward", "off", auth(func(a policy.Auth) any { return a.Conceal }), true},
	{"auth-forward", "on", auth(func(a policy.Auth) any { return a.Conceal }), false},
	{"duplicate", "takeover", ofPolicy(func(p policy.Policy) any { return p.Duplicate }), policy.Takeover},
	{"duplicate", "reject", ofPolicy(func(p policy.Policy) any { return p.Duplicate }), policy.Reject},
	{"duplicate", "allow", ofPolicy(func(p policy.Policy) any { return p.Duplicate }), policy.Allow},
	{"buffer-bytes", "1", ofPolicy(func(p policy.Policy) any { return p.BufferBytes }), int64(1)},
	{"buffer-bytes", "64KiB", ofPolicy(func(p policy.Policy) any { return p.BufferBytes }), int64(65536)},
	{"buffer-bytes", "1.5MiB", ofPolicy(func(p policy.Policy) any { return p.BufferBytes }), int64(1572864)},
	{"buffer-messages", "1", ofPolicy(func(p policy.Policy) any { return p.BufferMessages }), 1},
	{"buffer-total", "2GiB", func(s *Settings) any { return s.Gateway.BufferTotal }, int64(2 << 30)},
	{"buffer-total", "1MiB", func(s *Settings) any { return s.Gateway.BufferTotal }, int64(1 << 20)},
	{"overflow", "pause", ofPolicy(func(p policy.Policy) any { return p.Overflow }), session.Pause},
	{"overflow", "drop-oldest", ofPolicy(func(p policy.Policy) any { return p.Overflow }), session.DropOldest},
	{"overflow", "end", ofPolicy(func(p policy.Policy) any { return p.Overflow }), session.EndSession},
	{"max-message", "125", ofPolicy(func(p policy.Policy) any { return p.MaxMessage }), int64(125)},
	{"max-message", "1GiB", ofPolicy(func(p policy.Policy) any { return p.MaxMessage }), int64(1 << 30)},
	{"answer-timeout", "0", ofPolicy(func(p policy.Policy) any { return p.AnswerTimeout }), time.Duration(0)},
	{"answer-timeout", "3s", ofPolicy(func(p policy.Policy) any { return p.AnswerTimeout }), 3 * time.Second},
	{"unsafe-paths", "refuse", func(s *Settings) any { return s.Gateway.UnsafePaths }, false},
	{"unsafe-paths", "pass", func(s *Settings) any { return s.Gateway.UnsafePaths }, true},
	{"client-header", "cookie", ofPolicy(func(p policy.Policy) any { return p.ClientHeaders }), []string{"Cookie"}},
	{"trusted-header", "x-real-ip", func(s *Settings) any { return s.Gateway.TrustedHeaders }, []string{"X-Real-Ip"}},
	{"heartbeat", "100ms", ofPolicy(func(p policy.Policy) any { return p.Heartbeat }), 100 * time.Millisecond},
	{"token-key-file", "keys/a b.pem", func(s *Settings) any { return s.TokenKeyFiles }, []string{"keys/a b.pem"}},
	{"token-ttl", "1s", func(s *Settings) any { return s.Gateway.TokenTTL }, time.Second},
	{"token-audience", "staging", func(s *Settings) any { return s.TokenAudience }, "staging"},
	{"origin", "*", ofPolicy(func(p policy.Policy) any { return p.Origins }), []string{"*"}},
	{"origin", "https://*.game.example", ofPolicy(func(p policy.Policy) any { return p.Origins }), []string{"https://*.game.example"}},
	{"origin", "HTTPS://Game.Example:443", ofPolicy(func(p policy.Policy) any { return p.Origins }), []string{"https://game.example"}},
	{"origin", "http://game.example:443", ofPolicy(func(p policy.Policy) any { return p.Origins }), []string{"http://game.example:443"}},
	{"origin", "*://localhost:*", ofPolicy(func(p policy.Policy) any { return p.Origins }), []string{"*://localhost:*"}},
	{"origin", "http://192.168.*.1:80*", ofPolicy(func(p policy.Policy) any { return p.Origins }), []string{"http://192.168.*.1:80*"}},
	{"origin", "http://[::1]:3000", ofPolicy(func(p policy.Policy) any { return p.Origins }), []string{"http://[::1]:3000"}},
	{"origin", "capacitor://localhost", ofPolicy(func(p policy.Policy) any { return p.Origins }), []string{"capacitor://localhost"}},
	{"host", "Game.Example", func(s *Settings) any { return s.Gateway.Hosts }, []string{"game.example"}},
	{"host", "game.example:8443", func(s *Settings) any { return s.Gateway.Hosts }, []string{"game.example:8443"}},
	{"host", "[::1]", func(s *Settings) any { return s.Gateway.Hosts }, []string{"[::1]"}},
	{"host", "[::1]:8080", func(s *Settings) any { return s.Gateway.Hosts }, []string{"[::1]:8080"}},
	{"trusted-proxy", "10.0.0.0/8", proxies, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	{"trusted-proxy", "192.0.2.1", proxies, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}},
	{"trusted-proxy", "::ffff:192.0.2.1", proxies, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}},
	{"trusted-proxy", "2001:db8::/32", proxies, []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}},
	{"log-level", "debug", func(s *Settings) any { return s.LogLevel }, slog.LevelDebug},
	{"log-level", "error", func(s *Settings) any { return s.LogLevel }, slog.LevelError},
	{"log-messages", "off", ofPolicy(func(p policy.Policy) any { return p.MessageLog }), session.MessageLog{}},
	{"log-messages", "size", ofPolicy(func(p policy.Policy) any { return p.MessageLog }), session.MessageLog{On: true}},
	{"log-messages", "prefix:64", ofPolicy(func(p policy.Policy) any { return p.MessageLog }), session.MessageLog{On: true, Prefix: 64}},
	{"driver", "auto", func(s *Settings) any { return s.Gateway.Driver }, transport.Auto},
	{"driver", "net", func(s *Settings) any { return s.Gateway.Driver }, transport.Net},
	{"driver", "poll", func(s *Settings) any { return s.Gateway.Driver }, transport.Poll},
	{"driver", "uring", func(s *Settings) any { return s.Gateway.Driver }, transport.Uring},
	{"log-format", "text", func(s *Settings) any { return s.LogFormat }, "text"},
	{"log-format", "json", func(s *Settings) any { return s.LogFormat }, "json"},
}

func ofPolicy(get func(policy.Policy) any) func(*Settings) any {
	return func(s *Settings) any { return get(s.Gateway.Routes[0].Policy) }
}

// auth reads a route's login settings.
func auth(get func(policy.Auth) any) func(*Settings) any {
	return func(s *Settings) any { return get(*s.Gateway.Routes[0].Policy.Auth) }
}

func upstreamURL(s *Settings) any { return s.Gateway.Routes[0].Upstream.URL.String() }
func firstHost(s *Settings) any   { return s.Gateway.Routes[0].Upstream.HostPolicy }
func allowed(s *Settings) any     { return s.Gateway.UpstreamAllow }
func proxies(s *Settings) any     { return s.Gateway.TrustedProxies }
func lastPattern(s *Settings) any { return s.Gateway.Routes[len(s.Gateway.Routes)-1].Pattern }

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
	"cluster-plaintext":   {"", "yes", "true"},
	"node-name":           {"", "a b", "a/b", strings.Repeat("x", 64)},
	"node-listen":         {"", "8082", ":http"},
	"node-advertise":      {"", "10.0.0.7", ":8082", "0.0.0.0:8082", "10.0.0.7:0", "x:y"},
	"node-cert":           {"", "a\x00b"},
	"node-key":            {"", "a\x00b"},
	"node-ca":             {"", "a\x00b"},
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
	"demo":                {"yes", "ON", "TRUE", "2"},
	"grace":               {"", "45", "45 s", "-1s", "1ns", "8761h", "1d", "99999999999h", "3e2s", "\x00", "45s\n"},
	"grace-unconfirmed":   {"", "0", "5", "999us", "8761h"},
	"grace-before-start":  {"", "45", "-1s", "8761h"},
	"disconnect":          {"", "Hard", "none"},
	"upstream-lost":       {"", "Redial", "drop"},
	"redial-for":          {"", "0", "30", "-1s", "25h", "off"},
	"durable":             {"", "yes", "On"},
	"failover-redeliver":  {"", "no", "On"},
	"compression":         {"", "yes", "permessage-deflate", "On"},
	"compression-window":  {"", "off", "12", "512", "4096", "3KiB", "64KiB"},
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
	"keepalive-send": {"", "ping", "25:ping", "0:ping", "25s:", ":ping", "25s", "9ms:x", "25h:x", "1s:\xff",
		"1s/text:x", "1s/binary:", "1s/binary:0", "1s/binary:0g", "1s/ping:" + strings.Repeat("00", 126), "/ping:", "1s/binary:" + strings.Repeat("00", 4097)},
	"keepalive":       {"", "on", "Auto"},
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
	"max-message":     {"", "0", "2GiB", "1MB"},
	"answer-timeout":  {"", "9ms", "5", "-5s", "25h", "off"},
	"heartbeat":       {"", "0", "9ms", "15", "-15s", "25h"},
	"token-key-file":  {"", "a\x00b"},
	"token-ttl":       {"", "0", "99ms", "3600", "-1h", "8761h"},
	"token-audience":  {"", "a b", "a\nb", strings.Repeat("a", 256)},
	"origin":          {"", "null", "game.example", "https://", "https://game.example/", "https://game.example/path", "://x", "https://a b", "https://a..b", "https://ä.example", "https://x:0x1", "https://x:70000", "https://x:", "https://[::1", "https://u@x", "1a://x", "**://"},
	"config":          {"", "/no/such/file", ".", "a\x00b"},
	"host":            {"", "http://x", "x/", "x:", "x:y", "::1", "[x]", "a..b", "*.x", "1.2.3"},
	"client-header":   {"", "a b", "a:b", "Reseat-Player", "X-Real-IP", "x_forwarded_for"},
	"trusted-header":  {"", "a b", "a:b", "Reseat-Player", "ä"},
	"unsafe-paths":    {"", "on", "raw"},
	"trusted-proxy":   {"", "10.0.0.0/33", "10.1.2.3/8", "10/8", "game.example", "10.0.0.1:80", "fe80::1%eth0", "::ffff:10.0.0.0/104", "loopback"},
	"log-level":       {"", "trace", "INFO", "info+1", "0"},
	"log-messages":    {"", "on", "prefix", "prefix:", "prefix:0", "prefix:1025", "prefix:-1"},
	"log-format":      {"", "logfmt", "JSON"},
	"driver":          {"", "epoll", "Net"},
}

func TestEveryFlagTakesItsGoodValues(t *testing.T) {
	for _, c := range goodValues {
		t.Run(c.flag+"="+c.value, func(t *testing.T) {
			base := game
			switch c.flag {
			case "upstream":
				base = "--log-level=info"
			case "auth-from", "auth-issuer", "auth-audience", "auth-forward":
				base += ";auth-key-file=login.pem"
			}
			check := func(how string, s *Settings) {
				t.Helper()
				if got := c.get(s); !reflect.DeepEqual(got, c.want) {
					t.Errorf("%s: got %#v, want %#v", how, got, c.want)
				}
			}
			also := needs[c.flag]
			check("flag with =", mustParse(t, nil, append(also, base, "--"+c.flag+"="+c.value)...))
			check("environment", mustParse(t, []string{envName(c.flag) + "=" + c.value}, append(also, envBase(c.flag, base)...)...))
			if lookup(c.flag).arg != "" {
				check("flag with a blank", mustParse(t, nil, append(also, base, "--"+c.flag, c.value)...))
			}
			check("file", mustParse(t, nil, append(also, append(envBase(c.flag, base), inFile(t, c.flag, c.value))...)...))
			if lookup(c.flag).perRoute() {
				check("route", mustParse(t, nil, base+";"+c.flag+"="+c.value))
				check("route in a file", mustParse(t, nil, inRouteOfFile(t, base, c.flag, c.value)))
			}
		})
	}
}

var inCluster = []string{"--token-key-file=key", "--cluster=nats://127.0.0.1"}

// needs are the flags that other flags require.
var needs = map[string][]string{
	"tls-cert":       {"--tls-key=key.pem"},
	"tls-key":        {"--tls-cert=cert.pem"},
	"acme-directory": {"--acme-domain=game.example"},
	"acme-cache":     {"--acme-domain=game.example"},

	"cluster":           {"--token-key-file=key"},
	"cluster-name":      inCluster,
	"cluster-creds":     inCluster,
	"cluster-ca":        inCluster,
	"cluster-plaintext": inCluster,
	"node-name":         inCluster,
	"node-listen":       inCluster,
	"node-advertise":    inCluster,
	"node-cert":         {"--token-key-file=key", "--cluster=nats://127.0.0.1", "--node-key=k", "--node-ca=c"},
	"node-key":          {"--token-key-file=key", "--cluster=nats://127.0.0.1", "--node-cert=c", "--node-ca=c"},
	"node-ca":           {"--token-key-file=key", "--cluster=nats://127.0.0.1", "--node-cert=c", "--node-key=k"},
	"node-dead-after":   inCluster,

	"webhook":             {"--webhook-secret-file=secret"},
	"webhook-secret-file": {"--webhook=https://api.example/events"},
}

// envBase omits the base route if RESEAT_ROUTE is being tested, since the flag would
// override it.
func envBase(flag, base string) []string {
	if flag == "route" {
		return nil
	}
	return []string{base}
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
		if file := wantRefused(t, configName+":1: "+flag, nil, game, inFile(t, flag, v)); file != said {
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
