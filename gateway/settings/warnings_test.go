package settings

import (
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
		{[]string{"--keepalive-reply", "engine.io", "--heartbeat", "16s"}, "keepalive-reply", "detached only after 21s (--heartbeat 16s + --answer-timeout 5s)"},
		{[]string{"--keepalive-reply", "2=>3", "--answer-timeout", "6s"}, "keepalive-reply", "shorten --heartbeat"},
		{[]string{"--keepalive-reply", "engine.io", "--answer-timeout", "0"}, "keepalive-reply", "detached only after 30s (twice --heartbeat 15s)"},
		{[]string{"--keepalive-reply", "engine.io", "--answer-timeout", "1m"}, "keepalive-reply", "detached only after 30s (twice --heartbeat 15s)"},
		{[]string{"--keepalive-reply", "engine.io", "--answer-timeout", "0", "--heartbeat", "10s"}, "", ""},
		{[]string{"--keepalive-reply", "ping=>pong", "--heartbeat", "1m"}, "", ""},
		{[]string{"--grace", "0"}, "", ""},
		{[]string{"--grace", "0", "--answer-timeout", "0"}, "", ""},
		{[]string{"--grace", "0", "--answer-timeout", "2s"}, "answer-timeout", "stands still for 2s loses its session"},
		{[]string{"--disconnect", "hard", "--answer-timeout", "4999ms"}, "answer-timeout", "dialled anew"},
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

func TestWarningsAreOfTheRouteThatTheyAreAbout(t *testing.T) {
	s := mustParse(t, nil, "--route", "/a/*=ws://127.0.0.1:1;keepalive-reply=engine.io;heartbeat=30s", "--route", "/b/*=ws://127.0.0.1:1;heartbeat=30s")
	if list := s.Warnings(); len(list) != 1 || !strings.HasPrefix(list[0].Text, "route /a/*: ") {
		t.Errorf("%+v, want one of /a/*", list)
	}
}
