package config

import (
	"strings"
	"testing"
)

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
		{"driver", "io_uring", "uring"},
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
		{"client-header", "Cookie:", "Cookie"},
		{"client-header", "X-Real-IP", ""},
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

func TestSlipInOneOfSeveralValuesIsFound(t *testing.T) {
	said := wantRefused(t, "--origin", nil, game, "--origin=https://a.example", "--origin=b.example")
	if !strings.HasSuffix(said, "is https://b.example meant?") {
		t.Error(said)
	}
	said = wantRefused(t, `--route "/a/*"`, nil, "--route=/a/*=ws://a:1;grace=45")
	if !strings.HasSuffix(said, "is 45s meant?") {
		t.Error(said)
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
