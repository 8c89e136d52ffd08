package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

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
	text, err := readWhole(name)
	if err != nil {
		return source{}, &UsageError{label, fmt.Errorf("%w: %w", want("a TOML file", name), err)}
	}
	return parseConfig(name, text)
}

func readWhole(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, cause(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	switch {
	case err != nil:
		return nil, cause(err)
	case len(text) > maxConfig:
		return nil, fmt.Errorf("larger than %s", formatSize(maxConfig))
	}
	return text, nil
}

// A config is a TOML document being read into a source. Names and values are those of the
// command line.
type config struct {
	name   string // of the file
	parser unstable.Parser
	source source
	lines  map[string]int // of the settings' keys
	tables []*routeTable
	within *routeTable // the [[route]] of the current lines
}

// parseConfig parses a document. The library's decoder checks it as a whole (syntax,
// repeated keys); then its parser yields keys, values and lines. The decoder is not enough:
// it has positions only in its own errors, and our errors about a value, or about a route
// without a pattern, must name the line too.
func parseConfig(name string, text []byte) (source, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // Windows editors write it at the beginning of a file
	c := &config{name: printable(name), lines: map[string]int{}}
	c.source = source{values: map[string][]string{}, label: func(key string) string { return c.at(c.lines[key], key) }}
	if err := toml.Unmarshal(text, &map[string]any{}); err != nil {
		return source{}, c.syntaxError(err)
	}
	c.parser.Reset(text)
	for c.parser.NextExpression() {
		if err := c.expression(c.parser.Expression()); err != nil {
			return source{}, err
		}
	}
	if err := c.parser.Error(); err != nil {
		return source{}, &UsageError{c.name, fmt.Errorf("want TOML: %s", printable(err.Error()))}
	}
	for _, t := range c.tables {
		r, err := t.route()
		if err != nil {
			return source{}, err
		}
		c.source.routes = append(c.source.routes, r)
	}
	return c.source, nil
}

func (c *config) syntaxError(err error) error {
	where, why := c.name, printable(strings.TrimPrefix(err.Error(), "toml: "))
	if d := (*toml.DecodeError)(nil); errors.As(err, &d) {
		line, _ := d.Position()
		where = fmt.Sprintf("%s:%d", c.name, line)
	}
	return &UsageError{where, fmt.Errorf("want TOML, with texts and durations in quotes: %s", why)}
}

// at names a key in an error.
func (c *config) at(line int, key string) string {
	return fmt.Sprintf("%s:%d: %s", c.name, line, printable(key))
}

// line returns the line on which a key begins.
func (c *config) line(key unstable.Iterator) int {
	key.Next()
	return c.parser.Shape(key.Node().Raw).Start.Line
}

// expression reads one top-level expression: KEY = VALUE, [TABLE] or [[TABLE]].
func (c *config) expression(n *unstable.Node) error {
	key, line := keyText(n), c.line(n.Key())
	switch {
	case n.Kind == unstable.ArrayTable && key == "route":
		c.startRoute(line)
		return nil
	case n.Kind == unstable.KeyValue && c.within != nil:
		return c.within.add(n)
	case n.Kind == unstable.KeyValue:
		return c.set(key, line, n.Value())
	case key == "route":
		return &UsageError{c.at(line, key), errors.New("want [[route]] above each route, got [route]")}
	}
	if lookup(key) == nil {
		return &UsageError{c.at(line, key), fmt.Errorf("want settings without a section, got [%s]", printable(key))}
	}
	f, err := c.setting(key, line)
	if err == nil {
		err = &UsageError{c.at(line, key), fmt.Errorf("want %s = %s, got a table", key, f.takes())}
	}
	return err
}

// keyText is a key with its dots.
func keyText(n *unstable.Node) string {
	var parts []string
	for key := n.Key(); key.Next(); {
		parts = append(parts, string(key.Node().Data))
	}
	return strings.Join(parts, ".")
}

func (c *config) startRoute(line int) {
	c.source.values["route"], c.lines["route"] = []string{}, line
	c.within = &routeTable{c: c, line: line, lines: map[string]int{}, values: map[string][]string{}}
	c.tables = append(c.tables, c.within)
}

// setting returns the flag of a key.
func (c *config) setting(key string, line int) (*flag, error) {
	f := lookup(key)
	switch {
	case f == nil || f.onlyArg():
		return nil, &UsageError{c.at(line, key), unknown(key, "setting", plainName, settable)}
	case key == "config":
		return nil, &UsageError{c.at(line, key), errors.New("can only be set on the command line or in the environment")}
	}
	return f, nil
}

// set reads a global setting.
func (c *config) set(key string, line int, value *unstable.Node) error {
	f, err := c.setting(key, line)
	if err != nil {
		return err
	}
	c.lines[key] = line
	if key == "route" && value.Kind == unstable.Array && value.Child() != nil && value.Child().Kind == unstable.InlineTable {
		return c.inlineRoutes(line, value)
	}
	if c.source.values[key], err = f.texts(value); err != nil {
		return &UsageError{c.at(line, key), err}
	}
	return nil
}

// inlineRoutes reads [{pattern = ..., upstream = ...}, ...], which TOML treats like
// [[route]] tables.
func (c *config) inlineRoutes(line int, list *unstable.Node) error {
	defer func() { c.within = nil }()
	for tables := list.Children(); tables.Next(); {
		if tables.Node().Kind != unstable.InlineTable {
			return &UsageError{c.at(line, "route"), errors.New("want either tables or strings PATTERN=URL, not both")}
		}
		c.startRoute(line)
		for pairs := tables.Node().Children(); pairs.Next(); {
			if err := c.within.add(pairs.Node()); err != nil {
				return err
			}
		}
	}
	return nil
}

// A routeTable is one [[route]].
type routeTable struct {
	c      *config
	line   int
	lines  map[string]int // of its keys
	values map[string][]string
}

// label names the route in an error about one of its keys.
func (t *routeTable) label(key string) string {
	line, name := t.line, "route"
	if l, ok := t.lines[key]; ok {
		line = l
	}
	if p := t.values["pattern"]; p != nil {
		name += " " + quote(p[0])
	}
	return fmt.Sprintf("%s:%d: %s", t.c.name, line, name)
}

// add reads one KEY = VALUE; the value is checked later.
func (t *routeTable) add(n *unstable.Node) error {
	key := keyText(n)
	t.lines[key] = t.c.line(n.Key())
	f, err := routeKey(key)
	if errors.Is(err, errGlobal) {
		err = fmt.Errorf("%w: put it above the first [[route]]", err)
	}
	if err != nil {
		return &UsageError{t.label(key), err}
	}
	texts, err := f.texts(n.Value())
	if err != nil {
		return &UsageError{t.label(key), fmt.Errorf("%s: %w", key, err)}
	}
	t.values[key] = texts
	return nil
}

// routeKey returns the flag of a key in a [[route]].
func routeKey(key string) (*flag, error) {
	switch key {
	case "pattern":
		return &flag{name: key, arg: "PATTERN"}, nil
	case "upstream":
		return lookup(key), nil
	}
	return routeFlag(key)
}

// route converts the table to the same form as --route.
func (t *routeTable) route() (route, error) {
	r := route{settings: map[string][]string{}, label: t.label}
	for _, key := range []string{"pattern", "upstream"} {
		if t.values[key] == nil {
			return r, &UsageError{t.label(key), fmt.Errorf("want pattern and upstream, got no %s", key)}
		}
	}
	if r.pattern = t.values["pattern"][0]; !strings.HasPrefix(r.pattern, "/") {
		return r, r.fault("pattern", want("a pattern such as /match/* or /room/{id}", r.pattern))
	}
	var err error
	if r.upstream, err = upstream.ParseTarget(t.values["upstream"][0]); err != nil {
		return r, r.fault("upstream", err)
	}
	for key, values := range t.values {
		if key != "pattern" && key != "upstream" {
			r.settings[key] = values
		}
	}
	return r, nil
}
