//go:build linux

package transport_test

import (
	"bytes"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// A superseded client whose socket is full gets 4409 once it reads on, behind what was
// in flight.
func TestSupersededClientWithAFullSocketIsNotified(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, func(c *session.Config) { c.BufferBytes, c.BufferMessages = 64<<20, 1<<20 })
		p.fillClient()
		old := p.client
		ours, theirs := clientPair(t, d)
		p.resume(ours, theirs, 0)
		old.wantSuperseded()
	})
}

// fillClient resumes over a connection with a narrow socket, and sends down more than any socket holds.
func (p *player) fillClient() {
	p.t.Helper()
	ours, theirs := narrowPair(p.t)
	ours, theirs = secured(p.t, p.driver, ours, theirs)
	p.resume(ours, theirs, 0)
	const messages, size = 6, 1 << 20
	go func() {
		for i := range messages {
			p.game.Write(numbered(nil, i, size, false))
		}
	}()
	await(p.t, "all messages are sent, as far as the socket takes them", func() bool { return p.drive.Info().Sent == messages })
}

// While memory is exhausted, a client in the middle of a large message is not read, and holds no more
// than it has. It is read on once there is memory again, though nothing comes from it that could
// wake the driver.
func TestClientIsReadAgainOnceThereIsMemory(t *testing.T) { drivers(t, clientIsReadAgain) }

func clientIsReadAgain(t *testing.T, d *transport.Driver) {
	var store *replay.Store
	p := newPlayer(t, d, func(c *session.Config) {
		c.Store = replay.NewStore(4<<20, nil)
		store = c.Store
	})
	message := frame.AppendMasked(nil, frame.Binary, [4]byte{}, bytes.Repeat([]byte{7}, 900<<10))
	if _, err := p.Write(message[:64<<10]); err != nil {
		t.Fatal(err)
	}
	held := func() (n int64) {
		p.do(func(core *session.Session, _ session.Time) { n = core.Info().Memory })
		return n
	}
	await(t, "the first part is held", func() bool { return held() >= 64<<10 })
	store.Charge(4 << 20)
	sent := make(chan error, 1)
	go func() {
		_, err := p.Write(message[64<<10:])
		sent <- err
	}()
	most := int64(0)
	for range 2000 {
		most = max(most, held())
	}
	if most > 512<<10 {
		t.Errorf("%d bytes of a message are held though memory is exhausted", most)
	}
	store.Charge(-4 << 20)
	got := make([]byte, len(message))
	if _, err := io.ReadFull(p.game, got); err != nil || !bytes.Equal(got, message) {
		t.Errorf("the game server got another message: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	await(t, "what is charged is held", func() bool { return store.Used() == held() })
}

// A resumable client is read even if the upstream accepts nothing. What waits must not
// stay in the read buffer, which the next read overwrites.
func TestWaitingMessagesOutliveTheReadBuffer(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		gameEnd, game := wstest.TCPPair(t, nil)
		gameEnd.(*net.TCPConn).SetWriteBuffer(4 << 10)
		game.(*net.TCPConn).SetReadBuffer(4 << 10)
		p := newPlayerOf(t, d, nil, gameEnd, game)
		const messages, size = 80, 1000
		for i := range messages {
			p.client.Write(numbered(nil, i, size, true)) // each may be a read of its own
			await(t, "the message is read", func() bool { return p.drive.Info().Received > uint64(i) })
		}
		for i := range messages {
			want := numbered(nil, i, size, true)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(game, got); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("message %d is not what was sent: %v", i, err)
			}
		}
	})
}

// narrowPair returns a connection whose peer has a small receive buffer and small
// segments, so that each read there makes room for a few bytes.
func narrowPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	return wstest.TCPPair(t, func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 536)
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10)
		})
	})
}

// protocol section 5: while a send buffer is full, bytes that the peer's socket still
// accepts count as activity. The socket does not become writable meanwhile.
func TestSlowReaderIsNotSilent(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			staysAttached(t, func(heartbeat time.Duration) bool { return trickled(t, newDriver(t, kind), heartbeat) })
		})
	}
}

// trickled makes a client read a little at a time, and send nothing, for several times
// the silence timeout. It reports whether the client is still attached.
func trickled(t *testing.T, d *transport.Driver, heartbeat time.Duration) bool {
	p := newPlayer(t, d, func(c *session.Config) { c.Heartbeat = heartbeat })
	ours, theirs := narrowPair(t)
	p.resume(ours, theirs, 0)
	go fill(p.game, false)
	for began := d.Clock().Now(); d.Clock().Now().Sub(began) < 4*2*heartbeat; {
		theirs.SetReadDeadline(time.Now().Add(2 * heartbeat))
		if _, err := io.ReadFull(theirs, make([]byte, 1<<10)); err != nil {
			return false
		}
		<-time.After(heartbeat / 16)
	}
	return p.drive.Info().State == session.Attached
}

// staysAttached fails unless a client that is alive stays attached with one of several timeouts:
// where other programs keep the processors for longer than a timeout, it is detached rightly.
func staysAttached(t *testing.T, try func(timeout time.Duration) bool) {
	t.Helper()
	for timeout := 300 * time.Millisecond; timeout < 10*time.Second; timeout *= 2 {
		if try(timeout) {
			return
		}
	}
	t.Error("the client was detached each time")
}

// Protocol section 5, answer_ms: TCP acknowledges everything meanwhile, as a proxy in front of a disconnected
// client does. The heartbeat is a minute.
func TestClientThatAnswersOnlyByTCPIsDetached(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlayer(t, newDriver(t, kind), func(c *session.Config) { c.Answer = 300 * time.Millisecond })
			p.Write(frame.AppendMasked(nil, frame.Text, [4]byte{}, []byte("\x10ack 0")))
			await(t, "a round trip is known", func() bool { return p.drive.Info().RTT > 0 })
			p.sendDown(1)
			go io.Copy(io.Discard, p.Conn)
			p.events.await(session.Disconnected)
		})
	}
}
