package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// The closing handshake of plain clients, which is relayed: protocol section 1.

func plainConfig() session.Config {
	c := config()
	c.Resumable = false
	return c
}

// closing is a Close frame of the game server.
func closing(code int, reason string) string {
	return string(frame.Append(nil, frame.Close, frame.ClosePayload(code, reason)))
}

// closesWith is a Close frame of the client, and what follows it in the same read.
func (b *table) closesWith(code int, reason, more string) {
	p := append(masked(frame.Close, string(frame.ClosePayload(code, reason))), more...)
	b.s.Read(b.now, b.att, p)
	b.s.Retain()
}

// both runs a test for a plain client without and with a cookie.
func both(t *testing.T, story func(t *testing.T, c session.Config)) {
	t.Run("plain", func(t *testing.T) { story(t, plainConfig()) })
	t.Run("kept", func(t *testing.T) { story(t, keptConfig()) })
}

func TestPlainCloseAndItsAnswerAreRelayed(t *testing.T) {
	both(t, func(t *testing.T, c session.Config) {
		b := newKept(t, c)
		b.says("last")
		b.closesWith(4001, "bye", string(masked(frame.Text, "behind the Close")))
		b.wants(b.up, "last", "close 4001 bye")
		b.wantState(session.Attached)
		b.game(text("one") + text("two"))
		b.sees("one", "two")
		b.game(text("three") + closing(4002, "well played"))
		b.sees("three")
		b.sees("close 4002 well played")
		b.wantState(session.Ended)
		if got := b.s.Info().Ending.Reason; got != session.ReasonBye {
			t.Errorf("reason %q, want %q", got, session.ReasonBye)
		}
		b.wants(b.up)
		b.wantNothingHeld()
	})
}

func TestUnansweredPlainCloseEndsAfterTenSeconds(t *testing.T) {
	both(t, func(t *testing.T, c session.Config) {
		b := newKept(t, c)
		b.closesWith(4001, "bye", "")
		b.wants(b.up, "close 4001 bye")
		b.sleep(9 * time.Second)
		b.game(text("late"))
		b.sees("late")
		b.sleep(time.Second - 1)
		b.wantState(session.Attached)
		b.sees() // a client that has sent Close is asked nothing
		b.sleep(1)
		b.wantState(session.Ended)
		b.sees("close 4001 ")
		b.wants(b.up)
	})
}

func TestPlainCloseEndsWhenUpstreamBreaks(t *testing.T) {
	both(t, func(t *testing.T, c session.Config) {
		b := newKept(t, c)
		b.closesWith(1000, "", "")
		b.game(text("rest"))
		b.s.Disconnected(b.now, b.up, "reset")
		b.sees("rest")
		b.wantState(session.Ended) // and a disconnect, as on a direct connection
		b.sees()
		if f := b.att.CloseMode(); f != session.Linger {
			t.Errorf("the client's connection meets %v, want to be closed in order", f)
		}
	})
}

func TestPlainClientMayDisconnectAfterItsClose(t *testing.T) {
	both(t, func(t *testing.T, c session.Config) {
		b := newKept(t, c)
		b.closesWith(4001, "bye", "")
		b.drop()
		b.wantState(session.Ended)
		b.wants(b.up, "close 4001 bye")
	})
}

func TestUpstreamCloseIsAnsweredByPlainClient(t *testing.T) {
	both(t, func(t *testing.T, c session.Config) {
		b := newKept(t, c)
		b.game(text("one") + closing(4000, "over"))
		b.sees("one")
		b.sees("close 4000 over")
		b.wants(b.up)
		b.says("but")
		b.sleep(9 * time.Second)
		b.says("wait")
		b.wants(b.up, "but", "wait")
		b.pongs("1") // so that a cookie client has everything
		b.closesWith(4009, "well then", "")
		b.wants(b.up, "close 4009 well then")
		b.wantState(session.Ended)
		if got := b.s.Info().Ending.Reason; got != session.ReasonUpstreamClosed {
			t.Errorf("reason %q, want %q", got, session.ReasonUpstreamClosed)
		}
	})
}

func TestUnansweredUpstreamCloseIsAnsweredAfterTenSeconds(t *testing.T) {
	b := newKept(t, plainConfig())
	b.game(closing(4000, "over"))
	b.sees("close 4000 over")
	for range 9 {
		b.sleep(time.Second)
		b.says("still here") // activity does not extend it
	}
	b.takes(b.up, 1<<20)
	b.sleep(time.Second - 1)
	b.wants(b.up)
	b.sleep(1)
	b.wants(b.up, "close 4000 ")
	b.wantState(session.Ended)
}

func TestUpstreamCloseIsAnsweredAtOnceWithoutClient(t *testing.T) {
	b := newKept(t, keptConfig())
	b.game(closing(4000, "over"))
	b.wants(b.up)
	b.drop()
	b.wants(b.up, "close 4000 ")

	b = newKept(t, keptConfig())
	b.drop()
	b.game(closing(4000, "over"))
	b.wants(b.up, "close 4000 ")
}

func TestClosedSessionAcceptsNoCookie(t *testing.T) {
	b := newKept(t, keptConfig())
	b.closesWith(1000, "", "")
	if ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()}); ref == nil || ref.Code != 4404 {
		t.Errorf("a newcomer with the cookie of a session that is being closed: %v, want 4404", ref)
	}
	if b.s.Ping(b.now) {
		t.Error("a client that has said Close is asked for a sign of life")
	}
}

func TestGoingAwayCookieClientIsAnsweredAndDetached(t *testing.T) {
	b := newKept(t, keptConfig())
	b.closesWith(1001, "", "")
	b.wantState(session.Detached)
	b.sees("close 1001 ")
	b.wants(b.up)
}

// Messages sent to a cookie client are not kept for a Pong that cannot arrive any more.
func TestCloseFreesBufferOfCookieClient(t *testing.T) {
	c := keptConfig()
	c.BufferMessages = 1
	b := newKept(t, c)
	b.game(text("one") + text("two") + closing(4000, ""))
	b.sees("one")
	b.sees("ping 1")
	b.closesWith(1000, "", "")
	b.sees("two")
	b.sees("close 4000 ")
	b.wantState(session.Ended)
}

func TestEachPingIsAnswered(t *testing.T) {
	for _, c := range []session.Config{config(), plainConfig()} {
		b := newKept(t, c)
		b.reads() // hello
		var pings, up []byte
		var want []string
		for i := range 10 {
			pings = append(pings, masked(frame.Ping, fmt.Sprint(i))...)
			up = frame.Append(up, frame.Ping, fmt.Append(nil, i))
			want = append(want, fmt.Sprint("pong ", i))
		}
		b.s.Read(b.now, b.att, pings)
		b.sees(want...)
		b.game(string(up))
		b.wants(b.up, want...)
	}
}

// Answers to a side that reads nothing must not accumulate: beyond the limit only the
// newest Ping is answered.
func TestOnlyNewestPingIsAnsweredBeyondLimit(t *testing.T) {
	b := newKept(t, plainConfig())
	var up []byte
	for i := range 33 {
		b.s.Read(b.now, b.att, masked(frame.Ping, fmt.Sprint(i)))
		up = frame.Append(up, frame.Ping, fmt.Append(nil, i))
	}
	b.sees("pong 32")
	b.game(string(up))
	b.wants(b.up, "pong 32")
}

// An upstream that sends Pings and takes hardly any bytes must not use up memory.
func TestPongsWaitForStuckUpstream(t *testing.T) {
	b := newKept(t, plainConfig())
	before := b.store.Used()
	var pings []byte
	for range 32 {
		pings = frame.Append(pings, frame.Ping, []byte(strings.Repeat("p", 125)))
	}
	for range 100 {
		b.game(string(pings))
		b.takes(b.up, 1)
	}
	if n := b.store.Used() - before; n > 128<<10 {
		t.Errorf("%d bytes are held for its Pongs", n)
	}
}

func TestCloseReasonThatIsNotUTF8Is1007(t *testing.T) {
	bad := "\x03\xe8\xff"
	b := newKept(t, plainConfig())
	b.s.Read(b.now, b.att, masked(frame.Close, bad))
	b.sees("close 1007 invalid_utf8: close reason is not UTF-8")

	b = newKept(t, plainConfig())
	b.game(string(frame.Append(nil, frame.Close, []byte(bad))))
	b.wants(b.up, "close 1007 close reason is not UTF-8")
}

// Writers of 4 KiB frames are common, so the limit grows with --max-message.
func TestFrameLimitScalesWithMaxMessage(t *testing.T) {
	for limit, frames := range map[int64]int{30: 1024, 1 << 20: 1024, 4 << 20: 4096} {
		for _, n := range []int{frames, frames + 1} {
			c := plainConfig()
			c.MaxMessage, c.BufferBytes = limit, 8<<20
			up, down := string(masked(frame.Binary, "")), "\x02\x00"
			up = "\x02" + up[1:]
			for i := 1; i < n; i++ {
				fin := byte(0)
				if i == n-1 {
					fin = 0x80
				}
				up += string([]byte{fin, 0x80, 9, 9, 9, 9})
				down += string([]byte{fin, 0})
			}
			b := newKept(t, c)
			b.s.Read(b.now, b.att, []byte(up))
			if got := b.s.Info().Received; got != 0 != (n == frames) {
				t.Errorf("limit %d: of %d frames %d messages were received", limit, n, got)
			}
			b = newKept(t, c)
			for len(down) > 0 {
				k := min(len(down), 1024)
				b.game(down[:k])
				down = down[k:]
				if b.up.Over() {
					break
				}
			}
			if got := b.s.Info().Sent; got != 0 != (n == frames) {
				t.Errorf("limit %d: of %d frames %d messages were numbered", limit, n, got)
			}
		}
	}
}
