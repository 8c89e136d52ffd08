package config

import (
	"errors"
	"regexp"
	"strings"

	"reseat/upstream"
)

// A source is one place of settings: the command line, the environment or the config
// file. It holds them unparsed, by the flag's name.
type source struct {
	values map[string][]string
	// label names a setting of this source in an error.
	label func(name string) string
	// routes are the tables of a file: their values may contain the separators of --route.
	// If there are any, values has an empty list for route.
	routes []route
}

const envPrefix = "RESEAT_"

// readArgs parses a command line: --name VALUE, --name=VALUE, and --name alone for a
// boolean. A value that begins with -- must be given with =. The first --help or --version
// is answered at once, whatever follows.
func readArgs(args []string) (source, error) {
	s := source{values: map[string][]string{}, label: argName}
	if len(args) > 0 { // what users try first
		switch args[0] {
		case "help":
			return s, answer(lookup("help"), false)
		case "version":
			return s, answer(lookup("version"), false)
		}
	}
	for len(args) > 0 {
		name, value, inline := strings.Cut(args[0], "=")
		f, err := argFlag(name)
		if err != nil {
			return s, err
		}
		args = args[1:]
		if f.onlyArg() {
			return s, answer(f, inline)
		}
		switch {
		case inline:
		case f.arg == "":
			value = "true"
		case len(args) > 0 && !strings.HasPrefix(args[0], "--"):
			value, args = args[0], args[1:]
		}
		// A missing value counts as empty: the flag's own parser says what it accepts.
		s.values[f.name] = append(s.values[f.name], value)
	}
	return s, nil
}

// argFlag returns the flag that arg names.
func argFlag(arg string) (*flag, error) {
	if arg == "-h" {
		arg = "--help"
	}
	name, long := strings.CutPrefix(arg, "--")
	if long && lookup(name) != nil {
		return lookup(name), nil
	}
	if arg == "check" {
		return nil, &UsageError{quote(arg), errors.New("want it before the flags: reseat check [flags]")}
	}
	if !strings.HasPrefix(arg, "-") || arg == "--" {
		hint := "to run the gateway, give flags alone, such as --upstream ws://localhost:9000; see --help"
		if near := nearest(arg, []string{"check", "help", "version"}); near != "" {
			hint = "the nearest command is " + near
		} else if lookup(arg) != nil {
			hint = "is --" + arg + " meant?"
		} else if _, err := upstream.ParseTarget(arg); err == nil {
			hint = "is --upstream " + arg + " meant?"
		}
		return nil, &UsageError{quote(arg), errors.New("not a flag: flags begin with --; " + hint)}
	}
	anyFlag := func(*flag) bool { return true }
	return nil, &UsageError{printable(arg), unknown(strings.TrimLeft(arg, "-"), "flag", argName, anyFlag)}
}

// answer returns the error for a flag that prints a text instead of starting.
func answer(f *flag, inline bool) error {
	switch {
	case inline:
		return &UsageError{argName(f.name), errors.New("takes no value")}
	case f.name == "version":
		return ErrVersion
	}
	return ErrHelp
}

// argName returns a flag's name on the command line.
func argName(flag string) string { return "--" + flag }

// envName returns a flag's name in the environment: RESEAT_GRACE for grace.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readEnviron reads the names that begin with RESEAT_. An empty value counts as unset,
// since many tools can only blank a variable. Repeatable flags have one value per line;
// blank lines are skipped. An unknown name is refused, since a typing error would
// otherwise go unnoticed.
func readEnviron(environ []string) (source, error) {
	s := source{values: map[string][]string{}, label: func(name string) string {
		return envName(name) + " (" + argName(name) + ")"
	}}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		if !ours || isServiceLink(name, value) {
			continue
		}
		f := lookup(strings.ReplaceAll(strings.ToLower(rest), "_", "-"))
		if f == nil || f.onlyArg() || envName(f.name) != name {
			return s, unknownEnv(name)
		}
		values := []string{value}
		if f.repeat {
			values = strings.Split(value, "\n")
		}
		delete(s.values, f.name)
		for _, v := range values {
			if strings.TrimSpace(v) != "" {
				s.values[f.name] = append(s.values[f.name], strings.TrimSuffix(v, "\r"))
			}
		}
	}
	return s, nil
}

// serviceLink matches variables that Kubernetes sets in every container for each service
// of its namespace. Those of a service named reseat, or reseat-admin, begin like ours.
var serviceLink = regexp.MustCompile(`^RESEAT_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)$`)

// isServiceLink reports whether a variable is such a link, not the operator's. RESEAT_PORT,
// which an operator might set by mistake, is one only if it holds a URL, as Kubernetes sets
// it.
func isServiceLink(name, value string) bool {
	return serviceLink.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

func unknownEnv(name string) error {
	word := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-")
	return &UsageError{printable(name), unknown(word, "setting", envName, settable)}
}
