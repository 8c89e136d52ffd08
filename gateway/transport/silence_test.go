package transport_test

import (
	"io"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
)

// Protocol section 5, answer_ms, over real sockets. The heartbeat is a minute, so that
// nothing else detaches a client in these tests.

const answerTime = 300 * time.Millisecond

// answering returns a session with a short answer_ms and a known round trip time.
func answering(t *testing.T, kind transport.Kind) *player {
	t.Helper()
	p := newPlayer(t, newDriver(t, kind), func(c *session.Config) { c.Answer = answerTime })
	p.write(t, wire.AppendAck(nil, 0))
	for p.drive.Info().RTT == 0 {
		<-time.After(time.Millisecond)
	}
	return p
}

// write sends unmasked gateway frames as the client's.
func (p *player) write(t *testing.T, b []byte) {
	t.Helper()
	h, _ := frame.Parse(b)
	if _, err := p.Write(frame.AppendMasked(nil, h.Op, [4]byte{1, 2, 3, 4}, b[h.Size:])); err != nil {
		t.Fatal(err)
	}
}

// tick makes the game server send a message every 10 ms until stop is called.
func (p *player) tick() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(10 * time.Millisecond):
				p.game.Write(frame.Append(nil, frame.Text, []byte("tick")))
			}
		}
	}()
	return func() { close(quit); <-done }
}

// TCP acknowledges everything meanwhile, as a proxy in front of a disconnected client
// does.
func TestClientThatAnswersOnlyByTCPIsDetached(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := answering(t, kind)
			defer p.tick()()
			go io.Copy(io.Discard, p.Conn)
			p.events.await(session.Disconnected)
		})
	}
}

func TestClientThatAnswersPingsIsNotDetached(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := answering(t, kind)
			defer p.tick()()
			for answered := 0; answered < 10; {
				_, payload, err := p.next()
				if err != nil {
					t.Fatalf("after %d answers: %v", answered, err)
				}
				if m, err := wire.ParseClient(payload[1:]); payload[0] == wire.DLE && err == nil && m.Verb == wire.VerbPing {
					p.write(t, wire.Append(nil, wire.VerbPong, m.Arg))
					answered++
				}
			}
		})
	}
}
