package transport_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// A resumable client is read even if the upstream accepts nothing. What waits must not
// stay in the read buffer, which the next read overwrites.
func TestWaitingMessagesOutliveTheReadBuffer(t *testing.T) {
	drivers(t, waitingMessagesOutliveTheReadBuffer)
}

func waitingMessagesOutliveTheReadBuffer(t *testing.T, d *transport.Driver) {
	store := replay.NewStore(1<<30, nil)
	cfg := session.Config{
		ID: "s", Resumable: true, Terms: session.Terms{Grace: time.Minute, GraceBeforeStart: time.Minute}, GraceUnconfirmed: time.Minute, Heartbeat: time.Minute,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20, Store: store, Key: zeroKey,
	}
	p := &player{t: t, driver: d, events: newEvents()}
	gameEnd, game := wstest.TCPPair(t, nil)
	gameEnd.(*net.TCPConn).SetWriteBuffer(4 << 10)
	game.(*net.TCPConn).SetReadBuffer(4 << 10)
	clientEnd, conn := wstest.TCPPair(t, nil)
	p.drive = d.New(session.New(cfg, d.Clock().Now(), nil), gameEnd, clientEnd, p.events)
	p.drive.AttachFirst(clientEnd, nil, session.Pass{Gen: 1, Expires: d.Clock().Now().Add(time.Hour), Renew: time.Hour})
	p.client = newClient(t, conn)
	p.client.hello()
	t.Cleanup(func() {
		p.do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "test over") })
		conn.Close()
		game.Close()
		<-p.events.closed
		p.drive.Wait()
	})
	const messages, size = 80, 1000
	for i := range messages {
		conn.Write(numbered(nil, i, size, true)) // each may be a read of its own
		p.wantReceived(uint64(i))
	}
	for i := range messages {
		want := numbered(nil, i, size, true)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(game, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("message %d is not what was sent: %v", i, err)
		}
	}
}

// wantReceived waits until the session has read n messages.
func (p *player) wantReceived(n uint64) {
	for at := uint64(0); at < n; {
		p.do(func(core *session.Session, _ session.Time) { at = core.Info().Received })
	}
}
