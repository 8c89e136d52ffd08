// Package config turns the command line, the environment and the config file into the
// settings of the process (docs/flags.md). Every flag is one row of one table; a route's
// own settings use the same rows. Parse checks the settings as a whole. It opens no port
// and dials nobody, and reads no files but those of --config and --upstream-ca.
//
// A flag beats the environment, which beats the file, which beats the default. A flag
// with one value is refused if it is given twice; a repeatable one collects its values,
// which replace those of the environment or the file.
package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"reseat/gateway"
	"reseat/gateway/secure"
)

// Settings are the checked settings of the process.
type Settings struct {
	// Listen and Admin are HOST:PORT; Admin is "" if it is off.
	Listen, Admin string
	// AdminTokenFile and ViewerTokenFile are not opened here; "" if not set.
	AdminTokenFile, ViewerTokenFile string
	// Config is the file that was read, "" if there was none.
	Config string
	// TLS configures the client address. Its files are not opened here.
	TLS secure.Config
	// Demo serves the built-in game at / and /*.
	Demo bool
	// Dev serves the panel, and lets pages and callers of the control API cut connections. DevTokenFile
	// is not opened here; "" if not set.
	Dev          bool
	DevTokenFile string
	// Webhook receives the events; nil if not set. WebhookSecretFile is not opened here.
	Webhook           *url.URL
	WebhookSecretFile string
	// Takeover is the upgrade socket of the predecessor, which hands its sessions over, "" if
	// not set. UpgradeSocket is where this process listens for its successor, "" if not set.
	Takeover, UpgradeSocket string
	// UpgradeTimeout limits the start of a successor. This process forwards bytes for it for
	// UpgradePump.
	UpgradeTimeout, UpgradePump time.Duration
	// Cluster is the cluster that this gateway is part of.
	Cluster Cluster
	// Gateway lacks what only a process has: Keys, Log, Descriptors, Clock, and its place in a cluster.
	Gateway gateway.Config
	// TokenKeyFiles are not opened here. The first signs, all verify.
	TokenKeyFiles []string
	TokenAudience string
	LogLevel      slog.Level
	// LogFormat is "text", "json", or "" for text on a terminal and JSON otherwise.
	LogFormat string
}

// A UsageError is an invalid setting. Its text is one line that names the setting and what
// it accepts. The exit status is 2.
type UsageError struct {
	// Setting is the flag as it was given: "--grace", "RESEAT_GRACE (--grace)",
	// "reseat.toml: grace", or `--route "/chess/*"`, in which case Err begins with the
	// route's setting.
	Setting string
	Err     error
}

func (e *UsageError) Error() string { return e.Setting + ": " + e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Parse returns ErrHelp and ErrVersion for --help and --version. They are no failures:
// their text belongs on standard output, and the exit status is 0.
var (
	ErrHelp    error = &output{helpText}
	ErrVersion error = &output{versionText}
)

// An output is an error whose text is made on demand.
type output struct{ text func() string }

func (o *output) Error() string { return o.text() }

// A draft holds the flags' values, each of them checked individually.
type draft struct {
	Settings
	// upstream may be nil; routes are still unparsed.
	upstream *url.URL
	routes   []string
	// tables are the routes of the config file, if they are not overridden.
	tables []route
	// defaults are the global values of the flags that a route can override.
	defaults local
	// from has the name of each flag as it was given.
	from map[string]string
	// given are the flags that any source sets.
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

// fill sets each flag from the first source that has it, or from its default.
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

// pick returns the values in force for f, the name to call them by in errors, and whether
// a source gives any.
func (f *flag) pick(sources []source) (values []string, label string, given bool) {
	for _, s := range sources {
		if v, ok := s.values[f.name]; ok {
			return v, s.label(f.name), len(v) > 0
		}
	}
	if f.def != "" {
		values = []string{f.def}
	}
	return values, argName(f.name), false
}

// apply passes the values to the row's setter. A row without values keeps its zero value;
// --help and --version have no setter.
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
