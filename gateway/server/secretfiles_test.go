package server

import (
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
		Run([]string{"--demo", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log-format=json", c.arg}, nil, io.Discard, &said, signals)
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
	var said strings.Builder
	if status := Run([]string{"--demo", "--listen=127.0.0.1:0", "--token-key-file=" + name}, nil, &said, &said, nil); status != 2 || !strings.Contains(said.String(), "want a file that others cannot write") {
		t.Errorf("start: exit status %d, %s", status, said.String())
	}
	if status, report, _ := once("check", "--demo", "--token-key-file="+name); status != 2 || !strings.Contains(report, "FAIL  files with secrets: --token-key-file: ") {
		t.Errorf("check: exit status %d, %s", status, report)
	}
}
