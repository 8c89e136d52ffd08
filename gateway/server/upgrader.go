package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/admin"
	"reseat/gateway/config"
	"reseat/gateway/handover"
)

// An upgrader hands the sessions of this process over to a successor. It runs one upgrade
// at a time.
type upgrader struct {
	p       *process
	log     *slog.Logger
	metrics *upgradeMetrics
	listen  map[string]string // settings of the listeners, by name

	// For a process that SIGUSR2 starts.
	binary  string
	socket  string // --upgrade-socket
	args    []string
	environ []string
	stderr  io.Writer
	timeout time.Duration
	pump    time.Duration

	mu      sync.Mutex
	running bool
	cancel  context.CancelFunc // of the upgrade that runs
	ended   chan struct{}      // closed when that has ended
	last    admin.Upgrade
	older   []*handover.Conn // to processes that have not exited yet
	settled bool             // the predecessor has handed everything over
	// forwardedUntil is when older processes stop forwarding for this one; zero: they do
	// not.
	forwardedUntil time.Time

	moved chan *giving // to serve: a successor has taken over
}

func newUpgrader(p *process, set *config.Settings) *upgrader {
	return &upgrader{
		p: p, log: p.log, metrics: newUpgradeMetrics(p.vitals.registry), listen: map[string]string{clientsListener: set.Listen, adminListener: set.Admin, nodesListener: set.Cluster.Listen},
		binary: ownBinary(), timeout: set.UpgradeTimeout, pump: set.UpgradePump, socket: set.UpgradeSocket, moved: make(chan *giving, 1),
	}
}

// ownBinary is the path that this process was started by: an upgrade starts what is there
// then, which may be another file, also where the path is a symbolic link.
func ownBinary() string {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		path, _ = os.Executable()
	}
	return path
}

// openUpgradeSocket listens for a successor, where the settings or systemd say so.
func (p *process) openUpgradeSocket(replace bool) (err error) {
	u := p.upgrader
	path := u.socket
	if path == "" {
		for _, e := range u.environ {
			if dirs, ok := strings.CutPrefix(e, "RUNTIME_DIRECTORY="); ok && dirs != "" {
				dir, _, _ := strings.Cut(dirs, ":")
				path = filepath.Join(dir, "upgrade.sock")
			}
		}
	}
	if path == "" {
		return nil
	}
	if p.upgradeSocket, err = handover.Listen(path, replace); err != nil {
		return err
	}
	go u.accept(p.upgradeSocket)
	return nil
}

func (p *process) closeUpgradeSocket() {
	if p.upgradeSocket != nil {
		p.upgradeSocket.Close()
		p.upgradeSocket = nil
	}
}

func ignoredWhileRetiring(s os.Signal) bool { return s == syscall.SIGHUP || s == upgradeSignal }

// errBusy refuses an upgrade because another one is under way.
var errBusy = errors.New("another upgrade is under way")

// errUnsettled refuses an upgrade because the one before has left some sessions behind, such as
// those whose game server has not answered yet.
var errUnsettled = errors.New("another upgrade is under way: the older process has not handed all sessions over yet")

// onSignal upgrades to a new process of the same program, as SIGUSR2 asks.
func (u *upgrader) onSignal() {
	if err := u.refusal(); err != nil {
		u.refuse(err)
		return
	}
	ch, far, err := handover.Pair()
	if err != nil {
		u.refuse(err)
		return
	}
	child := exec.Command(u.binary, u.args...)
	child.Env = append(slices.Clone(u.environ), upgradeEnv+"=3")
	child.ExtraFiles = []*os.File{far}
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if f, ok := u.stderr.(*os.File); ok {
		child.Stderr = f
	}
	err = child.Start()
	far.Close()
	if err != nil {
		ch.Close()
		u.refuse(err)
		return
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		child.Wait()
	}()
	if u.run(ch) {
		return
	}
	select { // it has been asked to exit
	case <-exited:
	case <-time.After(exitTime):
		child.Process.Kill()
	}
}

// exitTime is how long a process may take to exit after an upgrade was aborted.
const exitTime = 5 * time.Second

// refusal says why there can be no upgrade now, nil if there can.
func (u *upgrader) refusal() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.running:
		return errBusy
	case !u.settled:
		return errUnsettled
	case os.Getpid() == 1:
		return errors.New("this process is PID 1: the container would end with it; start the new process beside it with --takeover, in a container that shares the volume of --upgrade-socket")
	case u.p.show != nil:
		return errors.New("the game server of --demo is a part of this process, and would end with it")
	case u.p.gateway.Draining():
		return errors.New("the gateway is draining")
	case u.metrics.forwarding() >= maxForwarding:
		return fmt.Errorf("%d older processes still forward connections; see --upgrade-pump", maxForwarding)
	case len(u.older) >= maxOlder:
		return fmt.Errorf("%d older processes still finish requests or forward connections", len(u.older))
	}
	return nil
}

func (u *upgrader) refuse(err error) {
	u.metrics.results.WithLabelValues(upgradeRefused).Inc()
	u.log.Warn("upgrade.refused", "err", err)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.running {
		u.last = admin.Upgrade{State: upgradeRefused, From: config.Version(), Error: err.Error()}
	}
}

// accept serves the upgrade socket, until it is closed.
func (u *upgrader) accept(ln *handover.Listener) {
	for {
		ch, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			if err := u.refusal(); err != nil {
				u.refuse(err)
				ch.SendAbort(err)
				ch.Close()
				return
			}
			u.run(ch)
		}()
	}
}

// run runs one upgrade over ch. It reports whether the successor has everything; otherwise
// this process continues as before.
func (u *upgrader) run(ch *handover.Conn) (ok bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	u.mu.Lock()
	if u.running {
		u.mu.Unlock()
		u.refuse(errBusy)
		ch.SendAbort(errBusy)
		ch.Close()
		return false
	}
	u.running, u.cancel, u.ended = true, cancel, make(chan struct{})
	defer close(u.ended)
	u.last = admin.Upgrade{State: upgradeRunning, From: config.Version()}
	u.mu.Unlock()
	g := &giving{u: u, ch: ch, ctx: ctx, adopted: make(chan struct{}), serving: make(chan struct{}), gone: make(chan struct{})}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		ch.SetDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	g.hold = sync.OnceValue(func() bool {
		if stop() {
			return true
		}
		<-interrupted
		return false
	})
	err := g.give()
	g.hold()
	u.mu.Lock()
	u.running = false
	u.mu.Unlock()
	if err == nil {
		u.moved <- g
		return true
	}
	var abort *handover.AbortError
	if errors.As(err, &abort) {
		ch.Close()
	} else {
		select {
		case <-ch.Withdraw(err):
		case <-time.After(time.Second): // it does not read; it gets the answer as soon as it does
		}
	}
	u.metrics.results.WithLabelValues(upgradeAborted).Inc()
	u.log.Error("upgrade.aborted", "step", g.step, "err", err, "text", "this process continues; players have not noticed")
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last.State, u.last.Error = upgradeAborted, g.step+": "+err.Error()
	return false
}

// forwardedFor is how long older processes go on forwarding for this one.
func (u *upgrader) forwardedFor() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.forwardedUntil.IsZero() {
		return 0
	}
	return max(time.Until(u.forwardedUntil), 0)
}

// abort aborts the upgrade that runs, if there is one, and waits for its end. It returns the
// upgrade if it came too late.
func (u *upgrader) abort() *giving {
	u.mu.Lock()
	ended := u.ended
	if ended != nil {
		u.cancel()
	}
	u.mu.Unlock()
	if ended != nil {
		<-ended
	}
	select {
	case g := <-u.moved:
		return g
	default:
		return nil
	}
}

// status describes the last upgrade.
func (u *upgrader) status() admin.Upgrade {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last.State == "" {
		return admin.Upgrade{State: upgradeNone}
	}
	return u.last
}

// settle notes that the predecessor has handed everything over.
func (u *upgrader) settle() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.settled = true
}

// watchOlder keeps account of an older process, until that has exited. late is called with what
// it hands over nevertheless, nil if it cannot any more.
func (u *upgrader) watchOlder(ch *handover.Conn, late func(*handover.Message)) {
	u.mu.Lock()
	if !slices.Contains(u.older, ch) {
		u.older = append(u.older, ch)
	}
	u.mu.Unlock()
	for {
		m, err := ch.Receive()
		if err != nil {
			break
		}
		if late != nil {
			late(&m)
		}
		m.Close()
	}
	ch.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.older = slices.DeleteFunc(u.older, func(other *handover.Conn) bool { return other == ch })
}

// noteForwarding notes how long older processes forward bytes for this one.
func (u *upgrader) noteForwarding(any bool, pump, older time.Duration) {
	if !any {
		return
	}
	if older > 0 {
		pump = min(pump, older)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forwardedUntil = time.Now().Add(pump)
}
