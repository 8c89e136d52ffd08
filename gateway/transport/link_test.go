package transport_test

import (
	"net"
	"sync"
	"testing"

	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/link"
	"reseat/gateway/pipe"
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
	a, b = withTLS(t, testcert.New(t, "localhost"), a, b)
	p := &linkPair{d: d, came: make(chan *link.Stream, 1)}
	p.front = link.New(a.LocalAddr(), a.RemoteAddr(), nil)
	p.owner = link.New(b.LocalAddr(), b.RemoteAddr(), func(s *link.Stream) { p.came <- s })
	for l, conn := range map[*link.Link]net.Conn{p.front: a, p.owner: b} {
		if !d.HostLink(l, conn) {
			l.Run(conn)
		}
	}
	t.Cleanup(func() {
		for _, l := range []*link.Link{p.front, p.owner} {
			l.Close()
			<-l.Done()
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
