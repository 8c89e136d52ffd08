package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func TestAckAfterThirtyTwoMessages(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		for i := range 32 {
			p.Text(fmt.Sprint(i))
		}
		wantAckAtOnce(t, p, "32")
	})
}

func TestAckAfter64KiB(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		quarter := strings.Repeat("x", 16<<10)
		for range 4 {
			p.Text(quarter)
		}
		game.Want(quarter, quarter, quarter, quarter)
		wantAckAtOnce(t, p, "4")
	})
}

// wantAckAtOnce checks that an ack of n arrives before any time has passed.
func wantAckAtOnce(t *testing.T, p *wstest.Player, n string) {
	t.Helper()
	began := time.Now()
	if m := p.WantControl(wire.VerbAck); m.Data != n || time.Since(began) > 0 {
		t.Fatalf("ack %s after %v, want %s at once", m.Data, time.Since(began), n)
	}
}

func TestAckWithinASecondOfASingleMessage(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Pass(game, "x")
		began := time.Now()
		if m := p.WantControl(wire.VerbAck); m.Data != "1" {
			t.Fatalf("ack %s, want 1", m.Data)
		}
		if d := time.Since(began); d > time.Second {
			t.Fatalf("the ack came after %v", d)
		}
	})
}

func TestAckComesBeforeThePong(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Pass(game, "x")
		synctest.Wait() // the gateway has written it
		p.Control("ping now")
		if m := p.WantControl(wire.VerbAck); m.Data != "1" {
			t.Fatalf("ack %s, want 1", m.Data)
		}
		if m := p.WantControl(wire.VerbPong); m.Data != "now" {
			t.Fatalf("pong %s", m.Data)
		}
	})
}

func TestResumeIsAckedWithinASecond(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Pass(game, "x")
		p.Sync() // the older connection has been closed
		p.Drop()
		p = p.Resume(0)
		began := time.Now()
		if m := p.WantControl(wire.VerbAck); m.Data != "1" || time.Since(began) > time.Second {
			t.Fatalf("ack %s after %v, want 1 within a second", m.Data, time.Since(began))
		}
	})
}

func TestNothingIsAckedBeforeItIsWrittenUpstream(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		game, p := stalledGame(t, w)
		chunk := strings.Repeat("x", 16<<10)
		for range 10 { // the buffer between gateway and game holds 64 KiB
			p.Text(chunk)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if i, _ := w.gw.Session(p.Hello.Session); i.Received != 10 || i.Written != 3 {
			t.Fatalf("received %d, written %d; want 10, and the 3 whole messages that fit into the stalled game's buffer", i.Received, i.Written)
		}
		p.Control("ping")
		m := wstest.Message{}
		for m.Data != "3" { // and no more than 3 before the pong
			m = p.WantControl(wire.VerbAck)
		}
		p.WantControl(wire.VerbPong)
		g := game.read(t)
		for range 10 {
			g.Want(chunk)
		}
		time.Sleep(time.Second)
		for m.Data != "10" {
			m = p.WantControl(wire.VerbAck)
		}
	})
}

func TestClientIsReadWhileTheUpstreamStalls(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		_, p := stalledGame(t, w)
		for range 30 {
			p.Text(strings.Repeat("x", 16<<10))
		}
		p.Control("ping through")
		if m := p.WantControl(wire.VerbPong); m.Data != "through" {
			t.Fatalf("pong %s", m.Data)
		}
		time.Sleep(10 * time.Minute) // and it is not treated as dead
		w.wantState(p, session.Attached)
	})
}

func TestUnackedLimitIsKeptExactly(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		_, p := stalledGame(t, w)
		big := strings.Repeat("x", 64<<10)
		p.Text(big) // fills the buffer to the game: no message is written completely
		limit := int(p.Hello.Limits.UnackedMessages)
		for range limit - 1 {
			p.Text("y")
		}
		p.Sync()
		w.wantState(p, session.Attached)
		p.Text("one too many")
		p.WantClosing(wire.CodeProtocolViolation)
		w.wantState(p, session.Ended)
	})
}

func TestSingleMessageAlwaysFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.MaxMessage, pol.BufferBytes = 4<<20, 1<<10
		w := newWorld(t, pol)
		p, game := w.play()
		big := strings.Repeat("x", 3<<20) // beyond limits.unacked_bytes and --buffer-bytes
		p.Pass(game, big)
		game.Pass(p, big)
	})
}

func TestAckBeyondWhatWasSentIsAViolation(t *testing.T) {
	for _, n := range []uint64{1, 2, 9999999999999999} {
		inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
			p.Ack(n)
			p.WantClosing(wire.CodeProtocolViolation)
			game.WantClose(wire.CodePolicyViolation)
			w.wantState(p, session.Ended)
		})
	}
}

func TestDecreasingAckIsIgnored(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		for i := range 5 {
			game.Text(fmt.Sprint(i))
			p.Want(fmt.Sprint(i))
		}
		for _, n := range []uint64{4, 2, 4, 0} {
			p.Ack(n)
		}
		p.Sync()
		if i, _ := w.gw.Session(p.Hello.Session); i.Acked != 4 || i.BufferMessages != 1 {
			t.Fatalf("acked %d, %d messages kept; want 4 and 1", i.Acked, i.BufferMessages)
		}
	})
}

func TestResumeWithImpossibleReceivedIsRefused(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		for i := range 4 {
			game.Text(fmt.Sprint(i))
			p.Want(fmt.Sprint(i))
		}
		p.Ack(2)
		w.detach(p)
		game.Text("4") // never sent to a client
		synctest.Wait()
		before, _ := w.gw.Session(p.Hello.Session)
		for received, code := range map[string]int{
			"1": wire.CodeWindowExceeded, "0": wire.CodeWindowExceeded,
			"5": wire.CodeProtocolViolation, "6": wire.CodeProtocolViolation, "9999999999999999": wire.CodeProtocolViolation,
			"": wire.CodeProtocolViolation, "-1": wire.CodeProtocolViolation, "+3": wire.CodeProtocolViolation,
			"3x": wire.CodeProtocolViolation, "12345678901234567": wire.CodeProtocolViolation,
		} {
			p.TryResume(p.Hello.Token, received).WantClosing(code)
		}
		synctest.Wait()
		after, _ := w.gw.Session(p.Hello.Session)
		if before.Sent, after.Sent = 0, 0; before.Acked != after.Acked || before.State != after.State || !before.DetachedSince.Equal(*after.DetachedSince) {
			t.Fatalf("refused resumes changed %+v to %+v", before, after)
		}
		p = p.Resume(3)
		p.Want("3", "4")
	})
}

func TestEscapedTextIsTheSameAtBothEnds(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		for _, s := range []string{"\x10", "\x10\x10", "\x10hello {}", "\x10ack 5", strings.Repeat("\x10", 125), strings.Repeat("\x10", 126), strings.Repeat("\x10", 65535), ""} {
			p.Pass(game, s)
			game.Pass(p, s)
			game.Binary(s)
			p.Want(s)
		}
		game.Frame(frame.Text, false, "")
		game.Frame(frame.Ping, true, "between")
		game.Frame(frame.Continuation, false, "\x10")
		game.Frame(frame.Continuation, true, "tail")
		p.Want("\x10tail")
		if i, _ := w.gw.Session(p.Hello.Session); i.BufferBytes < 2 {
			t.Fatalf("%d bytes kept of unacked messages", i.BufferBytes)
		}
	})
}

func TestMessageInManyFragmentsLeavesInOne(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		want := strings.Repeat("0123456789", 10000)
		b := frame.AppendMasked(nil, frame.Binary, [4]byte{7, 7, 7, 7}, []byte(want))
		for len(b) > 0 {
			n := min(len(b), 997)
			p.Raw(b[:n])
			b = b[n:]
			synctest.Wait()
		}
		game.Want(want)
		p.Frame(frame.Text, false, "a")
		p.Frame(frame.Ping, true, "mid")
		p.Frame(frame.Continuation, false, "b")
		p.Frame(frame.Ping, true, "mid2")
		p.Frame(frame.Continuation, true, "c")
		game.WantFrames("abc", 1)
		p.Text("\x10ab")
		game.WantFrames("\x10ab", 1)
	})
}

func TestMessageLimitOnBothLegs(t *testing.T) {
	pol := testPolicy()
	pol.MaxMessage = 1000
	sizes := []struct {
		n  int
		ok bool
	}{{999, true}, {1000, true}, {1001, false}}
	send := map[string]func(p *wstest.Peer, s string){
		"one frame": func(p *wstest.Peer, s string) { p.Text(s) },
		"many frames": func(p *wstest.Peer, s string) {
			p.Frame(frame.Text, false, "")
			p.Frame(frame.Continuation, false, s[:len(s)/2])
			p.Frame(frame.Continuation, true, s[len(s)/2:])
		},
	}
	for _, size := range sizes {
		for name, f := range send {
			s := strings.Repeat("m", size.n)
			t.Run(fmt.Sprintf("%s of %d", name, size.n), func(t *testing.T) {
				inSession(t, pol, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
					f(p.Peer, s)
					if size.ok {
						game.Want(s)
					} else {
						p.WantClosing(wire.CodeMessageTooBig)
						game.WantClose(wire.CodeMessageTooBig)
					}
					p, game = w.play()
					f(game, s)
					if size.ok {
						p.Want(s)
					} else {
						p.WantClosing(wire.CodeUpstreamLost)
						game.WantClose(wire.CodeMessageTooBig)
					}
				})
			})
		}
	}
}

func TestEscapingByteIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.MaxMessage = 5000
		w := newWorld(t, pol)
		p, game := w.play()
		s := "\x10" + strings.Repeat("m", 4999)
		p.Pass(game, s)
		p.Text(s + "m")
		p.WantClosing(wire.CodeMessageTooBig)
	})
}

func TestMessageOf1024FramesIsTheLimit(t *testing.T) {
	fragments := func(p *wstest.Peer, n int) {
		p.Frame(frame.Binary, false, "x")
		for range n - 2 {
			p.Frame(frame.Continuation, false, "x")
		}
		p.Frame(frame.Continuation, true, "x")
	}
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		fragments(p.Peer, 1024)
		game.Want(strings.Repeat("x", 1024))
		fragments(game, 1024)
		p.Want(strings.Repeat("x", 1024))
		fragments(p.Peer, 1025)
		p.WantClosing(wire.CodeProtocolViolation)

		p, game = w.play()
		fragments(game, 1025)
		p.WantClosing(wire.CodeUpstreamLost)
		game.WantClose(wire.CodeProtocolError)
	})
}

func TestUnfinishedMessageDisconnectsAfterThirtySeconds(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		p.Mute.Store(true) // it is in the middle of a message
		p.Frame(frame.Text, false, "half")
		for range 29 { // pings are no progress
			time.Sleep(time.Second)
			p.PingFrame()
		}
		w.wantState(p, session.Attached)
		time.Sleep(2 * time.Second)
		w.wantState(p, session.Detached)
		p = p.Resume(0)
		p.Pass(game, "whole")

		game.Frame(frame.Text, false, "half")
		time.Sleep(31 * time.Second)
		p.WantClosing(wire.CodeUpstreamLost)
	})
}

func TestEchoServerThatBlocksWhileTheClientDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.BufferBytes = 128 << 10
		w := newWorld(t, pol)
		p, game := w.play()
		go func() { // an echo server that writes before it reads again
			for {
				m, ok := game.Next()
				if !ok || m.Err != nil || m.Op == frame.Close {
					return
				}
				game.Frame(m.Op, true, m.Data)
			}
		}()
		const messages = 400
		chunk := strings.Repeat("e", 8<<10)
		got := make(chan int)
		go func() {
			n := 0
			for n < messages {
				m, _ := p.Next()
				if m.Err != nil {
					break
				}
				if m.Verb == "" && m.Op == frame.Text {
					n++
					p.Ack(uint64(n))
				}
			}
			got <- n
		}()
		for range messages {
			p.Text(chunk)
			time.Sleep(time.Millisecond) // the acks keep the window open
		}
		if n := <-got; n != messages {
			t.Fatalf("%d of %d messages came back", n, messages)
		}
	})
}

func TestReasonOfACodeWithoutDetailIsItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.MaxMessage = 10
		w := newWorld(t, pol)
		p, _ := w.play()
		p.Text("eleven bytes")
		if c := p.WantClosing(wire.CodeMessageTooBig); c.Reason != "message_too_big" {
			t.Fatalf("reason %q", c.Reason)
		}
	})
}
