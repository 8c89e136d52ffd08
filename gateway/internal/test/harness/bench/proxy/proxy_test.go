//go:build linux

package proxy

import (
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDriversAreReadFromHelp(t *testing.T) {
	for help, want := range map[string][]string{
		"  --grace DUR  how long":                           {""},
		"  --driver auto|net|poll\n       what moves bytes": {"net", "poll"},
		"  --driver net|poll  what moves bytes [net]":       {"net", "poll"},
	} {
		if got := drivers(help); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", help, got, want)
		}
	}
}

func TestEachDriverIsASubject(t *testing.T) {
	var names []string
	for _, s := range Subjects("--driver auto|net|poll") {
		names = append(names, s.Name)
	}
	got := strings.Join(names, " ")
	if want := "direct nginx haproxy library floor reseat@net plain@net hs256@net eddsa@net nodes3@net nodes5@net hop@net single@net reseat@poll plain@poll hs256@poll eddsa@poll nodes3@poll nodes5@poll hop@poll"; got != want {
		t.Errorf("%s", got)
	}
	if s := Subjects("")[5]; s.Name != "reseat" || s.Base() != "reseat" || !s.Does("W1") {
		t.Errorf("%+v", s)
	}
	if s := (Subject{Name: "single@poll", Only: []string{"W2"}}); s.Base() != "single" || s.Does("W1") || !s.Does("W2") {
		t.Errorf("%+v", s)
	}
}

// child starts a shell that runs script and waits for its standard input.
func child(t *testing.T, script string) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", script+"; echo done; read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// A process's CPU time does not include its children's.
func TestCPUTimeExcludesChildren(t *testing.T) {
	busy := child(t, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	idle := child(t, ":")
	a, err := CPU([]int{busy})
	if err != nil {
		t.Fatal(err)
	}
	b, err := CPU([]int{idle})
	if err != nil {
		t.Fatal(err)
	}
	both, err := CPU([]int{busy, idle})
	if err != nil || a <= b || b <= 0 || both != a+b {
		t.Errorf("%v busy, %v idle, %v both, %v", a, b, both, err)
	}
	if _, err := CPU([]int{4_194_304}); err == nil {
		t.Error("there is no such process")
	}
}

func TestMemoryIsThatOfTheProcesses(t *testing.T) {
	one, two := child(t, ":"), child(t, ":")
	a, err := MemoryOf([]int{one})
	if err != nil {
		t.Fatal(err)
	}
	both, err := MemoryOf([]int{one, two})
	if err != nil || a.RSS < 4096 || a.PSS <= 0 || a.PSS > a.RSS || both.RSS <= a.RSS {
		t.Errorf("%+v, %+v, %v", a, both, err)
	}
	for Waits([]int{one}) == 0 { // until it reads from its pipe
		runtime.Gosched()
	}
}

func TestMachineIsNeverBusierThanItsCores(t *testing.T) {
	m, err := MachineNow()
	if err != nil || m.Busy <= 0 || m.Stolen < 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestStopEndsAllProcesses(t *testing.T) {
	dir := t.TempDir()
	addr := freeAddr()
	// The test's binary listens in a child of the shell, which ignores SIGTERM.
	t.Setenv("LISTEN", addr.String())
	p, err := start(Place{Dir: dir}, addr, 2, nil, "sh", "-c", "trap '' TERM; "+os.Args[0]+" & wait; wait")
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
	p.Stop()
	for i := range alive {
		if n, err := unix.Poll(alive[i:i+1], 10_000); n != 1 {
			t.Errorf("process %d is still there: %v", p.PIDs[i], err)
		}
	}
}

func TestProxyThatFailsToStartReportsItsLog(t *testing.T) {
	_, err := start(Place{Dir: t.TempDir()}, netip.MustParseAddrPort("127.0.0.1:1"), 1, nil, "sh", "-c", "echo the config is wrong; exit 1")
	if err == nil || !strings.Contains(err.Error(), "the config is wrong (it has ended: exit status 1)") {
		t.Error(err)
	}
}
