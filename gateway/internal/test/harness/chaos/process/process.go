//go:build linux

// Package process runs the gateway's program as an operator would.
package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Process is the gateway's program.
type Process struct {
	Addr  string // where clients connect
	Admin string // the admin address, "" if disabled
	PID   int    // of the first process; see Signal

	cmd     *exec.Cmd
	noAdmin bool
	told    func(Line)

	upgrades chan string // the last log line of each upgrade

	mu    sync.Mutex
	now   int // the process that serves: an upgrade replaces it
	log   *os.File
	bad   []string // lines that must not occur, each with what the Go runtime printed after it
	trace int      // how many more of the runtime's lines belong to the last of bad
	ended chan error
}

// A Line is the part of a log line that is examined.
type Line struct {
	Level, Msg, Addr, Session, Reason string
	Node, Evidence, Why, From, Err    string
	Silent                            string // a duration
	Epoch                             uint64
	Sessions                          int
	PID, Kept                         int
}

const startPatience = 30 * time.Second

// traceLines is how many lines of a stack trace or a race are reported.
const traceLines = 60

// Start starts the program and waits until it listens. prefix, if any, is a command
// that runs it elsewhere. The flags must request a JSON log.
func Start(logName string, prefix []string, bin string, args ...string) (*Process, error) {
	return StartTold(nil, logName, prefix, bin, args...)
}

// StartTold does the same, and calls told with every line of the log, unless it is nil.
func StartTold(told func(Line), logName string, prefix []string, bin string, args ...string) (*Process, error) {
	argv := append(append(prefix, bin), args...)
	log, err := os.Create(logName)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), log: log, ended: make(chan error, 1), upgrades: make(chan string, 1), told: told, noAdmin: slices.Contains(args, "--admin=off")}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", bin, err)
	}
	ready := make(chan string, 1)
	go p.read(out, ready)
	select {
	case p.Addr = <-ready:
		p.PID = p.cmd.Process.Pid
		p.serves(p.PID)
		return p, nil
	case <-time.After(startPatience):
		p.cmd.Process.Kill()
	case err = <-p.ended:
	}
	return nil, fmt.Errorf("the gateway does not listen (%v); its log: %s", err, p.tail())
}

// read stores the log, and the errors in it.
func (p *Process) read(out io.Reader, ready chan<- string) {
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<20)
	addr := ""
	for s.Scan() {
		var line Line
		json.Unmarshal(s.Bytes(), &line)
		if p.told != nil {
			p.told(line)
		}
		switch line.Msg { // the admin address is logged after the client address
		case "listen.clients":
			addr = line.Addr
		case "listen.admin":
			if p.Admin == "" { // an upgrade's process has the same, and by then others read it
				p.Admin = line.Addr
			}
		case "upgrade.committed", "upgrade.aborted", "upgrade.refused":
			if line.Msg == "upgrade.committed" && line.PID == 0 {
				break // the older process's line
			}
			p.serves(line.PID)
			select {
			case p.upgrades <- line.Msg:
			default:
			}
		}
		if addr != "" && (p.Admin != "" || p.noAdmin) {
			select {
			case ready <- addr:
			default: // an upgrade's process
			}
			addr = ""
		}
		p.keep(s.Text(), line.Level)
	}
	p.ended <- p.cmd.Wait()
}

func (p *Process) keep(text, level string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.log, text)
	for _, word := range []string{"panic", "fatal error", "DATA RACE"} {
		if level == "ERROR" || strings.Contains(text, word) {
			p.bad = append(p.bad, text)
			p.trace = traceLines
			return
		}
	}
	if level == "" && p.trace > 0 {
		p.trace--
		p.bad[len(p.bad)-1] += "\n" + text
	}
}

func (p *Process) tail() string {
	b, _ := os.ReadFile(p.log.Name())
	return strings.TrimSpace(string(b[max(0, len(b)-2000):]))
}

// Faults returns the log lines that report a fault in the gateway.
func (p *Process) Faults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.bad...)
}

// serves notes which process serves; zero changes nothing.
func (p *Process) serves(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pid > 0 {
		p.now = pid
	}
}

// Signal sends a signal to the process that serves.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return syscall.Kill(p.now, s)
}

// Upgrade has the program started anew, and waits until the new process serves. It returns
// the key of the last log line of the upgrade.
func (p *Process) Upgrade(patience time.Duration) (string, error) {
	select {
	case <-p.upgrades:
	default:
	}
	if err := p.Signal(syscall.SIGUSR2); err != nil {
		return "", err
	}
	select {
	case key := <-p.upgrades:
		return key, nil
	case <-time.After(patience):
		return "", fmt.Errorf("no upgrade within %s", patience)
	}
}

// Wait waits for the process to exit, and kills it after patience.
func (p *Process) Wait(patience time.Duration) error {
	select {
	case err := <-p.ended:
		p.ended <- err
		return err
	case <-time.After(patience):
		p.Signal(syscall.SIGKILL)
		p.cmd.Process.Kill()
		return fmt.Errorf("still running %s after SIGTERM", patience)
	}
}

// Kill kills it, if it is still running.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	p.cmd.Process.Kill()
	p.Wait(time.Second)
	p.log.Close()
}

// BuildNATS builds the NATS server in dir, as make does.
func BuildNATS(ctx context.Context, dir string) (bin string, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "reseat").Output()
	if err != nil {
		return "", fmt.Errorf("find the gateway's module: %w", err)
	}
	bin = filepath.Join(dir, "nats-server")
	out, err := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(root)), "-modfile=.ci/go-tools.mod", "-o", bin, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the NATS server: %w: %s", err, out)
	}
	return bin, nil
}

// BuildGame builds the counting game of docs/games in dir.
func BuildGame(ctx context.Context, dir string) (bin string, err error) {
	bin = filepath.Join(dir, "counting")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "reseat/docs/games/counting-go").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the counting game: %w: %s", err, out)
	}
	return bin, nil
}

// Build builds the gateway's program in dir; flags go to the compiler. It is built as
// its own module, with its own dependency versions.
func Build(ctx context.Context, dir string, flags ...string) (bin string, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "reseat").Output()
	if err != nil {
		return "", fmt.Errorf("find the gateway's module: %w", err)
	}
	bin = filepath.Join(dir, "reseat")
	args := append([]string{"build", "-C", strings.TrimSpace(string(root)), "-o", bin}, flags...)
	if out, err := exec.CommandContext(ctx, "go", append(args, ".")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the gateway: %w: %s", err, out)
	}
	return bin, nil
}
