//go:build linux

// Package proxy starts the subjects, each with a configuration in a temporary directory, and
// reads their resource usage.
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

	"reseat/gateway/internal/test/freeport"
)

const (
	startLimit = 10 * time.Second
	stopLimit  = 3 * time.Second
)

// Programs are those that are part of this one, by its first argument.
var Programs = map[string]func(args []string) error{
	"serve-library": func(a []string) error { return serveLibrary(a[0], a[1]) },
	"serve-relay":   func(a []string) error { return serveRelay(a[0], a[1], a[2]) },
}

// A Proxy is a running proxy.
type Proxy struct {
	Addrs []netip.AddrPort // where clients connect: several in a cluster
	Hop   bool             // each session is resumed at the node after its own
	PIDs  []int            // of all its processes

	cmd  *exec.Cmd
	log  string
	more []*Proxy // what runs besides
}

// A Place is where a proxy runs.
type Place struct {
	Dir    string           // for its files
	Game   netip.AddrPort   // the game server behind it
	Self   string           // this program: see Programs
	Reseat string           // the gateway's binary
	NATS   string           // the NATS server's binary
	Files  int              // max descriptors
	Leg    Leg              // its clients' connections
	Games  []netip.AddrPort // behind it by the paths /0/, /1/ and so on, in place of Game: see Scaled
	CPUs   int              // it runs on so many processors, the first ones; 0: on all

	Patient bool // clients may be silent for a while: between two slices they are not served
}

// in returns the place with a directory of its own in it.
func (p Place) in(name string) Place {
	p.Dir = filepath.Join(p.Dir, name)
	os.Mkdir(p.Dir, 0o700) // else the first file in it can't be made
	return p
}

// Relay starts what the clients connect to in place of the proxy at target.
func (p Place) Relay(target netip.AddrPort) (*Proxy, error) {
	addr := freeAddr()
	return start(p.in("relay"), addr, 1, p.Self, "serve-relay", addr.String(), target.String(), p.Leg.Cert)
}

// start runs a program that must listen at addr and have that many processes.
func start(p Place, addr netip.AddrPort, processes int, argv ...string) (*Proxy, error) {
	log, err := os.Create(filepath.Join(p.Dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if p.CPUs > 0 {
		argv = append([]string{"taskset", "-c", fmt.Sprintf("0-%d", p.CPUs-1)}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	x := &Proxy{Addrs: []netip.AddrPort{addr}, cmd: cmd, log: log.Name()}
	if err := x.await(processes); err != nil {
		err = fmt.Errorf("%s: %w: %s", argv[0], err, x.Log())
		x.Stop()
		return nil, err
	}
	return x, nil
}

// await waits until the port is open and all processes are running, and records them. A
// master may listen before it has its workers.
func (x *Proxy) await(processes int) error {
	for end := time.Now().Add(startLimit); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", x.Addrs[0].String()); err == nil {
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

// stat returns the fields of a process after its name: its state, its parent and more.
func stat(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.Fields(rest)
}

// ended reports whether a child has ended and must be waited for.
func ended(pid int) bool {
	f := stat(pid)
	return len(f) == 0 || f[0] == "Z"
}

// family returns a process and its children.
func family(pid int) []int {
	list := []int{pid}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		child, err := strconv.Atoi(filepath.Base(dir))
		if f := stat(child); err == nil && len(f) > 1 && f[1] == strconv.Itoa(pid) {
			list = append(list, child)
		}
	}
	return list
}

// Log returns the end of the program's output, and its exit status if it has ended. A
// dying process closes its connections first.
func (x *Proxy) Log() string {
	end := ""
	for i := 0; x.cmd != nil && i < 50; i++ {
		if ended(x.cmd.Process.Pid) {
			x.cmd.Wait()
			end = fmt.Sprintf(" (it has ended: %v)", x.cmd.ProcessState)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	b, _ := os.ReadFile(x.log)
	return strings.TrimSpace(string(b[max(0, len(b)-2000):])) + end
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
