//go:build linux

// Package process runs the gateway's program, NATS servers and the counting game as an operator would,
// and waits for what they do.
package process

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
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
	said  map[string]int // log lines, by message
	bad   []string       // lines that must not occur, each with what the Go runtime printed after it
	trace int            // how many more of the runtime's lines belong to the last of bad
	ended chan error
}

// A Line is the part of a log line that is examined.
type Line struct {
	Level, Msg, Addr, Session, Reason string
	Node, Evidence, Why               string
	Silent                            string // a duration
	Epoch                             uint64
	Sessions                          int
	PID, Kept                         int
}

const startPatience = 30 * time.Second

// traceLines is how many lines of a stack trace or a race are reported.
const traceLines = 60

// Start starts the program and waits until it listens. prefix, if any, is a command that runs it
// elsewhere; told, unless it is nil, is called with every line of the log. The flags must request a
// JSON log.
func Start(told func(Line), logName string, prefix []string, bin string, args ...string) (*Process, error) {
	argv := append(append(prefix, bin), args...)
	log, err := os.Create(logName)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), log: log, ended: make(chan error, 1), upgrades: make(chan string, 1), told: told, said: map[string]int{}, noAdmin: slices.Contains(args, "--admin=off")}
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
		p.mu.Lock()
		p.said[line.Msg]++
		p.mu.Unlock()
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

// Metrics returns what /metrics says, by name and labels; nothing while it does not answer.
func (p *Process) Metrics() map[string]float64 {
	all := map[string]float64{}
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + p.Admin + "/metrics")
	if err != nil {
		return all
	}
	defer resp.Body.Close()
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		if i := strings.LastIndexByte(s.Text(), ' '); i > 0 && s.Text()[0] != '#' {
			all[s.Text()[:i]], _ = strconv.ParseFloat(s.Text()[i+1:], 64)
		}
	}
	return all
}

// Sum adds up the series of a metric.
func Sum(m map[string]float64, name string) (n float64) {
	for k, v := range m {
		if k == name || strings.HasPrefix(k, name+"{") {
			n += v
		}
	}
	return n
}

// Joined returns why a gateway is not in a cluster of n, "" if it is.
func (p *Process) Joined(n int) string {
	m := p.Metrics()
	if up := m[`reseat_cluster_nodes{state="up"}`]; up != float64(n) || m["reseat_cluster_engine_up"] != 1 {
		return fmt.Sprintf("the gateway at %s knows %v living nodes of %d, and NATS is %v", p.Addr, up, n, m["reseat_cluster_engine_up"])
	}
	return ""
}

// Said returns how many lines of the log have a message.
func (p *Process) Said(msg string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said[msg]
}

// Differs returns how a gateway's metrics differ from its log by more than slack, "" if they don't.
func (p *Process) Differs(slack float64) (what string) {
	m := p.Metrics()
	for msg, metric := range map[string]string{
		"session.created": "reseat_sessions_created_total",
		"session.ended":   "reseat_sessions_ended_total",
		"session.claimed": `reseat_claims_total{result="won"}`,
		"session.fenced":  "reseat_sessions_fenced_total",
	} {
		if counted, lines := Sum(m, metric), p.Said(msg); math.Abs(counted-float64(lines)) > slack {
			what += fmt.Sprintf("%s is %v, and the log of %s has %d lines of %s; ", metric, counted, p.Addr, lines, msg)
		}
	}
	return what
}
