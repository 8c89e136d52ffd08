package config

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version and commit are set by the linker (-X reseat/gateway/config.version=v1.2.3). If
// they are not, the build information has them, provided that the build could run git.
var version, commit string

// versionText is the answer to --version, one line: version, commit, Go and platform.
func versionText() string {
	return fmt.Sprintf("reseat %s (commit %s) %s %s/%s", Version(), Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Version returns the version of this build, "devel" if it was not set.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// Commit returns the git commit of this build, with "+dirty" if the work tree had
// uncommitted changes; "unknown" if the build could not run git.
func Commit() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return commitOf(info.Settings)
	}
	return "unknown"
}

func commitOf(settings []debug.BuildSetting) string {
	revision, dirty := "unknown", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision" && s.Value != "":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return revision + dirty
}

const (
	helpWidth  = 100
	helpColumn = 26 // where the flags' texts begin
)

const helpHead = `reseat keeps a WebSocket session open while its client reconnects.

Usage: reseat [flags]         run the gateway; requires --upstream, --route or --demo
       reseat check [flags]   validate the settings, files and game servers, and exit; with
                              --try /PATH also send a handshake to the game server of that path,
                              with --session ID say what the gateway at --admin has noticed of it
       reseat rehearse        replay a plan of faults (--plan FILE) against all sessions of a
                              gateway with --dev (--admin URL, --admin-token-file FILE)
`

const helpFoot = `
DUR is a duration with its unit: 500ms, 45s, 5m, 1h30m; 0 needs no unit. SIZE is a number of bytes,
or of KiB, MiB or GiB: 64KiB.

(R) can also be set for a single route:
  --route '/chess/*=ws://chess:9000;grace=5m;overflow=end'
(+) can be repeated.

Environment: RESEAT_ and the flag's name in capitals, such as RESEAT_GRACE=45s or RESEAT_DEMO=1;
write one value a line for flags that can be repeated.

Config file (--config): TOML, with the flags' names:
  grace = "45s"
  origin = ["https://play.example", "https://*.game.example"]
  [[route]]
  pattern = "/chess/*"
  upstream = "ws://chess:9000"
  overflow = "end"
A flag overrides the environment, which overrides the file.

Exit status: 0 after SIGTERM or SIGINT, --help or --version; 1 if the gateway cannot start or was
stopped by a second signal; 2 if a setting is invalid, before anything was opened. For check: 0 if
all is well; 1 if something else would fail now, such as an unreachable game server; 2 as above.`

// helpText is the answer to --help.
func helpText() string { return helpHead + listed("\n%s\n", (*flag).helpRow) + helpFoot }

// listed returns the table group by group: a heading with its name, and what row makes of each flag.
func listed(heading string, row func(*flag) string) string {
	var b strings.Builder
	group := ""
	for i := range table {
		f := &table[i]
		if f.group != group {
			group = f.group
			fmt.Fprintf(&b, heading, group)
		}
		b.WriteString(row(f))
	}
	return b.String()
}

// helpRow returns a flag's line, with its text beside it or below.
func (f *flag) helpRow() string {
	var b strings.Builder
	left := strings.TrimRight("  --"+f.name+" "+f.arg, " ")
	if len(left) > helpColumn-2 {
		b.WriteString(left + "\n")
		left = ""
	}
	for _, line := range wrap(f.helpWords(), helpWidth-helpColumn) {
		fmt.Fprintf(&b, "%-*s%s\n", helpColumn, left, line)
		left = ""
	}
	return b.String()
}

// helpWords returns the words of a flag's help: its text, its default, its marks. Lines
// are not broken within one of them.
func (f *flag) helpWords() []string {
	words := strings.Fields(f.help)
	if shown := f.shownDefault(); shown != "" {
		words = append(words, "["+shown+"]")
	}
	if f.perRoute() {
		words = append(words, "(R)")
	}
	if f.repeat {
		words = append(words, "(+)")
	}
	return words
}

// shownDefault is "" only for a flag that has no value.
func (f *flag) shownDefault() string {
	if f.shows != "" {
		return f.shows
	}
	return f.def
}

// wrap breaks words into lines of at most width characters.
func wrap(words []string, width int) []string {
	var lines []string
	line := ""
	for _, word := range words {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
