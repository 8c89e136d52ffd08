//go:build linux

package epoll

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A scrambler is a layer that changes every byte, and replies to the first read itself, as TLS does to a key
// update.
type scrambler struct {
	*rawconn.Conn
	answer []byte
	always bool // it replies to each read
}

func (s *scrambler) NetConn() net.Conn { return s.Conn }

func (s *scrambler) Read(p []byte) (int, error) {
	if s.always {
		p = p[:min(len(p), 8)]
	}
	n, err := s.Conn.Read(p)
	scramble(p[:n])
	if n > 0 && s.answer != nil {
		s.Conn.Write(s.answer)
		if !s.always {
			s.answer = nil
		}
	}
	return n, err
}

func (s *scrambler) Write(p []byte) (int, error) { return s.Conn.Write(scramble(bytes.Clone(p))) }

func scramble(p []byte) []byte {
	for i := range p {
		p[i] ^= 0x55
	}
	return p
}

// layered returns a connection with a scrambler: the loop's end, and the test's, which has none.
func layered(t *testing.T, answer []byte) (ours Handle, theirs net.Conn) {
	t.Helper()
	conn, theirs := wstest.TCPPair(t, nil)
	fd := dup(t, conn.(*net.TCPConn))
	return Above(fd, &scrambler{Conn: rawconn.Quiet(conn).(*rawconn.Conn), answer: answer}), theirs
}

// attach replaces r's client.
func (r *rig) attach(t *testing.T, h Handle, theirs net.Conn) {
	t.Helper()
	r.client.Close()
	_, here := r.Attach(h, nil, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		gen := core.NextGen()
		return core.Attach(now, session.Resume{Gen: gen - 1}, session.Pass{Gen: gen, Renew: time.Hour})
	})
	if !here {
		t.Fatal("the session is not here")
	}
	r.client = theirs
}

// hello reads the first message of a client with a scrambler.
func (tb *table) hello(conn net.Conn) {
	tb.t.Helper()
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		tb.t.Fatal(err)
	}
	scramble(head)
	if _, err := io.CopyN(io.Discard, conn, int64(head[2])<<8+int64(head[3])); err != nil || head[1] != 126 {
		tb.t.Fatalf("% x, %v", head, err)
	}
}

func TestSessionsWithAndWithoutALayerShareATurn(t *testing.T) {
	clock := new(handClock)
	tb := &table{t: t, loop: newLoop(t, clock), then: func() {}}
	for i := range 10 {
		ours, client := socketPair(t)
		r := newRigOn(t, tb.loop, clock, ours, client, func(c *session.Config) { c.Resumable = true })
		tb.all = append(tb.all, r)
		if i%2 == 0 {
			h, theirs := layered(t, nil)
			t.Cleanup(func() { theirs.Close() })
			r.attach(t, h, theirs)
			tb.hello(theirs)
		}
	}
	for name, legs := range map[string]func(*rig) []*leg{"both": bothLegs, "only the game servers": upLeg} {
		tb.turn(func() {
			for i, r := range tb.all {
				sent, _ := fromClient(name)
				if i%2 == 0 {
					scramble(sent)
				}
				tb.send(r.client, sent)
				tb.send(r.game, fromGame(name))
			}
		}, legs)
		for i, r := range tb.all {
			_, up := fromClient(name)
			tb.wants(r.game, up)
			if i%2 == 0 {
				tb.wants(r.client, scramble(fromGame(name)))
			}
		}
	}
}

// What a layer writes during a read is sent even if the session has no output.
func TestLayersOwnAnswerIsSent(t *testing.T) {
	clock := new(handClock)
	tb := &table{t: t, loop: newLoop(t, clock)}
	ours, client := socketPair(t)
	r := newRigOn(t, tb.loop, clock, ours, client, func(*session.Config) {})
	h, theirs := layered(t, []byte("new keys"))
	t.Cleanup(func() { theirs.Close() })
	r.attach(t, h, theirs)
	tb.hello(theirs)
	sent, up := fromClient("x")
	tb.send(theirs, scramble(sent))
	tb.wants(r.game, up)
	tb.wants(theirs, []byte("new keys"))
}

// The loop stops reading a client that makes its layer reply but does not read the replies, until it does.
func TestLayersAnswersAreBounded(t *testing.T) {
	clock := new(handClock)
	tb := &table{t: t, loop: newLoop(t, clock)}
	ours, client := socketPair(t)
	r := newRigOn(t, tb.loop, clock, ours, client, func(*session.Config) {})
	answer := bytes.Repeat([]byte("n"), 32<<10)
	h, theirs := layered(t, answer)
	t.Cleanup(func() { theirs.Close() })
	h.layer.(*scrambler).always = true
	syscall.SetsockoptInt(h.fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 16<<10)
	theirs.(*net.TCPConn).SetReadBuffer(16 << 10)
	r.attach(t, h, theirs)
	tb.hello(theirs)
	go io.Copy(io.Discard, r.game)
	const messages = 900 // within what may be sent without an ack
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		for range messages {
			sent, _ := fromClient("x")
			theirs.Write(scramble(sent))
			runtime.Gosched()
		}
	}()
	var pending, received int
	look := func() {
		r.Do(func(core *session.Session, _ session.Time) {
			pending, received = len(r.down.layer.socket.Pending), int(core.Info().Received)
		})
	}
	for look(); pending <= maxOwn && received < messages; look() {
	}
	if pending == 0 {
		t.Fatal("the socket takes all answers: the test shows nothing")
	}
	<-sending
	for range 100 {
		if look(); pending > maxOwn+maxRecords*len(answer) {
			t.Fatalf("%d bytes of answers are pending", pending)
		}
	}
	go io.Copy(io.Discard, theirs)
	for received < messages {
		look()
		runtime.Gosched()
	}
}

// Reads that have emptied the socket end with the next edge, not with another system call.
func TestEmptySocketIsNotReadAgainBeforeAnEdge(t *testing.T) {
	conn, theirs := wstest.TCPPair(t, nil)
	fd := dup(t, conn.(*net.TCPConn))
	defer syscall.Close(fd)
	q := rawconn.Quiet(conn).(*rawconn.Conn)
	lent := q.Lend(fd, nil)
	b := make([]byte, 8)
	read := func(want string) {
		t.Helper()
		if n, err := q.Read(b); string(b[:n]) != want || (err == rawconn.ErrAgain) != (want == "") {
			t.Errorf("%q, %v; want %q", b[:n], err, want)
		}
	}
	arrives := func(s string) {
		t.Helper()
		theirs.Write([]byte(s))
		for { // loopback delivers at once, but not before Write has returned
			if n, _, _ := syscall.Recvfrom(fd, make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT); n > 0 {
				return
			}
		}
	}
	arrives("abc")
	read("abc")
	arrives("d")
	read("") // it was notified of no edge
	lent.Arrived(false)
	read("d")
	arrives("12345678")
	lent.Arrived(false)
	read("12345678")
	read("") // the buffer was full, so it asks again
	theirs.Close()
	for {
		lent.Arrived(true)
		if _, err := q.Read(b); err == io.EOF {
			return
		} else if err != rawconn.ErrAgain {
			t.Fatal(err)
		}
	}
}
