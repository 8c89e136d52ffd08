package config

import (
	"strings"
	"testing"
)

// warned are settings that are allowed, and the warning of each: its flag, and what it says of the route /*. Settings that
// come without one have "". What names no game server has that of the tests.
var warned = []struct{ args, want string }{
	{"--keepalive-reply=engine.io", ""},
	{"--keepalive-reply=engine.io --heartbeat=16s", "keepalive-reply: route /*: a silent client is detached after 21s"},
	{"--keepalive-reply=2=>3 --answer-timeout=6s", "keepalive-reply: lower --heartbeat"},
	{"--keepalive-reply=engine.io --answer-timeout=0", "keepalive-reply: detached after 30s"},
	{"--keepalive-reply=engine.io --answer-timeout=1m", "keepalive-reply: detached after 30s"},
	{"--keepalive-reply=engine.io --answer-timeout=0 --heartbeat=10s", ""},
	{"--keepalive-reply=ping=>pong --heartbeat=30s", ""},
	{"--route=/a/*=ws://127.0.0.1:1;keepalive-reply=engine.io;heartbeat=30s --route=/b/*=ws://127.0.0.1:1;heartbeat=30s", "keepalive-reply: route /a/*: "},
	{"--grace=0", ""},
	{"--grace=0 --answer-timeout=0", ""},
	{"--grace=0 --answer-timeout=2s", "answer-timeout: freezes for 2s loses its session"},
	{"--disconnect=hard --answer-timeout=4999ms", "answer-timeout: gets a new connection to the game server"},
	{"--disconnect=hard", ""},
	{"--grace=45ms", "grace: route /*: 45ms is too short"},
	{"--heartbeat=5m", "heartbeat: route /*: 5m0s: many proxies close"},

	// sizes
	{"--buffer-bytes=64", "buffer-bytes: route /*: 64 bytes: unit missing? (64KiB)"},
	{"--max-message=16", "max-message: route /*: 16 bytes: unit missing? (16KiB)"},
	{"--max-bytes-rate=64", "max-bytes-rate: 64 bytes: unit missing? (64KiB)"},
	{"--buffer-bytes=1KiB --max-message=1KiB --max-bytes-rate=1KiB", ""},
	{"--buffer-bytes=2GiB", "buffer-bytes: 2GiB is more than --buffer-total 1GiB"},
	{"--max-message=1GiB --buffer-total=1MiB --buffer-bytes=1MiB", "max-message: 1GiB is more than --buffer-total 1MiB"},

	// what other sites, proxies and the control API may do
	{"--origin=* --plain-resume=cookie", "origin: * with --plain-resume cookie lets any website act as its visitor"},
	{"--origin=* --auth-audience=a --auth-key-file=k --auth-from=header,cookie:sid", "origin: a login in a cookie"},
	{"--origin=https://* --plain-resume=cookie", "origin: any website"},
	{"--origin=https://*.com", "origin: every site under that top-level domain"},
	{"--origin=https://*.game.example --plain-resume=cookie", ""},
	{"--origin=*", ""},
	{"--origin=* --auth-audience=a --auth-key-file=k", ""},
	{"--origin=http://play.example --tls-cert=c --tls-key=k", "origin: http://play.example allows pages served without TLS"},
	{"--origin=http://localhost:3000 --tls-cert=c --tls-key=k", ""},
	{"--trusted-proxy=0.0.0.0/0", "trusted-proxy: any client can forge its own"},
	{"--trusted-proxy=::/0", "trusted-proxy: any client"},
	{"--trusted-proxy=10.0.0.0", "trusted-proxy: write its prefix length"},
	{"--trusted-proxy=10.0.0.1", ""},
	{"--trusted-proxy=10.0.0.0/8", ""},
	{"--trusted-header=X-Real-IP", "trusted-header: no effect"},
	{"--trusted-header=X-Real-IP --trusted-proxy=10.0.0.1", ""},
	{"--upstream-allow=*:*", "upstream-allow: connect to any host"},
	{"--upstream-allow=game:*", "upstream-allow: connect to any host or port"},
	{"--upstream-allow=*.game.example:9000", ""},
	{"--listen=127.0.0.1:0 --max-sessions-per-ip=5", "max-sessions-per-ip: have the address of a local proxy: set --trusted-proxy"},
	{"--listen=127.0.0.1:0 --max-sessions-per-ip=5 --trusted-proxy=127.0.0.1", ""},
	{"--admin=0.0.0.0:0 --admin-token-file=f", "admin: tokens are sent in plain text"},
	{"--admin=off --admin-token-file=f", "admin-token-file: no effect"},
	{"--webhook=http://hooks.invalid/x --webhook-secret-file=s", "webhook: are sent in plain text: use https"},
	{"--webhook=http://127.0.0.1/x --webhook-secret-file=s", ""},
	{"--cluster=plaintext://10.0.0.1 --token-key-file=k", "cluster: NATS at 10.0.0.1"},
	{"--cluster=nats://127.0.0.2 --token-key-file=k", ""},
	{"--cluster=nats://localhost:4333 --token-key-file=k", ""},
	{"--cluster=nats://[::1] --token-key-file=k", ""},
	{"--cluster=tls://10.0.0.1 --token-key-file=k", ""},

	// routes and game servers
	{"--upstream=ws://localhost:8080 --listen=:8080", "upstream: is this gateway itself (--listen :8080)"},
	{"--upstream=ws://game:9000 --route=/ranked/*=ws://game:9000;auth-audience=a;auth-key-file=k", "route: does not match /ranked, which goes to another route with weaker protection"},

	// settings without effect
	{"--duplicate=reject", "duplicate: no effect without player logins"},
	{"--duplicate=reject --auth-audience=a --auth-key-file=k", ""},
	{"--flood=end", "flood: no effect without --max-rate"},
	{"--flood=end --max-rate=5", ""},
	{"--idle-timeout=10s", "idle-timeout: 10s is shorter than --grace 30s"},
	{"--idle-timeout=1m", ""},
	{"--failover-redeliver=off", "failover-redeliver: no effect without --durable on"},
	{inDurable + " --failover-redeliver=off", ""},
	{inDurable + " --disconnect=hard", ""},
	{inDurable + " --plain-resume=cookie", "durable: clients that resume by --plain-resume cookie are not durable"},
	{"--driver=poll --tls-cert=c --tls-key=k", ""},

	// texts and logins
	{"--on-detach={sesion}-left", "on-detach: {sesion} is sent literally"},
	{"--on-detach={player}-left", "on-detach: {player} is empty"},
	{"--on-detach={session}-left", ""},
	{"--log-messages=prefix:64", "log-messages: the log contains what players send"},
	{"--auth-key-file=k", "auth-audience: route /*: not set"},
}

const inDurable = "--durable=on --cluster=nats://127.0.0.1:1 --token-key-file=k"

func TestWarningsNameTheFlagAndWhatToDo(t *testing.T) {
	for _, c := range warned {
		args := c.args
		if !strings.Contains(args, "--upstream=") && !strings.Contains(args, "--route=") && !strings.Contains(args, "--demo") {
			args = "--upstream=ws://127.0.0.1:1 " + args
		}
		flag, text, _ := strings.Cut(c.want, ": ")
		switch list := mustParse(t, nil, strings.Fields(args)...).Warnings(); {
		case c.want == "" && len(list) > 0:
			t.Errorf("%s: %+v, want no warning", args, list)
		case c.want == "":
		case len(list) != 1 || list[0].Flag != flag || !strings.Contains(list[0].Text, text):
			t.Errorf("%s: %+v, want one of --%s with %q", args, list, flag, text)
		}
	}
}
