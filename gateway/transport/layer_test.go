//go:build linux

package transport_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
)

func TestSessionOfTLSClientStaysOnItsLoop(t *testing.T) {
	p := newPlayer(t, secureDriver(t, transport.Poll), nil)
	if p.drive.Client() != nil { // a loop returns no net.Conn
		t.Error("the session is on goroutines")
	}
	p.wantUp(1)
	p.sendDown(2)
	p.wantDown(2)
}

// What TLS has read and not returned yet raises no event: the loop must ask for it, when the client attaches
// and whenever it goes on reading.
func TestWhatTLSHoldsBackIsRead(t *testing.T) {
	d := secureDriver(t, transport.Poll)
	p := newPlayer(t, d, nil)
	ours, theirs := clientPair(t, d)
	var up []byte
	for i := range 3 {
		up = numbered(up, i, 50, true)
	}
	theirs.Write(up) // one record
	early := make([]byte, 10)
	if _, err := io.ReadFull(ours, early); err != nil {
		t.Fatal(err)
	}
	var pass session.Pass
	p.do(func(core *session.Session, now session.Time) { pass = session.Pass{Gen: core.NextGen()} })
	if ref := p.drive.Attach(ours, early, session.Resume{Gen: 1}, pass); ref != nil {
		t.Fatal(ref)
	}
	p.client = newClient(t, theirs)
	p.wantGame(up)
}

// A session that leaves its loop takes what TLS has made of earlier messages along: a record of which the
// socket has not taken all.
func TestTLSClientWithAFullSocketLeavesTheLoop(t *testing.T) {
	d := secureDriver(t, transport.Poll)
	p := newPlayer(t, d, func(c *session.Config) { c.BufferBytes, c.BufferMessages = 64<<20, 1<<20 })
	p.fillClient()
	old := p.client
	ours, pipe := net.Pipe()
	p.attach(ours, pipe, 0) // a pipe has no descriptor
	old.wantSuperseded()
	go io.Copy(io.Discard, pipe)
	await(t, "the session is on goroutines", func() bool { return p.drive.Client() != nil })
}

// For an upgrade a connection with TLS goes on in the older process, which forwards its bytes.
func TestFrozenTLSConnectionIsUsableAfterDrop(t *testing.T) {
	for name, pending := range map[string]bool{"nothing pending": false, "a full socket": true} {
		t.Run(name, func(t *testing.T) {
			d := secureDriver(t, transport.Poll)
			ours, theirs := wstest.TCPPair(t, nil)
			ours.(*net.TCPConn).SetWriteBuffer(8 << 10)
			theirs.(*net.TCPConn).SetReadBuffer(64 << 10)
			ours, theirs = secured(t, d, ours, theirs)
			r := newRigOf(t, d, zeroKey, ours, theirs)
			sent := numbered(nil, 1, 100, false)
			if pending {
				sent = numbered(nil, 1, 500<<10, false)
			}
			go r.game.Write(sent)
			await(t, "the message is sent", func() bool { return r.drive.Info().Sent == 1 })
			f := r.frozen(t, d)
			if f.Down.Conn == nil || f.Down.FD >= 0 {
				t.Fatalf("client %+v, want a connection", f.Down)
			}
			r.drive.Drop()
			defer close(r.events.closed) // the session is another's
			go func() {
				f.Down.Conn.Write([]byte("and on"))
				f.Down.Conn.Close()
			}()
			r.client.SetReadDeadline(time.Now().Add(time.Minute))
			got, err := io.ReadAll(r.client)
			rest, ok := bytes.CutSuffix(got, []byte("and on"))
			if err != nil || !ok || !bytes.HasPrefix(sent, rest) || (len(rest) < len(sent)) != pending {
				t.Errorf("the client got %d bytes of %d, %v: they end with %q", len(got), len(sent), err, got[max(0, len(got)-10):])
			}
		})
	}
}

// frozen freezes r's session.
func (r *rig) frozen(t *testing.T, d *transport.Driver) transport.Frozen {
	t.Helper()
	for {
		resume := d.Pause()
		f, _, err := r.drive.Freeze(session.Formats[0])
		if err == nil {
			t.Cleanup(resume)
			return f
		}
		resume()
		if !errors.Is(err, session.ErrBusy) {
			t.Fatal(err)
		}
	}
}

// A client must be able to tell a connection that was closed from one that was cut off: RFC 8446 section 6.1.
func TestTLSConnectionEndsWithCloseNotify(t *testing.T) {
	for name, kind := range map[string]transport.Kind{"net": transport.Net, "poll": transport.Poll} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver(t, kind)
			p := newPlayer(t, d, nil)
			pair := testcert.New(t, "localhost")
			cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := wstest.TCPPair(t, nil)
			seen := &recorder{Conn: theirs}
			config := pair.Client()
			config.ServerName, config.MaxVersion = "localhost", tls.VersionTLS12 // which does not encrypt the kind of a record
			server, client := tls.Server(rawconn.Quiet(ours), &tls.Config{Certificates: []tls.Certificate{cert}}), tls.Client(seen, config)
			go client.Handshake()
			if err := server.Handshake(); err != nil {
				t.Fatal(err)
			}
			p.resume(server, client, 0)
			p.do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "over") })
			if _, err := p.client.closed(); err != nil {
				t.Fatal(err)
			}
			if kind := seen.lastRecord(); kind != 21 {
				t.Errorf("the last record is of kind %d, want 21, an alert", kind)
			}
		})
	}
}

// A recorder keeps what it reads.
type recorder struct {
	net.Conn
	read []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.read = append(r.read, p[:n]...)
	return n, err
}

// lastRecord returns the kind of the last record of TLS.
func (r *recorder) lastRecord() (kind byte) {
	for b := r.read; len(b) >= 5; b = b[5+int(b[3])<<8+int(b[4]):] {
		kind = b[0]
	}
	return kind
}
