package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/client"
	"reseat/gateway/control"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// Both sides count, while connections break at any moment in every way, with messages of every size. A failing
// subtest is named after its seed.
func TestMessagesArriveOnceOverEveryKindOfDisconnect(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				random := rand.New(rand.NewPCG(seed, 0))
				back, done := make(chan struct{}, 1000), make(chan struct{})
				c, game := w.play(client.Options{OnResume: func(client.Resumed) { back <- struct{}{} }})
				go traffic(c, game, seed, done)
				for playing := true; playing; {
					time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
					for len(back) > 0 {
						<-back
					}
					w.damage(c, random)
					select {
					case <-done:
						playing = false
					case <-back: // the grace period applies to each disconnect separately
					case <-time.After(time.Minute): // it was not detached
					}
				}
				if err := c.Close(4000, "done"); err != nil {
					w.Error(err)
				}
				if reason := game.WantClose(4000); reason != "done" {
					w.Errorf("the game server got %q", reason)
				}
				if n := w.dials.Load(); n < 3 {
					w.Errorf("only %d connections: the damage did nothing", n)
				}
			})
		})
	}
}

// damage damages the connection, and perhaps the next one, or the network, but for less
// than the grace period.
func (w *world) damage(c *app, random *rand.Rand) {
	if random.IntN(3) == 0 {
		time.AfterFunc(time.Duration(random.IntN(100))*time.Millisecond, w.cut)
	}
	switch random.IntN(7) {
	case 0:
		w.cut()
	case 1:
		c.Drop()
	case 2:
		w.newest.Load().Silence()
	case 3:
		w.newest.Load().CloseWrite()
	case 4:
		w.down.Store(true)
		w.cut()
		time.AfterFunc(time.Duration(random.IntN(20))*time.Second, func() { w.down.Store(false) })
	default: // a false alarm, perhaps
		w.stop(time.Duration(random.IntN(8000)) * time.Millisecond)
	}
}

// traffic sends 400 numbered messages each way, some of them large.
func traffic(c *app, game *wstest.Peer, seed uint64, done chan struct{}) {
	defer close(done)
	const messages = 400
	text := func(i int) string { return fmt.Sprint(i, " ", strings.Repeat("x", (i*7919)%(1+i%3*20000))) }
	var all sync.WaitGroup
	for way, each := range []func(int){
		func(i int) { c.say(text(i)) }, func(i int) { game.Text(text(i)) },
		func(i int) { c.want(text(i)) }, func(i int) { game.Want(text(i)) },
	} {
		random := rand.New(rand.NewPCG(seed, uint64(way)+1))
		all.Go(func() {
			for i := range messages {
				each(i)
				if way < 2 {
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
}

// The gateway alone knows how long the session is kept. A client that reaches none gives up in its own time, but not
// before the time that it has heard of.
func TestClientGivesUpWhereNoGatewayAnswers(t *testing.T) {
	const known = grace + 2*heartbeat
	for option, limit := range map[time.Duration]time.Duration{0: 10 * time.Minute, 3 * time.Minute: 3 * time.Minute, time.Second: known} {
		inWorld(t, func(w *world) {
			c, game := w.play(client.Options{GiveUpAfter: option})
			w.down.Store(true)
			began := time.Now()
			w.cut()
			if err := c.wantEnd(); !errors.Is(err, client.ErrLost) {
				w.Errorf("the end is %v, want ErrLost", err)
			}
			if took := time.Since(began); took > limit || took < limit*9/10 {
				w.Errorf("GiveUpAfter %v: gave up after %v, want %v or a little less", option, took, limit)
			}
			game.WantClose(1001)
			if err := c.Write(w.Context(), client.MessageText, nil); !errors.Is(err, client.ErrLost) {
				w.Errorf("a write afterwards: %v", err)
			}
		})
	}
}

// What is changed for a session while its player is away holds, though its client never hears of it.
func TestGracePeriodThatIsExtendedWhileAwayHolds(t *testing.T) {
	const before, after = 3 * time.Second, 5 * time.Minute
	for name, extend := range map[string]func(w *world, id string){
		"PATCH": func(w *world, id string) {
			d := after
			w.gw.Control().Patch(id, control.Change{Grace: &d})
		},
		"the group starts": func(w *world, id string) { w.gw.Control().StartGroup("m") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.game.Header = "Reseat-Group: m\r\n"
				c, game := w.play(client.Options{})
				w.down.Store(true)
				w.cut()
				time.Sleep(2 * time.Second)
				extend(w, c.Session())
				time.Sleep(after - 30*time.Second)
				game.Text("are you there?")
				w.down.Store(false)
				c.want("are you there?")
			}, func(p *policy.Policy) {
				d := before
				p.Grace, p.GraceBeforeStart, p.Heartbeat = after, &d, time.Second
			})
		})
	}
}

func TestResumeAfterGraceIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.play(client.Options{})
		w.down.Store(true)
		w.cut()
		time.Sleep(grace + time.Second)
		w.down.Store(false)
		c.wantClose(wire.CodeNoSession, false)
	})
}

func TestEndOfSessionFollowsItsLastMessage(t *testing.T) {
	inWorld(t, func(w *world) {
		c, game := w.play(client.Options{})
		w.cut()
		game.Text("final score 3:2")
		game.Close(4000, "match over")
		time.Sleep(time.Second) // everything arrives before the first read
		c.want("final score 3:2")
		err := c.wantClose(4000, true)
		if text := err.Error(); !strings.Contains(text, "match over") {
			w.Errorf("%q does not say why", text)
		}
	})
}

func TestCloseFollowsEverythingWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		c, game := w.play(client.Options{})
		w.down.Store(true)
		w.cut()
		c.say("last words")
		time.AfterFunc(10*time.Second, func() { w.down.Store(false) })
		if err := c.Close(4001, "left the table"); err != nil {
			w.Errorf("Close: %v", err)
		}
		game.Want("last words")
		if reason := game.WantClose(4001); reason != "left the table" {
			w.Errorf("the game server got %q", reason)
		}
		if _, _, err := c.Read(w.Context()); err != client.ErrClosed {
			w.Errorf("Read afterwards: %v", err)
		}
		if err := c.Write(w.Context(), client.MessageText, nil); err != client.ErrClosed {
			w.Errorf("Write afterwards: %v", err)
		}
		if err := c.Close(1000, ""); err != nil {
			w.Errorf("Close again: %v", err)
		}
	})
}

func TestUndeliveredCloseEndsWithTheGracePeriod(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.play(client.Options{})
		w.down.Store(true)
		w.cut()
		synctest.Wait()
		began := time.Now()
		if err := c.Close(1000, ""); !errors.Is(err, client.ErrLost) || time.Since(began) > grace {
			w.Errorf("Close: %v after %v", err, time.Since(began))
		}
		if c.Close(1005, "") == nil || c.Close(1000, strings.Repeat("x", 124)) == nil {
			w.Error("a bad code or reason was taken")
		}
	})
}

func TestCloseNowLeavesTheSessionDetached(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.play(client.Options{})
		c.CloseNow()
		if got := w.state(c); got != session.Detached.String() {
			w.Errorf("the session is %s", got)
		}
	})
}

func TestWriteWaitsWhileTheWindowIsFull(t *testing.T) {
	inWorld(t, func(w *world) {
		c, game := w.play(client.Options{})
		game.Hold(true)
		big := make([]byte, 64<<10)
		n := 0
		for {
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			err := c.Write(ctx, client.MessageBinary, append(big, fmt.Sprint(n)...))
			cancel()
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					w.Fatal(err)
				}
				break
			}
			n++
		}
		if n < 16 || n > 40 {
			w.Errorf("%d messages of 64 KiB were taken; the window is 1 MiB", n)
		}
		w.cut() // this does not open the window
		game.Hold(false)
		for i := range n {
			game.Want(string(append(big, fmt.Sprint(i)...)))
		}
		c.say("more")
		game.Want("more")
	})
}

func TestCancelledContextKeepsTheSession(t *testing.T) {
	inWorld(t, func(w *world) {
		c, game := w.play(client.Options{})
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, _, err := c.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Read: %v", err)
		}
		game.Text("later")
		c.want("later")
		if w.dials.Load() != 1 {
			w.Errorf("%d connections, want 1", w.dials.Load())
		}
	})
}

func TestLongSessionKeepsItsConnectionAndItsToken(t *testing.T) {
	inWorld(t, func(w *world) {
		c, game := w.play(client.Options{})
		time.Sleep(5 * time.Hour) // a token is valid for one hour
		if w.dials.Load() != 1 {
			w.Errorf("%d connections, want 1", w.dials.Load())
		}
		w.cut()
		c.say("hello")
		game.Want("hello")
	})
}

func TestLostMessagesAreReported(t *testing.T) {
	inWorld(t, func(w *world) {
		var got client.Resumed
		c, game := w.play(client.Options{OnResume: func(r client.Resumed) { got = r }})
		w.down.Store(true)
		w.cut()
		for i := range 10 {
			game.Text(fmt.Sprint(i))
		}
		time.Sleep(time.Second)
		w.down.Store(false)
		c.want("7", "8", "9")
		if got.Lost != 7 || got.Replay != 3 {
			w.Errorf("resumes %+v", got)
		}
		w.cut()
		game.Text("10")
		c.want("10")
	}, func(p *policy.Policy) { p.BufferMessages, p.Overflow = 3, session.DropOldest })
}

func TestOversizedMessageIsRefusedWithoutEndingTheSession(t *testing.T) {
	inWorld(t, func(w *world) {
		c, game := w.play(client.Options{})
		if err := c.Write(w.Context(), client.MessageBinary, make([]byte, 1<<20+1)); !errors.Is(err, client.ErrTooBig) {
			w.Errorf("%v, want ErrTooBig", err)
		}
		if err := c.Write(w.Context(), 0, nil); err == nil {
			w.Error("a message of no type was taken")
		}
		whole := strings.Repeat("\x10", 1<<20) // the escaping DLE does not count
		c.say(whole)
		game.Want(whole)
	})
}

func TestCallerMayReuseItsBuffer(t *testing.T) {
	inWorld(t, func(w *world) {
		c, game := w.play(client.Options{})
		w.cut()
		data := []byte("first")
		if err := c.Write(w.Context(), client.MessageText, data); err != nil {
			w.Fatal(err)
		}
		copy(data, "other")
		game.Want("first")
	})
}

func TestApplicationsSubprotocolIsNegotiated(t *testing.T) {
	inWorld(t, func(w *world) {
		w.game.Choose = "chat.v2"
		c, game := w.play(client.Options{Subprotocols: []string{"chat.v2", "chat.v1"}})
		if offer := game.Req.Header.Get("Sec-WebSocket-Protocol"); c.Subprotocol() != "chat.v2" || offer != "chat.v2, chat.v1" {
			w.Errorf("chose %q of %q", c.Subprotocol(), offer)
		}
	})
}

func TestPreCreatedSessionIsJoinedByItsToken(t *testing.T) {
	inWorld(t, func(w *world) {
		id, token, err := w.gw.Create(w.Context(), nil, gateway.CreateRequest{Path: "/match/7", Player: "ada"})
		if err != nil {
			w.Fatal(err)
		}
		game := w.game.Next()
		game.Text("welcome")
		conn, err := client.Dial(w.Context(), "ws://game.example/", &client.Options{HTTPClient: w.client(), Token: token})
		if err != nil {
			w.Fatal(err)
		}
		defer conn.CloseNow()
		c := &app{w.T, conn}
		c.want("welcome")
		if c.Session() != id {
			w.Errorf("joined %s, want %s", c.Session(), id)
		}
	})
}

func TestRefusedDialReturnsTheReason(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := client.Dial(w.Context(), "ws://game.example/other", &client.Options{HTTPClient: w.client()})
		var refused *client.CloseError
		want := client.CloseError{Code: 4403, Reason: "no route", Status: 404}
		if !errors.As(err, &refused) || *refused != want {
			w.Errorf("%v, want %+v", err, want)
		}
		if text := `the gateway refused the session: 4403 refused "no route", HTTP status 404`; err == nil || !strings.Contains(err.Error(), text) {
			w.Errorf("%v, want %q in it", err, text)
		}
	})
}

// The application hears of each outage once, whatever happens to the client's own connection
// meanwhile, and what it sent arrives.
func TestOutageOfGameServerIsReportedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard []bool
		var away atomic.Bool
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			if away.Load() {
				c.Close()
			}
			return away.Load()
		}
		c, game := w.play(client.Options{OnUpstream: func(lost bool) { heard = append(heard, lost) }})
		for range 2 {
			away.Store(true)
			game.Drop()
			synctest.Wait()
			c.say("meanwhile")
			w.cut()
			time.Sleep(5 * time.Second)
			away.Store(false)
			game = w.game.Next()
			game.Want("meanwhile")
			w.cut()
			time.Sleep(15 * time.Second)
		}
		synctest.Wait()
		if want := []bool{true, false, true, false}; !slices.Equal(heard, want) {
			w.Errorf("heard %v, want %v", heard, want)
		}
	}, func(p *policy.Policy) { p.Redial, p.RedialFor = true, time.Minute })
}
