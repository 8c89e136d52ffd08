//go:build linux

package process

import (
	"net"
	"os"
	"os/exec"
	"testing"
)

// TestMain is also the process that connects, in the test below.
func TestMain(m *testing.M) {
	if addr := os.Getenv("CONNECT_TO"); addr != "" {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Read(make([]byte, 1))
		}
		return
	}
	m.Run()
}

// A connection is attributed to the process that made it, and to none once that is gone.
func TestPartiesNameTheProcessThatConnects(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := NewParties()
	for _, name := range []string{"n0", "n1"} {
		args := append(p.Prefix(name), self)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CONNECT_TO="+ln.Addr().String())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Of(c); got != name {
			t.Errorf("a connection of %s is attributed to %q", name, got)
		}
		cmd.Process.Kill()
		cmd.Wait()
		if got := p.Of(c); got != "" {
			t.Errorf("a connection of %s, which has ended, is attributed to %q", name, got)
		}
		c.Close()
	}
}
