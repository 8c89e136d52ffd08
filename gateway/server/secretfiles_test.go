package server

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// check and a start must warn alike of a secret that others may read, or that is weak.
func TestExposedAndWeakSecretsAreWarnedAbout(t *testing.T) {
	file := func(text string, mode os.FileMode) string {
		name := writeFile(t, filepath.Join(t.TempDir(), "secret"), text)
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const good = "q8Zr1xKw0mVb5tYp3nLc7dHs9fJg2aQe"
	for name, c := range map[string]struct{ arg, want string }{
		"readable key":       {"--token-key-file=" + file(good, 0o644), "may be read by everybody on this machine: chmod 600 it"},
		"key of the group's": {"--token-key-file=" + file(good, 0o640), "may be read by its group"},
		"weak key":           {"--token-key-file=" + file(strings.Repeat("a", 40), 0o600), "not random"},
		"readable login key": {"--auth-key-file=" + file(good, 0o644), "may be read by everybody"},
		"weak login key":     {"--auth-key-file=" + file(strings.Repeat("a", 40), 0o600), "not random"},
		"writable settings":  {"--config=" + file("grace = \"45s\"", 0o666), "may be written by everybody on this machine: chmod o-w it"},
		"readable token":     {"--admin-token-file=" + file(good, 0o644), "--admin-token-file: "},
	} {
		_, report, _ := once("check", "--upstream=ws://127.0.0.1:9", c.arg)
		flag, _, _ := strings.Cut(c.arg, "=")
		if !strings.Contains(report, "WARN  "+flag+": ") || !strings.Contains(report, c.want) {
			t.Errorf("%s: check says %s", name, report)
		}
		var said strings.Builder
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGTERM // as soon as it serves
		Run([]string{"--upstream=ws://127.0.0.1:9", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log-format=json", c.arg}, nil, io.Discard, &said, signals)
		if !strings.Contains(said.String(), `"msg":"settings.warning","flag":"`+flag+`"`) || !strings.Contains(said.String()+flag+": ", c.want) {
			t.Errorf("%s: the start says %s", name, said.String())
		}
	}
	_, report, _ := once("check", "--upstream=ws://127.0.0.1:9", "--token-key-file="+file(good, 0o600))
	if strings.Contains(report, "WARN") {
		t.Errorf("a good key: %s", report)
	}
}

func TestWorldWritableSecretIsRefused(t *testing.T) {
	name := writeFile(t, filepath.Join(t.TempDir(), "secret"), "q8Zr1xKw0mVb5tYp3nLc7dHs9fJg2aQe")
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--token-key-file", "--auth-key-file", "--auth-jwks"} {
		var said strings.Builder
		if status := Run([]string{"--upstream=ws://127.0.0.1:9", "--listen=127.0.0.1:0", flag + "=" + name}, nil, &said, &said, nil); status != 2 || !strings.Contains(said.String(), flag+": want a file that others cannot write") {
			t.Errorf("start: exit status %d, %s", status, said.String())
		}
		if status, report, _ := once("check", "--upstream=ws://127.0.0.1:9", flag+"="+name); status != 2 || !strings.Contains(report, "FAIL  files with secrets: "+flag+": ") {
			t.Errorf("check: exit status %d, %s", status, report)
		}
	}
}

func TestPublicKeyOfLoginsMayBeRead(t *testing.T) {
	key, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	name := writeFile(t, filepath.Join(t.TempDir(), "login.pub"), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, report, _ := once("check", "--upstream=ws://127.0.0.1:9", "--auth-audience=game", "--auth-key-file="+name); strings.Contains(report, "WARN") {
		t.Error(report)
	}
}
