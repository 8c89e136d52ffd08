package gateway_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func numbered(from, to int) []string {
	var list []string
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprint("s", i))
	}
	return list
}

func sendAll(p *wstest.Peer, texts []string) {
	for _, s := range texts {
		p.Text(s)
	}
}

func small(o session.Overflow) policy.Policy {
	p := testPolicy()
	p.BufferMessages, p.Overflow = 10, o
	return p
}

func TestOverflowEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, game := newDetached(t, small(session.EndSession))
		w.wantState(p, session.Detached)
		sendAll(game, numbered(1, 10))
		w.wantState(p, session.Detached)
		game.Text("s11")
		game.WantClose(wire.CodeTryAgainLater)
		w.wantState(p, session.Ended)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeWindowExceeded)
	})
}

func TestSlowClientPausesTheUpstreamWhateverThePolicy(t *testing.T) {
	for _, o := range []session.Overflow{session.Pause, session.DropOldest, session.EndSession} {
		t.Run(o.String(), func(t *testing.T) {
			inSession(t, small(o), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				sendAll(game, numbered(1, 30)) // the client acks nothing
				p.Want(numbered(1, 10)...)
				began := time.Now()
				p.WantControl(wire.VerbPing) // after all messages that it requests an ack of
				if d := time.Since(began); d > time.Second {
					t.Errorf("the ping came after %v", d)
				}
				p.WantNothing(10 * time.Second)
				p.Ack(10)
				p.Want(numbered(11, 20)...)
				p.Ack(20)
				p.Want(numbered(21, 30)...)
			})
		})
	}
}

func TestBufferBytesBoundsWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.BufferBytes = 1000
		w, p, game := newDetached(t, pol)
		w.wantState(p, session.Detached)
		for range 30 {
			game.Text(strings.Repeat("x", 300))
		}
		synctest.Wait()
		if i, _ := w.gw.Control().Session(p.Hello.Session); i.BufferBytes != 900 || i.BufferMessages != 3 {
			t.Fatalf("%d bytes in %d messages kept, want 900 in 3", i.BufferBytes, i.BufferMessages)
		}
	})
}

func rated(r session.Rate) policy.Policy {
	p := testPolicy()
	p.Rate = r
	return p
}

// A client that sends too fast is paced: all messages arrive, in order, at the limited rate,
// and are acked as they are passed on.
func TestFastClientIsPaced(t *testing.T) {
	for name, c := range map[string]struct {
		rate session.Rate
		size int
	}{
		"messages": {session.Rate{Messages: 10}, 1},
		"bytes":    {session.Rate{Bytes: 1000}, 100},
	} {
		for kind, speaks := range map[string]bool{"resumable": true, "plain": false} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				inWorld(t, rated(c.rate), func(t *testing.T, w *world) {
					var p *wstest.Peer
					if speaks {
						p = w.Player("/").Peer
					} else {
						p = w.Plain("/")
					}
					game := w.game.Next()
					began := time.Now()
					go func() { // 10 at once, then 10 a second
						for i := range 40 {
							p.Text(pad(i, c.size))
						}
					}()
					for i := range 40 {
						game.Want(pad(i, c.size))
						if want := time.Duration(max(i-9, 0)) * 100 * time.Millisecond; time.Since(began).Round(time.Millisecond) != want {
							t.Fatalf("message %d came after %v, want %v", i, time.Since(began), want)
						}
					}
					if speaks {
						if m := p.WantControl(wire.VerbAck); m.Data == "0" {
							t.Errorf("first ack %s", m.Data)
						}
					}
				})
			})
		}
	}
}

func pad(i, size int) string {
	s := fmt.Sprint(i)
	return s + strings.Repeat("x", max(size-len(s), 0))
}

// Messages that a client resends at a resume do not count against its rate.
func TestResumeMayResendAllUnackedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		rate session.Rate
		size int
	}{
		"messages": {session.Rate{Messages: 5, End: true}, 3},
		"bytes":    {session.Rate{Bytes: 2000, End: true}, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, rated(c.rate), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				p.Pass(game, "0")
				w.detach(p)
				p = p.Resume(0)
				for i := range 500 {
					text := fmt.Sprintf("%0*d", c.size, i)
					p.Pass(game, text)
				}
				w.wantState(p, session.Attached)
			})
		})
	}
}

func TestWhenAcksAreSent(t *testing.T) {
	quarter := strings.Repeat("x", 16<<10)
	for name, c := range map[string]struct {
		said   []string
		resume bool
		within time.Duration
	}{
		"after 32 messages":         {said: make([]string, 32)},
		"after 64 KiB":              {said: []string{quarter, quarter, quarter, quarter}},
		"after a single message":    {said: []string{"x"}, within: time.Second},
		"at a resume":               {said: []string{"x"}, within: time.Second, resume: true},
		"none after 31 at once":     {said: make([]string, 31), within: time.Second},
		"none below 64 KiB at once": {said: []string{quarter, quarter, quarter, quarter[1:]}, within: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				began := time.Now()
				p.Pass(game, c.said...)
				if c.resume {
					w.detach(p)
					p, began = p.Resume(0), time.Now()
				}
				wstest.Equal(t, "acked", p.WantControl(wire.VerbAck).Data, fmt.Sprint(len(c.said)))
				if took := time.Since(began); took > c.within || strings.HasPrefix(name, "none") && took == 0 {
					t.Errorf("acked after %v", took)
				}
			})
		})
	}
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
		if i, _ := w.gw.Control().Session(p.Hello.Session); i.Received != 10 || i.Written != 3 {
			t.Fatalf("received %d, written %d; want 10, and the 3 whole messages that fit into the stalled game's buffer", i.Received, i.Written)
		}
		p.Control("ping")
		wantAcksUpTo(p, "3") // and no more before the pong
		p.WantControl(wire.VerbPong)
		time.Sleep(10 * time.Minute) // the client is not treated as dead
		w.wantState(p, session.Attached)
		g := game.read(t)
		for range 10 {
			g.Want(chunk)
		}
		time.Sleep(time.Second)
		wantAcksUpTo(p, "10")
	})
}

// wantAcksUpTo reads acks until that of n.
func wantAcksUpTo(p *wstest.Player, n string) {
	for p.WantControl(wire.VerbAck).Data != n {
	}
}

func TestUnackedLimitIsKeptExactly(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		_, p := stalledGame(t, w)
		p.Text(strings.Repeat("x", 64<<10)) // fills the buffer to the game: no message is written completely
		for range int(p.Hello.Limits.UnackedMessages) - 1 {
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
	pol := changed(testPolicy(), func(p *policy.Policy) { p.MaxMessage, p.BufferBytes = 4<<20, 1<<10 })
	inSession(t, pol, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		big := strings.Repeat("x", 3<<20) // beyond limits.unacked_bytes and --buffer-bytes
		p.Pass(game, big)
		game.Pass(p, big)
	})
}

func TestDecreasingAckIsIgnored(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Pass(p, "1", "2", "3", "4", "5")
		for _, n := range []uint64{4, 2, 4, 0} {
			p.Ack(n)
		}
		p.Sync()
		i, _ := w.gw.Control().Session(p.Hello.Session)
		wstest.Equal(t, "acked", i.Acked, 4)
		wstest.Equal(t, "kept", i.BufferMessages, 1)
	})
}

func TestResumeWithImpossibleReceivedIsRefused(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Pass(p, "1", "2", "3", "4")
		p.Ack(2)
		w.detach(p)
		game.Text("5") // never sent to a client
		synctest.Wait()
		before, _ := w.gw.Control().Session(p.Hello.Session)
		for code, list := range map[int][]string{
			wire.CodeWindowExceeded:    {"0", "1"},
			wire.CodeProtocolViolation: {"5", "6", "9999999999999999", "", "-1", "+3", "3x", "12345678901234567"},
		} {
			for _, received := range list {
				p.TryResume(p.Hello.Token, received).WantClosing(code)
			}
		}
		synctest.Wait()
		after, _ := w.gw.Control().Session(p.Hello.Session)
		if before.Acked != after.Acked || before.State != after.State || !before.DetachedSince.Equal(*after.DetachedSince) {
			t.Fatalf("refused resumes changed %+v to %+v", before, after)
		}
		p.Resume(3).Want("4", "5")
	})
}

// inFrames sends a message in so many frames.
func inFrames(p *wstest.Peer, s string, frames int) {
	if frames == 1 {
		p.Text(s)
		return
	}
	op := byte(frame.Text)
	for i := range frames - 1 {
		p.Frame(op, false, s[i:i+1])
		op = frame.Continuation
	}
	p.Frame(op, true, s[frames-1:])
}

// The DLE that escapes a message is not counted.
func TestLimitsOfAMessageOnBothLegs(t *testing.T) {
	const limit = 2000
	for name, c := range map[string]struct {
		size, frames int
		first        string // of the message, "" for any byte
		byClient     int    // the client's code if it sends the message, 0: the message passes
		toGame       int    // the game server's code then
		byGame       int    // the game server's code if it sends the message
	}{
		"largest":            {size: limit, frames: 1},
		"largest, escaped":   {size: limit, frames: 1, first: "\x10"},
		"largest in pieces":  {size: limit, frames: 3},
		"too large":          {size: limit + 1, frames: 1, byClient: wire.CodeMessageTooBig, toGame: wire.CodeMessageTooBig, byGame: wire.CodeMessageTooBig},
		"too large, escaped": {size: limit + 1, frames: 1, first: "\x10", byClient: wire.CodeMessageTooBig, toGame: wire.CodeMessageTooBig, byGame: wire.CodeMessageTooBig},
		"too large, pieces":  {size: limit + 1, frames: 3, byClient: wire.CodeMessageTooBig, toGame: wire.CodeMessageTooBig, byGame: wire.CodeMessageTooBig},
		"1024 frames":        {size: limit, frames: 1024},
		"1025 frames":        {size: limit, frames: 1025, byClient: wire.CodeProtocolViolation, toGame: wire.CodePolicyViolation, byGame: wire.CodeProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			pol := changed(testPolicy(), func(p *policy.Policy) { p.MaxMessage = limit })
			inSession(t, pol, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				s := c.first + strings.Repeat("m", c.size-len(c.first))
				inFrames(p.Peer, s, c.frames)
				if c.byClient == 0 {
					game.WantFrames(s, 1) // however many frames it came in
				} else {
					reason := p.WantClosing(c.byClient).Reason
					if c.byClient == wire.CodeMessageTooBig {
						wstest.Equal(t, "reason", reason, "message_too_big") // without detail it is the code's name
					}
					game.WantClose(c.toGame)
					p, game = w.play()
				}
				inFrames(game, s, c.frames)
				if c.byGame == 0 {
					p.Want(s)
					return
				}
				p.WantClosing(wire.CodeUpstreamLost)
				game.WantClose(c.byGame)
			})
		})
	}
}

// A resumable client is detached then, a plain one closed, and a game server lost.
func TestUnfinishedMessageDisconnectsAfterThirtySeconds(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		plain, plainGame := w.plain()
		for _, c := range []*wstest.Peer{p.Peer, plain} {
			c.Mute.Store(true) // it is in the middle of a message
			c.Frame(frame.Text, false, "half")
		}
		for range 29 { // pings are no progress
			time.Sleep(time.Second)
			p.PingFrame()
			plain.PingFrame()
		}
		w.wantState(p, session.Attached)
		time.Sleep(2 * time.Second)
		w.wantState(p, session.Detached)
		plain.WantClose(wire.CodePolicyViolation)
		plainGame.WantClose(wire.CodePolicyViolation)
		p = p.Resume(0)
		p.Pass(game, "whole")

		game.Frame(frame.Text, false, "half")
		time.Sleep(31 * time.Second)
		p.WantClosing(wire.CodeUpstreamLost)
	})
}

func TestResumeTakesOverAnAttachedSession(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, old *wstest.Player, game *wstest.Peer) {
		now := old.Resume(0)
		old.WantClosing(wire.CodeSuperseded)
		old.WantEnd()
		game.Pass(now, "s1")
		w.wantNoDial()
	})
}

func TestTakeoverOfHalfOpenConnectionIsImmediate(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, _ *world, old *wstest.Player, game *wstest.Peer) {
		old.Conn.Silence()
		var said []string
		for i := range 200 { // accepted by a dead connection, or stuck before it
			said = append(said, fmt.Sprint(i, strings.Repeat("x", 2000)))
			game.Text(said[i])
		}
		began := time.Now()
		p := old.Resume(0)
		wstest.Equal(t, "the takeover took", time.Since(began), 0)
		p.Want(said...)
	})
}

// TestStaleEventsOfReplacedConnectionAreIgnored sends each late event of an older connection
// after the new hello.
func TestStaleEventsOfReplacedConnectionAreIgnored(t *testing.T) {
	eachInBubble(t, map[string]func(old *wstest.Player){
		"message":     func(old *wstest.Player) { old.Text("late") },
		"ack":         func(old *wstest.Player) { old.Ack(2) },
		"bye":         func(old *wstest.Player) { old.Control("bye") },
		"bad control": func(old *wstest.Player) { old.Control("BAD") },
		"bad frame":   func(old *wstest.Player) { old.Raw([]byte{0xff, 0xff}) },
		"Close":       func(old *wstest.Player) { old.Close(4000, "") },
		"reset":       func(old *wstest.Player) { old.Drop() },
		"half":        func(old *wstest.Player) { old.Frame(frame.Text, false, "half") },
	}, func(t *testing.T, late func(*wstest.Player)) {
		w := newWorld(t, testPolicy())
		old, game := w.play()
		game.Pass(old, "s1", "s2")
		p := old.Resume(0)
		late(old)
		time.Sleep(40 * time.Second)
		w.wantState(p, session.Attached)
		p.Want("s1", "s2")
		i, _ := w.gw.Control().Session(p.Hello.Session)
		wstest.Equal(t, "acked", i.Acked, 0)
		wstest.Equal(t, "received", i.Received, 0)
		p.Pass(game, "c1")
	})
}

func TestExactlyOneOfManyConcurrentResumesEndsAttached(t *testing.T) {
	for range 20 {
		inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
			w.detach(p)
			const racers = 16
			peers := make(chan *wstest.Peer, racers)
			for range racers {
				go func() { peers <- p.TryResume(p.Hello.Token, "0") }()
			}
			time.Sleep(time.Second)
			attached := 0
			for range racers {
				attached += stillOpen(t, <-peers)
			}
			wstest.Equal(t, "attached connections", attached, 1)
			w.wantNoDial()
			game.WantNothing(0)
		})
	}
}

// stillOpen reads what has arrived and returns 1 unless it ended with a Close, which must be
// one of those that a race may cause.
func stillOpen(t *testing.T, p *wstest.Peer) int {
	synctest.Wait()
	for m, ok := p.Come(); ok; m, ok = p.Come() {
		if m.Op != frame.Close {
			continue
		}
		if m.Code != wire.CodeSuperseded && m.Code != wire.CodeBadToken {
			t.Errorf("the loser of a race got %v, want Close %d or %d", m, wire.CodeSuperseded, wire.CodeBadToken)
		}
		return 0
	}
	return 1
}

// Each resume gets so far, and disconnects after a while.
func TestFutileResumes(t *testing.T) {
	for name, c := range map[string]struct {
		resumes  int
		stays    time.Duration
		progress bool // its received, and its ack, are one higher each time
		ends     bool
	}{
		"a message always kills its client": {5, 3 * time.Second, false, true},
		"one resume fewer":                  {4, 3 * time.Second, false, false},
		"within ten seconds":                {8, time.Second, false, false},
		"one message more each time":        {12, 3 * time.Second, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				w.detach(p)
				for i := range 20 {
					game.Text(strconv.Itoa(i))
				}
				received := uint64(0)
				for i := range c.resumes {
					p = p.Resume(received)
					p.Ack(received)
					p.Want(strconv.Itoa(int(received)))
					if c.progress {
						received++
					}
					time.Sleep(c.stays)
					p.Drop()
					if i < c.resumes-1 {
						w.wantState(p, session.Detached)
					}
				}
				if !c.ends {
					w.wantState(p, session.Detached)
					return
				}
				game.WantClose(wire.CodeGoingAway)
				wstest.Equal(t, "reason", p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeEnded).Reason, "no progress")
			})
		})
	}
}
