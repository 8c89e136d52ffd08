package demo

import (
	"strings"
	"testing"
)

func TestBadInputsAreRefused(t *testing.T) {
	got, err := parseInput([]byte(`{"s":9007199254740991,"t":"steer","x":0.5,"y":-1}`))
	if want := (inputMessage{S: maxInput, T: "steer", X: 0.5, Y: -1}); err != nil || got != want {
		t.Errorf("a good one: got %+v, %v, want %+v", got, err, want)
	}
	for _, msg := range []string{
		``, `{`, `null`, `[]`, `7`, `{}`,
		`{"s":1,"x":0,"y":0}`,
		`{"s":1,"t":"jump","x":0,"y":0}`,
		`{"s":0,"t":"steer","x":0,"y":0}`,
		`{"s":-1,"t":"steer","x":0,"y":0}`,
		`{"s":1.5,"t":"steer","x":0,"y":0}`,
		`{"s":9007199254740992,"t":"steer","x":0,"y":0}`,
		`{"s":1,"t":"steer","x":1e999,"y":0}`,
		`{"s":1,"t":"steer","x":"1","y":0}`,
		`{"s":1,"t":"steer","x":0,"y":0} {}`,
		`{"s":1,"t":"letters"}`,
		`{"s":1,"t":"letters","count":0}`,
		`{"s":1,"t":"letters","count":-1}`,
		`{"s":1,"t":"letters","count":501}`,
		`{"s":1,"t":"letters","count":1.5}`,
		`{"s":0,"t":"letters","count":5}`,
		`{"s":0,"t":"full"}`,
	} {
		if m, err := parseInput([]byte(msg)); err == nil {
			t.Errorf("%s was taken as %+v", msg, m)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"": "Guest", "Otter": "Otter", "Otter plain": "Otter plain", "Zoë-7_x": "Zoë-7_x",
		"Ольга": "Ольга", strings.Repeat("é", 20): strings.Repeat("é", 20),
	} {
		if got, err := checkName(name); err != nil || got != want {
			t.Errorf("checkName(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{
		" ", " Otter", "Otter ", strings.Repeat("x", 21), "<b>", "a\nb", "a\x00", "a\xffb", "a\u202eb", "a\u200bb", "\x1b[31m",
	} {
		if got, err := checkName(name); err == nil {
			t.Errorf("checkName(%q) = %q, want it refused", name, got)
		}
	}
}
