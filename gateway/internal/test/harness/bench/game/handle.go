//go:build linux

package game

import (
	"bufio"
	"encoding/json"
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

// Start starts a server as a process: argv makes the process call Serve, which gets its
// Spec on standard input.
func Start(argv []string, spec Spec) (*Handle, error) {
	h := &Handle{cmd: exec.Command(argv[0], argv[1:]...)}
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

func (h *Handle) greet(spec Spec) error {
	if err := json.NewEncoder(h.in).Encode(spec); err != nil {
		return err
	}
	var g greeting
	if err := h.read(&g); err != nil {
		return err
	}
	addr, err := netip.ParseAddrPort(g.Address)
	h.Addr = addr
	return err
}

func (h *Handle) read(v any) error {
	line, err := h.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

func (h *Handle) order(c command) (r Report, err error) {
	if _, err := fmt.Fprintln(h.in, c); err != nil {
		return r, fmt.Errorf("game server, %s: %w", c, err)
	}
	if err := h.read(&r); err != nil {
		return r, fmt.Errorf("game server, %s: %w", c, err)
	}
	return r, nil
}

// Begin makes the server start sending.
func (h *Handle) Begin() (Report, error) { return h.order(cmdStart) }

// End makes it stop sending, after finishing what it has started.
func (h *Handle) End() (Report, error) { return h.order(cmdStop) }

// Pause makes it stop sending until Resume, after finishing what it has started.
func (h *Handle) Pause() (Report, error) { return h.order(cmdPause) }

// Resume makes it go on as if there had been no pause.
func (h *Handle) Resume() (Report, error) { return h.order(cmdResume) }

// Report returns the server's state.
func (h *Handle) Report() (Report, error) { return h.order(cmdReport) }

// Stop ends the process.
func (h *Handle) Stop() {
	h.in.Close()
	h.cmd.Process.Kill()
	h.cmd.Wait()
}
