//go:build linux

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"reseat/gateway/events"
	"reseat/gateway/handover"
	"reseat/gateway/upgrade"
)

// Whatever a successor does, the process goes on as if nothing had happened until it commits.
func TestUpgradeThatFailsChangesNothing(t *testing.T) {
	s := newStage(t)
	n := s.start("--upgrade-socket="+s.socket, "--upgrade-timeout=4s")
	p := s.play(n, 6)
	most := descriptors(t, n.pid())
	want := map[string]float64{upgrade.OK: 0, upgrade.Refused: 0, upgrade.Aborted: 0}
	n.wantStatus(upgrade.None, "")
	for _, try := range []struct {
		name string
		do   func(f *fake)
		want string // of the error in GET /upgrade
	}{
		{"leaves at once", func(f *fake) { f.Close() }, "start: the new process did not come up: it has exited"},
		{"never says hello", func(f *fake) { f.wantAbort("timeout") }, "start: the new process did not come up: timeout"},
		{"speaks HTTP", func(f *fake) {
			f.raw(func(fd int) error {
				_, err := unix.Write(fd, []byte("GET / HTTP/1.1\r\n\r\n"))
				return err
			})
			f.wantAbort("does not speak this protocol")
		}, "does not speak this protocol"},
		{"says something else", func(f *fake) {
			f.say(handover.Ready)
			f.wantAbort(fmt.Sprintf("message %d, want %d", handover.Ready, handover.Hello))
		}, "start: "},
		{"reads another format", func(f *fake) { f.hello(99); f.wantAbort("reads no format that this one writes") }, "start: the new process (v9) reads no format"},
		{"exits after HELLO", func(f *fake) { f.offered(); f.Close() }, "offer: the new process did not accept: it has exited"},
		{"hangs after HELLO", func(f *fake) { f.offered(); f.wantAbort("timeout") }, "offer: the new process did not accept: timeout"},
		{"refuses the offer", func(f *fake) { f.offered(); f.SendAbort(errors.New("too small a limit")) }, "offer: the new process did not accept: too small a limit"},
		{"exits after ACCEPT", func(f *fake) { f.accepted(); f.Close() }, ""},
		{"exits between the sessions", func(f *fake) { f.sessions(); f.Close() }, ": it has exited"},
		{"hangs between the sessions", func(f *fake) { f.sessions(); f.wantAbort("timeout") }, "ready: the new process did not restore the sessions: timeout"},
		{"is ready too soon", func(f *fake) {
			f.accepted()
			f.say(handover.Ready)
			f.wantAbort(fmt.Sprintf("message %d, want %d", handover.Ready, handover.Ack))
		}, "ready: the new process did not restore the sessions"},
		{"exits before READY", func(f *fake) { f.rested(); f.Close() }, "ready: the new process did not restore the sessions: it has exited"},
		{"hangs before READY", func(f *fake) { f.rested(); f.wantAbort("timeout") }, "ready: the new process did not restore the sessions: timeout"},
		{"aborts before READY", func(f *fake) { f.rested(); f.SendAbort(errors.New("no route")) }, "ready: the new process did not restore the sessions: no route"},
		{"exits between READY and COMMIT", func(f *fake) {
			f.rested()
			f.raw(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) }) // COMMIT cannot be sent any more
			f.say(handover.Ready)
			f.Close()
		}, "commit: the new process left: it has exited"},
	} {
		t.Run(try.name, func(t *testing.T) {
			mark := n.mark()
			f := s.fake()
			f.t = t
			try.do(f)
			n.wait(mark, "upgrade.aborted")
			want[upgrade.Aborted]++
			f.Close()
			p.goOn()
			n.wantStatus(upgrade.Aborted, try.want)
			n.wantResults(want)
			settled(t, n.pid(), most)
		})
	}
	t.Run("second one at once", func(t *testing.T) {
		mark := n.mark()
		first := s.fake()
		first.offered()
		second := s.fake()
		second.t = t
		second.wantAbort("another upgrade is under way")
		n.wait(mark, "upgrade.refused")
		n.wantStatus(upgrade.Running, "")
		first.Close()
		n.wait(mark, "upgrade.aborted")
		want[upgrade.Refused]++
		want[upgrade.Aborted]++
		n.wantResults(want)
		second.Close()
		p.goOn()
		settled(t, n.pid(), most)
	})
	t.Run("and then one succeeds", func(t *testing.T) {
		next := s.start("--takeover="+s.socket, "--upgrade-socket="+s.socket)
		<-n.exited
		p.goOn()
		want[upgrade.OK]++
		next.wantResults(want)
		if u := next.wantStatus(upgrade.OK, ""); u.Sessions.Moved != 6 {
			t.Errorf("%+v, want 6 that moved", u)
		}
		s.wantJoined(6)
		settled(t, next.pid(), most+1)
	})
}

// raw has do use the descriptor of the channel.
func (f *fake) raw(do func(fd int) error) {
	f.t.Helper()
	fd, err := f.Duplicate()
	if err == nil {
		defer unix.Close(fd)
		err = do(fd)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// sessions is accepted, and gets the first batch of sessions without an acknowledgement.
func (f *fake) sessions() {
	f.t.Helper()
	f.accepted()
	f.until(handover.Events)
	m, err := f.Expect(handover.Sessions)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { m.Close() })
}

func TestManyUpgradesLeakNothing(t *testing.T) {
	s := newStage(t)
	n := s.start()
	p := s.play(n, 6)
	pid := n.upgrade(n.pid())
	gone(t, n.pid())
	p.goOn()
	most, memory := descriptors(t, pid), resident(t, pid)
	for range 9 {
		old := pid
		pid = n.upgrade(pid)
		p.goOn()
		gone(t, old)
	}
	settled(t, pid, most)
	if got := resident(t, pid); got > 2*memory {
		t.Errorf("%d bytes are resident, and %d were after the first upgrade", got, memory)
	}
	n.wantResults(map[string]float64{upgrade.OK: 10, upgrade.Refused: 0, upgrade.Aborted: 0})
	s.wantJoined(6)
}

// resident is the memory of a process.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	fmt.Sscan(string(b), &size, &pages)
	return pages * os.Getpagesize()
}

func TestSIGTERMDuringUpgradeAbortsItAndDrains(t *testing.T) {
	for name, at := range map[string]func(*fake){"before the freeze": (*fake).offered, "while frozen": (*fake).rested} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			n := s.start("--upgrade-socket=" + s.socket)
			p := s.play(n, 4)
			f := s.fake()
			at(f)
			n.cmd.Process.Signal(syscall.SIGTERM)
			f.wantAbort("")
			n.wantExit(0)
			n.wait(0, "upgrade.aborted")
			n.wait(0, "shutdown.finished")
			p.noticed()
		})
	}
}

// Draining and an upgrade exclude each other, whichever comes first.
func TestSIGUSR2WhileDrainingIsRefused(t *testing.T) {
	s := newStage(t)
	n := s.start("--drain=1h")
	p := s.play(n, 2)
	n.drain()
	n.cmd.Process.Signal(syscall.SIGUSR2)
	if line := n.wait(0, "upgrade.refused"); line["err"] != "the gateway is draining" {
		t.Errorf("%v", line)
	}
	n.wantStatus(upgrade.Refused, "the gateway is draining")
	p.goOn()
}

func TestDrainThatBeginsDuringUpgradeAbortsIt(t *testing.T) {
	s := newStage(t)
	n := s.start("--upgrade-socket="+s.socket, "--drain=1h")
	p := s.play(n, 2)
	f := s.fake()
	f.offered()
	n.drain()
	f.say(handover.Accept)
	f.wantAbort("the gateway is draining")
	n.wait(0, "upgrade.aborted")
	p.goOn()
	n.wantStatus(upgrade.Aborted, "draining")
}

func TestNewProcessWithInvalidSettingsChangesNothing(t *testing.T) {
	s := newStage(t)
	config := writeFile(t, filepath.Join(s.dir, "config"), "max-sessions = 100\n")
	n := s.start("--config=" + config)
	p := s.play(n, 2)
	most := descriptors(t, n.pid())
	writeFile(t, config, "max-sessions = many\n")
	n.cmd.Process.Signal(syscall.SIGUSR2)
	n.wait(0, "reseat: ")
	if line := n.wait(0, "upgrade.aborted"); line["step"] != "start" || !strings.HasSuffix(line["err"].(string), "it has exited") {
		t.Errorf("%v", line)
	}
	p.goOn()
	settled(t, n.pid(), most)
	writeFile(t, config, "max-sessions = 200\n")
	n.upgrade(n.pid())
	p.goOn()
}

// systemd would take the end of the main process for the end of the unit.
func TestOldProcessExitsOnlyOnceNewOneServes(t *testing.T) {
	s := newStage(t)
	n := s.start("--upgrade-socket=" + s.socket)
	f := s.fake()
	f.rested()
	f.say(handover.Ready)
	f.until(handover.Done)
	f.SetDeadline(time.Now().Add(300 * time.Millisecond)) // without the wait it exits within 10 ms
	if m, err := f.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%+v, %v: it has exited before the new process served", m, err)
	}
	f.SetDeadline(time.Now().Add(patience))
	f.say(handover.Serving)
	<-n.exited
}

// The process below PID 1 would end with it, but one in another container does not.
func TestPID1HandsOverToAnotherContainerAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	s := newStage(t)
	s.attr.Cloneflags = syscall.CLONE_NEWPID
	n := s.start("--upgrade-socket=" + s.socket)
	s.attr.Cloneflags = 0
	p := s.play(n, 2)
	n.cmd.Process.Signal(syscall.SIGUSR2)
	if line := n.wait(0, "upgrade.refused"); !strings.Contains(line["err"].(string), "PID 1") {
		t.Errorf("%v", line)
	}
	next := s.start("--takeover=" + s.socket)
	<-n.exited
	p.goOn()
	next.wantStatus(upgrade.OK, "")
}

func TestTakeoverOfNobodyIsAnOrdinaryStart(t *testing.T) {
	s := newStage(t)
	n := s.start("--takeover="+s.socket, "--upgrade-socket="+s.socket)
	s.play(n, 2)
	n.wantStatus(upgrade.None, "")
}

// A process may be killed at any moment of an upgrade. Its successor has all sessions if it is READY. If it has not got all,
// it begins anew, and has nothing open of the old sessions.
func TestSuccessorOfKilledProcessHasAllSessionsOrNone(t *testing.T) {
	for name, at := range map[string]handover.Kind{
		"before the offer": handover.Offer, "before ACCEPT": handover.Accept, "before the sessions": handover.Sessions, "before the rest": handover.Rest, "READY": handover.Ready,
	} {
		t.Run(name, func(t *testing.T) {
			s, n, p, r, next := upgradeUpTo(t, at, 6)
			n.cmd.Process.Kill()
			<-n.exited
			r.old.Close()
			r.new.Close()
			if at == handover.Ready {
				next.wait(0, "upgrade.predecessor_crashed")
				p.goOn()
				if u := next.wantStatus(upgrade.OK, ""); u.Sessions.Moved != 6 || u.FreezeMS <= 0 || u.FreezeMS > patience.Seconds()*1000 {
					t.Errorf("%+v", u)
				}
			} else {
				next.wait(0, "upgrade.failed")
				next.wait(0, "listen.clients")
				p.noticed()
				next.wantStatus(upgrade.None, "")
			}
			s.play(next, 2)
			s.wantJoined(8)
		})
	}
}

// A process that is stopped while its successor waits for COMMIT must not find a second owner
// when it continues. While it is stopped nobody can know whether it will.
func TestSuccessorOfStoppedProcessWaits(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", killed), func(t *testing.T) {
			t.Parallel()
			s, n, p, r, next := upgradeUpTo(t, handover.Ready, 6)
			stop(t, n.pid())
			if err := r.old.Send(handover.Ready, nil); err != nil {
				t.Fatal(err)
			}
			if line := next.wait(0, "upgrade.waiting"); line["pid"] != float64(n.pid()) {
				t.Errorf("%v, want the process %d", line, n.pid())
			}
			if killed {
				n.cmd.Process.Kill()
				<-n.exited
				r.new.Close()
				next.wait(0, "upgrade.predecessor_crashed")
			} else {
				n.cmd.Process.Signal(syscall.SIGCONT)
				n.wait(0, "upgrade.aborted")
				next.wantExit(1)
			}
			p.goOn()
			s.play(n, 1)
			s.wantJoined(7)
		})
	}
}

func TestAbortedSuccessorExitsWithOneLine(t *testing.T) {
	for name, at := range map[string]handover.Kind{
		"offer": handover.Offer, "sessions": handover.Sessions, "commit": handover.Ready, // only the older process may send COMMIT
	} {
		t.Run(name, func(t *testing.T) {
			_, _, p, r, next := upgradeUpTo(t, at, 2)
			r.new.SendAbort(errors.New("changed my mind"))
			r.old.SendAbort(errors.New("changed its mind"))
			next.wantExit(1)
			<-next.silent
			var said []string
			for _, line := range next.lines {
				if s := line["msg"].(string); strings.HasPrefix(s, "reseat: ") {
					said = append(said, s)
				}
			}
			if len(said) != 1 || !strings.Contains(said[0], "changed my mind") {
				t.Errorf("%q, want one line with the reason", said)
			}
			p.goOn()
		})
	}
}

// A successor may be killed at any moment, with all descriptors that it has got: the older process goes on.
func TestProcessOutlivesItsSuccessor(t *testing.T) {
	for name, at := range map[string]handover.Kind{"before ACCEPT": handover.Accept, "with sessions": handover.Ack, "before READY": handover.Ready} {
		for _, driver := range []string{"net", "poll"} {
			t.Run(driver+" "+name, func(t *testing.T) {
				s, n, p, r, next := upgradeUpTo(t, at, 4, "--driver="+driver)
				next.cmd.Process.Kill()
				<-next.exited
				r.old.Close()
				n.wait(0, "upgrade.aborted")
				p.goOn()
				n.wantStatus(upgrade.Aborted, "it has exited")
				s.play(n, 1)
				s.wantJoined(5)
			})
		}
	}
}

// bySession are the types of a session's events, in order.
type bySession map[string][]string

// want checks that so many sessions have these events.
func (of bySession) want(t *testing.T, count int, types ...string) {
	t.Helper()
	n := 0
	for _, got := range of {
		if fmt.Sprint(got) == fmt.Sprint(types) {
			n++
		}
	}
	if n != count {
		t.Errorf("%d sessions have %v, want %d: %v", n, types, count, of)
	}
}

// A receiver that does not answer for some time must get each event of each process, in the order
// of its session.
func TestWebhookQueueGoesThroughUpgrades(t *testing.T) {
	s, hooks := newStage(t), newHookServer(t)
	hooks.gate = make(chan struct{})
	secret := writeFile(t, filepath.Join(s.dir, "secret"), webhookSecret+"\n")
	n := s.start("--webhook="+hooks.URL, "--webhook-secret-file="+secret)
	const count = 30
	var conns []*websocket.Conn
	join := func() {
		t.Helper()
		c, err := s.dial(n, "/")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.CloseNow() })
		conns = append(conns, c)
	}
	leave := func(conns []*websocket.Conn) {
		for _, c := range conns {
			c.Close(websocket.StatusNormalClosure, "")
		}
	}
	posted, seen := bySession{}, map[string]bool{}
	wait := func(n int) {
		for len(seen) < n {
			p := <-hooks.got
			if id := p.header.Get("Webhook-Id"); !seen[id] { // the same may be posted again
				seen[id] = true
				posted[p.Session] = append(posted[p.Session], p.Type)
			}
		}
	}
	for range count {
		join()
	}
	pid := n.upgrade(n.pid())
	leave(conns[:count/2])
	pid = n.upgrade(pid)
	close(hooks.gate)
	leave(conns[count/2:])
	wait(2 * count)
	n.upgrade(pid)
	join()
	wait(2*count + 1)
	posted.want(t, count, events.Created, events.Ended)
	posted.want(t, 1, events.Created)
}

// A reader of the event stream that comes again with Last-Event-ID sees every event once, with
// increasing ids and no gap.
func TestEventStreamGoesThroughUpgradesWithoutGap(t *testing.T) {
	s := newStage(t)
	n := s.start()
	ctx, stop := context.WithCancel(t.Context())
	began := make(chan struct{})
	var begin sync.Once
	var ended atomic.Int64
	of := bySession{}
	var reading sync.WaitGroup
	reading.Go(func() {
		for last := uint64(0); ctx.Err() == nil; {
			req, _ := http.NewRequestWithContext(ctx, "GET", n.admin+"/api/v1/events", nil)
			if last > 0 {
				req.Header.Set("Last-Event-ID", fmt.Sprint(last))
			}
			resp, err := ask.Do(req)
			if err != nil {
				continue
			}
			begin.Do(func() { close(began) })
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				switch key, value, _ := strings.Cut(lines.Text(), ": "); key {
				case "id":
					id, err := strconv.ParseUint(value, 10, 64)
					if err != nil || id <= last {
						t.Errorf("id %s after %d, %v", value, last, err)
					}
					last = id
				case "data":
					var e events.Event
					json.Unmarshal([]byte(value), &e)
					of[e.Session] = append(of[e.Session], e.Type)
					if e.Type == events.Ended {
						ended.Add(1)
					}
				}
			}
			resp.Body.Close()
		}
	})
	<-began
	const count = 120
	var coming sync.WaitGroup
	coming.Go(func() {
		for i := range count {
			c, err := s.dial(n, "/")
			if err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			c.Close(websocket.StatusNormalClosure, "")
		}
	})
	pid := n.pid()
	for range 5 {
		pid = n.upgrade(pid)
	}
	coming.Wait()
	reaches(t, "events of ended sessions", &ended, count)
	stop()
	reading.Wait()
	of.want(t, count, events.Created, events.Ended)
	if len(of) != count {
		t.Errorf("%d sessions, want %d", len(of), count)
	}
}
