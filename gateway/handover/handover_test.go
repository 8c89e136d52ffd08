//go:build linux

package handover

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns both ends of a channel.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	a, far, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(far.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	far.Close()
	if err == nil {
		b, err = New(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	limit := time.Now().Add(time.Minute) // a test that hangs should say where
	a.SetDeadline(limit)
	b.SetDeadline(limit)
	return a, b
}

// pipes returns n read ends of pipes, and all write ends. The read ends are closed once sent.
func pipes(t *testing.T, n int) (read []int, write []*os.File) {
	t.Helper()
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		read, write = append(read, fd), append(write, w)
		t.Cleanup(func() { w.Close() })
	}
	return read, write
}

// sendAndForget sends, and closes the sender's descriptors.
func sendAndForget(t *testing.T, c *Conn, k Kind, fds []int, body ...[]byte) {
	t.Helper()
	if err := c.Send(k, fds, body...); err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// wantAllClosed asserts that nobody has the read ends of pipes any more.
func wantAllClosed(t *testing.T, write []*os.File) {
	t.Helper()
	for i, w := range write {
		if _, err := w.Write([]byte{1}); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("descriptor %d is still open: %v", i, err)
		}
	}
}

func TestMessagesKeepTheirOrderBodiesAndDescriptors(t *testing.T) {
	a, b := pair(t)
	go func() {
		a.Send(Hello, nil)
		a.Send(Sessions, nil, []byte("one "), nil, []byte("two"))
		a.Send(Rest, nil, bytes.Repeat([]byte("x"), 3<<20)) // more than the socket holds
	}()
	for _, want := range []Message{{Kind: Hello, Body: []byte{}}, {Kind: Sessions, Body: []byte("one two")}, {Kind: Rest, Body: bytes.Repeat([]byte("x"), 3<<20)}} {
		m, err := b.Receive()
		if err != nil || m.Kind != want.Kind || !bytes.Equal(m.Body, want.Body) || m.FDs != nil {
			t.Fatalf("kind %d with %d bytes and %v, %v; want kind %d with %d bytes", m.Kind, len(m.Body), m.FDs, err, want.Kind, len(want.Body))
		}
	}
	for _, n := range []int{1, 120, MaxFDs} {
		fds, write := pipes(t, n)
		sendAndForget(t, a, Conns, fds, []byte("body"))
		sendAndForget(t, a, Done, nil) // its bytes follow at once: they must not be mixed up
		m, err := b.Receive()
		if err != nil || len(m.FDs) != n || string(m.Body) != "body" {
			t.Fatalf("%d descriptors and %q, %v; want %d", len(m.FDs), m.Body, err, n)
		}
		for i, fd := range m.FDs {
			fmt.Fprintf(write[i], "%3d", i)
			var got [3]byte
			if _, err := unix.Read(fd, got[:]); err != nil || string(got[:]) != fmt.Sprintf("%3d", i) {
				t.Fatalf("descriptor %d reads %q, %v: another one's place", i, got, err)
			}
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("a child process would inherit descriptor %d: %v", i, err)
			}
		}
		m.Close()
		wantAllClosed(t, write)
		if m, err := b.Receive(); err != nil || m.Kind != Done {
			t.Fatalf("kind %d, %v, want Done", m.Kind, err)
		}
	}
	if err := a.Send(Conns, make([]int, MaxFDs+1)); err == nil {
		t.Error("more descriptors than a message may have were sent")
	}
}

func TestEndOfChannelIsEOF(t *testing.T) {
	for name, sent := range map[string][]byte{"at once": nil, "in a head": appendHead(nil, Rest, 3, 0)[:7], "before a body": appendHead(nil, Rest, 3, 0), "in a body": append(appendHead(nil, Rest, 3, 0), 'x')} {
		for _, unread := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,unread=%v", name, unread), func(t *testing.T) {
				a, b := pair(t)
				if unread { // then the system reports a reset in place of the end
					sendAndForget(t, b, Ack, nil)
				}
				a.c.Write(sent)
				a.Close()
				want := io.EOF
				if sent != nil {
					want = io.ErrUnexpectedEOF
				}
				if _, err := b.Receive(); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
		}
	}
}

// A process that has refused closes the channel. The other may be sending just then, and
// must report the reason and not a broken pipe.
func TestSenderLearnsWhyThePeerHasLeft(t *testing.T) {
	a, b := pair(t)
	fds, write := pipes(t, 2)
	sendAndForget(t, b, Conns, fds)
	b.SendAbort(errors.New("too few descriptors"))
	b.Close()
	err := a.Send(Sessions, nil, []byte("x"))
	if abort := new(AbortError); !errors.As(err, &abort) || abort.Reason != "too few descriptors" {
		t.Errorf("%v, want the reason", err)
	}
	wantAllClosed(t, write)
	a, b = pair(t)
	b.Close()
	if err := a.Send(Sessions, nil, []byte("x")); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want EOF", err)
	}
}

func TestDescriptorsOfRefusedMessageAreClosed(t *testing.T) {
	var target struct{ N int }
	ready := func(b *Conn) (Message, error) { return b.Expect(Ready) }
	offer := func(b *Conn) (Message, error) { return b.ExpectJSON(Offer, &target) }
	whole := func(k Kind, body string) []byte { return append(appendHead(nil, k, len(body), 3), body...) }
	for name, c := range map[string]struct {
		sent    []byte // with three descriptors
		receive func(b *Conn) (Message, error)
		want    string
	}{
		"another kind":                  {whole(Sessions, ""), ready, ErrProtocol.Error() + ": message 7, want 11"},
		"an Abort":                      {whole(Abort, "why"), ready, "why"},
		"no JSON":                       {whole(Offer, "{"), offer, ErrProtocol.Error() + ": unexpected end of JSON input"},
		"a truncated body":              {whole(Sessions, "body")[:headSize+3], (*Conn).Receive, io.ErrUnexpectedEOF.Error()},
		"a truncated head":              {[]byte(magic), (*Conn).Receive, io.ErrUnexpectedEOF.Error()},
		"foreign bytes":                 {[]byte("GET / HTTP/1.1\r\n\r\n"), (*Conn).Receive, ErrProtocol.Error()},
		"another version":               {append([]byte("RSU2"), whole(Sessions, "")[4:]...), (*Conn).Receive, ErrProtocol.Error()},
		"a reserved byte":               {append([]byte(magic+"\x07\x01"), whole(Sessions, "")[6:]...), (*Conn).Receive, ErrProtocol.Error()},
		"a body beyond the limit":       {appendHead(nil, Sessions, maxBody+1, 3), (*Conn).Receive, ErrProtocol.Error()},
		"another number of descriptors": {appendHead(nil, Sessions, 0, 4), (*Conn).Receive, "3 descriptors came with a message, 4 were sent"},
		"descriptors that none expects": {appendHead(nil, Sessions, 0, 2), (*Conn).Receive, "3 descriptors came with a message, 2 were sent"},
	} {
		a, b := pair(t)
		fds, write := pipes(t, 3)
		if _, _, err := a.c.WriteMsgUnix(c.sent, unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		a.Close()
		if _, err := c.receive(b); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		wantAllClosed(t, write)
	}
}

// Descriptors that this process has no room for are lost in the kernel: the message must be
// refused, and those that did arrive must be closed.
func TestMessageIsRefusedWhenDescriptorsAreShort(t *testing.T) {
	if os.Getenv("HANDOVER_SHORT") == "" {
		inChild(t, "HANDOVER_SHORT=1", nil)
		return
	}
	a, b := pair(t)
	fds, write := pipes(t, 20)
	sendAndForget(t, a, Sessions, fds)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var most int
	for _, e := range open {
		var fd int
		fmt.Sscan(e.Name(), &fd)
		most = max(most, fd)
	}
	var hole []int // fill the holes below most, so that exactly five are left
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if fd > most {
			unix.Close(fd)
			break
		}
		hole = append(hole, fd)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(most + 6), Max: uint64(most + 6)}); err != nil {
		t.Fatal(err)
	}
	_, err = b.Receive()
	for _, fd := range hole {
		unix.Close(fd)
	}
	if err == nil || !strings.Contains(err.Error(), "too few descriptors") {
		t.Errorf("%v, want that descriptors are short", err)
	}
	wantAllClosed(t, write)
}

// inChild runs the test again in a process of its own.
func inChild(t *testing.T, env string, attr *syscall.SysProcAttr) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), env), attr
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestUpgradeSocketIsForItsUserAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "upgrade.sock")
	ln, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v; want a socket of mode 0600", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%v are left beside it", left)
	}
}

func TestSocketOfExitedProcessIsReplacedAndLiveOneIsNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "upgrade.sock")
	if _, err := Dial(path); !errors.Is(err, ErrNobody) {
		t.Errorf("without a file: %v, want ErrNobody", err)
	}
	first, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the socket of an exited process is gone: %v", err)
	}
	if _, err := Dial(path); !errors.Is(err, ErrNobody) {
		t.Errorf("of an exited process: %v, want ErrNobody", err)
	}
	second, err := Listen(path, false)
	if err != nil {
		t.Fatalf("a socket that nobody listens at: %v", err)
	}
	defer second.Close()
	if _, err := Listen(path, false); err == nil {
		t.Error("a socket that somebody listens at was replaced")
	}
	third, err := Listen(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	greeted := make(chan error, 1)
	go func() {
		c, err := third.Accept()
		if err == nil {
			_, err = c.Expect(Hello)
			c.Close()
		}
		greeted <- err
	}()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sendAndForget(t, c, Hello, nil)
	if err := <-greeted; err != nil {
		t.Errorf("the successor's socket: %v", err)
	}
}

func TestFileThatIsNoSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings")
	if err := os.WriteFile(path, []byte("keep me"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, replace := range []bool{false, true} {
		if ln, err := Listen(path, replace); err == nil {
			ln.Close()
			t.Errorf("replace %v: a file was replaced by a socket", replace)
		}
	}
	if b, err := os.ReadFile(path); string(b) != "keep me" {
		t.Errorf("%q, %v", b, err)
	}
}

// Another user's process gets nothing, even if the mode of the file lets it connect.
func TestProcessOfAnotherUserIsDropped(t *testing.T) {
	if path := os.Getenv("HANDOVER_DIAL"); path != "" { // as the other user
		if _, err := Dial(path); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("a listener of another user: %v", err)
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		(&Conn{c: c.(*net.UnixConn)}).Send(Hello, nil)
		c.SetDeadline(time.Now().Add(time.Minute))
		if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v: want the end", n, err)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	dir, err := os.MkdirTemp("", "handover")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "upgrade.sock")
	ln, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan *Conn, 2)
	go func() {
		defer close(accepted)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	inChild(t, "HANDOVER_DIAL="+path, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	own, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	c := <-accepted
	defer c.Close()
	sendAndForget(t, own, Hello, nil)
	if _, err := c.Expect(Hello); err != nil {
		t.Errorf("the first that was accepted is not this user's: %v", err)
	}
	ln.Close()
	for range accepted {
		t.Error("another user's process was accepted")
	}
}

func TestDescriptorThatIsNoUnixSocketIsRefused(t *testing.T) {
	fds, write := pipes(t, 1)
	if _, err := New(fds[0]); err == nil {
		t.Error("a pipe is a channel")
	}
	wantAllClosed(t, write)
}

func TestPartsAreCutAsAppended(t *testing.T) {
	var b []byte
	parts := []string{"", "x", strings.Repeat("long", 100), ""}
	for _, p := range parts {
		b = append(AppendPart(b, len(p)), p...)
	}
	var got []string
	for len(b) > 0 {
		part, rest, err := CutPart(b)
		if err != nil {
			t.Fatal(err)
		}
		got, b = append(got, string(part)), rest
	}
	if !slices.Equal(got, parts) {
		t.Errorf("%q, want %q", got, parts)
	}
	for _, bad := range []string{"", "\x03", "\x03ab", "\x80", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01ab", strings.Repeat("\xff", 11)} {
		if part, rest, err := CutPart([]byte(bad)); part != nil || rest != nil || err != ErrProtocol {
			t.Errorf("% x is cut into % x and % x, %v; want %v", bad, part, rest, err, ErrProtocol)
		}
	}
}

// Bytes of another program, or truncated ones, must be refused and not cause a panic.
func FuzzMessage(f *testing.F) {
	f.Add(appendHead(nil, Sessions, 5, 1))
	f.Add(appendHead(nil, Rest, maxBody+1, 0))
	f.Add(append(AppendPart(nil, 3), "abc"...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'x'}) // the longest length
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headSize {
			k, size, fds, err := parseHead(b[:headSize])
			switch {
			case err != nil && (k != 0 || size != 0 || fds != 0 || !errors.Is(err, ErrProtocol)):
				t.Errorf("%d, %d, %d, %v", k, size, fds, err)
			case err == nil && (size < 0 || size > maxBody || !bytes.Equal(appendHead(nil, k, size, fds), b[:headSize])):
				t.Errorf("kind %d, %d bytes, %d descriptors from % x", k, size, fds, b[:headSize])
			}
		}
		part, rest, err := CutPart(b)
		if err != nil {
			if part != nil || rest != nil || !errors.Is(err, ErrProtocol) {
				t.Errorf("%q, %q, %v", part, rest, err)
			}
			return
		}
		if !bytes.HasSuffix(b, rest) || !bytes.HasSuffix(b[:len(b)-len(rest)], part) || len(rest) >= len(b) {
			t.Errorf("%q was cut into %q and %q", b, part, rest)
		}
	})
}

// cutOff sends a message larger than the socket holds, and lets a deadline pass once its beginning has arrived.
func cutOff(t *testing.T, a, b *Conn, body ...[]byte) {
	t.Helper()
	raw, err := b.c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() { sent <- a.Send(Sessions, nil, body...) }()
	err = raw.Read(func(fd uintptr) bool {
		n, _, _ := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
		return n > 0
	})
	if err != nil {
		t.Fatal(err)
	}
	a.SetDeadline(time.Unix(1, 0))
	if err := <-sent; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v, want that the deadline ends it", err)
	}
}

// A peer that has not been notified of the end would take it for a crash.
func TestPeerThatDoesNotReadLearnsOfWithdrawalFirst(t *testing.T) {
	a, b := pair(t)
	cutOff(t, a, b, make([]byte, 3<<20))
	sent := a.Withdraw(errors.New("too late"))
	var abort *AbortError
	if err := b.Send(Ready, nil); !errors.As(err, &abort) || abort.Reason != "too late" {
		t.Errorf("Ready: %v, want that it is refused with the reason", err)
	}
	<-sent
	if _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end", err)
	}
}

// What has left as a whole has been sent, also where the deadline passes right afterwards.
func TestMessageWithoutBodyIsSentAtOnce(t *testing.T) {
	a, b := pair(t)
	a.unsent = nil
	if err := a.complete(); err != nil {
		t.Error(err)
	}
	a.SetDeadline(time.Unix(1, 0))
	if err := a.complete(); err != nil {
		t.Errorf("%v with nothing left to send", err)
	}
	if err := a.Send(Commit, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	a.SetDeadline(time.Time{})
	if err := a.Send(Done, nil); err != nil {
		t.Fatal(err)
	}
	if m, err := b.Receive(); err != nil || m.Kind != Done {
		t.Errorf("kind %d, %v: something of what was not sent has arrived", m.Kind, err)
	}
}

func TestProbeRefusesSocketOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.Chown(path, os.Geteuid()+1, -1); err != nil {
		t.Skip("only root can give a file away")
	}
	if err := Probe(path); err == nil || !strings.Contains(err.Error(), "user") {
		t.Errorf("%v for the socket of another user", err)
	}
}

func TestSecondListenerDoesNotDisturbTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "upgrade.sock")
	first, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := Listen(path, false); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v", err)
	}
	first.ln.SetDeadline(time.Unix(1, 0))
	if c, err := first.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first was given a connection: %v, %v", c, err)
	}
}

func TestProbeListenNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "s"):         "",
		filepath.Join(dir, "none", "s"): "no such file or directory",
		filepath.Join(file, "s"):        "not a directory",
		file:                            "not a socket",
	} {
		err := ProbeListen(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
