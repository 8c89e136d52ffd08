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

// answering returns a session with a short answer_ms and a known round trip time.
func answering(t *testing.T, kind transport.Kind, answer time.Duration) *player {
	t.Helper()
	p := newPlayer(t, newDriver(t, kind), func(c *session.Config) { c.Answer = answer })
	if err := p.write(wire.AppendAck(nil, 0)); err != nil {
		t.Fatal(err)
	}
	for p.drive.Info().RTT == 0 {
		<-time.After(time.Millisecond)
	}
	return p
}

// write sends unmasked gateway frames as the client's.
func (p *player) write(b []byte) error {
	h, _ := frame.Parse(b)
	_, err := p.Write(frame.AppendMasked(nil, h.Op, [4]byte{1, 2, 3, 4}, b[h.Size:]))
	return err
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
			p := answering(t, kind, 300*time.Millisecond)
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
			staysAttached(t, func(answer time.Duration) bool { return answers(t, answering(t, kind, answer)) })
		})
	}
}

// answers answers ten pings, and reports whether the client is not detached meanwhile.
func answers(t *testing.T, p *player) bool {
	defer p.tick()()
	for answered := 0; answered < 10; {
		_, payload, err := p.next()
		if err == nil && payload[0] == wire.DLE {
			if m, e := wire.ParseClient(payload[1:]); e == nil && m.Verb == wire.VerbPing {
				err = p.write(wire.Append(nil, wire.VerbPong, m.Arg))
				answered++
			}
		}
		if err != nil {
			t.Logf("after %d answers: %v", answered, err)
			return false
		}
	}
	return true
}
