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
	{"--route=/chess=ws://game:9000", "route: matches this path only; for the paths below it, add /chess/*"},
	{"--route=/chess/=ws://game:9000", "route: for the paths below it, add /chess/*"},
	{"--route=/room/:id=ws://game:9000", "route: write parameters as {id}"},
	{"--upstream=ws://game:9000 --route=/health=ws://game:9000", ""},
	{"--upstream=ws://game:9000 --route=/ranked/*=ws://game:9000;auth-audience=a;auth-key-file=k", "route: does not match /ranked, which goes to another route with weaker protection"},

	// settings without effect
	{"--duplicate=reject", "duplicate: no effect without player logins"},
	{"--duplicate=reject --auth-audience=a --auth-key-file=k", ""},
	{"--flood=end", "flood: no effect without --max-rate"},
	{"--flood=end --max-rate=5", ""},
	{"--idle-timeout=10s", "idle-timeout: 10s is shorter than --grace 30s"},
	{"--idle-timeout=1m", ""},
	{"--grace=0 --plain-resume=cookie", "plain-resume: no effect: with --grace 0"},
	{"--grace=0 --grace-before-start=30s --plain-resume=cookie", ""},
	{"--grace=0 --overflow=end", "overflow: with --grace 0"},
	{"--failover-redeliver=off", "failover-redeliver: no effect without --durable on"},
	{inDurable + " --failover-redeliver=off", ""},
	{inDurable + " --disconnect=hard", ""},
	{inDurable + " --plain-resume=cookie", "durable: clients that resume by --plain-resume cookie are not durable"},
	{inDurable + " --grace=0", "durable: with --grace 0"},
	{"--disconnect=hard --keepalive-send=1s:x", "keepalive-send: --disconnect hard closes"},
	{"--disconnect=hard --overflow=end", "overflow: --disconnect hard closes"},
	{"--disconnect=hard --on-expire=x", "on-expire: --disconnect hard closes"},
	{"--disconnect=hard --on-detach=x", ""},
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

// What is offered is accepted by the flag itself, so it can be pasted.
func TestUsualSlipsAreAnsweredWithWhatWasMeant(t *testing.T) {
	for _, c := range []struct{ flag, value, meant string }{
		{"upstream", "localhost", "ws://localhost"},
		{"upstream", "localhost:9000", "ws://localhost:9000"},
		{"upstream", "127.0.0.1:9000", "ws://127.0.0.1:9000"},
		{"upstream", "game:9000/play", "ws://game:9000/play"},
		{"upstream", "[::1]:9000", "ws://[::1]:9000"},
		{"upstream", "9000", "ws://localhost:9000"},
		{"upstream", ":9000", "ws://localhost:9000"},
		{"upstream", "tcp://game:9000", "ws://game:9000"},
		{"upstream", "ws:/game:9000", "ws://game:9000"},
		{"upstream", "http//game", "ws://game"},
		{"upstream", "ws://ann:secret@game", ""},
		{"origin", "play.example", "https://play.example"},
		{"origin", "*.play.example", "https://*.play.example"},
		{"origin", "play.example:8443/game", "https://play.example:8443"},
		{"origin", "localhost:3000", "http://localhost:3000"},
		{"origin", "https://play.example/", "https://play.example"},
		{"grace", "45", "45s"},
		{"grace", "45 s", "45s"},
		{"grace", "5min", "5m"},
		{"grace", "1d", "24h"},
		{"grace", `"45s"`, "45s"},
		{"grace", "forever", ""},
		{"buffer-bytes", "1MB", "1MiB"},
		{"buffer-bytes", "64k", "64KiB"},
		{"max-sessions", "10k", "10000"},
		{"max-sessions", "10,000", "10000"},
		{"max-rate", "10/s", "10"},
		{"max-rate", "none", "off"},
		{"overflow", "Drop_Oldest", "drop-oldest"},
		{"overflow", "drop", "drop-oldest"},
		{"overflow", "puase", "pause"},
		{"compression", "true", "on"},
		{"compression", "no", "off"},
		{"driver", "polling", "poll"},
		{"log-level", "WARNING", "warn"},
		{"demo", "yes", "true"},
		{"listen", "8080", ":8080"},
		{"listen", "0.0.0.0", "0.0.0.0:8080"},
		{"listen", "http://localhost:8080", "localhost:8080"},
		{"admin", "8081", "127.0.0.1:8081"},
		{"admin", "none", "off"},
		{"host", "https://play.example/game", "play.example"},
		{"acme-domain", "https://play.example", "play.example"},
		{"trusted-proxy", "10.0.0.1:80", "10.0.0.1"},
		{"webhook", "hooks.example/x", "https://hooks.example/x"},
		{"webhook", "ann:secret@hooks.example", ""},
		{"webhook", `"https://ann:secret@hooks.example"`, ""},
		{"cluster", "localhost:4222", "nats://localhost:4222"},
		{"acme-directory", "acme.example/dir", "https://acme.example/dir"},
		{"upstream-allow", "ws://game:9000", "game:9000"},
		{"keepalive-reply", "2=3", "2=>3"},
		{"keepalive-reply", "socket.io", "engine.io"},
		{"keepalive-send", "25:ping", "25s:ping"},
		{"keepalive-send", "ping:25s", "25s:ping"},
	} {
		f := lookup(c.flag)
		err := f.accepts(c.value)
		if err == nil {
			t.Errorf("--%s %s is accepted", c.flag, c.value)
			continue
		}
		said := f.offer([]string{c.value}, err).Error()
		_, offered, _ := strings.Cut(said, ": is ")
		if meant := strings.TrimSuffix(offered, " meant?"); meant != c.meant || meant != "" && f.accepts(meant) != nil {
			t.Errorf("--%s %s: %s, want the offer %q", c.flag, c.value, said, c.meant)
		}
	}
}

// A line that is no TOML, most often for want of quotes, is offered as it would be.
func TestUnquotedLineIsOfferedInQuotes(t *testing.T) {
	for line, meant := range map[string]string{
		`upstream = ws://localhost:9000`: `upstream = "ws://localhost:9000"`,
		`upstream = localhost:9000`:      `upstream = "ws://localhost:9000"`,
		`pattern = /chess/*`:             `pattern = "/chess/*"`,
		`grace = 45s # a comment`:        `grace = "45s"`,
		`grace: 1h30m`:                   `grace = "1h30m"`,
		`grace = “45s”`:                  `grace = "45s"`,
		`grace = '45s"`:                  `grace = "45s"`,
		`grace = "45s`:                   `grace = "45s"`,
		`grace = "45s" // a comment`:     `grace = "45s"`,
		`buffer_bytes = 1MB`:             `buffer-bytes = "1MiB"`,
		`origin = https://a.example`:     `origin = ["https://a.example"]`,
		`origin = [https://a.b, c.d]`:    `origin = ["https://a.b", "https://c.d"]`,
		`origin = ["a.b" "https://c.d"]`: `origin = ["https://a.b", "https://c.d"]`,
		`trusted-proxy = ["10.0.0.0/8",`: `trusted-proxy = ["10.0.0.0/8"]`,
		`compression = on`:               `compression = "on"`,
		`demo = yes`:                     `demo = true`,
		`listen = :8080`:                 `listen = ":8080"`,
		`token-key-file = "C:\keys\k"`:   `token-key-file = ['C:\keys\k']`,
		`on-detach = "{"type":"left"}"`:  `on-detach = '{"type":"left"}'`,
		`log-level = warning`:            `log-level = "warn"`,
		`webhook = https://a:secret@b/x`: "",
		`heartbeat = "1s", grace = "3s"`: "",
		"grace = 45s\x1b[31m":            "",
		`colour = red`:                   "",
		`help = me`:                      "",
		`grace = as long as it takes`:    "",
		`pattern = it's "not" a pattern`: "",
	} {
		_, err := parseConfig("reseat.toml", []byte("# settings\n"+line+"\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "reseat.toml:2: want TOML: ") {
			t.Errorf("%s: %v", line, err)
			continue
		}
		_, offered, _ := strings.Cut(err.Error(), ": is ")
		if got := strings.TrimSuffix(offered, " meant?"); got != meant {
			t.Errorf("%s: %v, want the offer %s", line, err, meant)
		}
		if _, err := parseConfig("reseat.toml", []byte(meant)); err != nil && !strings.HasPrefix(meant, "pattern") {
			t.Errorf("%s: %v", meant, err)
		}
	}
}
