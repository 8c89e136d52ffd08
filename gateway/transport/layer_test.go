//go:build linux

package transport_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/flate"
	"golang.org/x/sys/unix"

	"reseat/gateway/deflate"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
)

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

// compressed returns a rig on a loop whose client has permessage-deflate, and what the layer has charged.
func compressed(t *testing.T, d *transport.Driver) (r *rig, charged *atomic.Int64) {
	t.Helper()
	params, ok := deflate.Negotiate(http.Header{"Sec-Websocket-Extensions": {"permessage-deflate"}}, 1024)
	if !ok {
		t.Fatal("permessage-deflate is not negotiated")
	}
	charged = new(atomic.Int64)
	charge := func(n int) { charged.Add(int64(n)) }
	ours, theirs := wstest.TCPPair(t, nil)
	conn := deflate.NewConn(rawconn.Quiet(ours), nil, params, deflate.Options{Limit: 1 << 20, Window: 1024, Charge: charge, ChargeWindow: charge})
	r = newRigOf(t, d, zeroKey, conn, theirs)
	return r, charged
}

// squeezed returns p as the payload of a compressed message: RFC 7692 section 7.2.1.
func squeezed(p []byte) []byte {
	var b bytes.Buffer
	z, _ := flate.NewWriter(&b, flate.DefaultCompression)
	z.Write(p)
	z.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xff, 0xff})
}

// A loop serves compression, too: the session is never on goroutines.
func TestCompressedMessagesPassALoop(t *testing.T) {
	d := newDriver(t, transport.Poll)
	r, charged := compressed(t, d)
	text := bytes.Repeat([]byte("position "), 100)
	for range 3 { // later ones refer to the first
		r.game.Write(frame.Append(nil, frame.Text, text))
	}
	var all bytes.Buffer
	for range 3 {
		h, payload := readFrame(t, r.client, frame.Text|0x40)
		if !h.Fin || len(payload) > 100 {
			t.Fatalf("%+v: want a short message in one frame", h)
		}
		all.Write(payload)
		all.WriteString("\x00\x00\xff\xff")
	}
	got, err := io.ReadAll(io.LimitReader(flate.NewReader(&all), int64(3*len(text))))
	if !bytes.Equal(got, bytes.Repeat(text, 3)) || err != nil {
		t.Errorf("the client gets %d bytes, %v; want 3 times %d", len(got), err, len(text))
	}
	up := frame.AppendMasked(nil, frame.Text|0x40, [4]byte{1, 2, 3, 4}, squeezed(text))
	held := charged.Load()
	r.client.Write(up[:len(up)/2])
	await(t, "the loop has read one half", func() bool { return charged.Load() > held })
	r.client.Write(up[len(up)/2:])
	h, payload := readFrame(t, r.game, frame.Text)
	for !h.Fin {
		var more []byte
		h, more = readFrame(t, r.game, frame.Continuation)
		payload = append(payload, more...)
	}
	if !bytes.Equal(payload, text) {
		t.Errorf("the game server gets %q, want %q", payload, text)
	}
	if f := r.frozen(t, d); f.Down.FD >= 0 { // goroutines would be busy with a read
		t.Errorf("client %+v, want the layer's connection", f.Down)
	}
}

// readFrame reads a frame whose opcode and reserved bits are op. The masking key is zero.
func readFrame(t *testing.T, from io.Reader, op byte) (h frame.Header, payload []byte) {
	t.Helper()
	var head []byte
	for h.Size == 0 {
		b := make([]byte, 1)
		if _, err := io.ReadFull(from, b); err != nil {
			t.Fatal(err)
		}
		if head = append(head, b...); len(head) == 1 {
			if b[0]&0x7f != op {
				t.Fatalf("a frame begins with %#x, want opcode %#x", b[0], op)
			}
			head[0] &^= 0x40
		}
		var err error
		if h, err = frame.Parse(head); err != nil {
			t.Fatal(err)
		}
	}
	payload = make([]byte, h.Length)
	if _, err := io.ReadFull(from, payload); err != nil {
		t.Fatal(err)
	}
	return h, payload
}

// However the connection ends, nothing stays charged.
func TestLayerIsClosedWithItsSocket(t *testing.T) {
	for name, end := range map[string]func(core *session.Session, now session.Time){
		"by a reset":             func(core *session.Session, now session.Time) { core.Disconnect(now) },
		"by a closing handshake": func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "over") },
	} {
		t.Run(name, func(t *testing.T) {
			r, charged := compressed(t, newDriver(t, transport.Poll))
			text := bytes.Repeat([]byte("position "), 100)
			r.game.Write(frame.Append(nil, frame.Text, text))
			await(t, "a window is charged", func() bool { return charged.Load() > 0 })
			r.drive.Do(end)
			await(t, "nothing is charged", func() bool { return charged.Load() == 0 })
		})
	}
}

// A game server with TLS is served by a loop as well, and its connection is frozen with its layer.
func TestUpstreamWithTLSIsServedByALoop(t *testing.T) {
	d := secureDriver(t, transport.Poll)
	gameEnd, game := clientPair(t, d)
	clientEnd, client := wstest.TCPPair(t, nil)
	r := &rig{store: replay.NewStore(1<<30, nil), events: newEvents(), client: client, game: game}
	r.drive = d.New(session.New(sessionConfig(r.store), d.Clock().Now(), nil), gameEnd, clientEnd, r.events)
	r.drive.AttachFirst(clientEnd, nil, session.Pass{})
	for i := range 3 {
		if err := r.echo(i); err != nil {
			t.Fatal(err)
		}
	}
	f := r.frozen(t, d)
	if _, ok := f.Up.Conn.(*tls.Conn); !ok || f.Up.FD >= 0 || f.Down.FD < 0 {
		t.Fatalf("upstream %+v, client %+v; want a connection and a descriptor", f.Up, f.Down)
	}
	down, err := rawconn.ConnOf(wstest.Duplicate(t, f.Down.FD))
	if err != nil {
		t.Fatal(err)
	}
	r.drive.Drop()
	go func() {
		f.Up.Conn.Write([]byte("and on"))
		f.Up.Conn.Close()
	}()
	if got, err := io.ReadAll(game); string(got) != "and on" || err != nil {
		t.Errorf("the game server reads %q, %v; want \"and on\"", got, err)
	}
	down.Close()
	client.Close()
	game.Close()
}

// The bytes of a connection with TLS go on being forwarded through a socket pair after an upgrade. A further one
// must know that.
func TestForwardedConnectionIsServedByALoop(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		if ends[i], err = rawconn.ConnOf(fd); err != nil {
			t.Fatal(err)
		}
	}
	d := newDriver(t, transport.Poll)
	r := newRigOf(t, d, zeroKey, ends[0], ends[1])
	if err := r.echo(1); err != nil {
		t.Fatal(err)
	}
	if f := r.frozen(t, d); f.Down.FD < 0 || !f.Down.Forwarded || f.Up.Forwarded {
		t.Errorf("client %+v, upstream %+v; want that the client's alone is forwarded", f.Down, f.Up)
	}
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
