// Package config turns the command line, the environment and the config file
// into what the gateway is started with (docs/flags.md). Every flag is one row of one
// table; a route's own settings are read by the rows' own parsers. All is
// checked as a whole: Parse opens no port and dials nobody, it reads no file
// but those of --config and --upstream-ca.
//
// A flag beats the environment, which beats the file, which beats the default. A
// flag that takes one value is refused when it is given twice; a repeatable one collects
// its values, and replaces what the environment or the file says.
package config

import (
	"fmt"
	"log/slog"
	"net/url"

	"reseat/gateway"
	"reseat/gateway/secure"
)

// Settings is what the process is started with, all of it checked.
type Settings struct {
	// Listen and Admin are HOST:PORT; Admin is "" for none.
	Listen, Admin string
	// AdminTokenFile and ViewerTokenFile are not opened here; "" for none.
	AdminTokenFile, ViewerTokenFile string
	// Config is the file that some of this was read from, "" for none.
	Config string
	// TLS is that of the client address. Its files are not opened here.
	TLS secure.Config
	// Demo asks for the built-in game, which then has the paths / and /*.
	Demo bool
	// Webhook takes the events, nil for none. WebhookSecretFile is not opened here.
	Webhook           *url.URL
	WebhookSecretFile string
	// Gateway lacks its Keys and its Log.
	Gateway gateway.Config
	// TokenKeyFiles are not opened here. The first signs, all verify.
	TokenKeyFiles []string
	TokenAudience string
	LogLevel      slog.Level
	// LogFormat is "text", "json", or "" for text on a terminal and else JSON.
	LogFormat string
}

// A UsageError is a setting that cannot hold. Its text is one line that names
// the setting and what it takes; it calls for exit status 2.
type UsageError struct {
	// Setting is the flag as it was given: "--grace", "RESEAT_GRACE (--grace)",
	// "reseat.toml:3: grace", or `--route "/chess/*"`, whose own setting Err then
	// begins with.
	Setting string
	Err     error
}

func (e *UsageError) Error() string { return e.Setting + ": " + e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ErrHelp and ErrVersion are what Parse returns for --help and --version: no
// faults, their text belongs on standard output, and the exit status is 0.
var (
	ErrHelp    error = &output{helpText}
	ErrVersion error = &output{versionText}
)

// An output is an error whose text is made when it is asked for.
type output struct{ text func() string }

func (o *output) Error() string { return o.text() }

// A draft is what the flags say, each checked by itself.
type draft struct {
	Settings
	// upstream is nil where there is none; routes are still raw text.
	upstream *url.URL
	routes   []string
	// tables are the routes of the config file, where they hold.
	tables []route
	// defaults are the global values of the flags that a route can set too.
	defaults local
	// from says for each flag how to name it: as it was given.
	from map[string]string
	// given are the flags that any source has.
	given map[string]bool
}

// Parse reads args (without the program's name) and the RESEAT_ names of
// environ. Its error is a *UsageError, ErrHelp or ErrVersion.
func Parse(args, environ []string) (*Settings, error) {
	flags, err := readArgs(args)
	if err != nil {
		return nil, err
	}
	env, err := readEnviron(environ)
	if err != nil {
		return nil, err
	}
	file, err := readConfig(flags, env)
	if err != nil {
		return nil, err
	}
	d, err := fill(flags, env, file)
	if err != nil {
		return nil, err
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return &d.Settings, nil
}

// fill sets each flag from the first of the sources that has it, or else from
// its default.
func fill(sources ...source) (*draft, error) {
	d := &draft{from: map[string]string{}, given: map[string]bool{}}
	for i := range table {
		f := &table[i]
		values, label, given := f.pick(sources)
		d.from[f.name], d.given[f.name] = label, given
		if err := f.apply(d, values); err != nil {
			return nil, &UsageError{label, err}
		}
	}
	for _, s := range sources {
		if s.values["route"] != nil {
			d.tables = s.routes
			break
		}
	}
	return d, nil
}

// pick gives the values that hold for f, the name to call them by, and whether
// any source has them.
func (f *flag) pick(sources []source) (values []string, label string, given bool) {
	for _, s := range sources {
		if v, ok := s.values[f.name]; ok {
			return v, s.label(f.name), true
		}
	}
	if f.def != "" {
		values = []string{f.def}
	}
	return values, argName(f.name), false
}

// apply hands the values to the row's setter. A row without values keeps the
// zero value; that is so for --help and --version, which have no setter.
func (f *flag) apply(d *draft, values []string) error {
	switch {
	case len(values) == 0:
		return nil
	case len(values) > 1 && !f.repeat:
		return fmt.Errorf("want one value, got %d", len(values))
	case f.perRoute():
		return f.setLocal(&d.defaults, values)
	default:
		return f.set(d, values)
	}
}
