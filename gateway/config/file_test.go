package config

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"reseat/gateway/session"
)

const configName = "reseat.toml"

// withConfig writes a config file and returns the flag that names it. It makes the file's
// directory the working directory, so that errors have a short name.
func withConfig(t *testing.T, text string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile(configName, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--config=" + configName
}

func document(t *testing.T, content map[string]any) string {
	t.Helper()
	text, err := toml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return withConfig(t, string(text))
}

// value is a flag's value as written in a file.
func value(flag, text string) any {
	if lookup(flag).repeat {
		return []string{text}
	}
	return text
}

func inFile(t *testing.T, flag, text string) string {
	t.Helper()
	return document(t, map[string]any{flag: value(flag, text)})
}

// inRouteOfFile sets one more flag of the route base, which is --route=...
func inRouteOfFile(t *testing.T, base, flag, text string) string {
	t.Helper()
	r, err := parseRoute(strings.TrimPrefix(base, "--route="))
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]any{"pattern": r.pattern, "upstream": r.upstream.String()}
	for name, values := range r.settings {
		entries[name] = values[0]
	}
	entries[flag] = value(flag, text)
	return document(t, map[string]any{"route": []any{entries}})
}

// The file begins with a byte order mark.
func TestConfigFileAndFlagsAgree(t *testing.T) {
	s := mustParse(t, nil, withConfig(t, "\ufeff"+`
# What an operator would write.
grace = "45s"
buffer-messages = 4_096
buffer-bytes = 65536
max-rate = +20
upstream-heartbeat = 0
demo = true
host = ["a.example", "b.example"]
origin = "https://play.example"

[[route]]
pattern = "/chess/*"
upstream = "ws://chess:9000"
grace = "5m"
overflow = "end"
on-detach = 'release; all "keys"'
origin = ["https://chess.example", "*"]

[[route]]
pattern = "/go/*"
upstream = "ws://go:9000"
`))
	if s.Config != configName || !s.Demo || !slices.Equal(s.Gateway.Hosts, []string{"a.example", "b.example"}) {
		t.Errorf("got %+v", s)
	}
	if d := s.Gateway.Default; d.Grace != 45*time.Second || d.BufferMessages != 4096 || d.BufferBytes != 65536 || d.Rate.Messages != 20 {
		t.Errorf("the policy is %+v", d)
	}
	if len(s.Gateway.Routes) != 2 {
		t.Fatalf("got %d routes, want 2", len(s.Gateway.Routes))
	}
	chess, other := s.Gateway.Routes[0], s.Gateway.Routes[1]
	if p := chess.Policy; chess.Pattern != "/chess/*" || chess.Upstream.URL.Host != "chess:9000" || p.Grace != 5*time.Minute ||
		p.Overflow != session.EndSession || p.Notices.Detach != `release; all "keys"` ||
		!slices.Equal(p.Origins, []string{"https://chess.example", "*"}) {
		t.Errorf("the first route is %+v", chess)
	}
	if p := other.Policy; other.Pattern != "/go/*" || p.Grace != 45*time.Second || !slices.Equal(p.Origins, []string{"https://play.example"}) {
		t.Errorf("the second route is %+v", other)
	}
}

// What is overridden is not parsed; the last variable of a name counts.
func TestFlagBeatsEnvironmentBeatsFile(t *testing.T) {
	file := withConfig(t, "grace = \"2m\"\nhost = [\"file.example\"]\n[[route]]\npattern = \"/file\"\nupstream = \"ws://file\"\n")
	for _, c := range []struct {
		what          string
		environ, args []string
		grace         time.Duration
		host, route   string
	}{
		{"file", nil, nil, 2 * time.Minute, "file.example", "/file"},
		{"environment", []string{"RESEAT_GRACE=1m", "RESEAT_GRACE=3m", "RESEAT_HOST=env.example", "RESEAT_ROUTE=/env=ws://env"}, nil, 3 * time.Minute, "env.example", "/env"},
		{"empty environment", []string{"RESEAT_GRACE=", "RESEAT_HOST=", "RESEAT_ROUTE=\n"}, nil, 2 * time.Minute, "file.example", "/file"},
		{"flag", []string{"RESEAT_GRACE=nonsense", "RESEAT_HOST=env.example"}, []string{"--grace=4m", "--host=arg.example", "--route=/arg=ws://arg"}, 4 * time.Minute, "arg.example", "/arg"},
	} {
		s := mustParse(t, c.environ, append(c.args, file)...)
		if r := s.Gateway.Routes; len(r) != 1 || r[0].Pattern != c.route || r[0].Policy.Grace != c.grace || !slices.Equal(s.Gateway.Hosts, []string{c.host}) {
			t.Errorf("%s: got hosts %q and routes %+v", c.what, s.Gateway.Hosts, r)
		}
	}
}

// wrongFiles are refused with an error that begins with setting and contains says.
var wrongFiles = []struct{ text, setting, says string }{
	{"grace = \"45\"", ": grace", `want a duration such as 45s, got "45"`},
	{"\n\n  grace = 45", ": grace", `want a duration such as 45s, got "45"`},
	{"grce = \"45s\"", ": grce", "the nearest is grace"},
	{"grace_before_start = \"1s\"", ": grace_before_start", "the nearest is grace-before-start"},
	{"Grace = \"45s\"", ": Grace", "unknown setting"},
	{"\"gra\\nce\" = 1", `: gra\nce`, "unknown setting"},
	{"auth.jwks = \"x\"", ": auth", "want settings without a section, got [auth]"},
	{"[limits]\nmax-rate = 1", ": limits", "want settings without a section, got [limits]"},
	{"[grace]\nsoft = 1", ": grace", `want a string such as "45s", got a table`},
	{"[[grace]]", ": grace", "got an array"},
	{"version = true", ": version", "unknown setting"},
	{"config = \"b.toml\"", ": config", "command line or in the environment"},
	{"demo = 1", ": demo", "want true or false, got a number"},
	{"demo = \"yes\"", ": demo", `want true, false, on, off, 1 or 0, got "yes"`},
	{"grace = true", ": grace", `want a string such as "45s", got true or false`},
	{"grace = [\"45s\"]", ": grace", "got an array"},
	{"grace = {a = 1}", ": grace", "got a table"},
	{"grace = 1979-05-27", ": grace", "got a date or time"},
	{"listen = 8080", ": listen", "want a string, got a number"},
	{"host = 5", ": host", "want an array of strings, got a number"},
	{"host = [\"a.example\", 5]", ": host", "in the array: want an array of strings, got a number"},
	{"buffer-messages = true", ": buffer-messages", "want a number or a string, got true or false"},
	{"buffer-messages = 1.5", ": buffer-messages", `got "1.5"`},
	{"buffer-messages = -1", ": buffer-messages", "want a whole number"},
	{"grace = \"1m\"\ngrace = \"2m\"", ":2", "want TOML"},
	{"grace = 45s", ":1", "want TOML"},
	{"grace", ":1", "want TOML"},
	{"grace = \"1m", ":1", "want TOML"},
	{"demo = true\n[route]\npattern = \"/a\"", ": route", "want [[route]]"},
	{"route = [{pattern = \"/a\", upstream = \"ws://a\"}, \"/b=ws://b\"]", ": route", "either tables or strings"},
	{"route = [{pattern = \"/a\", upstream = \"ws://a\", grace = \"5\"}]", `: route "/a": grace`, "want a duration"},
	{"[[route]]\nupstream = \"ws://a\"", ": route 1", "got no pattern"},
	{"[[route]]\npattern = \"/a\"", `: route "/a"`, "got no upstream"},
	{"[[route]]\npattern = \"a\"\nupstream = \"ws://a\"", `: route "a": pattern`, "want a pattern such as"},
	{"[[route]]\npattern = 5\nupstream = \"ws://a\"", ": route 1: pattern", "want a string, got a number"},
	{"[[route]]\npattern = \"/a\"\nupstream = \"game:9000\"", `: route "/a": upstream`, "want a ws://"},
	{"[[route]]\npattern = \"/a\"\nupstream = \"ws://a\"\ngrce = \"1m\"", `: route "/a": grce`, "the nearest is grace"},
	{"[[route]]\npattern = \"/a\"\nupstream = \"ws://a\"\nlisten = 5", `: route "/a": listen`, "is a global setting and cannot be set for a route: put it above the first [[route]]"},
	{"[[route]]\npattern = \"/a\"\nupstream = \"ws://a\"\n\ngrace = \"5\"", `: route "/a": grace`, "want a duration"},
	{"[[route]]\npattern = \"/a\"\nupstream = \"ws://a\"\ngrace = [\"5s\"]", `: route "/a": grace`, "got an array"},
	{"[[route]]\npattern = \"/a\"\nupstream = \"ws://a\"\n[[route]]\npattern = \"/a\"\nupstream = \"ws://b\"", `: route "/a"`, `reseat.toml: route "/a"`},
	{"[[route]]\npattern = \"/a\"\nupstream = \"ws://a\"\n[route.policy]\ngrace = \"1m\"", `: route "/a": policy`, "unknown setting"},
	{"upstream = \"ws://a\"\ndemo = true", ": upstream", "--demo"},
	{"demo = true\nlisten = \":80\"\nadmin = \"127.0.0.1:80\"", ": admin", "want another port"},
	{"demo = true\nadmin = \"0.0.0.0:80\"", ": admin", "loopback"},
	{"grace = \"1m\"", "--upstream, --route, --demo", "want at least one"},
	{"demo = true\n# " + strings.Repeat("x", maxConfig), "--config", "larger than 1048576 bytes"},
}

func TestWrongFileIsRefusedWithFileAndKey(t *testing.T) {
	for _, c := range wrongFiles {
		arg := withConfig(t, c.text)
		setting := c.setting
		if setting[0] == ':' {
			setting = configName + setting
		}
		name, _, _ := strings.Cut(c.text, "\n")
		t.Run(name[:min(len(name), 40)], func(t *testing.T) {
			if said := wantRefused(t, setting, nil, arg); !strings.Contains(said, c.says) {
				t.Errorf("said %q, want %q in it", said, c.says)
			}
		})
	}
}

// FuzzConfig parses arbitrary file content. Nothing may panic; a refusal must be a
// UsageError of one printable line, and accepted settings must be complete.
func FuzzConfig(f *testing.F) {
	for _, c := range wrongFiles {
		if len(c.text) < maxConfig {
			f.Add(c.text)
		}
	}
	f.Add("upstream = \"ws://game\"\nhost = [\"a\", 'b']\n[[route]]\npattern = \"/x\"\nupstream = \"ws://b\"\nkeepalive-reply = [\"a=>b\"]")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "upstream-ca") || strings.Contains(text, `\`) {
			return // would read a file that the bytes name
		}
		file, err := parseConfig("reseat.toml", []byte(text))
		var d *draft
		if err == nil {
			d, err = fill(file)
		}
		if err == nil {
			err = d.check()
		}
		if usage := (*UsageError)(nil); err != nil && !errors.As(err, &usage) {
			t.Fatalf("%T %v, want a *UsageError", err, err)
		}
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkTaken(t, &d.Settings)
	})
}
