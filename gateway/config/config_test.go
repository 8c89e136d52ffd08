package config

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
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
				MaxMessage: 1 << 20, Heartbeat: 15 * time.Second, AnswerTimeout: 5 * time.Second, DialTimeout: 10 * time.Second,
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

// up is a complete command line, and inNATS the flags of a node.
const up = "--upstream=ws://game:9000"

var inNATS = []string{up, "--token-key-file=k"}

// refused are mistakes, with the setting that each error begins with, and what it says. Arguments that begin with RESEAT_
// are variables of the environment.
var refused = []struct {
	setting, says string
	args          []string
}{
	// names
	{"--grce", "the nearest is --grace", []string{up, "--grce", "45s"}},
	{"--grce", "the nearest is --grace", []string{up, "--grce=45s"}},
	{"--graec", "the nearest is --grace", []string{up, "--graec=45s"}},
	{"-grace", "the nearest is --grace", []string{up, "-grace=45s"}},
	{"--Grace", "the nearest is --grace", []string{up, "--Grace=45s"}},
	{"--trusted-proxies", "the nearest is --trusted-proxy", []string{"--trusted-proxies=::1"}},
	{"--fancy-option", "--help lists them", []string{up, "--fancy-option=on"}},
	{`--a\nb`, "unknown", []string{"--a\nb"}},
	{`"serve"`, "give flags alone", []string{up, "serve"}},
	{`"upstream"`, "is --upstream meant?", []string{"upstream", "ws://a:1"}},
	{`"ws://a:1"`, "is --upstream ws://a:1 meant?", []string{"ws://a:1"}},
	{`"check"`, "want it before the flags: reseat check", []string{up, "check"}},
	{`"chekc"`, "the nearest command is check", []string{"chekc", up}},
	{`"hlep"`, "the nearest command is help", []string{"hlep"}},
	{`"true"`, "not a flag: flags begin with --", []string{"--demo", "true"}},
	{`"--"`, "not a flag", []string{up, "--"}},
	{`""`, "not a flag", []string{up, ""}},
	{"--version", "takes no value", []string{"--version=2"}},
	{"RESEAT_GRAZE", "the nearest is RESEAT_GRACE", []string{"RESEAT_GRAZE=45s", up}},
	{"RESEAT_grace", "the nearest is RESEAT_GRACE", []string{"RESEAT_grace=45s", up}},
	{"RESEAT_BUFFER-BYTES", "the nearest is RESEAT_BUFFER_BYTES", []string{"RESEAT_BUFFER-BYTES=1", up}},
	{"RESEAT_VERSION", "unknown", []string{"RESEAT_VERSION=1.2", up}},
	{"RESEAT_PORT", "unknown", []string{"RESEAT_PORT=8080", up}},
	{`--route "/a/*": graec`, "the nearest is grace", []string{"--route=/a/*=ws://a:1;graec=45s"}},
	{`--route "/a/*": grce`, "unknown setting; the nearest is grace", []string{"--route=/a/*=ws://a:1;grce=45s"}},
	{`--route "/a/*": --grace`, "unknown", []string{"--route=/a/*=ws://a:1;--grace=45s"}},
	{`--route "/a": listen`, "is a global setting", []string{"--route=/a=ws://a:1;listen=:1"}},
	{`--route "/a": demo`, "is a global setting", []string{"--route=/a=ws://a:1;demo=true"}},

	// one value, given twice
	{"--grace", "want one value, got 2", []string{up, "--grace", "3m", "--grace=5m"}},
	{"--grace", "want one value, got 2", []string{up, "--grace", "3m", "--grace", "3m"}},
	{"--upstream", "want one value, got 2", []string{up, "--upstream", "ws://b:1"}},
	{"--demo", "want one value, got 2", []string{"--demo", "--demo"}},
	{`--route "/a": grace`, "twice", []string{"--route=/a=ws://a:1;grace=1m;grace=2m"}},
	{"--trusted-proxy", "; repeat the flag for each value", []string{up, "--trusted-proxy=10.0.0.0/8,192.168.0.0/16"}},
	{"--origin", "; repeat the flag for each value", []string{up, "--origin=https://a.example,https://b.example"}},
	{"--host", "; repeat the flag for each value", []string{up, "--host=a.example,b.example"}},

	// values, and what is wanted in their place
	{"--grace", `want a duration such as 45s, got "45"`, []string{up, "--grace", "45"}},
	{"--buffer-total", "want a size such as 65536, 64KiB, 1MiB or 2GiB", []string{up, "--buffer-total=1GB"}},
	{"--log-messages", "off, size or prefix:N", []string{up, "--log-messages=prefix"}},
	{"--upstream", "want a ws://, wss://, http:// or https:// URL", []string{"--upstream=localhost:9000"}},
	{"--upstream", "want a port from 1 to 65535", []string{"--upstream=ws://localhost:90000"}},
	{"--listen", "want HOST:PORT such as :8080 or [::1]:8080, with a port from 0 to 65535, got", []string{up, "--listen=:80800"}},
	{"--admin", "with a port from 0 to 65535", []string{up, "--admin=127.0.0.1:80800"}},
	{"--trusted-proxy", "is 10.1.2.3 meant, or the network 10.0.0.0/8?", []string{up, "--trusted-proxy=10.1.2.3/8"}},
	{"--trusted-proxy", "want an address or a CIDR block", []string{up, "--trusted-proxy=nginx"}},
	{"--upstream-allow", "want HOST:PORT", []string{up, "--upstream-allow=ws://game:9000"}},
	{"--origin", "want SCHEME://HOST[:PORT]", []string{up, "--origin=play.example"}},
	{"--origin", "without a path", []string{up, "--origin=https://play.example/"}},
	{"--origin", "any page can have that origin", []string{up, "--origin=null"}},
	{"--host", "want a host such as game.example", []string{up, "--host=https://play.example"}},
	{"--acme-domain", "without *", []string{up, "--acme-domain=*.play.example"}},
	{"--config", "want a TOML file", []string{up, "--config=/no/such.toml"}},

	// patterns
	{`--route`, "want PATTERN=URL", []string{"--route=chess/*=ws://a:1"}},
	{`--route`, "want PATTERN=URL", []string{"--route=/chess/*ws://a:1"}},
	{`--route "/a*b"`, "wildcard", []string{"--route=/a*b=ws://a:1"}},
	{`--route "/{a}/{a}"`, "duplicate param", []string{"--route=/{a}/{a}=ws://a:1"}},
	{`--route "/{a:[}"`, "invalid regexp", []string{"--route=/{a:[}=ws://a:1"}},
	{`--route "/a b"`, "blanks", []string{"--route=/a b=ws://a:1"}},
	{`--route "/a%2fb/*"`, "want a pattern in decoded, clean form", []string{"--route=/a%2fb/*=ws://a:1"}},
	{`--route "/a/*"`, `but --route "/a/*" matches the same paths`, []string{"--route=/a/*=ws://a:1", "--route=/b=ws://a:1", "--route=/a/*=ws://b:1"}},
	{`--route "/r/{b}"`, `want a distinct pattern`, []string{"--route=/r/{a}=ws://a:1", "--route=/r/{b}=ws://b:1"}},
	{`--route "/*"`, "--upstream", []string{up, "--route=/*=ws://b:1"}},
	{`--route "/*"`, "--demo", []string{"--demo", "--route=/*=ws://b:1"}},
	{`--route "/"`, "--demo", []string{"--demo", "--route=/=ws://b:1"}},
	{`--route "/reseat.js"`, "browser client", []string{up, "--route=/reseat.js=ws://b:1"}},
	{`--route "/reseat.install.js"`, "browser client", []string{up, "--route=/reseat.install.js=ws://b:1"}},

	// contradictions
	{"--upstream, --route, --demo", "want at least one of them", nil},
	{"--upstream, --route, --demo", "want at least one of them", []string{"--demo=false", "--grace=1m"}},
	{"--upstream", "--demo", []string{up, "--demo"}},
	{"RESEAT_UPSTREAM (--upstream)", "--demo", []string{"RESEAT_UPSTREAM=ws://a:1", "--demo"}},
	{"--dev", "want a loopback --listen such as 127.0.0.1:8080, or --dev-token-file", []string{up, "--dev", "--listen=:8080"}},
	{"--dev", "others could reach it", []string{up, "--dev", "--listen=192.0.2.1:8080"}},
	{"--dev-token-file", "requires --dev", []string{up, "--dev-token-file=x"}},
	{"--acme-domain", "not for production", []string{up, "--dev", "--acme-domain=game.example"}},
	{`--route "/reseat.dev/faults"`, "the panel", []string{"--dev", "--route=/reseat.dev/faults=ws://a:1"}},
	{"--admin", "--listen", []string{up, "--listen=:8081"}},
	{"--admin", "can reach that address without a token; see --admin-token-file", []string{up, "--admin=:9000"}},
	{"--admin", "loopback", []string{up, "--admin=192.0.2.1:8081"}},
	{"--admin", "want another port", []string{up, "--listen=[::]:9000", "--admin=127.0.0.1:9000"}},
	{"--admin", "want another port", []string{up, "--listen=localhost:9000", "--admin=LOCALHOST:9000"}},
	{"--admin", `but route "/*" leads to it`, []string{"--upstream=ws://localhost:8081", "--admin=127.0.0.1:8081"}},
	{"--admin", `but route "/*" leads to it`, []string{"--upstream=ws://LOCALHOST.:8081", "--admin=127.0.0.1:8081"}},
	{"--tls-cert", "requires --tls-key", []string{up, "--tls-cert=c.pem"}},
	{"--tls-key", "requires --tls-cert", []string{up, "--tls-key=k.pem"}},
	{"--webhook", "requires --webhook-secret-file", []string{up, "--webhook=https://api.example/events"}},
	{"--webhook-secret-file", "--webhook", []string{up, "--webhook-secret-file=secret"}},
	{"--acme-domain", "got both", []string{up, "--tls-cert=c.pem", "--tls-key=k.pem", "--acme-domain=game.example"}},
	{"--acme-directory", "requires --acme-domain", []string{up, "--acme-directory=https://ca.example/"}},
	{"--acme-directory", "requires --acme-domain", []string{up, "--tls-cert=c.pem", "--tls-key=k.pem", "--acme-directory=https://ca.example/"}},
	{"--acme-cache", "requires --acme-domain", []string{up, "--acme-cache=dir"}},
	{"--auth-key-file", "--demo", []string{"--demo", "--auth-key-file=login.pem"}},
	{"--auth-jwks", "--demo", []string{"--demo", "--route=/a/*=ws://a:1", "--auth-jwks=https://login.example/keys"}},
	{"--auth-jwks", "want it or --auth-key-file, got both", []string{up, "--auth-key-file=k", "--auth-jwks=https://id.example/jwks"}},
	{`--route "/a/*": auth-jwks`, "got both", []string{"--route=/a/*=ws://a:1;auth-key-file=own.pem;auth-jwks=https://own.example/keys"}},

	// the cluster
	{"--cluster", "requires --token-key-file", []string{up, "--cluster=nats://127.0.0.1"}},
	{"--node-name", "requires --cluster", []string{up, "--node-name=n1"}},
	{"--durable", "requires --cluster", []string{up, "--durable=on"}},
	{`--route "/a/*": durable`, "requires --cluster", []string{"--route=/a/*=ws://game:9000;durable=on"}},
	{"--cluster", "nats://10.0.0.1:4222 is on another machine: use tls://10.0.0.1:4222, or plaintext://10.0.0.1:4222", append(inNATS, "--cluster=nats://127.0.0.1", "--cluster=nats://u:p@10.0.0.1")},
	{"--cluster", "nats://nats:4222 is on another machine", append(inNATS, "--cluster=nats://nats")},
	{"--cluster", "nats://0.0.0.0:4222 is on another machine", append(inNATS, "--cluster=nats://0.0.0.0")},
	{"--cluster", `want nats://HOST:4222 or tls://HOST:4222, got "x`, append(inNATS, "--cluster=x")},
	{"--node-listen", "want another port than --listen and --admin", append(inNATS, "--cluster=nats://127.0.0.1", "--node-listen=:8080")},
}

func TestMistakesAreRefusedWithTheirSetting(t *testing.T) {
	for _, c := range refused {
		var environ, args []string
		for _, arg := range c.args {
			if strings.HasPrefix(arg, "RESEAT_") {
				environ = append(environ, arg)
			} else {
				args = append(args, arg)
			}
		}
		if said := wantRefused(t, c.setting, environ, args...); !strings.Contains(said, c.says) {
			t.Errorf("%q: said %q, want %q in it", c.args, said, c.says)
		}
	}
	if said := wantRefused(t, "--grace", nil, up, "--grace", strings.Repeat("é", 1<<20)); len(said) > 300 {
		t.Errorf("an error of %d bytes quotes a long value", len(said))
	}
}

// An operator who sets one of these believes that players need a login.
func TestLoginSettingsWithoutKeysAreRefused(t *testing.T) {
	for _, said := range []string{"auth-issuer=me", "auth-audience=you", "auth-forward=off", "auth-from=query:jwt"} {
		name, _, _ := strings.Cut(said, "=")
		for setting, args := range map[string][]string{
			"--" + name:             {up, "--" + said},
			`--route "/a": ` + name: {up, "--auth-audience=you", "--route=/b=ws://b:1;auth-key-file=login.pem", "--route=/a=ws://a:1;" + said},
		} {
			if text := wantRefused(t, setting, nil, args...); !strings.Contains(text, "requires --auth-jwks or --auth-key-file") {
				t.Errorf("%q: said %q, want --auth-key-file in it", args, text)
			}
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
}

// A trial on a laptop in a café is not served to the café.
// A page that rebinds its name to this machine is of another host.
func TestDevServesLoopbackNamesAlone(t *testing.T) {
	for args, want := range map[string][]string{
		"--dev":                                 {"localhost", "127.0.0.1", "[::1]", "127.0.0.1"},
		"--dev --listen 127.0.0.2:80":           {"localhost", "127.0.0.1", "[::1]", "127.0.0.2"},
		"--dev --host game.test":                {"game.test"},
		"":                                      nil,
		"--dev --dev-token-file t --listen :80": nil,
	} {
		if s := mustParse(t, nil, append(strings.Fields(args), up)...); !slices.Equal(s.Gateway.Hosts, want) {
			t.Errorf("%s: hosts %q, want %q", args, s.Gateway.Hosts, want)
		}
	}
}

func TestDevListensOnLoopbackByDefault(t *testing.T) {
	for want, args := range map[string][]string{"127.0.0.1:8080": {"--dev"}, "[::1]:80": {"--dev", "--listen=[::1]:80"}, ":8080": {"--dev=false"}} {
		if got := mustParse(t, nil, append(args, "--upstream=ws://a:1")...); got.Listen != want {
			t.Errorf("%q: %s, want %s", args, got.Listen, want)
		}
	}
}

func TestApparentContradictionsAreAccepted(t *testing.T) {
	for _, args := range [][]string{
		{"--demo", "--route=/a/*=ws://a:1"},
		{"--upstream=ws://a:1", "--route=/a/*=ws://a:1", "--route=/a/{b}=ws://a:1", "--route=/a/{b}/*=ws://a:1", "--route=/a=ws://a:1"},
		{"--upstream=ws://a:1", "--demo=false"},
		{"--demo", "--listen=:0", "--admin=127.0.0.1:0"},
		{"--dev", "--upstream=ws://a:1", "--listen=:8080", "--dev-token-file=x"},
		{"--upstream=ws://a:1", "--route=/reseat.dev/faults=ws://a:1"},
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
		append(inNATS, "--cluster=nats://10.0.0.1", "--cluster=tls://10.0.0.2"),
		append(inNATS, "--cluster=nats://10.0.0.1", "--cluster-ca=ca"),
	} {
		mustParse(t, nil, args...)
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

// A flag of an earlier version is refused with what there is in its place, wherever it is set.
func TestFlagsThatAreGoneNameWhatReplacedThem(t *testing.T) {
	for name, instead := range gone {
		if lookup(name) != nil {
			t.Errorf("--%s is gone, and in the table", name)
		}
		for _, at := range []struct{ args, environ []string }{
			{[]string{"--demo", "--" + name + "=x"}, nil},
			{[]string{"--demo"}, []string{"RESEAT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "=x"}},
		} {
			if _, err := Parse(at.args, at.environ); err == nil || !strings.Contains(err.Error(), instead) {
				t.Errorf("%q %q: %v, want %q", at.args, at.environ, err, instead)
			}
		}
	}
}

// game is the shortest complete command line.
const game = "--route=/game/*=ws://game:9000"

func mustParse(t *testing.T, environ []string, args ...string) *Settings {
	t.Helper()
	s, err := Parse(args, environ)
	if err != nil {
		t.Fatalf("Parse(%q, %q): %v", args, environ, err)
	}
	return s
}

// wantRefused parses and checks that the error is one printable line that begins with the
// setting. It returns the rest of the line.
func wantRefused(t *testing.T, setting string, environ []string, args ...string) string {
	t.Helper()
	s, err := Parse(args, environ)
	if err == nil {
		t.Fatalf("Parse(%q, %q) = %+v, want a refusal", args, environ, s)
	}
	var usage *UsageError
	if !errors.As(err, &usage) || s != nil {
		t.Fatalf("Parse(%q, %q) = %v, %T %v; want nil and a *UsageError", args, environ, s, err, err)
	}
	wantLine(t, err.Error())
	text, ok := strings.CutPrefix(err.Error(), setting+": ")
	if !ok {
		t.Errorf("error is %q, want it to begin with %q", err, setting+": ")
	}
	return text
}

// wantLine checks that text is one printable line.
func wantLine(t *testing.T, text string) {
	t.Helper()
	odd := func(r rune) bool { return !strconv.IsPrint(r) }
	if text == "" || strings.ContainsFunc(text, odd) || len(text) > 600 {
		t.Errorf("%q is not one line of printable text", text)
	}
}
