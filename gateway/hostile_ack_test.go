package gateway_test

import (
	"testing"
	"testing/synctest"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// A client may ack only what it can have read. Data that is queued for its socket, and not
// yet written, is beyond that: protocol section 5.
func TestAckOfUnwrittenMessageIsAViolation(t *testing.T) {
	for _, acked := range []string{"14", "13"} {
		inWorld(t, testPolicy(), func(t *testing.T, w *world) {
			c, br, _, err := w.Handshake("/match/7", []string{wire.Subprotocol}, "") // does not read by itself
			if err != nil {
				t.Fatal(err)
			}
			game := w.game.Next()
			for range 14 {
				game.Text(noise(16 << 10))
			}
			synctest.Wait()
			br.Discard(40 << 10) // so that the rest is stuck on its way
			synctest.Wait()
			c.Write(frame.AppendMasked(nil, frame.Text, [4]byte{1, 2, 3, 4}, []byte("\x10ack "+acked)))
			synctest.Wait()
			go func() { // now it reads
				for {
					if _, err := br.Discard(1); err != nil {
						return
					}
				}
			}()
			game.WantClose(wire.CodePolicyViolation)
		})
	}
}
