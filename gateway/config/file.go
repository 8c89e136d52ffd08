package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"reseat/tokens/keyfile"
	"reseat/upstream"
)

// maxConfig is the maximum size of the config file in bytes.
const maxConfig = 1 << 20

// readConfig reads the file that --config names in the first of the sources that has it.
// Without one it returns an empty source.
func readConfig(nearer ...source) (source, error) {
	values, label, _ := lookup("config").pick(nearer)
	if len(values) == 0 {
		return source{}, nil
	}
	name := values[len(values)-1]
	text, err := keyfile.Read(name, maxConfig)
	if err != nil {
		return source{}, &UsageError{label, fmt.Errorf("%w: %w", want("a TOML file", name), err)}
	}
	return parseConfig(name, text)
}

// parseConfig parses a TOML document. Its names and values become those of the command line.
func parseConfig(name string, text []byte) (source, error) {
	name = printable(name)
	s := source{values: map[string][]string{}, label: func(key string) string { return name + ": " + printable(key) }}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // Windows editors write it at the beginning of a file
	var document map[string]any
	if err := toml.Unmarshal(text, &document); err != nil {
		return source{}, syntaxError(name, err)
	}
	for _, key := range slices.Sorted(maps.Keys(document)) {
		if err := s.set(name, key, document[key]); err != nil {
			return source{}, err
		}
	}
	return s, nil
}

func syntaxError(name string, err error) error {
	if d := (*toml.DecodeError)(nil); errors.As(err, &d) {
		line, _ := d.Position()
		name = fmt.Sprintf("%s:%d", name, line)
	}
	why := printable(strings.TrimPrefix(err.Error(), "toml: "))
	return &UsageError{name, fmt.Errorf("want TOML, with texts and durations in quotes: %s", why)}
}

// set reads a global setting, or the routes, of the file with that name.
func (s *source) set(name, key string, value any) error {
	_, table := value.(map[string]any)
	f := lookup(key)
	var err error
	switch {
	case table && key == "route":
		err = errors.New("want [[route]] above each route, got [route]")
	case table && f == nil:
		err = fmt.Errorf("want settings without a section, got [%s]", printable(key))
	case f == nil || f.onlyArg():
		err = unknown(key, "setting", plainName, settable)
	case key == "config":
		err = errors.New("can only be set on the command line or in the environment")
	case key == "route" && holdsTables(value):
		s.values[key] = []string{}
		s.routes, err = readTables(name, value.([]any))
	default:
		s.values[key], err = f.texts(value)
	}
	if usage := (*UsageError)(nil); err == nil || errors.As(err, &usage) {
		return err
	}
	return &UsageError{s.label(key), err}
}

func holdsTables(value any) bool {
	list, _ := value.([]any)
	return slices.ContainsFunc(list, func(v any) bool { _, table := v.(map[string]any); return table })
}

// readTables reads the [[route]] tables of the file with that name.
func readTables(name string, list []any) (routes []route, err error) {
	for i, v := range list {
		table, ok := v.(map[string]any)
		if !ok {
			return nil, errors.New("want either tables or strings PATTERN=URL, not both")
		}
		label := fmt.Sprintf("%s: route %d", name, i+1)
		if p, ok := table["pattern"].(string); ok {
			label = name + ": route " + quote(p)
		}
		r, err := readTable(table)
		if err != nil {
			return nil, &UsageError{label, err}
		}
		r.label = label
		routes = append(routes, r)
	}
	return routes, nil
}

// readTable converts a [[route]] to the same form as --route.
func readTable(table map[string]any) (route, error) {
	r := route{settings: map[string][]string{}}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		f, err := tableKey(key)
		if errors.Is(err, errGlobal) {
			err = fmt.Errorf("%w: put it above the first [[route]]", err)
		}
		if err != nil {
			return r, err
		}
		if r.settings[key], err = f.texts(table[key]); err != nil {
			return r, fmt.Errorf("%s: %w", key, err)
		}
	}
	for _, key := range []string{"pattern", "upstream"} {
		if r.settings[key] == nil {
			return r, fmt.Errorf("want pattern and upstream, got no %s", key)
		}
	}
	if r.pattern = r.settings["pattern"][0]; !strings.HasPrefix(r.pattern, "/") {
		return r, fmt.Errorf("pattern: %w", want("a pattern such as /match/* or /room/{id}", r.pattern))
	}
	var err error
	if r.upstream, err = upstream.ParseTarget(r.settings["upstream"][0]); err != nil {
		return r, fmt.Errorf("upstream: %w", err)
	}
	delete(r.settings, "pattern")
	delete(r.settings, "upstream")
	return r, nil
}

// tableKey returns the flag of a key in a [[route]].
func tableKey(key string) (*flag, error) {
	switch key {
	case "pattern":
		return &flag{name: key, arg: "PATTERN"}, nil
	case "upstream":
		return lookup(key), nil
	}
	return routeFlag(key)
}

// texts converts a file's value to what the command line would have: one text, or for a
// repeatable flag one per member of an array.
func (f *flag) texts(value any) ([]string, error) {
	list, ok := value.([]any)
	if !ok || !f.repeat {
		text, err := f.text(value)
		return []string{text}, err
	}
	texts := []string{}
	for _, v := range list {
		text, err := f.text(v)
		if err != nil {
			return nil, fmt.Errorf("in the array: %w", err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// text accepts strings for all flags, and other TOML types where they read naturally: true
// for an on/off flag, a number for a number.
func (f *flag) text(value any) (string, error) {
	number := f.arg == "N" || f.arg == "SIZE" || f.arg == "DUR"
	got := "a date or time"
	switch v := value.(type) {
	case string:
		return v, nil
	case bool:
		if f.arg == "" {
			return strconv.FormatBool(v), nil
		}
		got = "true or false"
	case int64:
		if number {
			return strconv.FormatInt(v, 10), nil
		}
		got = "a number"
	case float64:
		if number {
			return strconv.FormatFloat(v, 'f', -1, 64), nil
		}
		got = "a number"
	case []any:
		got = "an array"
	case map[string]any:
		got = "a table"
	}
	return "", fmt.Errorf("want %s, got %s", f.takes(number), got)
}

// takes names the type that a flag has in a file.
func (f *flag) takes(number bool) string {
	switch {
	case f.arg == "":
		return "true or false"
	case f.repeat:
		return "an array of strings"
	case f.arg == "DUR":
		return `a string such as "45s"`
	case number:
		return "a number or a string"
	case strings.Contains(f.arg, "|") && f.arg == strings.ToLower(f.arg):
		return `"` + strings.ReplaceAll(f.arg, "|", `" or "`) + `"`
	}
	return "a string"
}

// plainName returns a flag's name in a file and in a route.
func plainName(flag string) string { return flag }

func settable(f *flag) bool { return !f.onlyArg() }
