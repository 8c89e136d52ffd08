package config

import (
	"slices"
	"strings"
	"testing"
)

func TestWarningsNameTheFlagAndWhatToDo(t *testing.T) {
	for _, c := range []struct {
		args []string
		flag string // "" for no warning
		text string
	}{
		{[]string{"--keepalive-reply", "engine.io"}, "", ""},
		{[]string{"--keepalive-reply", "engine.io", "--heartbeat", "16s"}, "keepalive-reply", "detached after 21s (--heartbeat 16s + --answer-timeout 5s)"},
		{[]string{"--keepalive-reply", "2=>3", "--answer-timeout", "6s"}, "keepalive-reply", "lower --heartbeat"},
		{[]string{"--keepalive-reply", "engine.io", "--answer-timeout", "0"}, "keepalive-reply", "detached after 30s (twice --heartbeat 15s)"},
		{[]string{"--keepalive-reply", "engine.io", "--answer-timeout", "1m"}, "keepalive-reply", "detached after 30s (twice --heartbeat 15s)"},
		{[]string{"--keepalive-reply", "engine.io", "--answer-timeout", "0", "--heartbeat", "10s"}, "", ""},
		{[]string{"--keepalive-reply", "ping=>pong", "--heartbeat", "30s"}, "", ""},
		{[]string{"--grace", "0"}, "", ""},
		{[]string{"--grace", "0", "--answer-timeout", "0"}, "", ""},
		{[]string{"--grace", "0", "--answer-timeout", "2s"}, "answer-timeout", "freezes for 2s loses its session"},
		{[]string{"--disconnect", "hard", "--answer-timeout", "4999ms"}, "answer-timeout", "gets a new connection to the game server"},
		{[]string{"--disconnect", "hard"}, "", ""},
	} {
		list := mustParse(t, nil, append([]string{"--upstream", "ws://127.0.0.1:1"}, c.args...)...).Warnings()
		switch {
		case c.flag == "" && len(list) > 0:
			t.Errorf("%q: %+v, want no warning", c.args, list)
		case c.flag == "":
		case len(list) != 1 || list[0].Flag != c.flag || !strings.Contains(list[0].Text, c.text) || !strings.Contains(list[0].Text, "route /*"):
			t.Errorf("%q: %+v, want one of --%s with %q", c.args, list, c.flag, c.text)
		}
	}
}

func TestWarningsNameTheirRoute(t *testing.T) {
	s := mustParse(t, nil, "--route", "/a/*=ws://127.0.0.1:1;keepalive-reply=engine.io;heartbeat=30s", "--route", "/b/*=ws://127.0.0.1:1;heartbeat=30s")
	if list := s.Warnings(); len(list) != 1 || !strings.HasPrefix(list[0].Text, "route /a/*: ") {
		t.Errorf("%+v, want one of /a/*", list)
	}
}

func TestDangerousAndUselessSettingsAreWarnedAbout(t *testing.T) {
	durable := slices.Clip([]string{"--durable", "on", "--cluster", "nats://127.0.0.1:1", "--token-key-file", "k"})
	for _, c := range []struct {
		args []string
		flag string // "" for no warning
		text string
	}{
		{[]string{"--origin", "*", "--plain-resume", "cookie"}, "origin", "lets any website act as its visitor"},
		{[]string{"--origin", "*", "--auth-audience", "a", "--auth-key-file", "k", "--auth-from", "header,cookie:sid"}, "origin", "a login in a cookie"},
		{[]string{"--origin", "https://*", "--plain-resume", "cookie"}, "origin", "any website"},
		{[]string{"--origin", "https://*.com"}, "origin", "top-level domain"},
		{[]string{"--origin", "https://*.game.example", "--plain-resume", "cookie"}, "", ""},
		{[]string{"--origin", "*"}, "", ""},
		{[]string{"--origin", "*", "--auth-audience", "a", "--auth-key-file", "k"}, "", ""},
		{[]string{"--trusted-proxy", "0.0.0.0/0"}, "trusted-proxy", "any client can forge its own"},
		{[]string{"--trusted-proxy", "::/0"}, "trusted-proxy", "any client"},
		{[]string{"--trusted-proxy", "10.0.0.0"}, "trusted-proxy", "write 10.0.0.0/8"},
		{[]string{"--trusted-proxy", "172.16.0.0"}, "trusted-proxy", "write 172.16.0.0/16"},
		{[]string{"--trusted-proxy", "10.0.0.1"}, "", ""},
		{[]string{"--trusted-proxy", "10.0.0.0/8"}, "", ""},
		{[]string{"--trusted-header", "X-Real-IP"}, "trusted-header", "no effect"},
		{[]string{"--trusted-header", "X-Real-IP", "--trusted-proxy", "10.0.0.1"}, "", ""},
		{[]string{"--upstream-allow", "*:*"}, "upstream-allow", "any host"},
		{[]string{"--upstream-allow", "*.game.example:9000"}, "", ""},
		{[]string{"--unsafe-paths", "pass"}, "", ""},
		{[]string{"--unsafe-paths", "pass", "--route", "/a/*=ws://127.0.0.1:2"}, "unsafe-paths", "bypasses a route's login"},
		{[]string{"--admin", "off", "--admin-token-file", "f"}, "admin-token-file", "no effect"},
		{[]string{"--duplicate", "reject"}, "duplicate", "without player logins"},
		{[]string{"--duplicate", "reject", "--auth-audience", "a", "--auth-key-file", "k"}, "", ""},
		{[]string{"--flood", "end"}, "flood", "without --max-rate"},
		{[]string{"--flood", "end", "--max-rate", "5"}, "", ""},
		{[]string{"--idle-timeout", "10s"}, "idle-timeout", "shorter than --grace"},
		{[]string{"--idle-timeout", "1m"}, "", ""},
		{[]string{"--grace", "0", "--plain-resume", "cookie"}, "plain-resume", "with --grace 0"},
		{[]string{"--grace", "0", "--grace-before-start", "30s", "--plain-resume", "cookie"}, "", ""},
		{[]string{"--grace", "0", "--overflow", "end"}, "overflow", "with --grace 0"},
		{[]string{"--failover-redeliver", "off"}, "failover-redeliver", "no effect without --durable on"},
		{append(durable, "--failover-redeliver", "off"), "", ""},
		{append(durable, "--disconnect", "hard"), "", ""},
		{append(durable, "--plain-resume", "cookie"), "durable", "clients that resume by --plain-resume cookie are not durable"},
		{append(durable, "--grace", "0"), "durable", "with --grace 0"},
		{[]string{"--disconnect", "hard", "--keepalive-send", "1s:x"}, "keepalive-send", "--disconnect hard closes"},
		{[]string{"--disconnect", "hard", "--overflow", "end"}, "overflow", "--disconnect hard closes"},
		{[]string{"--disconnect", "hard", "--on-expire", "x"}, "on-expire", "--disconnect hard closes"},
		{[]string{"--disconnect", "hard", "--on-detach", "x"}, "", ""},
		{[]string{"--driver", "poll", "--tls-cert", "c", "--tls-key", "k"}, "", ""},
	} {
		list := mustParse(t, nil, append([]string{"--upstream", "ws://127.0.0.1:1"}, c.args...)...).Warnings()
		switch {
		case c.flag == "" && len(list) > 0:
			t.Errorf("%q: %+v, want no warning", c.args, list)
		case c.flag == "":
		case len(list) != 1 || list[0].Flag != c.flag || !strings.Contains(list[0].Text, c.text):
			t.Errorf("%q: %+v, want one of --%s with %q", c.args, list, c.flag, c.text)
		}
	}
}
