package transport_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/leaks"
	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// events records what a session's Observer is called with.
type events struct {
	mu     sync.Mutex
	reason string
	panics int
	over   chan struct{}
	closed chan struct{}
	stream chan session.Kind // for await

	onDropped func() // called by Events
}

func newEvents() *events {
	return &events{over: make(chan struct{}), closed: make(chan struct{}), stream: make(chan session.Kind, 100)}
}

// whenDropped makes the driver call f when the client is disconnected.
func (e *events) whenDropped(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onDropped = f
}

// await waits for an event of kind k.
func (e *events) await(k session.Kind) {
	for got := range e.stream {
		if got == k {
			return
		}
	}
}

func (e *events) Events(list []session.Event) {
	for _, ev := range list {
		e.event(ev)
	}
}

func (e *events) event(ev session.Event) {
	e.mu.Lock()
	f := e.onDropped
	e.mu.Unlock()
	if ev.Kind == session.Disconnected && f != nil {
		f()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stream <- ev.Kind
	if ev.Kind == session.SessionEnded {
		e.reason = ev.Reason
		close(e.over)
	}
}

func (e *events) Closed() { close(e.closed) }

func (e *events) Panicked(any, []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.panics++
}

// A rig is a plain session between two real TCP connections.
type rig struct {
	store        *replay.Store
	drive        *transport.Session
	events       *events
	client, game net.Conn
}

// drivers runs a test with each driver, and with clients over TLS, and passed on over a link: goroutines and loops
// serve those too.
func drivers(t *testing.T, test func(t *testing.T, d *transport.Driver)) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) { test(t, newDriver(t, kind)) })
		t.Run(name+", TLS", func(t *testing.T) { test(t, secureDriver(t, kind)) })
		t.Run(name+", link", func(t *testing.T) { test(t, linkedDriver(t, kind)) })
	}
}

// secureDriver returns a driver whose clients use TLS.
func secureDriver(t *testing.T, kind transport.Kind) *transport.Driver {
	d := newDriver(t, kind)
	overTLS.Store(d, testcert.New(t, "localhost"))
	return d
}

var overTLS sync.Map // of *testcert.Pair, by *transport.Driver

// clientPair returns both ends of a client's connection.
func clientPair(t testing.TB, d *transport.Driver) (ours, theirs net.Conn) {
	t.Helper()
	ours, theirs = wstest.TCPPair(t, nil)
	return secured(t, d, ours, theirs)
}

// secured puts TLS on a connection if d's clients use it.
func secured(t testing.TB, d *transport.Driver, ours, theirs net.Conn) (net.Conn, net.Conn) {
	t.Helper()
	if v, ok := overLink.Load(d); ok {
		return v.(*linkPair).pass(t, ours), theirs
	}
	v, ok := overTLS.Load(d)
	if !ok {
		return ours, theirs
	}
	return withTLS(t, v.(*testcert.Pair), ours, theirs, tls.VersionTLS13)
}

func withTLS(t testing.TB, pair *testcert.Pair, ours, theirs net.Conn, version uint16) (net.Conn, net.Conn) {
	t.Helper()
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := tls.Server(rawconn.Quiet(ours), &tls.Config{Certificates: []tls.Certificate{cert}})
	config := pair.Client()
	config.ServerName, config.MaxVersion = "localhost", version
	client := tls.Client(rawconn.Quiet(theirs), config)
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	return server, client
}

// tcp is the TCP connection below c.
func tcp(c net.Conn) *net.TCPConn { return rawconn.Lowest(c).(*net.TCPConn) }

func newDriver(t testing.TB, kind transport.Kind) *transport.Driver {
	return newDriverOf(t, kind, 0)
}

func newDriverOf(t testing.TB, kind transport.Kind, loops int) *transport.Driver {
	d := transport.NewDriver(kind, loops, transport.NewClock())
	t.Cleanup(func() { // after the sessions' own cleanups
		d.Close()
		d.Wait()
	})
	return d
}

var kinds = map[string]transport.Kind{"net": transport.Net, "poll": transport.Poll}

// newRig connects everything. Plain clients are the simplest: bytes in, bytes out, one
// kind of frame.
func newRig(t testing.TB, d *transport.Driver, key func() [4]byte) *rig {
	t.Helper()
	clientEnd, client := clientPair(t, d)
	return newRigOf(t, d, key, clientEnd, client)
}

// newRigOf is newRig with a given connection of the client.
func newRigOf(t testing.TB, d *transport.Driver, key func() [4]byte, clientEnd, client net.Conn) *rig {
	t.Helper()
	r := &rig{store: replay.NewStore(1<<30, nil), events: newEvents()}
	gameEnd, game := wstest.TCPPair(t, nil)
	r.client, r.game = client, game
	cfg := sessionConfig(r.store)
	cfg.Key = key
	core := session.New(cfg, d.Clock().Now(), nil)
	r.drive = d.New(core, gameEnd, clientEnd, r.events)
	r.drive.AttachFirst(clientEnd, nil, session.Pass{})
	t.Cleanup(func() {
		client.Close()
		game.Close()
		<-r.events.closed // both legs, and all goroutines
		r.drive.Wait()
		if n := r.store.Used(); n != 0 {
			t.Errorf("%d bytes of buffer memory are still lent out", n)
		}
	})
	return r
}

// sessionConfig is a session's with a plain client.
func sessionConfig(store *replay.Store) session.Config {
	return session.Config{
		ID: "s", Terms: session.Terms{Grace: time.Minute, GraceBeforeStart: time.Minute}, GraceUnconfirmed: time.Minute, Heartbeat: time.Minute,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20, Store: store, Key: zeroKey,
	}
}

func zeroKey() [4]byte { return [4]byte{} } // so that the game server reads unmasked bytes

// numbered returns message i: a binary frame whose payload begins with i.
func numbered(dst []byte, i, size int, masked bool) []byte {
	payload := bytes.Repeat([]byte{byte(i)}, size)
	binary.BigEndian.PutUint32(payload, uint32(i))
	if masked {
		return frame.AppendMasked(dst, frame.Binary, [4]byte{}, payload)
	}
	return frame.Append(dst, frame.Binary, payload)
}

// This fills both directions far beyond what sockets hold before either end reads, so
// that writes are cut short many times.
func TestFullSocketsLoseNoMessage(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) { <-newRig(t, d, zeroKey).traffic(t, 3000, 9000, func(int) {}) })
}

// What TLS has made of a message, and a full socket has not taken, waits while the loop serves others.
func TestFullSocketsOfTLSClientsDoNotMix(t *testing.T) {
	d := secureDriver(t, transport.Poll)
	var all []chan struct{}
	for range 3 {
		all = append(all, newRig(t, d, zeroKey).traffic(t, 40, 100_000, func(int) {}))
	}
	for _, over := range all {
		<-over
	}
}

// traffic has both sides send n messages of size bytes, each once await has returned, and read the other's.
// The channel is closed once all have been read.
func (r *rig) traffic(t *testing.T, n, size int, await func(i int)) (over chan struct{}) {
	send := func(c net.Conn, masked bool) {
		var b []byte
		for i := range n {
			await(i)
			b = numbered(b[:0], i, size, masked)
			if _, err := c.Write(b); err != nil {
				t.Errorf("message %d: %v", i, err)
				return
			}
		}
	}
	receive := func(c net.Conn, masked bool) {
		b := bufio.NewReader(c)
		for i := range n {
			want := numbered(nil, i, size, masked)
			got := make([]byte, len(want))
			err := skipPings(b)
			if err == nil {
				_, err = io.ReadFull(b, got)
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("message %d is wrong: %v, it begins with % x, want % x", i, err, got[:20], want[:20])
				return
			}
		}
	}
	var sides sync.WaitGroup
	sides.Go(func() { send(r.game, false) })
	sides.Go(func() { send(r.client, true) })
	sides.Go(func() { receive(r.client, false) })
	sides.Go(func() { receive(r.game, true) })
	over = make(chan struct{})
	go func() { sides.Wait(); close(over) }()
	return over
}

// skipPings reads the Pings before the next message: one comes every 30 seconds, protocol section
// 5.4, which this test may take on a slow machine.
func skipPings(b *bufio.Reader) error {
	for {
		head, err := b.Peek(2)
		if err != nil || head[0] != 0x80|byte(frame.Ping) {
			return err
		}
		if _, err := b.Discard(2 + int(head[1]>>7)*4 + int(head[1]&0x7f)); err != nil {
			return err
		}
	}
}

func TestPanicEndsOnlyItsSession(t *testing.T) { drivers(t, panicEndsOnlyItsSession) }

func panicEndsOnlyItsSession(t *testing.T, d *transport.Driver) {
	var armed atomic.Bool
	bad := newRig(t, d, func() [4]byte {
		if armed.Swap(false) {
			panic("injected")
		}
		return [4]byte{}
	})
	good := newRig(t, d, zeroKey)
	armed.Store(true)
	bad.client.Write(numbered(nil, 1, 10, true))
	<-bad.events.over
	if bad.events.panics != 1 || bad.events.reason != "internal_error" {
		t.Fatalf("%d panics reported, ended for %q; want 1, internal_error", bad.events.panics, bad.events.reason)
	}
	wantClose(t, bad.client, 1011)
	wantClose(t, bad.game, 1011)
	msg := numbered(nil, 1, 10, true)
	good.client.Write(msg)
	got := make([]byte, len(msg))
	if _, err := io.ReadFull(good.game, got); err != nil || !bytes.Equal(got, msg) {
		t.Fatalf("the other session is affected: %v", err)
	}
}

// wantClose reads a Close frame with that code.
func wantClose(t *testing.T, c net.Conn, code int) {
	t.Helper()
	b := make([]byte, 64)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	h, err := frame.Parse(b[:n])
	if err != nil || h.Op != frame.Close {
		t.Fatalf("got % x, want a Close frame", b[:n])
	}
	got, _, _ := frame.ParseClose(b[h.Size:n]) // a zero key masks nothing
	if got != code {
		t.Fatalf("Close %d, want %d", got, code)
	}
}
