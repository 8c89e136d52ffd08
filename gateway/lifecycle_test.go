package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// drops are the ways in which a client disconnects without a bye.
var drops = map[string]func(p *wstest.Player){
	"reset":          func(p *wstest.Player) { p.Drop() },
	"end of stream":  func(p *wstest.Player) { p.Conn.Close() },
	"half close":     func(p *wstest.Player) { p.Conn.CloseWrite() },
	"Close 1000":     func(p *wstest.Player) { p.Close(1000, "") },
	"Close 1001":     func(p *wstest.Player) { p.Close(1001, "going away") },
	"Close empty":    func(p *wstest.Player) { p.Close(frame.NoStatus, "") },
	"in mid-frame":   func(p *wstest.Player) { p.Raw([]byte{0x81, 0xfe, 1, 0, 9, 9, 9, 9, 'x'}); p.Drop() },
	"in mid-header":  func(p *wstest.Player) { p.Raw([]byte{0x81, 0xfe}); p.Drop() },
	"in mid-message": func(p *wstest.Player) { p.Frame(frame.Text, false, "half"); p.Drop() },
	"silence":        func(p *wstest.Player) { p.Conn.Silence(); time.Sleep(31 * time.Second) },
	"no answer":      func(p *wstest.Player) { p.Mute.Store(true); time.Sleep(31 * time.Second); p.WantEnd() },
	"silence mid-data": func(p *wstest.Player) {
		p.Frame(frame.Text, false, "half")
		p.Conn.Silence()
		time.Sleep(31 * time.Second)
	},
}

func TestEveryDisconnectDetachesWithoutLoss(t *testing.T) {
	for name, drop := range drops {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				p.Pass(game, "c1")
				game.Pass(p, "s1")
				p.Ack(1)
				p.Sync()
				drop(p)
				w.wantState(p, session.Detached)
				game.Frame(frame.Ping, true, "still there?")
				if m, _ := game.Next(); m.Op != frame.Pong || m.Data != "still there?" {
					t.Errorf("got %v, want the Pong", m)
				}
				game.Text("s2")
				game.WantNothing(0)
				synctest.Wait() // the gateway has read it
				p = p.Resume(1)
				if h := p.Hello; h.Received != 1 || h.Replay != 1 || h.Lost != 0 {
					t.Fatalf("hello %+v, want received 1, replay 1, lost 0", h)
				}
				p.Want("s2")
				p.Pass(game, "c2")
			})
		})
	}
}

// A bye holds, also if the connection breaks after it.
func TestByeEndsSessionAfterPrecedingData(t *testing.T) {
	for arg, want := range map[string]struct {
		code   int
		reason string
	}{
		"bye":                           {1000, ""},
		`bye {"code":1005,"reason":""}`: {frame.NoStatus, ""}, // protocol section 5: close() without a code
		`bye {"code":4321,"reason":"left the match"}`: {4321, "left the match"},
		`bye {"code":1001}`:                           {1001, ""},
		`bye {"reason":"x","unknown":[1]}`:            {1000, "x"},
	} {
		t.Run(arg, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				p.Text("last words")
				p.Control(arg)
				game.Want("last words")
				game.WantReason(want.code, want.reason)
				p.WantClose(want.code) // without a close before it
				w.wantState(p, session.Ended)
				p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNoSession)
				p, game = w.play()
				p.Control(arg)
				p.Conn.Close()
				game.WantReason(want.code, want.reason)
				w.wantState(p, session.Ended)
			})
		})
	}
}

func wantEnd(t *testing.T, p *wstest.Peer, code int, reason string) {
	t.Helper()
	m := p.WantControl(wire.VerbEnd)
	if !strings.Contains(m.Data, `"reason":"`+reason+`"`) {
		t.Fatalf("end %s, want reason %q", m.Data, reason)
	}
	p.WantClose(code)
}

func TestUpstreamCloseIsKeptForDetachedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, game := newDetached(t, testPolicy())
		game.Text("s1")
		game.Close(4007, "the end")
		game.WantClose(4007) // the gateway's answer
		time.Sleep(20 * time.Second)
		w.wantState(p, session.Detached)
		p = p.Resume(0)
		p.Want("s1")
		wantEnd(t, p.Peer, 4007, "the end")
		p.Drop() // before it answers
		w.wantState(p, session.Detached)
		p = p.Resume(1)
		wantEnd(t, p.Peer, 4007, "the end")
		p.Close(4007, "")
		w.wantState(p, session.Ended)
	})
}

// A peer that answers Pings stays connected. A silent client is disconnected within twice the heartbeat, a silent game server
// if there is an --upstream-heartbeat.
func TestSilentPeerIsDisconnected(t *testing.T) {
	pol := testPolicy()
	inSession(t, pol, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		plain, plainGame := w.plain()
		game.Mute.Store(true) // which nobody asks for an answer
		time.Sleep(time.Hour)
		w.wantState(p, session.Attached)
		goesOn(plain, plainGame)
		p.Mute.Store(true)
		plain.Mute.Store(true)
		time.Sleep(29 * time.Second)
		w.wantState(p, session.Attached)
		time.Sleep(2 * time.Second)
		w.wantState(p, session.Detached)
		plainGame.WantEnd()
	})
	pol.UpstreamHeartbeat = 5 * time.Second
	inSession(t, pol, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		time.Sleep(time.Minute)
		w.wantState(p, session.Attached)
		game.Mute.Store(true)
		time.Sleep(11 * time.Second)
		p.WantClosing(wire.CodeUpstreamLost)
	})
}

func (w *world) plain() (*wstest.Peer, *wstest.Peer) {
	w.t.Helper()
	c := w.Plain("/plain")
	return c, w.game.Next()
}

// A stalled game server has answered the handshake and does not read until the test says so.
type stalled struct{ conn *wstest.Conn }

// read starts reading.
func (s *stalled) read(t *testing.T) *wstest.Peer { return wstest.Accept(t, s.conn) }

func stalledGame(t *testing.T, w *world) (*stalled, *wstest.Player) {
	t.Helper()
	s := make(chan *wstest.Conn, 1)
	w.game.Refuse = func(c net.Conn, r *http.Request) bool {
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: "+frame.AcceptKey(r.Header.Get("Sec-WebSocket-Key"))+"\r\n\r\n")
		s <- c.(*wstest.Conn)
		return true
	}
	p := w.Player("/stalled")
	conn := <-s
	t.Cleanup(func() { conn.Close() })
	return &stalled{conn}, p
}

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

// A peer that stops reading, at any point of a resume, delays nobody: no other session, not
// the list of sessions, and not the next resume of its own session. None of that takes any
// time on the fake clock; waiting for the peer would take forever.
func TestSlowPeerDuringResumeDelaysNobody(t *testing.T) {
	for name, slow := range map[string]func(w *world, p *wstest.Player, game *wstest.Peer){
		"before its 101":   (*world).resumeUnread,
		"before its hello": func(w *world, p *wstest.Player, _ *wstest.Peer) { w.resumeRead(p, 150) },
		"in its replay":    func(w *world, p *wstest.Player, _ *wstest.Peer) { w.resumeRead(p, 10000) },
		"as the older connection": func(w *world, p *wstest.Player, game *wstest.Peer) {
			p.Hold(true)
			for i := range 200 {
				game.Text(fmt.Sprint(i, strings.Repeat("x", 2000)))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, other *wstest.Player, otherGame *wstest.Peer) {
				p, game := w.play()
				p.Sync()
				for i := range 20 {
					game.Text(fmt.Sprint("early ", i, strings.Repeat("x", 2000)))
				}
				slow(w, p, game)
				synctest.Wait()
				began := time.Now()
				w.wantOthersAtEase(other, otherGame)
				q := p.Resume(0)
				for i := range 20 {
					q.Want(fmt.Sprint("early ", i, strings.Repeat("x", 2000)))
				}
				if d := time.Since(began); d > 0 {
					t.Errorf("others were delayed by %v", d)
				}
			})
		})
	}
}

// wantOthersAtEase checks that another session resumes and exchanges messages, that a new
// one begins, and that all are listed.
func (w *world) wantOthersAtEase(other *wstest.Player, game *wstest.Peer) {
	w.t.Helper()
	other.Drop()
	other = other.Resume(0)
	game.Pass(other, "down")
	other.Pass(game, "up")
	w.play()
	if list, _ := w.gw.Control().Sessions(registry.Filter{Limit: 10}); len(list) != 3 {
		w.t.Errorf("%d sessions are listed, want 3", len(list))
	}
	w.gw.Control().Session(other.Hello.Session)
}

// resumeUnread sends a resume of p on a connection that accepts 16 bytes of an answer that is
// never read.
func (w *world) resumeUnread(p *wstest.Player, _ *wstest.Peer) {
	w.resumeRead(p, 0)
}

// resumeRead sends a resume of p on a connection that accepts 16 bytes more than the first n
// of its answer, which are read.
func (w *world) resumeRead(p *wstest.Player, n int) {
	door := wstest.Open(w.t, w.gw, 16)
	offer := strings.Join([]string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}, ", ")
	c, _ := door.Request("GET /resume HTTP/1.1\r\nHost: game.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " + offer + "\r\n\r\n")
	for got := 0; got < n; {
		k, err := c.Read(make([]byte, n-got))
		if err != nil {
			w.t.Fatal(err)
		}
		got += k
	}
}
