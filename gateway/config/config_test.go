package config

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway"
	"reseat/gateway/policy"
	"reseat/gateway/session"
)

func TestDefaultsAreThoseOfTheInterface(t *testing.T) {
	want := &Settings{
		Listen: ":8080", Admin: "127.0.0.1:8081", Demo: true,
		TokenAudience: "reseat", LogLevel: slog.LevelInfo, UpgradeTimeout: 10 * time.Second, UpgradePump: 10 * time.Minute,
		Cluster: Cluster{Name: "reseat", Listen: ":8082", DeadAfter: 1500 * time.Millisecond},
		Gateway: gateway.Config{
			Default: policy.Policy{
				Grace: 30 * time.Second, BufferBytes: 1 << 20, BufferMessages: 4096, Overflow: session.Pause,
				MaxMessage: 1 << 20, CompressionWindow: 4 << 10, GraceUnconfirmed: 5 * time.Second, Heartbeat: 15 * time.Second, AnswerTimeout: 5 * time.Second, DialTimeout: 10 * time.Second,
				RedialFor: 30 * time.Second,
				Redeliver: true, Keepalive: session.KeepaliveHint,
			},
			TokenTTL: time.Hour, BufferTotal: 1 << 30, Drain: 10 * time.Second,
		},
	}
	if got := mustParse(t, nil, "--demo"); !reflect.DeepEqual(got, want) {
		t.Errorf("Parse(--demo)\n got %+v\nwant %+v", got, want)
	}
}

func TestFlagBeatsEnvironmentBeatsDefault(t *testing.T) {
	grace := func(environ []string, args ...string) time.Duration {
		t.Helper()
		return mustParse(t, environ, append(args, game)...).Gateway.Routes[0].Policy.Grace
	}
	env := []string{"RESEAT_GRACE=2m"}
	for _, c := range []struct {
		got, want time.Duration
		what      string
	}{
		{grace(nil), 30 * time.Second, "default"},
		{grace(env), 2 * time.Minute, "environment"},
		{grace(env, "--grace", "3m"), 3 * time.Minute, "flag over environment"},
		{grace([]string{"RESEAT_GRACE=nonsense"}, "--grace", "3m"), 3 * time.Minute, "an overridden value is not parsed"},
		{grace([]string{"RESEAT_GRACE="}), 30 * time.Second, "an empty variable is none"},
		{grace([]string{"RESEAT_GRACE=1m", "RESEAT_GRACE=4m"}), 4 * time.Minute, "the last variable of a name"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
}

// A second --upstream must not silently replace the first.
func TestFlagOfOneValueIsRefusedWhenGivenTwice(t *testing.T) {
	for _, args := range [][]string{{"--grace", "3m", "--grace=5m"}, {"--grace", "3m", "--grace", "3m"}, {"--upstream", "ws://a:1", "--upstream", "ws://b:1"}, {"--demo", "--demo"}} {
		flag, _, _ := strings.Cut(args[0], "=")
		if said := wantRefused(t, flag, nil, append([]string{game}, args...)...); !strings.Contains(said, "want one value, got 2") {
			t.Errorf("%q: %s", args, said)
		}
	}
}

func TestHelpAndVersionAreRecognisedInCommonForms(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"help"}, {"--help"}, {game, "-h"}} {
		if _, err := Parse(args, nil); !errors.Is(err, ErrHelp) {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if _, err := Parse(args, nil); !errors.Is(err, ErrVersion) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestRepeatableFlagsTakeOneValueALineFromTheEnvironment(t *testing.T) {
	env := []string{"RESEAT_ROUTE=/a/*=ws://a:1;grace=1m\r\n\n/b/*=ws://b:1\n", "RESEAT_HOST=a.example\nb.example"}
	s := mustParse(t, env)
	var patterns []string
	for _, r := range s.Gateway.Routes {
		patterns = append(patterns, r.Pattern)
	}
	if want := []string{"/a/*", "/b/*"}; !slices.Equal(patterns, want) {
		t.Errorf("routes %q, want %q", patterns, want)
	}
	if got := s.Gateway.Routes[0].Policy.Grace; got != time.Minute {
		t.Errorf("grace of the first route is %v, want 1m", got)
	}
	s = mustParse(t, env, "--host", "c.example", "--host=d.example")
	if want := []string{"c.example", "d.example"}; !slices.Equal(s.Gateway.Hosts, want) {
		t.Errorf("hosts %q, want those of the flags alone, %q", s.Gateway.Hosts, want)
	}
	wantRefused(t, `RESEAT_ROUTE (--route) "/b/*": grace`, []string{"RESEAT_ROUTE=/a/*=ws://a:1\n/b/*=ws://b:1;grace=5"})
}

func TestUnknownNamesAreRefused(t *testing.T) {
	for _, c := range []struct {
		setting, says string
		environ, args []string
	}{
		{"--grce", "the nearest is --grace", nil, []string{game, "--grce", "45s"}},
		{"--grce", "the nearest is --grace", nil, []string{game, "--grce=45s"}},
		{"-grace", "the nearest is --grace", nil, []string{game, "-grace=45s"}},
		{"--Grace", "the nearest is --grace", nil, []string{game, "--Grace=45s"}},
		{"--trusted-proxies", "the nearest is --trusted-proxy", nil, []string{"--trusted-proxies=::1"}},
		{"--fancy-option", "--help lists them", nil, []string{game, "--fancy-option=on"}},
		{`--a\nb`, "unknown", nil, []string{"--a\nb"}},
		{`"serve"`, "give flags alone", nil, []string{game, "serve"}},
		{`"upstream"`, "is --upstream meant?", nil, []string{"upstream", "ws://a:1"}},
		{`"ws://a:1"`, "is --upstream ws://a:1 meant?", nil, []string{"ws://a:1"}},
		{`"check"`, "before the flags", nil, []string{game, "check"}},
		{`"true"`, "not a flag", nil, []string{"--demo", "true"}},
		{`"--"`, "not a flag", nil, []string{game, "--"}},
		{`""`, "not a flag", nil, []string{game, ""}},
		{"--version", "takes no value", nil, []string{"--version=2"}},
		{"RESEAT_GRAZE", "the nearest is RESEAT_GRACE", []string{"RESEAT_GRAZE=45s"}, []string{game}},
		{"RESEAT_grace", "the nearest is RESEAT_GRACE", []string{"RESEAT_grace=45s"}, []string{game}},
		{"RESEAT_BUFFER-BYTES", "the nearest is RESEAT_BUFFER_BYTES", []string{"RESEAT_BUFFER-BYTES=1"}, []string{game}},
		{"RESEAT_VERSION", "unknown", []string{"RESEAT_VERSION=1.2"}, []string{game}},
		{"RESEAT_PORT", "unknown", []string{"RESEAT_PORT=8080"}, []string{game}},
		{"--graec", "the nearest is --grace", nil, []string{game, "--graec=45s"}},
		{`"chekc"`, "the nearest command is check", nil, []string{"chekc", game}},
		{`"hlep"`, "the nearest command is help", nil, []string{"hlep"}},
		{`--route "/a/*": graec`, "the nearest is grace", nil, []string{"--route=/a/*=ws://a:1;graec=45s"}},
		{`--route "/a/*": grce`, "the nearest is grace", nil, []string{"--route=/a/*=ws://a:1;grce=45s"}},
		{`--route "/a/*": --grace`, "unknown", nil, []string{"--route=/a/*=ws://a:1;--grace=45s"}},
	} {
		said := wantRefused(t, c.setting, c.environ, c.args...)
		if !strings.Contains(said, c.says) {
			t.Errorf("%q %q: said %q, want %q in it", c.environ, c.args, said, c.says)
		}
	}
}

func TestForeignEnvironmentNamesAreIgnored(t *testing.T) {
	mustParse(t, []string{
		"PATH=/bin", "RESEATING=1", "reseat_grace=5", "=C:=C:\\", "GRACE=5",
		// What Kubernetes makes of services named reseat and reseat-admin.
		"RESEAT_SERVICE_HOST=10.0.0.1", "RESEAT_SERVICE_PORT=80", "RESEAT_SERVICE_PORT_HTTP=80",
		"RESEAT_PORT=tcp://10.0.0.1:80", "RESEAT_PORT_80_TCP=tcp://10.0.0.1:80", "RESEAT_PORT_80_TCP_PROTO=tcp",
		"RESEAT_PORT_80_TCP_PORT=80", "RESEAT_PORT_80_TCP_ADDR=10.0.0.1",
		"RESEAT_ADMIN_SERVICE_HOST=10.0.0.2", "RESEAT_ADMIN_PORT=tcp://10.0.0.2:81", "RESEAT_ADMIN_PORT_81_TCP_ADDR=10.0.0.2",
	}, game)
}

func TestContradictionsAreRefused(t *testing.T) {
	const up = "--upstream=ws://game:9000"
	for _, c := range []struct {
		setting, says string
		args          []string
	}{
		{"--upstream, --route, --demo", "at least one", nil},
		{"--upstream, --route, --demo", "at least one", []string{"--demo=false", "--grace=1m"}},
		{"--upstream", "--demo", []string{up, "--demo"}},
		{`--route "/*"`, "--upstream", []string{up, "--route=/*=ws://b:1"}},
		{`--route "/*"`, "--demo", []string{"--demo", "--route=/*=ws://b:1"}},
		{`--route "/"`, "--demo", []string{"--demo", "--route=/=ws://b:1"}},
		{`--route "/reseat.js"`, "browser client", []string{up, "--route=/reseat.js=ws://b:1"}},
		{`--route "/reseat.install.js"`, "browser client", []string{up, "--route=/reseat.install.js=ws://b:1"}},
		{`--route "/a/*"`, `--route "/a/*"`, []string{"--route=/a/*=ws://a:1", "--route=/b=ws://a:1", "--route=/a/*=ws://b:1"}},
		{`--route "/r/{b}"`, `--route "/r/{a}"`, []string{"--route=/r/{a}=ws://a:1", "--route=/r/{b}=ws://b:1"}},
		{`--route "/a*b"`, "wildcard", []string{"--route=/a*b=ws://a:1"}},
		{`--route "/{a}/{a}"`, "duplicate param", []string{"--route=/{a}/{a}=ws://a:1"}},
		{`--route "/{a:[}"`, "invalid regexp", []string{"--route=/{a:[}=ws://a:1"}},
		{`--route "/a b"`, "blanks", []string{"--route=/a b=ws://a:1"}},
		{`--route "/a": grace`, "twice", []string{"--route=/a=ws://a:1;grace=1m;grace=2m"}},
		{`--route "/a": listen`, "global setting", []string{"--route=/a=ws://a:1;listen=:1"}},
		{`--route "/a": demo`, "global setting", []string{"--route=/a=ws://a:1;demo=true"}},
		{"--admin", "--listen", []string{up, "--listen=:8081"}},
		{"--admin", "--admin-token-file", []string{up, "--admin=:9000"}},
		{"--admin", "loopback", []string{up, "--admin=192.0.2.1:8081"}},
		{"--admin", "--listen", []string{up, "--listen=[::]:9000", "--admin=127.0.0.1:9000"}},
		{"--admin", "--listen", []string{up, "--listen=localhost:9000", "--admin=LOCALHOST:9000"}},
		{"--tls-cert", "--tls-key", []string{up, "--tls-cert=c.pem"}},
		{"--webhook", "--webhook-secret-file", []string{up, "--webhook=https://api.example/events"}},
		{"--webhook-secret-file", "--webhook", []string{up, "--webhook-secret-file=secret"}},
		{"--tls-key", "--tls-cert", []string{up, "--tls-key=k.pem"}},
		{"--acme-domain", "--tls-cert", []string{up, "--tls-cert=c.pem", "--tls-key=k.pem", "--acme-domain=game.example"}},
		{"--acme-directory", "--acme-domain", []string{up, "--acme-directory=https://ca.example/"}},
		{"--acme-directory", "--acme-domain", []string{up, "--tls-cert=c.pem", "--tls-key=k.pem", "--acme-directory=https://ca.example/"}},
		{"--acme-cache", "--acme-domain", []string{up, "--acme-cache=dir"}},
		{"--auth-key-file", "--demo", []string{"--demo", "--auth-key-file=login.pem"}},
		{"--auth-jwks", "--demo", []string{"--demo", "--route=/a/*=ws://a:1", "--auth-jwks=https://login.example/keys"}},
	} {
		said := wantRefused(t, c.setting, nil, c.args...)
		if !strings.Contains(said, c.says) {
			t.Errorf("%q: said %q, want %q in it", c.args, said, c.says)
		}
	}
	said := wantRefused(t, `RESEAT_UPSTREAM (--upstream)`, []string{"RESEAT_UPSTREAM=ws://a:1"}, "--demo")
	if !strings.Contains(said, "--demo") {
		t.Errorf("said %q, want --demo in it", said)
	}
}

// An operator who sets one of these believes that players need a login.
func TestLoginSettingsWithoutKeysAreRefused(t *testing.T) {
	const up = "--upstream=ws://game:9000"
	for _, said := range []string{"auth-issuer=me", "auth-audience=you", "auth-forward=off", "auth-from=query:jwt"} {
		name, _, _ := strings.Cut(said, "=")
		for setting, args := range map[string][]string{
			"--" + name:             {up, "--" + said},
			`--route "/a": ` + name: {up, "--auth-audience=you", "--route=/b=ws://b:1;auth-key-file=login.pem", "--route=/a=ws://a:1;" + said},
		} {
			if text := wantRefused(t, setting, nil, args...); !strings.Contains(text, "--auth-key-file") {
				t.Errorf("%q: said %q, want --auth-key-file in it", args, text)
			}
		}
	}
}

// A route that names one source of login keys does not inherit the other.
func TestRoutesOwnLoginKeysReplaceTheGlobalOnes(t *testing.T) {
	for _, c := range []struct{ global, own, jwks, keyFile string }{
		{"--auth-key-file=all.pem", "auth-jwks=https://own.example/keys", "https://own.example/keys", ""},
		{"--auth-jwks=https://all.example/keys", "auth-key-file=own.pem", "", "own.pem"},
		{"--auth-key-file=all.pem", "auth-key-file=own.pem", "", "own.pem"},
		{"--auth-key-file=all.pem", "auth-audience=own", "", "all.pem"},
	} {
		s := mustParse(t, nil, c.global, "--auth-audience=all", "--route=/a/*=ws://a:1;"+c.own, "--route=/b/*=ws://b:1")
		own, other := s.Gateway.Routes[0].Policy.Auth, s.Gateway.Routes[1].Policy.Auth
		if own == nil || own.JWKS != c.jwks || own.KeyFile != c.keyFile {
			t.Errorf("%s, route %s: %+v, want JWKS %q and key file %q", c.global, c.own, own, c.jwks, c.keyFile)
		}
		if name, value, _ := strings.Cut(c.global, "="); other == nil || other.JWKS+other.KeyFile != value || (other.JWKS != "") != (name == "--auth-jwks") {
			t.Errorf("%s: the route beside it has %+v", c.global, other)
		}
	}
	wantRefused(t, `--route "/a/*": auth-jwks`, nil, "--route=/a/*=ws://a:1;auth-key-file=own.pem;auth-jwks=https://own.example/keys")
}

func TestApparentContradictionsAreAccepted(t *testing.T) {
	for _, args := range [][]string{
		{"--demo", "--route=/a/*=ws://a:1"},
		{"--upstream=ws://a:1", "--route=/a/*=ws://a:1", "--route=/a/{b}=ws://a:1", "--route=/a/{b}/*=ws://a:1", "--route=/a=ws://a:1"},
		{"--upstream=ws://a:1", "--demo=false"},
		{"--demo", "--listen=:0", "--admin=127.0.0.1:0"},
		{"--demo", "--listen=192.0.2.1:8081"},
		{"--demo", "--listen=:8081", "--admin=off"},
		{"--demo", "--admin=:9000", "--admin-token-file=x"},
		{"--demo", "--admin=0.0.0.0:9000", "--viewer-token-file=x"},
		{"--demo", "--admin=off", "--admin-token-file=x"},
		{"--demo", "--buffer-bytes=2GiB"},
		{"--route=/a=ws://a:1;max-message=1KiB", "--buffer-total=64KiB"},
		{"--auth-issuer=me", "--upstream=ws://a:1", "--route=/a/*=ws://a:1;auth-key-file=login.pem"},
		{"--auth-key-file=login.pem", "--upstream=ws://a:1", "--route=/a/*=ws://a:1;auth-issuer=me"},
		{"--demo", "--route=/a/*=ws://a:1;auth-key-file=login.pem"},
	} {
		mustParse(t, nil, args...)
	}
}

func TestRouteSettingsOverrideFlagsForThatRouteOnly(t *testing.T) {
	s := mustParse(t, nil, "--upstream=ws://game:9000/live", "--grace=1m", "--heartbeat=5s", "--origin=https://a.example",
		"--route", "/chess/*=ws://chess:9000;grace=5m; overflow=end;origin=https://b.example;origin=*;upstream-host=upstream")
	if len(s.Gateway.Routes) != 2 {
		t.Fatalf("got %d routes, want 2", len(s.Gateway.Routes))
	}
	rest, chess := s.Gateway.Routes[0], s.Gateway.Routes[1]
	if rest.Pattern != "/*" || rest.Upstream.URL.String() != "ws://game:9000/live" || !reflect.DeepEqual(rest.Policy, s.Gateway.Default) {
		t.Errorf("--upstream became %+v, want /* under the global policy", rest)
	}
	want := s.Gateway.Default
	want.Grace, want.Overflow, want.Origins = 5*time.Minute, session.EndSession, []string{"https://b.example", "*"}
	if chess.Pattern != "/chess/*" || chess.Upstream.URL.String() != "ws://chess:9000" || !reflect.DeepEqual(chess.Policy, want) {
		t.Errorf("--route became\n     %+v\nwant %+v", chess, want)
	}
	if s.Gateway.Default.Grace != time.Minute || !slices.Equal(s.Gateway.Default.Origins, []string{"https://a.example"}) {
		t.Errorf("a route's settings changed the global policy: %+v", s.Gateway.Default)
	}
}

func TestErrorsQuoteLongValuesInPart(t *testing.T) {
	said := wantRefused(t, "--grace", nil, game, "--grace", strings.Repeat("é", 1<<20))
	if len(said) > 300 {
		t.Errorf("an error of %d bytes", len(said))
	}
	if said := wantRefused(t, "--log-messages", nil, game, "--log-messages", "prefix"); !strings.Contains(said, "off, size or prefix:N") {
		t.Errorf("said %q, want each of the three words in it", said)
	}
	if said := wantRefused(t, "--grace", nil, game, "--grace", "45"); said != `want a duration such as 45s, got "45": is 45s meant?` {
		t.Errorf("said %q", said)
	}
}

func TestEveryRowOfTheTableIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for i := range table {
		f := &table[i]
		switch {
		case seen[f.name] || f.name != strings.ToLower(f.name) || strings.Contains(f.name, "_"):
			t.Errorf("--%s: there twice, or not in lower case with hyphens", f.name)
		case f.onlyArg() && f.name != "help" && f.name != "version":
			t.Errorf("--%s sets nothing", f.name)
		case f.set != nil && f.setLocal != nil:
			t.Errorf("--%s sets both a global value and a route's", f.name)
		case f.group == "" || f.help == "":
			t.Errorf("--%s has no group or no help", f.name)
		case !f.onlyArg() && f.shownDefault() == "":
			t.Errorf("--%s shows no default", f.name)
		}
		seen[f.name] = true
	}
}

func TestNearestIsTheNameWithTheFewestTypos(t *testing.T) {
	names := []string{"grace", "host", "http", "heartbeat"}
	for word, want := range map[string]string{
		"grace": "grace", "grac": "grace", "gracee": "grace", "garce": "grace", "graec": "grace", "hsot": "host", "rgcae": "", "hst": "host", "htp": "http",
		"hartbeet": "heartbeat", "": "", "compression": "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
