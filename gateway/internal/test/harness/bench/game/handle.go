//go:build linux

package game

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
)

// A Handle is the parent's handle of a server.
type Handle struct {
	Addr netip.AddrPort
	PID  int

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// New starts a server as a process, which is this program with Program as its argument.
func New(spec Spec) (*Handle, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &Handle{cmd: exec.Command(self, Program)}
	h.cmd.Stderr = os.Stderr
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	in, err := h.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the game server: %w", err)
	}
	h.in, h.out, h.PID = in, bufio.NewReader(out), h.cmd.Process.Pid
	if err := h.greet(spec); err != nil {
		h.Stop()
		return nil, fmt.Errorf("game server: %w", err)
	}
	return h, nil
}

func (h *Handle) greet(spec Spec) (err error) {
	var g greeting
	if err := errors.Join(json.NewEncoder(h.in).Encode(spec), h.read(&g)); err != nil {
		return err
	}
	h.Addr, err = netip.ParseAddrPort(g.Address)
	return err
}

func (h *Handle) read(v any) error {
	line, err := h.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// Order has the server execute a command.
func (h *Handle) Order(c Command) (r Report, err error) {
	if _, err := fmt.Fprintln(h.in, c); err != nil {
		return r, fmt.Errorf("game server, %s: %w", c, err)
	}
	if err := h.read(&r); err != nil {
		return r, fmt.Errorf("game server, %s: %w", c, err)
	}
	return r, nil
}

// Stop ends the process.
func (h *Handle) Stop() {
	h.in.Close()
	h.cmd.Process.Kill()
	h.cmd.Wait()
}
