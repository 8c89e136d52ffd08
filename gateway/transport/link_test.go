package transport_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"

	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/link"
	"reseat/gateway/pipe"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
)

// A linkPair is two ends of a link, which a driver moves: of the front node, and of the owner.
type linkPair struct {
	d            *transport.Driver
	front, owner *link.Link
	opening      sync.Mutex // until the stream has come
	came         chan *link.Stream
	relays       sync.WaitGroup
}

var overLink sync.Map // of *linkPair, by *transport.Driver

// linkedDriver returns a driver whose clients another node passes on.
func linkedDriver(t testing.TB, kind transport.Kind) *transport.Driver {
	d := newDriver(t, kind)
	overLink.Store(d, newLinkPair(t, d))
	return d
}

func newLinkPair(t testing.TB, d *transport.Driver) *linkPair {
	a, b := wstest.TCPPair(t, nil)
	a, b = withTLS(t, testcert.New(t, "localhost"), a, b, tls.VersionTLS13)
	p := &linkPair{d: d, came: make(chan *link.Stream, 1)}
	p.front, p.owner = link.New(nil), link.New(func(s *link.Stream) { p.came <- s })
	for l, conn := range map[*link.Link]net.Conn{p.front: a, p.owner: b} {
		l.Begin(conn.LocalAddr(), conn.RemoteAddr())
		if !d.HostLink(l, conn) {
			l.Run(conn)
		}
	}
	t.Cleanup(func() {
		for _, l := range []*link.Link{p.front, p.owner} {
			l.Close()
		}
		p.relays.Wait()
	})
	return p
}

// pass returns the connection that a session gets of a client which is passed on.
func (p *linkPair) pass(t testing.TB, client net.Conn) (ours net.Conn) {
	t.Helper()
	p.opening.Lock()
	defer p.opening.Unlock()
	s, err := p.front.Open()
	if err != nil {
		t.Fatal(err)
	}
	p.relays.Add(1)
	if !p.d.Relay(client, s, p.relays.Done) {
		go func() { pipe.Copy(client, s); p.relays.Done() }()
	}
	return rawconn.Over(<-p.came)
}

// A session need not be on the loop of its client's link.
func TestSessionsOnOtherLoopsThanTheirLink(t *testing.T) {
	d := newDriverOf(t, transport.Poll, 4)
	overLink.Store(d, newLinkPair(t, d))
	var all []chan struct{}
	for range 8 {
		all = append(all, newRig(t, d, zeroKey).traffic(t, 300, 5000, func(int) {}))
	}
	for _, over := range all {
		<-over
	}
}

// The front node's loop serves clients with TLS.
func TestClientsWithTLSArePassedOn(t *testing.T) {
	d := secureDriver(t, transport.Poll)
	p := newLinkPair(t, d)
	ours, theirs := clientPair(t, d)
	r := newRigOf(t, d, zeroKey, p.pass(t, ours), theirs)
	<-r.traffic(t, 300, 9000, func(int) {})
	r.game.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(theirs); err != nil { // with a close_notify
		t.Errorf("%d bytes, %v; want the end", len(got), err)
	}
}

// What TLS returns with the end of a client, as its version 1.2 does, waits for room like what came before.
func TestEndOfAClientThatIsPassedOnFollowsItsLastBytes(t *testing.T) {
	d := newDriver(t, transport.Poll)
	p := newLinkPair(t, d)
	ours, theirs := wstest.TCPPair(t, nil)
	ours, theirs = withTLS(t, testcert.New(t, "localhost"), ours, theirs, tls.VersionTLS12)
	s, err := p.front.Open()
	if err != nil {
		t.Fatal(err)
	}
	p.relays.Add(1)
	if !d.Relay(ours, s, p.relays.Done) {
		t.Fatal("no loop takes the client")
	}
	const window = 64 << 10
	theirs.Write(make([]byte, window+window/2)) // as much as fits before the session has read more than half a window
	theirs.Write([]byte("last"))
	theirs.(*tls.Conn).CloseWrite()
	owner := <-p.came
	for _, half := range [][]byte{make([]byte, window/2), nil} {
		await(t, "the window is full", func() bool { got, _ := owner.Peek(); return len(got) == window })
		io.ReadFull(owner, half)
	}
	for range 10 {
		d.Pause()() // a turn of each loop, in which the relay reads on
	}
	got, err := io.ReadAll(owner)
	if len(got) != window+len("last") || err != nil || !bytes.HasSuffix(got, []byte("last")) {
		t.Errorf("the session reads %d bytes more, and %v", len(got), err)
	}
}

// For an upgrade a client on a link goes on in the older process, which forwards its bytes.
func TestFrozenClientOnALinkIsUsableAfterDrop(t *testing.T) {
	d := linkedDriver(t, transport.Poll)
	r := newRig(t, d, zeroKey)
	if err := r.echo(1); err != nil {
		t.Fatal(err)
	}
	var f transport.Frozen
	for err := session.ErrBusy; err != nil; {
		resume := d.Pause()
		if f, _, err = r.drive.Freeze(session.Formats[0]); err == nil {
			r.drive.Drop()
		}
		resume()
	}
	defer close(r.events.closed) // the session is another's
	go func() {
		f.Down.Conn.Write([]byte("and on"))
		io.Copy(f.Down.Conn, io.LimitReader(f.Down.Conn, 4))
		f.Down.Conn.Close()
	}()
	r.client.Write([]byte("more"))
	if got, err := io.ReadAll(r.client); string(got) != "and onmore" || err != nil {
		t.Errorf("the client reads %q, %v", got, err)
	}
}
