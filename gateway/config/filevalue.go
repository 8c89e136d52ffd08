package config

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// texts converts a file's value to what the command line would have: one text, or for a
// repeatable flag one per member of an array.
func (f *flag) texts(n *unstable.Node) ([]string, error) {
	if n.Kind != unstable.Array || !f.repeat {
		text, err := f.text(n)
		return []string{text}, err
	}
	texts := []string{}
	for members := n.Children(); members.Next(); {
		text, err := f.text(members.Node())
		if err != nil {
			return nil, fmt.Errorf("in the array: %w", err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// text accepts strings for all flags, and other TOML types where they read naturally: true
// for an on/off flag, a number for a number.
func (f *flag) text(n *unstable.Node) (string, error) {
	switch {
	case n.Kind == unstable.String,
		n.Kind == unstable.Bool && f.arg == "":
		return string(n.Data), nil
	case f.isNumber() && (n.Kind == unstable.Integer || n.Kind == unstable.Float):
		return strings.TrimPrefix(strings.ReplaceAll(string(n.Data), "_", ""), "+"), nil
	}
	return "", fmt.Errorf("want %s, got %s", f.takes(), kindText(n.Kind))
}

// isNumber reports whether a flag's value can be a bare number.
func (f *flag) isNumber() bool { return f.arg == "N" || f.arg == "SIZE" || f.arg == "DUR" }

// takes names the type that a flag has in a file.
func (f *flag) takes() string {
	switch {
	case f.arg == "":
		return "true or false"
	case f.repeat:
		return "an array of strings"
	case f.arg == "DUR":
		return `a string such as "45s"`
	case f.isNumber():
		return "a number or a string"
	case strings.Contains(f.arg, "|") && f.arg == strings.ToLower(f.arg):
		return `"` + strings.ReplaceAll(f.arg, "|", `" or "`) + `"`
	}
	return "a string"
}

func kindText(k unstable.Kind) string {
	switch k {
	case unstable.Array:
		return "an array"
	case unstable.InlineTable:
		return "a table"
	case unstable.Bool:
		return "true or false"
	case unstable.Integer, unstable.Float:
		return "a number"
	case unstable.String:
		return "a string"
	}
	return "a date or time"
}

// plainName returns a flag's name in a file and in a route.
func plainName(flag string) string { return flag }

func settable(f *flag) bool { return !f.onlyArg() }
