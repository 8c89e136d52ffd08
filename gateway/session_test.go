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
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

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

func numbered(from, to int) []string {
	var list []string
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprint("s", i))
	}
	return list
}

func small(o session.Overflow) policy.Policy {
	p := testPolicy()
	p.BufferMessages, p.Overflow = 10, o
	return p
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

// half is the first frame of a client's message, of which no more comes.
const half = `client> "\x01\x84\x00\x00\x00\x00half"; `

// numbers is numbered, as a script has it.
func numbers(from, to int) string { return strings.Join(numbered(from, to), ", ") }

// drops are the ways in which a client disconnects without a bye.
var drops = map[string]string{
	"reset":            `client drops`,
	"end of stream":    `client closes`,
	"half close":       `client half-closes`,
	"Close 1000":       `client> Close 1000`,
	"Close 1001":       `client> Close 1001 going away`,
	"Close empty":      `client> Close 1005`,
	"in mid-frame":     `client> "\x81\xfe\x01\x00\t\t\t\tx"; client drops`,
	"in mid-header":    `client> "\x81\xfe"; client drops`,
	"in mid-message":   half + `client drops`,
	"silence":          `client is silent; 31s`,
	"no answer":        `client is mute; 31s; client< end`,
	"silence mid-data": half + `client is silent; 31s`,
}

func TestEveryDisconnectDetachesWithoutLoss(t *testing.T) {
	for name, drop := range drops {
		t.Run(name, func(t *testing.T) {
			inScene(t, testPolicy(), func(s *scene) {
				s.play(`client> c1; game< c1; game> s1; client< s1; client> ^ack 1; sync; ` + drop + `; detached`)
				s.up.Frame(frame.Ping, true, "still there?")
				s.play(`game< Pong still there?; game> s2; game< nothing; resume 1; hello received=1 replay=1 lost=0; client< s2; client> c2; game< c2`)
			})
		})
	}
}

// A bye holds, also if the connection breaks after it.
func TestByeEndsSessionAfterPrecedingData(t *testing.T) {
	scripts := map[string]scripted{}
	for arg, want := range map[string]string{
		`bye`:                           "1000",
		`bye {"code":1005,"reason":""}`: "1005", // protocol section 5: close() without a code
		`bye {"code":4321,"reason":"left the match"}`: "4321 left the match",
		`bye {"code":1001}`:                           "1001",
		`bye {"reason":"x","unknown":[1]}`:            "1000 x",
	} {
		scripts[arg] = scripted{testPolicy(), fmt.Sprintf(`client> last words, ^%s; game< last words, Close %s; client< Close %.4[2]s; ended; refused 4404; `+
			`begin; client> ^%[1]s; client closes; game< Close %[2]s; ended`, arg, want)}
	}
	playEach(t, scripts)
}

// Also if the client drops before it has answered.
func TestUpstreamCloseIsKeptForDetachedClient(t *testing.T) {
	plays(t, testPolicy(), `detach; game> s1, Close 4007 the end; game< Close 4007; 20s; detached; resume 0; client< s1, ^end 4007 the end; `+
		`client drops; detached; resume 1; client< ^end 4007 the end; client> Close 4007; ended`)
}

// A peer that answers Pings stays connected. A silent client is disconnected within twice the heartbeat, a silent game server
// if there is an --upstream-heartbeat: nobody asks it for an answer otherwise.
func TestSilentPeerIsDisconnected(t *testing.T) {
	pol := testPolicy()
	plays(t, pol, `visit; game is mute; 1h; attached; plain> one way; beside< one way; client is mute; plain is mute; 29s; attached; 2s; detached; beside< end`)
	pol.UpstreamHeartbeat = 5 * time.Second
	plays(t, pol, `1m; attached; game is mute; 11s; client< ^close 4502`)
}

func TestOverflowEndsTheSession(t *testing.T) {
	plays(t, small(session.EndSession), `detach; game> `+numbers(1, 10)+`; detached; game> s11; game< Close 1013; ended; refused 4408`)
}

// The client acks nothing. A ping asks for the ack, after all messages.
func TestSlowClientPausesTheUpstreamWhateverThePolicy(t *testing.T) {
	for _, o := range []session.Overflow{session.Pause, session.DropOldest, session.EndSession} {
		t.Run(o.String(), func(t *testing.T) {
			plays(t, small(o), `game> `+numbers(1, 30)+`; client< `+numbers(1, 10)+`; mark; client< ^ping; took 0s to 1s; 10s; client< nothing; `+
				`client> ^ack 10; client< `+numbers(11, 20)+`; client> ^ack 20; client< `+numbers(21, 30))
		})
	}
}

func TestBufferBytesBoundsWhatIsKept(t *testing.T) {
	plays(t, changed(testPolicy(), func(p *policy.Policy) { p.BufferBytes = 1000 }),
		`detach; `+strings.Repeat(`game> x*300; `, 30)+`info buffer_bytes=900 buffer_messages=3`)
}

// It is beyond limits.unacked_bytes and --buffer-bytes.
func TestSingleMessageAlwaysFits(t *testing.T) {
	plays(t, changed(testPolicy(), func(p *policy.Policy) { p.MaxMessage, p.BufferBytes = 4<<20, 1<<10 }),
		`client> x*3000000; game< x*3000000; game> x*3000000; client< x*3000000`)
}

func TestDecreasingAckIsIgnored(t *testing.T) {
	plays(t, testPolicy(), `game> `+numbers(1, 5)+`; client< `+numbers(1, 5)+`; client> ^ack 4, ^ack 2, ^ack 4, ^ack 0; sync; info acked=4 buffer_messages=1`)
}

func TestResumeTakesOverAnAttachedSession(t *testing.T) {
	plays(t, testPolicy(), `resume 0; older< ^close 4409, end; game> s1; client< s1; no dial`)
}

// Each late event of an older connection comes after the new hello.
func TestStaleEventsOfReplacedConnectionAreIgnored(t *testing.T) {
	scripts := map[string]scripted{}
	for name, late := range map[string]string{
		"message": `older> late`, "ack": `older> ^ack 2`, "bye": `older> ^bye`, "bad control": `older> ^BAD`, "bad frame": `older> "\xff\xff"`,
		"Close": `older> Close 4000`, "reset": `older drops`, "half": strings.Replace(half, "client", "older", 1),
	} {
		scripts[name] = scripted{testPolicy(), `game> s1, s2; client< s1, s2; resume 0; ` + late + `; 40s; attached; client< s1, s2; info acked=0 received=0; client> c1; game< c1`}
	}
	playEach(t, scripts)
}

// Each resume gets so far, and disconnects after a while.
func TestFutileResumes(t *testing.T) {
	for name, c := range map[string]struct {
		resumes  int
		stays    string
		progress bool // its received, and its ack, are one higher each time
		ends     bool
	}{
		"a message always kills its client": {5, "3s", false, true},
		"one resume fewer":                  {4, "3s", false, false},
		"within ten seconds":                {8, "1s", false, false},
		"one message more each time":        {12, "3s", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, testPolicy(), func(s *scene) {
				s.play(`detach; game> ` + numbers(1, 20))
				for i, received := 0, 0; i < c.resumes; i++ {
					s.play(fmt.Sprintf(`detached; resume %d; client> ^ack %[1]d; client< s%d; %s; client drops`, received, received+1, c.stays))
					if c.progress {
						received++
					}
				}
				if !c.ends {
					s.play(`detached`)
					return
				}
				s.play(`game< Close 1001`)
				wstest.Equal(t, "reason", s.client.TryResume(s.client.Hello.Token, "0").WantClosing(wire.CodeEnded).Reason, "no progress")
			})
		})
	}
}

// Messages that a client resends at a resume do not count against its rate.
func TestResumeMayResendAllUnackedAtOnce(t *testing.T) {
	const script = `client> 0; game< 0; detach; resume 0; %sattached`
	playEach(t, map[string]scripted{
		"messages": {rated(session.Rate{Messages: 5, End: true}), fmt.Sprintf(script, strings.Repeat(`client> x; game< x; `, 500))},
		"bytes":    {rated(session.Rate{Bytes: 2000, End: true}), fmt.Sprintf(script, strings.Repeat(`client> x*2000; game< x*2000; `, 500))},
	})
}

func TestWhenAcksAreSent(t *testing.T) {
	const quarter = `client> x*16384; `
	for name, script := range map[string]string{
		"after 32 messages":         strings.Repeat(`client> x; `, 32) + `client< ^ack 32; took 0s`,
		"after 64 KiB":              strings.Repeat(quarter, 4) + `client< ^ack 4; took 0s`,
		"after a single message":    `client> x; client< ^ack 1; took 1ms to 1s`,
		"at a resume":               `client> x; game< x; detach; mark; resume 0; client< ^ack 1; took 0s to 1s`,
		"none after 31 at once":     strings.Repeat(`client> x; `, 31) + `client< ^ack 31; took 1ms to 1s`,
		"none below 64 KiB at once": strings.Repeat(quarter, 3) + `client> x*16383; client< ^ack 4; took 1ms to 1s`,
	} {
		t.Run(name, func(t *testing.T) { plays(t, testPolicy(), `mark; `+script) })
	}
}

func TestResumeWithImpossibleReceivedIsRefused(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`game> 1, 2, 3, 4; client< 1, 2, 3, 4; client> ^ack 2; detach; game> 5`) // the last was never sent to a client
		before := s.onlySession()
		for code, list := range map[int][]string{
			wire.CodeWindowExceeded:    {"0", "1"},
			wire.CodeProtocolViolation: {"5", "6", "9999999999999999", "", "-1", "+3", "3x", "12345678901234567"},
		} {
			for _, received := range list {
				s.client.TryResume(s.client.Hello.Token, received).WantClosing(code)
			}
		}
		after := s.onlySession()
		wstest.Equal(t, "acked", after.Acked, before.Acked)
		wstest.Equal(t, "detached since", *after.DetachedSince, *before.DetachedSince)
		s.play(`detached; resume 3; client< 4, 5`)
	})
}

// A resumable client is detached then, a plain one closed, and a game server lost. Pings are no progress.
func TestUnfinishedMessageDisconnectsAfterThirtySeconds(t *testing.T) {
	const ping = `"\x89\x80\x00\x00\x00\x00"; `
	plays(t, testPolicy(), `sync; visit; client is mute; plain is mute; `+half+strings.Replace(half, "client", "plain", 1)+
		strings.Repeat(`1s; client> `+ping+`plain> `+ping, 29)+`attached; 2s; detached; plain< Close 1008; beside< Close 1008; `+
		`resume 0; client> whole; game< whole; game> "\x01\x04half"; 31s; client< ^close 4502`)
}
