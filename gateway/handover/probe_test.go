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

func TestProbeFindsListenerWithoutConnecting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := Probe(path); !errors.Is(err, ErrNobody) {
		t.Errorf("%v before anybody listens", err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := Probe(path); err != nil {
		t.Error(err)
	}
	ln.SetDeadline(time.Unix(1, 0))
	if c, err := ln.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the listener was given a connection: %v, %v", c, err)
	}
	ln.Close()
	if err := Probe(path); !errors.Is(err, ErrNobody) {
		t.Errorf("%v at the socket of a process that has exited", err)
	}
}

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

func TestListenPathMayHaveAllBytesThatFit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("x", 107-len(dir)-1))
	ln, err := Listen(path, false)
	if err != nil {
		t.Fatalf("a path of %d bytes: %v", len(path), err)
	}
	ln.Close()
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
