//go:build linux

package listen

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/rawconn"
)

// A process is an http.Server as server.go makes it, on a listener of its own.
type process struct {
	*http.Server
	t       *testing.T
	tracker *ConnTracker
	ln      *Listener
	queue   *Queue
	arrived chan string   // the bodies and paths that its handler gets
	let     chan struct{} // lets the handler of /held answer
}

// theLoop is the event loop that connections are accepted for; nil: they are those of package net.
var theLoop *epoll.Loop

func accepted(fd int, local, peer net.Addr) (net.Conn, error) {
	c, err := theLoop.Accepted(fd, local, peer)
	if err != nil {
		return nil, err
	}
	return c, nil
}

type stopwatch struct{ began time.Time }

func (s stopwatch) Now() session.Time { return session.Time(time.Since(s.began)) + 1 }

// onBoth runs test for connections of package net and for those of an event loop.
func onBoth(t *testing.T, test func(t *testing.T)) {
	t.Run("net", test)
	t.Run("loop", func(t *testing.T) {
		loops, err := epoll.Start(stopwatch{time.Now()}, 1)
		if err != nil {
			t.Fatal(err)
		}
		theLoop = loops.Place()
		t.Cleanup(func() {
			theLoop = nil
			loops.Close()
			loops.Wait()
		})
		test(t)
	})
}

func newTestListener(t *testing.T) *Listener {
	t.Helper()
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	acceptByLoop(t, ln)
	return ln
}

// acceptByLoop has ln accept connections for theLoop, if there is one.
func acceptByLoop(t *testing.T, ln *Listener) {
	t.Helper()
	if theLoop != nil {
		if err := ln.AcceptBy(accepted); err != nil {
			t.Fatal(err)
		}
	}
}

// newProcess begins to serve at ln, nil for a new listener. waits, if there is one, answers /waits.
func newProcess(t *testing.T, ln *Listener, waits ...http.HandlerFunc) *process {
	t.Helper()
	if ln == nil {
		ln = newTestListener(t)
	} else {
		acceptByLoop(t, ln)
	}
	p := &process{t: t, tracker: NewConnTracker(Options{}), ln: ln, queue: NewQueue(ln.Addr()), arrived: make(chan string, 100), let: make(chan struct{})}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.arrived <- r.URL.Path + string(body)
		if r.URL.Path == "/waits" {
			waits[0](w, r)
			return
		}
		if r.URL.Path == "/held" {
			w.Header().Set("Content-Length", fmt.Sprint(2*len(half)))
			io.WriteString(w, half)
			<-p.let
		}
		io.WriteString(w, half)
	})
	p.Server = &http.Server{Handler: p.tracker.Handler(h), ConnContext: ConnContext, ConnState: p.tracker.ConnState}
	var both sync.WaitGroup
	both.Go(func() { p.Serve(p.tracker.Listen(p.ln, true)) })
	both.Go(func() { p.Serve(p.tracker.Listen(p.queue, true)) })
	t.Cleanup(func() {
		p.Close()
		both.Wait() // no goroutine stays behind
	})
	return p
}

const half = "half of an answer"

// A caller is a client of a process.
type caller struct {
	t *testing.T
	*net.TCPConn
	br *bufio.Reader
}

func call(t *testing.T, p *process) *caller {
	t.Helper()
	c, err := net.Dial("tcp", p.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { c.Close() })
	return &caller{t, c.(*net.TCPConn), bufio.NewReader(c)}
}

func (c *caller) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// wantAnswer reads one answer.
func (c *caller) wantAnswer(want string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(body) != want {
		c.t.Fatalf("%s %q, %v; want %q", resp.Status, body, err, want)
	}
}

// frozen freezes p's idle connections once there are n, each of which has read want.
func (p *process) frozen(t *testing.T, n int, want string) []FrozenConn {
	t.Helper()
	var list []FrozenConn
	await(t, fmt.Sprintf("there are %d idle connections that have read %q", n, want), func() bool {
		list = p.tracker.Freeze()
		if len(list) == n && !slices.ContainsFunc(list, func(f FrozenConn) bool { return string(f.Request) != want }) {
			return true
		}
		for _, f := range list {
			f.Thaw()
		}
		return false
	})
	return list
}

// await waits until holds is true.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("after 30 s not: ", what)
		}
	}
}

// wantConns waits until n connections are tracked.
func (p *process) wantConns(n int) {
	p.t.Helper()
	await(p.t, fmt.Sprint(n, " connections are tracked"), func() bool {
		conns, _ := p.tracker.Counts()
		return conns == n
	})
}

// move hands frozen connections over.
func move(t *testing.T, list []FrozenConn, to *process) {
	t.Helper()
	for _, f := range list {
		c, err := rawconn.ConnOf(wstest.Duplicate(t, f.FD))
		if err != nil {
			t.Fatal(err)
		}
		f.HandedOver()
		if n, err := f.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("a Read afterwards: %d, %v, want EOF", n, err)
		}
		if _, err := f.Write([]byte("x")); err == nil {
			t.Error("a Write afterwards succeeded")
		}
		to.queue.Put(Handed(c, f.Request, "", false))
	}
}

// idle waits until p has noted that its answers are written: bytes that come before are not
// distinguished from those of the request.
func (p *process) idle(t *testing.T) {
	t.Helper()
	for _, f := range p.frozen(t, 1, "") {
		f.Thaw()
	}
}

const (
	firstHalf  = "GET /first HTTP/1.1\r\nHost: game.exa"
	secondHalf = "mple\r\n\r\n"
	whole      = firstHalf + secondHalf
)

func TestHalfRequestIsServedAfterThaw(t *testing.T) { onBoth(t, halfRequestIsServedAfterThaw) }

func halfRequestIsServedAfterThaw(t *testing.T) {
	p := newProcess(t, nil)
	c := call(t, p)
	c.send(firstHalf)
	list := p.frozen(t, 1, firstHalf)
	c.send(secondHalf)
	select {
	case path := <-p.arrived:
		t.Fatalf("%s was served while frozen", path)
	case <-time.After(20 * time.Millisecond): // nothing is asserted about how fast it is
	}
	for frozen, times := true, 0; frozen; times++ { // as by upgrades that fail one after the other
		list[0].Thaw()
		frozen = false
		if times < 3 {
			_, _, frozen = list[0].Conn.Freeze() // not if it is served already
		}
	}
	c.wantAnswer(half)
}

func TestHalfRequestIsServedByTheNextProcessOnce(t *testing.T) {
	onBoth(t, halfRequestIsServedByTheNextProcessOnce)
}

func halfRequestIsServedByTheNextProcessOnce(t *testing.T) {
	for name, cut := range map[string]string{"nothing": "", "one byte": "G", "half": firstHalf, "all but a byte": whole[:len(whole)-1]} {
		t.Run(name, func(t *testing.T) {
			old, next := newProcess(t, nil), newProcess(t, nil)
			c := call(t, old)
			c.send(cut)
			move(t, old.frozen(t, 1, cut), next)
			c.send(whole[len(cut):])
			c.wantAnswer(half)
			next.idle(t)
			if path := <-next.arrived; path != "/first" || len(next.arrived)+len(old.arrived) != 0 {
				t.Errorf("%s, and %d more requests", path, len(next.arrived)+len(old.arrived))
			}
			c.send(strings.Replace(whole, "first", "second", 1))
			c.wantAnswer(half)
			next.idle(t)
			c.send(firstHalf) // and on to a third one
			third := newProcess(t, nil)
			move(t, next.frozen(t, 1, firstHalf), third)
			c.send(secondHalf)
			c.wantAnswer(half)
			old.wantConns(0) // its reader has yet to see the end
		})
	}
}

func TestKeptAliveConnectionMovesBetweenRequests(t *testing.T) {
	onBoth(t, keptAliveConnectionMovesBetweenRequests)
}

func keptAliveConnectionMovesBetweenRequests(t *testing.T) {
	old, next := newProcess(t, nil), newProcess(t, nil)
	c := call(t, old)
	for range 3 {
		c.send(whole)
		c.wantAnswer(half)
		old.idle(t)
	}
	move(t, old.frozen(t, 1, ""), next)
	c.send(whole)
	c.wantAnswer(half)
	if len(old.arrived) != 3 || len(next.arrived) != 1 {
		t.Errorf("%d requests and %d, want 3 and 1", len(old.arrived), len(next.arrived))
	}
}

// Bytes that http.Server has read ahead cannot be distinguished from those of a body.
func TestConnectionThatHasSentMoreThanARequestStays(t *testing.T) {
	onBoth(t, connectionThatHasSentMoreThanARequestStays)
}

func connectionThatHasSentMoreThanARequestStays(t *testing.T) {
	for name, sent := range map[string]string{
		"a pipelined request":          whole + firstHalf,
		"two":                          whole + whole + firstHalf,
		"a body, and the next request": "POST /first HTTP/1.1\r\nHost: game.example\r\nContent-Length: 4\r\n\r\nbody" + firstHalf,
		"bare line feeds":              strings.ReplaceAll(whole, "\r\n", "\n") + firstHalf,
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t, nil)
			c := call(t, p)
			c.send(sent)
			answers := strings.Count(sent, "HTTP/1.1") - 1
			for range answers {
				c.wantAnswer(half)
			}
			for range 20 { // it is idle by now or soon
				for _, f := range p.tracker.Freeze() {
					t.Errorf("it moves with %q", f.Request)
					f.Thaw()
				}
				time.Sleep(time.Millisecond)
			}
			c.send(secondHalf)
			c.wantAnswer(half)
		})
	}
}

// net/http reads while a handler runs, to notice that the client has closed. That must neither take bytes
// from the code that takes the connection over, nor leave a deadline behind.
func TestTakenOverConnectionCanBeRead(t *testing.T) {
	onBoth(t, func(t *testing.T) {
		began, early := make(chan struct{}), make(chan struct{})
		p := newProcess(t, nil, func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-early
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			read, _ := rw.Reader.Peek(rw.Reader.Buffered())
			conn, rest := conn.(*Conn).Unwrap()
			defer conn.Close()
			fmt.Fprintf(conn, "%s%s", read, rest)
			io.Copy(conn, conn)
		})
		c := call(t, p)
		c.send(strings.Replace(whole, "first", "waits", 1))
		<-began
		c.send("early")
		close(early)
		got := make([]byte, len("early"))
		if _, err := io.ReadFull(c, got); string(got) != "early" || err != nil {
			t.Fatalf("%q, %v; want early", got, err)
		}
		p.wantConns(0)
		c.send("later")
		c.CloseWrite()
		if all, err := io.ReadAll(c); string(all) != "later" || err != nil {
			t.Errorf("%q, %v; want later", all, err)
		}
	})
}

func TestRequestIsCancelledWhenItsClientCloses(t *testing.T) {
	onBoth(t, func(t *testing.T) {
		began, over := make(chan struct{}), make(chan struct{})
		p := newProcess(t, nil, func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-r.Context().Done()
			close(over)
		})
		c := call(t, p)
		c.send(strings.Replace(whole, "first", "waits", 1))
		<-began
		c.Close()
		select {
		case <-over:
		case <-time.After(30 * time.Second):
			t.Error("after 30 s the request is not cancelled")
		}
	})
}

func TestFreezeDoesNotTruncateAnAnswer(t *testing.T) { onBoth(t, freezeDoesNotTruncateAnAnswer) }

func freezeDoesNotTruncateAnAnswer(t *testing.T) {
	p := newProcess(t, nil)
	c := call(t, p)
	c.send(strings.Replace(whole, "first", "held", 1))
	<-p.arrived
	for range 3 {
		if list := p.tracker.Freeze(); len(list) != 0 {
			t.Fatal("a connection is frozen while its request is served")
		}
	}
	close(p.let)
	c.wantAnswer(half + half)
}

// lone returns a Conn and its peer.
func lone(t *testing.T, first string) (*Conn, *net.TCPConn) {
	t.Helper()
	c, peer := wstest.TCPPair(t, nil)
	t.Cleanup(func() { c.Close() })
	peer.SetDeadline(time.Now().Add(time.Minute))
	if theLoop != nil {
		fd, err := rawconn.Take(c)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if c, err = theLoop.Accepted(fd, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	return NewConn(c, []byte(first)), peer.(*net.TCPConn)
}

// A descriptor that is on its way to another process must stay the connection's: a closed
// one's number goes to the next file that is opened.
func TestFrozenConnectionKeepsItsDescriptor(t *testing.T) {
	onBoth(t, frozenConnectionKeepsItsDescriptor)
}

func frozenConnectionKeepsItsDescriptor(t *testing.T) {
	for name, end := range map[string]func(*ConnTracker, *Conn){
		"by http.Server":                  func(_ *ConnTracker, c *Conn) { c.Close() },
		"to free a descriptor":            func(tr *ConnTracker, _ *Conn) { tr.FreeOne() },
		"by the shutdown of its sendings": func(_ *ConnTracker, c *Conn) { c.CloseWrite() },
		"by an answer":                    func(_ *ConnTracker, c *Conn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
	} {
		for _, moved := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,moved=%v", name, moved), func(t *testing.T) {
				c, peer := lone(t, "")
				tracker := NewConnTracker(Options{})
				tracker.accept(c, true)
				list := tracker.Freeze()
				if len(list) != 1 {
					t.Fatalf("%d frozen", len(list))
				}
				done := make(chan struct{})
				go func() {
					end(tracker, c)
					close(done)
				}()
				select {
				case <-done:
					t.Fatal("it did not wait")
				case <-time.After(20 * time.Millisecond):
				}
				next := wstest.Duplicate(t, list[0].FD)
				defer unix.Close(next)
				if moved {
					c.HandedOver()
				} else {
					c.Thaw()
				}
				<-done
				if _, err := unix.Write(next, []byte("from the next process")); moved {
					if err != nil {
						t.Fatalf("the next process cannot write: %v", err)
					}
					got := make([]byte, 100)
					if n, err := peer.Read(got); string(got[:n]) != "from the next process" {
						t.Errorf("the peer gets %q, %v", got[:n], err)
					}
				}
			})
		}
	}
}

func TestClosedConnectionIsNotFrozen(t *testing.T) { onBoth(t, closedConnectionIsNotFrozen) }

func closedConnectionIsNotFrozen(t *testing.T) {
	c, _ := lone(t, "")
	c.Close()
	if _, _, ok := c.Freeze(); ok {
		t.Error("a closed connection is frozen")
	}
}

func TestDeadlineEndsReadOfThawedConnection(t *testing.T) {
	onBoth(t, deadlineEndsReadOfThawedConnection)
}

func deadlineEndsReadOfThawedConnection(t *testing.T) {
	c, peer := lone(t, "first")
	var b [10]byte
	if n, err := c.Read(b[:3]); string(b[:n]) != "fir" || err != nil {
		t.Fatalf("%q, %v", b[:n], err)
	}
	_, request, ok := c.Freeze()
	if !ok || string(request) != "first" {
		t.Fatalf("%q, %v: want what was read and what was not", request, ok)
	}
	c.SetReadDeadline(time.Unix(1, 0))
	c.Thaw()
	if n, err := c.Read(b[:]); string(b[:n]) != "st" || err != nil {
		t.Fatalf("%q, %v", b[:n], err)
	}
	if _, err := c.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want that the deadline has passed", err)
	}
	c.SetReadDeadline(time.Time{})
	io.WriteString(peer, "more")
	if n, err := c.Read(b[:]); string(b[:n]) != "more" || err != nil {
		t.Errorf("%q, %v", b[:n], err)
	}
	peer.CloseWrite()
	if _, err := c.Read(b[:]); err != io.EOF {
		t.Errorf("%v, want EOF", err)
	}
}

// A Read that waits while its connection moves takes nothing from the next process.
func TestWaitingReadEndsWhenTheConnectionMoves(t *testing.T) {
	onBoth(t, waitingReadEndsWhenTheConnectionMoves)
}

func waitingReadEndsWhenTheConnectionMoves(t *testing.T) {
	for range 50 {
		c, peer := lone(t, "")
		read := make(chan error, 1)
		go func() {
			n, err := c.Read(make([]byte, 10))
			if n > 0 {
				err = fmt.Errorf("%d bytes were read", n)
			}
			read <- err
		}()
		fd, _, ok := c.Freeze()
		if !ok {
			t.Fatal("not frozen")
		}
		next := wstest.Duplicate(t, fd)
		io.WriteString(peer, "for the next")
		c.HandedOver()
		if err := <-read; err != io.EOF {
			t.Errorf("%v, want EOF", err)
		}
		got := make([]byte, 100)
		if n, err := rawconn.Receive(next, got); string(got[:n]) != "for the next" {
			t.Errorf("the next process reads %q, %v", got[:n], err)
		}
		unix.Close(next)
	}
}

// An Accept that was about to call the system when Pause came may still get a client.
func TestPausedListenerLeavesClientsToTheQueueOfTheSystem(t *testing.T) {
	onBoth(t, pausedListenerLeavesClientsToTheQueueOfTheSystem)
}

func pausedListenerLeavesClientsToTheQueueOfTheSystem(t *testing.T) {
	ln := newTestListener(t)
	defer ln.Close()
	for range 3 {
		ln.Pause()
		accepted := make(chan net.Conn)
		go func() {
			c, err := ln.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-accepted:
			t.Fatal("a paused listener accepts")
		case <-time.After(20 * time.Millisecond):
		}
		ln.Resume()
		(<-accepted).Close()
		client.Close()
	}
}

func TestClosedListenerEndsAcceptWhilePaused(t *testing.T) {
	onBoth(t, closedListenerEndsAcceptWhilePaused)
}

func closedListenerEndsAcceptWhilePaused(t *testing.T) {
	ln := newTestListener(t)
	ln.Pause()
	failed := make(chan error)
	go func() {
		_, err := ln.Accept()
		failed <- err
	}()
	ln.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want that it is closed", err)
	}
}

// The client that came while the first process was paused is the second one's, and the
// port stays open when the first one closes its listener.
func TestInheritedListenerGoesOn(t *testing.T) { onBoth(t, inheritedListenerGoesOn) }

func inheritedListenerGoesOn(t *testing.T) {
	old, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	old.Pause()
	c := call(t, &process{ln: old})
	c.send(whole)
	fd, err := rawconn.Descriptor(old)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := Inherit(wstest.Duplicate(t, fd))
	if err != nil {
		t.Fatal(err)
	}
	next := newProcess(t, ln)
	old.Close()
	c.wantAnswer(half)
	other := call(t, next)
	other.send(whole)
	other.wantAnswer(half)
}

func TestOnlyTCPListenersAreInherited(t *testing.T) {
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	fd := wstest.Duplicate(t, int(f.Fd()))
	f.Close()
	if _, err := Inherit(fd); err == nil {
		t.Error("a Unix listener was accepted")
	}
	if err := unix.Close(fd); err == nil {
		t.Error("its descriptor stays open")
	}
}

func TestQueueClosesWhatComesTooLate(t *testing.T) {
	c, peer := lone(t, "")
	q := NewQueue(nil)
	q.Close()
	q.Close()
	q.Put(c)
	if _, err := peer.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v, want that it is closed", err)
	}
	if _, err := q.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want that the queue is closed", err)
	}
}
