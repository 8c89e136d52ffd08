package server

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"reseat/gateway/internal/test/testcert"
)

// startedWith starts the program, stops it at once, and returns its exit status and log.
func startedWith(args, environ []string) (status int, said string) {
	var log bytes.Buffer
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	status = Run(args, environ, io.Discard, &log, signals)
	return status, log.String()
}

// A mistake is refused, or warned about, in one line that says what to do: by check and by
// a start alike.
func TestCheckReportsCommonMistakes(t *testing.T) {
	dir := t.TempDir()
	pair, other := testcert.New(t, "game.example"), testcert.New(t, "game.example")
	cert, key := pair.Write(dir)
	otherDir := t.TempDir()
	_, otherKey := other.Write(otherDir)
	file := func(name, text string, mode os.FileMode) string {
		name = writeFile(t, filepath.Join(dir, name), text)
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const good = "q8Zr1xKw0mVb5tYp3nLc7dHs9fJg2aQe"
	secret, empty, readable := file("secret", good, 0o600), file("empty", "", 0o600), file("readable", good, 0o644)
	tokens, signs := file("tokens", "an-admin-token-0123", 0o600), file("signs", webhookSecret, 0o600)
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	os.Chmod(open, 0o777)
	misspelt := file("misspelt.toml", "grce = \"5s\"\n", 0o600)
	late := file("late.toml", "[[route]]\npattern = \"/a\"\nupstream = \"ws://127.0.0.1:1\"\n\nlisten = \":80\"\n", 0o600)
	section := file("section.toml", "[server]\nlisten = \":80\"\n", 0o600)
	unquoted := file("unquoted.toml", "grace = 45s\n", 0o600)
	marked := file("marked.toml", "\ufeffgrace = \"1ms\"\n", 0o600)
	weak := file("weak", "changeme\n", 0o600)
	locked := file("locked", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", 0o600)
	game := startGame(t, nil)
	at := game.url("ws")
	_, port, _ := net.SplitHostPort(game.Addr().String())
	const warned, refused = 0, 2
	for _, c := range []struct {
		args   string // separated by blanks; UP stands for a good --upstream
		status int
		want   string
	}{
		// names
		{"UP --grce=5s", refused, "--grce: unknown flag; the nearest is --grace"},
		{"UP -grace=5s", refused, "-grace: unknown flag; the nearest is --grace"},
		{"UP serve", refused, "not a flag: flags begin with --"},
		{"chek UP", refused, "\"chek\": not a flag: flags begin with --; the nearest command is check"},
		{"UP --grace=5s check", refused, "want it before the flags: reseat check"},
		{"--route=/a/*=" + at + ";grce=5s", refused, "grce: unknown setting; the nearest is grace"},
		{"--route=/a/*=" + at + ";listen=:1", refused, "listen: is a global setting"},
		{"UP --config=" + misspelt, refused, "misspelt.toml:1: grce: unknown setting; the nearest is grace"},
		{"UP --config=/no/such.toml", refused, "want a TOML file"},
		{"UP --config=" + late, refused, "late.toml:5: route \"/a\": listen: is a global setting and cannot be set for a route: put it above the first [[route]]"},
		{"UP --config=" + section, refused, "section.toml:1: server: want settings without a section, got [server]"},
		{"UP --config=" + unquoted, refused, "unquoted.toml:1: want TOML"},
		{"UP --config=" + marked, warned, "--grace: route /*: 1ms is too short"}, // with a byte order mark
		{"UP --grace=5s --grace=6s", refused, "want one value, got 2"},
		{"UP --upstream=ws://127.0.0.1:1", refused, "--upstream: want one value"},
		{"--listen=127.0.0.1:0", refused, "want at least one of them"},
		{"UP --demo", refused, "got both"},
		// units
		{"UP --grace=30", refused, "want a duration such as 45s"},
		{"UP --grace=30sec", refused, "want a duration such as 45s"},
		{"UP --heartbeat=15000", refused, "want a duration"},
		{"UP --buffer-total=1GB", refused, "want a size such as 65536, 64KiB, 1MiB or 2GiB"},
		{"UP --max-message=1m", refused, "want a size"},
		{"UP --buffer-bytes=64", warned, "--buffer-bytes: route /*: 64 bytes: unit missing?"},
		{"UP --max-message=16", warned, "--max-message: route /*: 16 bytes: unit missing?"},
		{"UP --max-bytes-rate=64", warned, "64 bytes per second: unit missing?"},
		{"UP --grace=45ms", warned, "--grace: route /*: 45ms is too short"},
		{"UP --heartbeat=5m", warned, "--heartbeat: route /*: 5m0s: many proxies close"},
		{"UP --buffer-bytes=2GiB", warned, "more than --buffer-total 1GiB"},
		{"UP --max-message=1GiB --buffer-total=1MiB --buffer-bytes=1MiB", warned, "the largest messages never fit"},
		{"UP --max-sessions=1000000000", warned, "raise it (ulimit -n, LimitNOFILE)"},
		{"UP --keepalive-send=25:ping", refused, "want a duration"},
		// addresses and schemes
		{"--upstream=localhost:9000", refused, "want a ws://, wss://, http:// or https:// URL"},
		{"--upstream=127.0.0.1:9000", refused, "want a ws://, wss://, http:// or https:// URL, got \"127.0.0.1:9000\": is ws://127.0.0.1:9000 meant?"},
		{"--upstream=game:9000/play", refused, "is ws://game:9000/play meant?"},
		{"--upstream=[::1]:9000", refused, "is ws://[::1]:9000 meant?"},
		{"--upstream=tcp://localhost:9000", refused, "want a ws://, wss://, http:// or https:// URL"},
		{"--upstream=ws://localhost:90000", refused, "want a port from 1 to 65535"},
		{"--upstream=ws://0.0.0.0:" + port, warned, "is an address for listening only"},
		{"--upstream=ws://localhost:8080 --listen=:8080", warned, "is this gateway itself (--listen :8080)"},
		{"--upstream=ws://localhost:8081 --admin=127.0.0.1:8081", refused, "but route \"/*\" leads to it"},
		{"--upstream=ws://LOCALHOST.:8081 --admin=127.0.0.1:8081", refused, "but route \"/*\" leads to it"},
		{"UP --listen=8080", refused, "want HOST:PORT such as :8080"},
		{"UP --listen=http://:8080", refused, "want HOST:PORT"},
		{"UP --listen=:80800", refused, "want HOST:PORT such as :8080 or [::1]:8080, with a port from 0 to 65535, got"},
		{"UP --admin=127.0.0.1:80800", refused, "with a port from 0 to 65535"},
		{"UP --admin-token-file=" + weak, warned, "--admin-token-file: tokens of less than 16 characters, or of less than 6 different ones, might be guessed: line 1"},
		{"UP --admin=:8081", refused, "can reach that address without a token; see --admin-token-file"},
		{"UP --admin=0.0.0.0:0 --admin-token-file=" + tokens, warned, "tokens are sent in plain text"},
		{"UP --listen=127.0.0.1:8081 --admin=127.0.0.1:8081", refused, "want another port"},
		{"UP --trusted-proxy=10.0.0.0", warned, "write 10.0.0.0/8 for the network"},
		{"UP --trusted-proxy=0.0.0.0/0", warned, "any client can forge its own"},
		{"UP --trusted-proxy=nginx", refused, "want an address or a CIDR block"},
		{"UP --trusted-proxy=10.1.2.3/8", refused, "is 10.1.2.3 meant, or the network 10.0.0.0/8?"},
		{"UP --trusted-proxy=10.0.0.0/8,192.168.0.0/16", refused, "; repeat the flag for each value"},
		{"UP --origin=https://a.example,https://b.example", refused, "; repeat the flag for each value"},
		{"UP --host=a.example,b.example", refused, "; repeat the flag for each value"},
		{"UP --listen=127.0.0.1:0 --max-sessions-per-ip=5", warned, "have the address of a local proxy: set --trusted-proxy"},
		{"UP --upstream-allow=*:*", warned, "connect to any host"},
		{"UP --upstream-allow=game:*", warned, "connect to any port there"},
		{"UP --upstream-allow=ws://game:9000", refused, "want HOST:PORT"},
		{"UP --upstream-ca=" + cert, warned, "--upstream-ca: route /*: no effect: ws:// has no TLS"},
		// routes
		{"--route=/chess=" + at, warned, "matches this path only; for the paths below it, add /chess/*"},
		{"--route=/chess/=" + at, warned, "for the paths below it, add /chess/*"},
		{"--route=/chess*=" + at, warned, "matches every path with that prefix, such as /chessx"},
		{"--route=/room/:id=" + at, warned, "write parameters as {id}"},
		{"--route=chess/*=" + at, refused, "want PATTERN=URL"},
		{"--route=/chess/*" + at, refused, "want PATTERN=URL"},
		{"--route=/a/*=" + at + " --route=/a/*=" + at, refused, "but --route \"/a/*\" matches the same paths"},
		{"--route=/room/{id}=" + at + " --route=/room/{name}=" + at, refused, "want a distinct pattern"},
		{"--route=/a%2fb/*=" + at, refused, "want a pattern in decoded, clean form"},
		{"UP --route=/ranked/*=" + at + ";auth-audience=a;auth-key-file=" + secret, warned, "does not match /ranked, which goes to route /* with weaker protection"},
		// pages and logins
		{"UP --origin=play.example", refused, "want SCHEME://HOST[:PORT]"},
		{"UP --origin=https://play.example/", refused, "without a path"},
		{"UP --origin=null", refused, "any page can have that origin"},
		{"UP --origin=https://cdn.example --host=play.example", warned, "pages from play.example itself are refused: add --origin https://play.example"},
		{"UP --origin=https://*.com", warned, "every site under that top-level domain"},
		{"UP --origin=* --plain-resume=cookie", warned, "lets any website act as its visitor"},
		{"--demo --origin=https://play.example", warned, "the demo's page must be at one of the listed origins"},
		{"UP --host=https://play.example", refused, "want a host such as game.example"},
		{"UP --auth-from=cookie:sid", refused, "requires --auth-jwks or --auth-key-file"},
		{"UP --auth-key-file=" + secret, warned, "--auth-audience: route /*: not set"},
		{"UP --auth-audience=a --auth-key-file=" + secret + " --token-key-file=" + secret, warned, "same file as --token-key-file"},
		{"UP --auth-key-file=" + secret + " --auth-jwks=https://id.example/jwks", refused, "--auth-jwks: want it or --auth-key-file, got both"},
		{"UP --duplicate=reject", warned, "no effect without player logins"},
		{"UP --flood=end", warned, "no effect without --max-rate"},
		{"UP --grace=0 --plain-resume=cookie", warned, "no effect: with --grace 0"},
		{"UP --on-detach={sesion}-left", warned, "{sesion} is sent literally"},
		{"UP --on-detach={player}-left", warned, "{player} is empty"},
		{"UP --log-messages=prefix:64", warned, "the log contains what players send"},
		// files and TLS
		{"UP --tls-cert=" + cert + " --tls-key=" + locked, refused, "is encrypted: want a key without a passphrase"},
		{"UP --token-key-file=/no/such/key", refused, "no such file"},
		{"UP --token-key-file=" + empty, refused, empty},
		{"UP --token-key-file=" + cert, refused, cert},
		{"UP --token-key-file=" + readable, warned, "chmod 600 it"},
		{"UP --token-key-file=" + dir, refused, dir},
		{"UP --admin-token-file=" + empty, refused, "want a token, got an empty file"},
		{"UP --admin-token-file=" + tokens + " --viewer-token-file=" + tokens, refused, "is in --admin-token-file too"},
		{"UP --tls-cert=" + cert, refused, "requires --tls-key"},
		{"UP --tls-key=" + key, refused, "requires --tls-cert"},
		{"UP --tls-cert=" + key + " --tls-key=" + cert, refused, "--tls-cert"},
		{"UP --tls-cert=" + cert + " --tls-key=" + otherKey, refused, "--tls-key"},
		{"UP --tls-cert=" + cert + " --tls-key=" + key + " --host=play.example", warned, "not valid for --host play.example"},
		{"UP --tls-cert=" + cert + " --tls-key=" + key + " --token-key-file=" + key, warned, "same file as --tls-key"},
		{"UP --tls-cert=" + cert + " --tls-key=" + key + " --origin=http://play.example", warned, "allows pages served without TLS"},
		{"UP --acme-domain=play.example --tls-cert=" + cert + " --tls-key=" + key, refused, "got both"},
		{"UP --acme-domain=*.play.example", refused, "without *"},
		{"UP --acme-domain=play.example --acme-directory=https://127.0.0.1:9/d --acme-cache=" + open, warned, "may be written by everybody on this machine"},
		{"UP --acme-domain=play.example --acme-directory=https://127.0.0.1:9/d --acme-cache=" + dir, warned, "the CA connects to port 443 of each name"},
		{"UP --acme-cache=" + dir, refused, "requires --acme-domain"},
		{"UP --webhook=http://hooks.example/x", refused, "requires --webhook-secret-file"},
		{"UP --webhook=http://hooks.invalid/x --webhook-secret-file=" + signs, warned, "are sent in plain text: use https"},
		{"UP --webhook=https://127.0.0.1:9/x --webhook-secret-file=" + tokens, refused, "line 1"},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Fields(strings.Replace(c.args, "UP", "--upstream="+at, 1))
			status, report, errs := once(append([]string{"check"}, args...)...)
			line := ""
			for l := range strings.Lines(report + errs) {
				if strings.Contains(l, c.want) {
					line = strings.TrimSpace(l)
				}
			}
			switch {
			case line == "":
				t.Fatalf("status %d, want a line with %q:\n%s%s", status, c.want, report, errs)
			case c.status == refused && status != 2:
				t.Errorf("check: status %d, want 2", status)
			case c.status == warned && !strings.HasPrefix(line, "WARN  "):
				t.Errorf("%q is no warning", line)
			case c.status == warned && status == 2:
				t.Errorf("check: status 2, want a warning alone:\n%s%s", report, errs)
			}
			args = append(args, "--drain=1ms", "--log-format=text")
			for _, flag := range []string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0"} {
				name, _, _ := strings.Cut(flag, "=")
				if !strings.Contains(c.args, name+"=") {
					args = append(args, flag)
				}
			}
			status, said := startedWith(args, nil)
			wanted := strings.ReplaceAll(c.want, `"`, `\"`)
			if flag, text, ok := strings.Cut(wanted, ": "); ok && strings.HasPrefix(flag, "--") {
				wanted = "flag=" + flag + ` text="` + text
			}
			if c.status == refused && (status != 2 || !strings.Contains(said, c.want)) ||
				c.status == warned && (status == 2 || status == 0 && !strings.Contains(said, wanted)) {
				t.Errorf("the start: status %d, %s", status, said)
			}
		})
	}
}

// Common settings have no warning, neither by check nor by a start.
func TestGoodSettingsHaveNoWarning(t *testing.T) {
	dir := t.TempDir()
	key := writeFile(t, filepath.Join(dir, "key"), "q8Zr1xKw0mVb5tYp3nLc7dHs9fJg2aQe")
	at := startGame(t, nil).url("ws")
	for _, args := range []string{
		"--upstream=" + at,
		"--upstream=" + at + " --origin=https://play.example --host=play.example --trusted-proxy=127.0.0.1 --max-sessions-per-ip=4 --max-sessions=100",
		"--route=/chess/*=" + at + ";grace=5m --route=/room/{id}=" + at + ";overflow=end",
		`--upstream=` + at + ` --on-detach={"type":"left","session":"{session}"}`,
		"--upstream=" + at + " --route=/health=" + at,
	} {
		list := append(strings.Fields(args), "--token-key-file="+key)
		if status, report, errs := once(append([]string{"check"}, list...)...); status != 0 || strings.Contains(report+errs, "WARN") {
			t.Errorf("%s: status %d\n%s%s", args, status, report, errs)
		}
		status, said := startedWith(append(list, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--drain=1ms", "--log-format=text"), nil)
		if status != 0 || strings.Contains(said, "level=WARN") {
			t.Errorf("%s: status %d\n%s", args, status, said)
		}
	}
}
