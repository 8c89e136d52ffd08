//go:build linux

package handover

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProbeRefusesSocketOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.Chown(path, os.Geteuid()+1, -1); err != nil {
		t.Skip("only root can give a file away")
	}
	if err := Probe(path); err == nil || !strings.Contains(err.Error(), "user") {
		t.Errorf("%v for the socket of another user", err)
	}
}

func TestSecondListenerDoesNotDisturbTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "upgrade.sock")
	first, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := Listen(path, false); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v", err)
	}
	first.ln.SetDeadline(time.Unix(1, 0))
	if c, err := first.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first was given a connection: %v, %v", c, err)
	}
}

func TestProbeListenNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "s"):         "",
		filepath.Join(dir, "none", "s"): "no such file or directory",
		filepath.Join(file, "s"):        "not a directory",
		file:                            "not a socket",
	} {
		err := ProbeListen(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
