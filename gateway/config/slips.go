package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A slip is a usual mistake in a value: what it looks like, and what was meant.
type slip struct {
	form  *regexp.Regexp
	meant string // as in regexp.Expand
}

func slipsOf(pairs ...string) (list []slip) {
	for pair := range slices.Chunk(pairs, 2) {
		list = append(list, slip{regexp.MustCompile("^(?i:" + pair[0] + ")$"), pair[1]})
	}
	return list
}

// bareURL matches a URL without its scheme, or with a wrong one.
const bareURL = `(?:(?:tcp|tls|wss?|https?|nats|socket)(?::/{0,2}|/{1,2})|//)?([a-z\d\[*][^@]*)`

// slips are those in the values of flags, by flag.name and flag.arg; the likelier first.
var slips = map[string][]slip{
	"": slipsOf(`yes|y|enabled?`, "true", `no|n|none|disabled?`, "false"),
	"DUR": slipsOf(`(\d+)`, "${1}s", `([\d.]+) *(?:s|secs?|seconds?)`, "${1}s", `([\d.]+) *(?:m|mins?|minutes?)`, "${1}m",
		`([\d.]+) *(?:h|hrs?|hours?)`, "${1}h", `1 *d(?:ay)?`, "24h", `7 *d(?:ays)?|1 *w(?:eek)?`, "168h", `30 *d(?:ays)?`, "720h", `off|none|no|false`, "0"),
	"SIZE":      slipsOf(`([\d.]+) *k(?:i?b)?`, "${1}KiB", `([\d.]+) *m(?:i?b)?`, "${1}MiB", `([\d.]+) *g(?:i?b)?`, "${1}GiB", `(\d+) *b(?:ytes)?`, "$1"),
	"N":         slipsOf(`(\d+) *k`, "${1}000", `(\d+)[,._ ](\d{3})`, "$1$2", `(\d+)(?:/s| per second)`, "$1", `none|off|unlimited`, "0", `none|unlimited`, "off"),
	"admin":     slipsOf(`(\d+)`, "127.0.0.1:$1"),
	"listen":    slipsOf(`([a-z\d.]+)`, "$1:8080"),
	"ADDR":      slipsOf(`(\d+)`, ":$1", `[a-z]+://([^/]+)/?`, "$1", `none|no|false|disabled?`, "off"),
	"HOST:PORT": slipsOf(`[a-z]+://([^/]+).*`, "$1"),
	"URL":       slipsOf(`:?(\d+)`, "ws://localhost:$1", bareURL, "ws://$1", bareURL, "https://$1", bareURL, "nats://$1"),
	"PATTERN":   slipsOf(`([a-z]+://[^/]+)/.*`, "$1", `((?:localhost|127\.[\d.]+|\[::1\])(?::\d+)?)(?:/.*)?`, "http://$1", `([^/]+)(?:/.*)?`, "https://$1"),
	"NAME":      slipsOf(`[a-z]+://([^/:]+).*`, "$1", `(.+):`, "$1"),
	"CIDR":      slipsOf(`\[?([\da-f.:]+?)\]?:\d+`, "$1", `localhost`, "127.0.0.1"),
	"IN=>OUT":   slipsOf(`(?:engine|socket)[ ._-]?io`, "engine.io", `([^=>]+)(?:=|->)([^>].*)`, "$1=>$2"),
	"DUR:MSG":   slipsOf(`(\d+):(.+)`, "${1}s:$2", `(.+):(\d+(?:ms|s|m))`, "$2:$1"),
}

// accepts returns why a single value is refused.
func (f *flag) accepts(value string) error {
	if f.perRoute() {
		return f.setLocal(new(local), []string{value})
	}
	return f.set(new(draft), []string{value})
}

// offer adds to err, for which values were refused, the value that was probably meant.
func (f *flag) offer(values []string, err error) error {
	i := slices.IndexFunc(values, func(v string) bool { return f.accepts(v) != nil })
	if i < 0 || strings.HasSuffix(err.Error(), "?") || strings.Contains(values[i], "@") { // it has an offer; it may hold a password
		return err
	}
	for _, better := range f.guesses(strings.Trim(values[i], " \t\"'")) {
		if better != values[i] && f.accepts(better) == nil {
			return fmt.Errorf("%w: is %s meant?", err, printable(better))
		}
	}
	return err
}

// guesses are values that may be meant by one that is refused.
func (f *flag) guesses(value string) []string {
	low := strings.ReplaceAll(strings.ToLower(value), "_", "-")
	list := []string{value, low, f.nearestWord(low)}
	for _, s := range slices.Concat(slips[f.name], slips[f.arg]) {
		if s.form.MatchString(value) {
			list = append(list, s.form.ReplaceAllString(value, s.meant))
		}
	}
	return list
}

// nearestWord returns the word of a choice that is meant by value, "" for none.
func (f *flag) nearestWord(value string) string {
	words := strings.Split(f.arg, "|")
	if f.arg == "LEVEL" {
		words = []string{"debug", "info", "warn", "error"}
	}
	for _, pair := range [][2]string{{"true", "on"}, {"yes", "on"}, {"1", "on"}, {"false", "off"}, {"no", "off"}, {"0", "off"}, {"none", "off"}} {
		if value == pair[0] && slices.Contains(words, pair[1]) {
			return pair[1]
		}
	}
	part := func(w string) bool {
		return strings.Contains(value, w) || len(value) > 2 && strings.HasPrefix(w, value)
	}
	if i := slices.IndexFunc(words, part); i >= 0 && f.arg != "" {
		return words[i]
	}
	return nearest(value, words)
}

// assigning matches a line that gives a name a value, in TOML or not quite.
var assigning = regexp.MustCompile(`^\s*-{0,2}([A-Za-z][A-Za-z0-9_-]*)\s*[=: ]\s*(.+)$`)

// quotes are those that people, editors and web pages put around values.
const quotes = " \t\"'“”‘’«»"

// meantLine returns a line of a config file as it was probably meant, "" if this is not known. Most
// often a string is not quoted.
func meantLine(line string) string {
	m := assigning.FindStringSubmatch(line)
	unprintable := func(r rune) bool { return !strconv.IsPrint(r) && r != '\t' }
	if m == nil || strings.Contains(m[2], "@") || strings.ContainsFunc(line, unprintable) { // it may hold a password
		return ""
	}
	name := strings.ReplaceAll(strings.ToLower(m[1]), "_", "-")
	f := lookup(name)
	if name == "pattern" { // of a [[route]]
		return name + ` = "` + strings.Trim(m[2], quotes) + `"`
	}
	if f == nil || f.onlyArg() {
		return ""
	}
	value, _, _ := strings.Cut(m[2], " #")
	value, _, _ = strings.Cut(value, " //")
	parts := []string{value}
	if f.repeat {
		parts = strings.FieldsFunc(strings.Trim(value, " \t[],"), func(r rune) bool { return r == ',' || r == ' ' })
	}
	for i, part := range parts {
		part = strings.Trim(part, quotes)
		guesses := f.guesses(part)
		j := slices.IndexFunc(guesses, func(g string) bool { return f.accepts(g) == nil })
		if j < 0 {
			return ""
		}
		parts[i] = f.quoted(guesses[j])
	}
	text := strings.Join(parts, ", ")
	if f.repeat {
		text = "[" + text + "]"
	}
	return name + " = " + text
}

// quoted returns a value as TOML.
func (f *flag) quoted(value string) string {
	switch {
	case f.arg == "":
		on, _ := boolean(value)
		return fmt.Sprint(on)
	case strings.ContainsAny(value, "\"\\"):
		return "'" + value + "'"
	}
	return `"` + value + `"`
}
