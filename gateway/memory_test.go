package gateway_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// memory is --buffer-total in these tests.
const memory = 2 << 20

func withMemory(c *gateway.Config) { c.BufferTotal = memory }

// kib is a message of so many KiB.
func kib(n int) string { return strings.Repeat("x", n<<10) }

// flood has a game server send n messages of 8 KiB.
func flood(game *wstest.Peer, n int) {
	go func() {
		for range n {
			game.Text(kib(8))
		}
	}()
	synctest.Wait()
}

// hoard begins a session whose client acks nothing, and has its game server flood it.
func (w *world) hoard(header string, n int) (*wstest.Player, *wstest.Peer) {
	w.t.Helper()
	p := w.PlayerWith("/match/7", header)
	game := w.game.Next()
	flood(game, n)
	return p, game
}

// unfinished sends so much of a message of 1 MiB.
func unfinished(p *wstest.Peer, n int) {
	p.Raw(append([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0}, make([]byte, n)...))
}

// Clients that fill the memory, in whichever way, delay nobody who reads and acks.
func TestReaderIsServedWhileOthersHoldAllMemory(t *testing.T) {
	for name, attack := range map[string]func(w *world){
		"attached, reads nothing": func(w *world) {
			p, _ := w.hoard("", 200)
			p.Hold(true)
		},
		"attached, acks nothing": func(w *world) { w.hoard("", 200) },
		"detached": func(w *world) {
			p, _ := w.hoard("", 200)
			p.Drop()
		},
		"plain, reads nothing": func(w *world) {
			p := w.Plain("/match/7")
			p.Hold(true)
			flood(w.game.Next(), 200)
		},
		"an unfinished message": func(w *world) {
			p := w.Player("/match/7")
			w.game.Next()
			go unfinished(p.Peer, 900<<10)
		},
		"a message that trickles in": func(w *world) {
			p := w.Player("/match/7")
			w.game.Next()
			go func() {
				unfinished(p.Peer, 900<<10)
				for range 20 {
					time.Sleep(time.Second)
					p.Raw([]byte{0})
				}
			}()
		},
		"the game server reads nothing": func(w *world) {
			_, p := stalledGame(w.t, w)
			w.game.Refuse = nil
			go func() {
				for range 120 {
					p.Text(kib(8))
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, reader *wstest.Player, game *wstest.Peer) {
				n := uint64(0)
				turn := func() time.Duration {
					n++
					began := time.Now()
					reader.Pass(game, "up")
					game.Pass(reader, kib(1))
					reader.Ack(n)
					reader.Sync()
					return time.Since(began)
				}
				turn()
				most := int64(0)
				for range 6 {
					if w.gw.BufferBytes() < memory/10*9 {
						attack(w)
					}
					synctest.Wait()
					most = max(most, w.gw.BufferBytes())
				}
				if most < memory/10*8 || most > memory+memory/10 {
					t.Errorf("%d bytes of %d are used, want nearly all of them, and hardly more", most, memory)
				}
				for range 100 {
					if took := turn(); took > 0 {
						t.Fatalf("message %d of a client that reads takes %v", n, took)
					}
					time.Sleep(50 * time.Millisecond)
				}
				if held := w.gw.BufferBytes(); held > memory {
					t.Errorf("%d bytes of %d are still used", held, memory)
				}
				w.wantState(reader, session.Attached)
				time.Sleep(20 * time.Second) // nobody sends any more
			}, withMemory)
		})
	}
}

// The fullest session that is not read pays, and everybody hears which one that was.
func TestFullestUnreadSessionEndsThoughItsClientIsAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		w := newWorld(t, testPolicy(), withMemory, func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
		reader, readerGame := w.play()
		l := w.listen()
		_, last := w.play()
		full, game := w.hoard("", 120)
		l.want(full.Hello.Session, events.Created)
		fuller, fullerGame := w.hoard("", 124)
		w.wantState(full, session.Attached)
		flood(last, 40)
		time.Sleep(2 * time.Second)
		w.wantState(full, session.Attached)
		w.wantState(fuller, session.Ended)
		for range 124 {
			fuller.Want(kib(8))
		}
		c := fuller.WantClosing(wire.CodeWindowExceeded)
		why := strings.TrimPrefix(c.Reason, "window_exceeded: ")
		if c.Retry || !strings.HasPrefix(why, "memory for replay buffers exhausted: 10") || !strings.Contains(why, " bytes held, attached, unread for 1") {
			t.Errorf("the client hears %+v", c)
		}
		fullerGame.WantClose(wire.CodeTryAgainLater)
		fuller.TryResume(fuller.Hello.Token, "0").WantClosing(wire.CodeWindowExceeded)
		l.want(fuller.Hello.Session, events.Created, events.Overflowed+" "+why, events.Ended+" window_exceeded")
		wantLine(t, log, "buffer.session_evicted", "session="+fuller.Hello.Session, "peer=127.0.0.1", "bytes=10", "state=attached", "unread=1")
		if n := w.metrics()["reseat_sessions_evicted_total{attached}"]; n != 1 {
			t.Errorf("%v sessions are counted", n)
		}
		readerGame.Pass(reader, "unharmed")
		game.Text("on and on")
	})
}

// A client in the middle of a large message would have to take the rest of it before a Close frame: its
// memory is free at once.
func TestEvictionDoesNotWaitForLargeMessage(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		var full []*wstest.Player
		var games []*wstest.Peer
		for range 3 {
			p, game := w.play()
			p.Hold(true)
			full, games = append(full, p), append(games, game)
		}
		for _, game := range games {
			go game.Text(kib(900))
		}
		time.Sleep(2 * time.Second)
		ended := 0
		for _, p := range full {
			if w.state(p) == session.Ended.String() {
				ended++
				p.Hold(false)
				p.WantEnd()
				p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeWindowExceeded)
			}
		}
		if ended != 1 || w.gw.BufferBytes() > memory {
			t.Errorf("%d sessions have ended, and %d bytes are used", ended, w.gw.BufferBytes())
		}
	}, withMemory)
}

// An address that holds more than its share pays before others do, however much one of these holds.
func TestAddressOverItsShareEndsFirst(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		away, _ := w.hoard(from(1), 50)
		away.Drop()
		w.PlayerWith("/match/7", from(3))
		last := w.game.Next()
		var many []*wstest.Player
		for range 40 {
			if w.gw.BufferBytes() < memory/10*9 {
				p, _ := w.hoard(from(2), 12)
				many = append(many, p)
			}
		}
		flood(last, 56)
		time.Sleep(2 * time.Second)
		w.wantState(away, session.Detached)
		ended := 0
		for _, p := range many {
			if w.state(p) == session.Ended.String() {
				ended++
			}
		}
		if ended == 0 || ended > len(many)/2 {
			t.Errorf("%d of %d sessions of the address that holds most have ended", ended, len(many))
		}
	}, withMemory, trustProxies)
}

// Sessions that leave just enough for those that exist do not keep new players out.
func TestUnreadSessionsMakeRoomForNewOnes(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		full := 0
		for ; w.gw.BufferBytes() < memory/10*9; full++ {
			w.hoard(from(full), 15)
		}
		if status := w.refused("/"); status != http.StatusServiceUnavailable {
			t.Fatalf("a new session: %d, want 503", status)
		}
		time.Sleep(time.Second)
		if status := w.refused("/"); status != http.StatusServiceUnavailable {
			t.Errorf("a new session after a second: %d, want 503: clients may still read", status)
		}
		time.Sleep(10 * time.Second)
		w.refused("/")
		synctest.Wait()
		if status := w.refused("/"); status != http.StatusSwitchingProtocols {
			t.Errorf("a new session after a while: %d, want 101", status)
		}
	}, withMemory, trustProxies)
}

// A session that is fuller than any other for a moment, whose client reads, is not ended: not even while the rest
// of a message waits for memory that others hold.
func TestBusyReaderIsNotEvicted(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, busy *wstest.Player, game *wstest.Peer) {
		for range 60 {
			w.hoard("", 10)
			if w.gw.BufferBytes() > memory/20*17 {
				break
			}
		}
		for n := range uint64(40) {
			busy.Hold(true)
			go game.Text(kib(400))
			time.Sleep(500 * time.Millisecond) // what its link takes
			busy.Hold(false)
			busy.Want(kib(400))
			busy.Ack(n + 1)
			busy.Sync()
		}
		w.wantState(busy, session.Attached)
	}, withMemory)
}
