//go:build linux

package proxy

import (
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain also runs a program that listens and ignores SIGTERM.
func TestMain(m *testing.M) {
	if addr := os.Getenv("LISTEN"); addr != "" && len(os.Args) == 1 {
		signal.Ignore(syscall.SIGTERM)
		l, err := net.Listen("tcp", addr)
		for err == nil {
			_, err = l.Accept()
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestStopEndsAllProcesses(t *testing.T) {
	addr := freeAddr()
	t.Setenv("LISTEN", addr.String())
	p, err := start(Place{Dir: t.TempDir()}, addr, 2, "sh", "-c", "trap '' TERM; "+os.Args[0]+" & wait; wait")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := CPU(p.PIDs)
	memory, err2 := Memory(p.PIDs)
	if err != nil || err2 != nil || cpu <= 0 || memory <= 0 {
		t.Errorf("they use %v, %v and %d bytes, %v", cpu, err, memory, err2)
	}
	p.Stop()
	for until := time.Now().Add(30 * time.Second); !ended(p.PIDs[1]); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the second process is still there after 30 s")
		}
	}
}

func TestProxyThatFailsToStartReportsItsLog(t *testing.T) {
	_, err := start(Place{Dir: t.TempDir()}, freeAddr(), 1, "sh", "-c", "echo the config is wrong; exit 1")
	if err == nil || !strings.Contains(err.Error(), "the config is wrong (it has ended: exit status 1)") {
		t.Errorf("%v, want the program's output and status", err)
	}
}
