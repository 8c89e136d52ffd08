//go:build linux

package proxy

import (
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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

func TestEachDriverIsASubject(t *testing.T) {
	for help, want := range map[string]string{
		"--driver auto|net|poll|uring": "reseat@net plain@net hs256@net eddsa@net nodes3@net nodes5@net hop@net single@net reseat@poll plain@poll hs256@poll eddsa@poll nodes3@poll nodes5@poll hop@poll",
		"--grace DUR":                  "reseat plain hs256 eddsa nodes3 nodes5 hop single",
	} {
		var names []string
		for _, s := range Subjects(help) {
			names = append(names, s.Name)
		}
		if got, want := strings.Join(names, " "), "direct nginx haproxy library floor "+want; got != want {
			t.Errorf("%s: %s, want %s", help, got, want)
		}
	}
}

func TestStopEndsAllProcesses(t *testing.T) {
	addr := freeAddr()
	t.Setenv("LISTEN", addr.String())
	p, err := start(Place{Dir: t.TempDir()}, addr, 2, nil, "sh", "-c", "trap '' TERM; "+os.Args[0]+" & wait; wait")
	if err != nil {
		t.Fatal(err)
	}
	var alive []unix.PollFd // readable when its process ends
	for _, pid := range p.PIDs {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		alive = append(alive, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	each, err := Times(p.PIDs)
	memory, err2 := MemoryOf(p.PIDs)
	if err != nil || err2 != nil || len(each) != 2 || each[1] <= 0 || memory.RSS < memory.PSS || memory.PSS <= 0 {
		t.Errorf("they use %v, %v and %+v, %v", each, err, memory, err2)
	}
	p.Stop()
	for i := range alive {
		if n, err := unix.Poll(alive[i:i+1], 30_000); n != 1 {
			t.Errorf("process %d is still there: %v", p.PIDs[i], err)
		}
	}
	if _, err := CPU(p.PIDs); err == nil {
		t.Error("processor time of processes that have ended, want an error")
	}
}

func TestProxyThatFailsToStartReportsItsLog(t *testing.T) {
	_, err := start(Place{Dir: t.TempDir()}, netip.MustParseAddrPort("127.0.0.1:1"), 1, nil, "sh", "-c", "echo the config is wrong; exit 1")
	if err == nil || !strings.Contains(err.Error(), "the config is wrong (it has ended: exit status 1)") {
		t.Errorf("%v, want the program's output and status", err)
	}
}
