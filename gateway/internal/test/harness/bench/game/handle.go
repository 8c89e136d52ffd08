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
	"slices"
	"syscall"
)

// A Child is a process of this program, to which its parent says lines of JSON.
type Child struct {
	PID int

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Fork starts this program with arguments, behind those of before, a command that runs it.
func Fork(before []string, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := slices.Concat(before, []string{self}, args)
	c := &Child{cmd: exec.Command(argv[0], argv[1:]...)}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	c.out, c.PID = bufio.NewReader(out), c.cmd.Process.Pid
	return c, nil
}

// Tell says v.
func (c *Child) Tell(v any) error { return json.NewEncoder(c.in).Encode(v) }

// Hear reads v.
func (c *Child) Hear(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s has ended: %w", c.cmd.Args[len(c.cmd.Args)-1], err)
	}
	return json.Unmarshal(line, v)
}

// Stop ends the process.
func (c *Child) Stop() {
	c.in.Close()
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

// A Handle is the parent's handle of a server.
type Handle struct {
	*Child
	Addr netip.AddrPort
}

// New starts a server.
func New(spec Spec) (*Handle, error) {
	c, err := Fork(nil, Program)
	if err != nil {
		return nil, err
	}
	h := &Handle{Child: c}
	if err := errors.Join(c.Tell(spec), c.Hear(&h.Addr)); err != nil {
		c.Stop()
		return nil, fmt.Errorf("game server: %w", err)
	}
	return h, nil
}

// Order has the server execute a command.
func (h *Handle) Order(c Command) (r Report, err error) {
	if _, err := fmt.Fprintln(h.in, c); err != nil {
		return r, fmt.Errorf("game server, %s: %w", c, err)
	}
	if err := h.Hear(&r); err != nil {
		return r, fmt.Errorf("game server, %s: %w", c, err)
	}
	return r, nil
}
