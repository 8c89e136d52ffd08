package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"reseat/gateway/handover"
)

// This file decides about upgrades: which there may be, and what follows from how one ends.

// errBusy refuses an upgrade because another one is under way.
var errBusy = errors.New("another upgrade is under way")

// errUnsettled refuses an upgrade because the one before has left some sessions behind, such as
// those whose game server has not answered yet.
var errUnsettled = errors.New("another upgrade is under way: the older process has not handed all sessions over yet")

// errPID1 refuses a new process below this one: it would end with it.
var errPID1 = errors.New("this process is PID 1: the container would end with it; start the new process beside it with --takeover, in a container that shares the volume of --upgrade-socket")

// Upgrade upgrades to a new process of the same program, as SIGUSR2 asks.
func (u *Upgrader) Upgrade() {
	err := u.refusal()
	if os.Getpid() == 1 {
		err = errPID1
	}
	if err != nil {
		u.refuse(err)
		return
	}
	ch, far, err := handover.Pair()
	if err != nil {
		u.refuse(err)
		return
	}
	child := exec.Command(u.binary, u.set.Args...)
	child.Env = append(withoutChannel(u.set.Environ), channelEnv+"=3")
	child.ExtraFiles = []*os.File{far}
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if f, ok := u.set.Stderr.(*os.File); ok {
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

// exitTime limits the exit of a successor after an upgrade was aborted.
const exitTime = 5 * time.Second

// refusal says why there can be no upgrade now, nil if there can.
func (u *Upgrader) refusal() error {
	_, forwarders := u.metrics.count() // not under mu, which comes after a Predecessor's
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.running:
		return errBusy
	case !u.settled:
		return errUnsettled
	case u.Server.Refusal() != nil:
		return u.Server.Refusal()
	case u.Sessions.Draining():
		return errors.New("the gateway is draining")
	case forwarders >= maxForwarding:
		return fmt.Errorf("%d older processes still forward connections; see --upgrade-pump", maxForwarding)
	case len(u.older) >= maxOlder:
		return fmt.Errorf("%d older processes still finish requests or forward connections", len(u.older))
	}
	return nil
}

func (u *Upgrader) refuse(err error) {
	u.metrics.results.WithLabelValues(Refused).Inc()
	u.log.Warn("upgrade.refused", "err", err)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.running {
		u.last = Status{State: Refused, From: u.set.Version, Error: err.Error()}
	}
}

// accept serves the upgrade socket, until it is closed.
func (u *Upgrader) accept(ln *handover.Listener) {
	for {
		ch, err := ln.Accept()
		if err != nil {
			return
		}
		go u.run(ch)
	}
}

// run runs one upgrade over ch, or refuses it. It reports whether the successor has everything; otherwise
// this process continues as before.
func (u *Upgrader) run(ch *handover.Conn) (ok bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := u.refusal()
	u.mu.Lock()
	if err == nil && u.running {
		err = errBusy
	}
	if err != nil {
		u.mu.Unlock()
		u.refuse(err)
		ch.SendAbort(err)
		ch.Close()
		return false
	}
	u.running, u.cancel, u.ended = true, cancel, make(chan struct{})
	defer close(u.ended)
	u.last = Status{State: Running, From: u.set.Version}
	u.mu.Unlock()
	g := &HandOver{u: u, ch: ch, ctx: ctx, adopted: make(chan struct{}), serving: make(chan struct{}), gone: make(chan struct{})}
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
	err = g.give()
	g.hold()
	u.mu.Lock()
	u.running = false
	u.mu.Unlock()
	if err == nil {
		u.handed <- g
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
	u.metrics.results.WithLabelValues(Aborted).Inc()
	u.log.Error("upgrade.aborted", "step", g.step, "err", err, "text", "this process continues; players have not noticed")
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last.State, u.last.Error = Aborted, g.step+": "+err.Error()
	return false
}

// Abort aborts the upgrade that runs, if there is one, and waits for its end. It returns the
// upgrade if it came too late.
func (u *Upgrader) Abort() *HandOver {
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
	case g := <-u.handed:
		return g
	default:
		return nil
	}
}

// Listen listens for a successor at the upgrade socket, where the settings or systemd say so.
// With replace, it replaces a predecessor's.
func (u *Upgrader) Listen(replace bool) (err error) {
	path := u.set.Socket
	if path == "" {
		for _, e := range u.set.Environ {
			if dirs, ok := strings.CutPrefix(e, "RUNTIME_DIRECTORY="); ok && dirs != "" {
				dir, _, _ := strings.Cut(dirs, ":")
				path = filepath.Join(dir, "upgrade.sock")
			}
		}
	}
	if path == "" {
		return nil
	}
	if u.socket, err = handover.Listen(path, replace); err != nil {
		return err
	}
	go u.accept(u.socket)
	return nil
}
