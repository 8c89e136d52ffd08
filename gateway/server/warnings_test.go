package server

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"reseat/gateway/internal/test/testcert"
)

// startedWith starts the program, stops it at once, and returns its exit status and log.
func startedWith(args ...string) (status int, said string) {
	var log bytes.Buffer
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	args = override([]string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--drain=1ms", "--log-format=text"}, args...)
	status = Run(args, nil, io.Discard, &log, signals)
	return status, log.String()
}

const goodSecret = "q8Zr1xKw0mVb5tYp3nLc7dHs9fJg2aQe"

// mistaken writes the files that the arguments of mistakes name.
func mistaken(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	pair, other := testcert.New(t, "game.example"), testcert.New(t, "game.example")
	pair.Write(dir)
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]struct {
		mode os.FileMode
		text string
	}{
		"secret":        {0o600, goodSecret},
		"readable":      {0o644, goodSecret},
		"grouped":       {0o640, goodSecret},
		"writable":      {0o666, goodSecret},
		"weak":          {0o600, strings.Repeat("a", 40)},
		"empty":         {0o600, ""},
		"text":          {0o600, "nothing of the kind"},
		"tokens":        {0o600, "an-admin-token-0123"},
		"blank":         {0o600, "SECRET SECRET"},
		"weak-tokens":   {0o600, "changeme\n"},
		"signs":         {0o600, webhookSecret},
		"login.pub":     {0o644, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))},
		"locked.pem":    {0o600, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"},
		"other.pem":     {0o600, string(other.Key)},
		"open.toml":     {0o666, "grace = \"45s\"\n"},
		"misspelt.toml": {0o600, "\n\ngrce = \"5s\"\n"},
	} {
		if err := os.Chmod(writeFile(t, filepath.Join(dir, name), f.text), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "open"), 0o700); err != nil {
		t.Fatal(err)
	}
	os.Chmod(filepath.Join(dir, "open"), 0o777)
	return dir
}

// mistakes in the settings, in files and in what this machine has. Those of the settings alone are in the tests of package
// config. $UP is a good --upstream, $DIR has the files, and $NATS, where nobody listens, makes a cluster.
var mistakes = []struct {
	args string
	want string // of a warning, or of a refusal: its flag, and what it says; or that a warning does not come
}{
	{"$UP --grce=5s", "refused --grce: unknown flag; the nearest is --grace"},
	{"$UP --grace=30", "refused --grace: want a duration such as 45s"},
	{"$UP --grace=45ms", "warned --grace: route /*: 45ms is too short"},
	{"$UP --max-sessions=1000000000", "warned --max-sessions: raise it (ulimit -n, LimitNOFILE)"},
	{"$UP --admin=0.0.0.0:0", "refused --admin: can reach that address without a token"},

	{"$UP --config=$DIR/misspelt.toml", "refused $DIR/misspelt.toml: grce: unknown setting; the nearest is grace"},
	{"$UP --config=/no/such.toml", "refused --config: want a TOML file"},
	{"$UP --config=$DIR/open.toml", "warned --config: may be written by everybody on this machine: chmod o-w it"},

	{"$UP --token-key-file=/no/such/key", "refused --token-key-file: no such file"},
	{"$UP --token-key-file=$DIR/empty", "refused --token-key-file: $DIR/empty"},
	{"$UP --token-key-file=$DIR/cert.pem", "refused --token-key-file: $DIR/cert.pem"},
	{"$UP --token-key-file=$DIR", "refused --token-key-file: $DIR"},
	{"$UP --token-key-file=$DIR/writable", "refused --token-key-file: want a file that others cannot write"},
	{"$UP --token-key-file=$DIR/readable", "warned --token-key-file: may be read by everybody on this machine: chmod 600 it"},
	{"$UP --token-key-file=$DIR/grouped", "warned --token-key-file: may be read by its group"},
	{"$UP --token-key-file=$DIR/weak", "warned --token-key-file: not random"},
	{"$UP --token-key-file=$DIR/key.pem --tls-cert=$DIR/cert.pem --tls-key=$DIR/key.pem", "warned --token-key-file: same file as --tls-key"},

	{"$UP --auth-audience=a --auth-key-file=/no/such/file", "refused --auth-key-file: /no/such/file: "},
	{"$UP --auth-audience=a --auth-key-file=$DIR/writable", "refused --auth-key-file: want a file that others cannot write"},
	{"$UP --auth-audience=a --auth-jwks=$DIR/writable", "refused --auth-jwks: want a file that others cannot write"},
	{"$UP --auth-audience=a --auth-key-file=$DIR/readable", "warned --auth-key-file: may be read by everybody"},
	{"$UP --auth-audience=a --auth-key-file=$DIR/login.pub", "silent --auth-key-file: may be read by everybody"},
	{"$UP --auth-audience=a --auth-key-file=$DIR/weak", "warned --auth-key-file: not random"},
	{"$UP --auth-audience=a --auth-key-file=$DIR/secret --token-key-file=$DIR/secret", "warned --auth-key-file: same file as --token-key-file"},

	{"$UP --admin-token-file=/no/such/file", "refused --admin-token-file: "},
	{"$UP --viewer-token-file=/no/such/file", "refused --viewer-token-file: "},
	{"$UP --admin-token-file=$DIR/empty", "refused --admin-token-file: want a token, got an empty file"},
	{"$UP --admin-token-file=$DIR/blank", "refused --admin-token-file: "},
	{"$UP --admin-token-file=$DIR/tokens --viewer-token-file=$DIR/tokens", "refused --viewer-token-file: is in --admin-token-file too"},
	{"$UP --admin-token-file=$DIR/weak-tokens", "warned --admin-token-file: tokens of less than 16 characters, or of less than 6 different ones, might be guessed: line 1"},
	{"$UP --admin-token-file=$DIR/readable", "warned --admin-token-file: may be read by everybody"},

	{"$UP --tls-cert=$DIR/cert.pem --tls-key=/no/such/file", "refused --tls-key: /no/such/file: "},
	{"$UP --tls-cert=$DIR/cert.pem --tls-key=$DIR/locked.pem", "refused --tls-key: is encrypted: want a key without a passphrase"},
	{"$UP --tls-cert=$DIR/key.pem --tls-key=$DIR/cert.pem", "refused --tls-cert $DIR/key.pem with --tls-key $DIR/cert.pem: PEM inputs may have been switched"},
	{"$UP --tls-cert=$DIR/cert.pem --tls-key=$DIR/other.pem", "refused --tls-cert $DIR/cert.pem with --tls-key $DIR/other.pem: private key does not match"},
	{"$UP --acme-domain=play.example --acme-directory=https://127.0.0.1:9/d --acme-cache=$DIR/text", "refused --acme-cache: "},
	{"$UP --listen=:443 --acme-domain=play.example --acme-directory=https://127.0.0.1:9/d --acme-cache=$DIR/open", "warned --acme-cache: may be written by everybody on this machine"},

	{"$UP --webhook=https://127.0.0.1:9/x --webhook-secret-file=/no/such/file", "refused --webhook-secret-file: want a file of secrets, got"},
	{"$UP --webhook=https://127.0.0.1:9/x --webhook-secret-file=$DIR/tokens", "refused --webhook-secret-file: line 1"},

	{"$NATS --cluster-creds=/no/such/file", "refused --cluster-creds: open /no/such/file"},
	{"$NATS --cluster-creds=$DIR/text", "refused --cluster-creds: $DIR/text: want NATS user credentials, or the seed of a user's nkey"},
	{"$NATS --cluster-ca=$DIR/text", "refused --cluster-ca: $DIR/text: has no certificate in PEM"},
}

// A mistake is refused, or warned about, in one line that says what to do: by check and by
// a start alike. Check goes on after a file that is refused.
func TestCheckAndStartReportMistakesAlike(t *testing.T) {
	dir := mistaken(t)
	closed := closedGame(t)
	up := "--upstream=" + startGame(t, nil).url("ws")
	fill := strings.NewReplacer("$UP", up, "$DIR", dir,
		"$NATS", up+" --token-key-file="+dir+"/secret --node-listen=127.0.0.1:0 --cluster=nats://"+closed.Addr().String()).Replace
	for _, c := range mistakes {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Fields(fill(c.args))
			kind, rest, _ := strings.Cut(fill(c.want), " ")
			flag, text, _ := strings.Cut(rest, ": ")
			has := func(said, flag string) bool {
				for line := range strings.Lines(said) {
					if i := strings.Index(line, flag); i >= 0 && strings.Contains(line[i:], text) {
						return true
					}
				}
				return false
			}
			checked, report, errs := once(append([]string{"check"}, args...)...)
			started, said := startedWith(args...)
			switch kind {
			case "warned":
				if checked == 2 || !has(report, "WARN  "+flag+": ") {
					t.Errorf("check: status %d, want the warning %s:\n%s%s", checked, rest, report, errs)
				}
				if started == 2 || started == 0 && !has(said, "level=WARN msg=settings.warning flag="+flag) && !has(said, "level=WARN msg=admin.tokens_weak flag="+flag) {
					t.Errorf("the start: status %d, want the warning %s:\n%s", started, rest, said)
				}
			case "silent":
				if checked == 2 || started == 2 || has(report+said, flag) {
					t.Errorf("check: status %d, the start: %d, want no warning %s:\n%s%s", checked, started, rest, report, said)
				}
			case "refused":
				if checked != 2 || !has(report+errs, flag+": ") || report != "" && !strings.Contains(report, " upstream ") {
					t.Errorf("check: status %d, want the refusal %s, and the other parts:\n%s%s", checked, rest, report, errs)
				}
				if started != 2 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "reseat: ") || !has(said, flag+": ") {
					t.Errorf("the start: status %d, want the one line %s:\n%s", started, rest, said)
				}
			}
			if strings.Contains(report+errs+said, "SECRET") {
				t.Errorf("a secret is shown:\n%s%s%s", report, errs, said)
			}
		})
	}
}
