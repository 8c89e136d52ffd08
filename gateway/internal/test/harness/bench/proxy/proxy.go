//go:build linux

// Package proxy starts the subjects, each with a configuration in a temporary
// directory, and reads their resource usage.
package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/internal/test/freeport"
)

// The first argument of a process started from this program.
const (
	AsLibrary = "serve-library"
	AsFloor   = "serve-floor"
	AsRelay   = "serve-relay"
)

const (
	startLimit = 10 * time.Second
	stopLimit  = 3 * time.Second
)

// A Proxy is a running proxy.
type Proxy struct {
	Addr netip.AddrPort
	PIDs []int // of all its processes

	Others []netip.AddrPort // of the other nodes, in a cluster
	Hop    bool             // each session is resumed at the node after its own

	cmd  *exec.Cmd
	log  string
	more []*Proxy // what runs besides
}

// A Place is where a proxy runs.
type Place struct {
	Dir    string         // for its files
	Game   netip.AddrPort // the game server behind it
	Games  int            // addresses that it listens at, from that one on; zero: 1
	Self   string         // this program: see AsLibrary
	Reseat string         // the gateway's binary
	NATS   string         // the NATS server's binary
	Files  int            // max descriptors
	Leg    Leg            // its clients' connections

	Patient bool // clients may be silent for a while: between two slices they are not served
}

// start runs a program that must listen at addr and have that many processes.
func start(p Place, addr netip.AddrPort, processes int, env []string, argv ...string) (*Proxy, error) {
	log, err := os.Create(filepath.Join(p.Dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	x := &Proxy{Addr: addr, cmd: cmd, log: log.Name()}
	if err := x.await(processes); err != nil {
		x.Stop()
		return nil, fmt.Errorf("%s: %w: %s", argv[0], err, x.Log())
	}
	return x, nil
}

// await waits until the port is open and all processes are running, and records them. A
// master may listen before it has its workers.
func (x *Proxy) await(processes int) error {
	for end := time.Now().Add(startLimit); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", x.Addr.String())
		if err == nil {
			c.Close()
			if x.PIDs = family(x.cmd.Process.Pid); len(x.PIDs) == processes {
				return nil
			}
		}
		if time.Now().After(end) || ended(x.cmd.Process.Pid) {
			return fmt.Errorf("does not listen, or not with %d processes", processes)
		}
	}
}

// ended reports whether a child has ended and must be waited for.
func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return err != nil || strings.HasPrefix(rest, "Z")
}

// family returns a process and its children.
func family(pid int) []int {
	list := []int{pid}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		b, err := os.ReadFile(s)
		_, rest, ok := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if err != nil || !ok || len(f) < 2 || f[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(s))); err == nil {
			list = append(list, child)
		}
	}
	return list
}

// Log returns the end of the program's output, and its exit status if it has ended.
func (x *Proxy) Log() string {
	end := ""
	if x.cmd != nil && endsSoon(x.cmd.Process.Pid) {
		x.cmd.Wait()
		end = fmt.Sprintf(" (it has ended: %v)", x.cmd.ProcessState)
	}
	b, _ := os.ReadFile(x.log)
	return strings.TrimSpace(string(b[max(0, len(b)-2000):])) + end
}

// endsSoon reports whether a child ends within half a second: a dying process closes
// its connections first.
func endsSoon(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ended(pid)
	}
	defer unix.Close(fd)
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 500)
	return n == 1
}

// Stop stops the program and all its processes.
func (x *Proxy) Stop() {
	for _, other := range x.more {
		other.Stop()
	}
	if x.cmd == nil {
		return // the game server is not our child
	}
	group := -x.cmd.Process.Pid
	syscall.Kill(group, syscall.SIGTERM)
	timer := time.AfterFunc(stopLimit, func() { syscall.Kill(group, syscall.SIGKILL) })
	x.cmd.Wait()
	timer.Stop()
	syscall.Kill(group, syscall.SIGKILL) // processes left by its master
}

// freeAddr returns an unused loopback address.
func freeAddr() netip.AddrPort { return netip.MustParseAddrPort(freeport.Addr()) }
