package transport_test

import (
	"bytes"
	"io"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

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
	for held() < 64<<10 { // each call waits for the driver
	}
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
	if n := store.Used(); n != held() {
		t.Errorf("%d bytes are charged, and %d held", n, held())
	}
}
