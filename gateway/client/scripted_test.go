package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/client"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/wire"
)

func TestClientAcksByCountBytesAndTime(t *testing.T) {
	onStage(t, nil, func(s *stage, g *wstest.Peer) {
		s.heard(g, "^ack 0")
		read := func(n int, text string) {
			for range n {
				g.Text(text)
				s.want(text)
			}
		}
		read(1, "x")
		time.Sleep(700 * time.Millisecond)
		s.heard(g)
		time.Sleep(300 * time.Millisecond)
		s.heard(g, "^ack 1")
		read(32, "x")
		s.heard(g, "^ack 33")
		read(1, strings.Repeat("x", 64<<10))
		s.heard(g, "^ack 34")
		read(1, "x")
		g.Control("ping are you there")
		s.heard(g, "^ack 35", "^pong are you there")
	})
}

// Each row is something a gateway must not send. The client closes the connection and
// resumes.
func TestInvalidControlMessageBreaksTheConnection(t *testing.T) {
	for _, said := range []string{"", "ack 1", "bye", `hello {"session":"s1","token":"t"}`, `hello {"session":"s2","token":"t"}`, "\xff"} {

		onStage(t, nil, func(s *stage, g *wstest.Peer) {
			token := fmt.Sprintf("t%d", tokensMade)
			g.Control(said)
			next := s.door.Next()
			if got := stated(next); got != "true "+token+" 0" {
				s.Errorf("%q: resumes with %s", said, got)
			}
			hello(next, nil)
			synctest.Wait()
			if len(s.resumes) != 1 {
				s.Errorf("%q: resumes %+v", said, s.resumes)
			}
		})
	}
}

func TestRetryableCloseIsRetriedAfterRetryAfter(t *testing.T) {
	onStage(t, nil, func(s *stage, g *wstest.Peer) {
		began := time.Now()
		g.Control(`close {"code":4503,"reason":"draining","retry":true,"retry_after_ms":70000}`)
		g = s.door.Next()
		if wait := time.Since(began); wait < 70*time.Second || wait > 76*time.Second { // longer than the grace period: the gateway asked for that
			s.Errorf("came back after %v", wait)
		}
		began = time.Now()
		g.Control(`close {"code":4429,"retry":true,"retry_after_ms":3000}`)
		hello(s.door.Next(), nil)
		if wait := time.Since(began); wait < 3*time.Second {
			s.Errorf("came back after %v", wait)
		}
	})
}

// protocol section 5.1: the newest hello's route comes back with each resume, if it is one.
func TestResumeOffersTheRouteOfTheNewestHello(t *testing.T) {
	onBareStage(t, func(s *stage) {
		routed := func(g *wstest.Peer) (list []string) {
			for _, p := range wire.Protocols(g.Req.Header) {
				if strings.HasPrefix(p, wire.PrefixRoute) {
					list = append(list, p)
				}
			}
			return list
		}
		g := s.dial(map[string]any{"route": "n1"})
		if got := routed(g); got != nil {
			s.Errorf("the first handshake offers %q", got)
		}
		for _, tt := range []struct{ route, next string }{
			{"n1", "n2"}, {"n2", "blank s"}, {"", "a,b"}, {"", strings.Repeat("x", 33)}, {"", strings.Repeat("x", 32)}, {strings.Repeat("x", 32), ""}, {"", "n1"},
		} {
			g.Close(4410, "closed by a proxy")
			g = s.door.Next()
			var want []string
			if tt.route != "" {
				want = []string{wire.PrefixRoute + tt.route}
			}
			if got := routed(g); fmt.Sprint(got) != fmt.Sprint(want) {
				s.Errorf("the resume offers %q, want %q", got, want)
			}
			hello(g, map[string]any{"route": tt.next})
			g.Text("something new")
			s.Read(s.Context())
		}
	})
}

// protocol section 5.6: without it no session is durable.
func TestEachHandshakeSaysWhatIsSettled(t *testing.T) {
	onStage(t, nil, func(s *stage, g *wstest.Peer) {
		settled := func(want string) {
			s.Helper()
			if o := wire.ParseOffer(g.Req.Header); !o.SettledOK || fmt.Sprint(o.Settled.Acked, o.Settled.Sent) != want {
				s.Errorf("settled %+v, want %s", o.Settled, want)
			}
		}
		settled("0 0")
		s.say("a")
		s.say("b")
		s.say("c")
		synctest.Wait()
		g.Control("ack 1")
		synctest.Wait()
		g.Drop()
		g = s.door.Next()
		settled("1 3")
		hello(g, map[string]any{"resumed": true, "received": 2})
		synctest.Wait()
		g.Drop()
		g = s.door.Next()
		settled("2 3")
	})
}

// The next gateway numbers from what the handshake stated.
func TestFailoverCountsFromWhatItsHandshakeStated(t *testing.T) {
	failover := map[string]any{"resumed": true, "moved": "failover", "durable": true}
	for name, between := range map[string]func(*stage, *wstest.Peer){
		"nothing": func(*stage, *wstest.Peer) {},
		"read":    func(s *stage, _ *wstest.Peer) { s.want("2") },
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, nil, func(s *stage, g *wstest.Peer) {
				g.Text("1")
				g.Text("2")
				g.Text("3")
				s.want("1")
				synctest.Wait()
				g.Drop()
				g = s.door.Next() // states 1
				between(s, g)
				synctest.Wait()
				hello(g, failover)
				if name == "read" {
					s.heard(g, "the end")
					g = s.door.Next()
					if got := stated(g); !strings.HasSuffix(got, " 2") {
						s.Errorf("resumes with %s, want what was handed over", got)
					}
					hello(g, failover)
				}
				synctest.Wait()
				g.Text("of the next")
				s.want("of the next")
				s.mu.Lock()
				defer s.mu.Unlock()
				if len(s.resumes) != 1 || s.resumes[0].Moved != "failover" {
					s.Errorf("%+v", s.resumes)
				}
			})
		})
	}
}

func TestAttemptsArePacedAndSpread(t *testing.T) {
	onBareStage(t, func(s *stage) {
		s.dial(nil)
		s.down.Store(true)
		began := time.Now()
		s.cut()
		synctest.Wait()
		if n := s.dials.Load(); n != 2 {
			s.Errorf("%d connections at once, want the first and one more", n)
		}
		err := s.wantEnd()
		if n := s.dials.Load(); n < 30 || n > 150 || !errors.Is(err, client.ErrLost) {
			s.Errorf("%d attempts in %v, then %v", n, time.Since(began), err)
		}
	})
}

// A gateway that disconnects after every hello is not flooded with attempts.
func TestFailedConnectionsBackOff(t *testing.T) {
	onBareStage(t, func(s *stage) {
		s.dial(nil).Drop()
		began := time.Now()
		for range 40 {
			g := s.door.Next()
			hello(g, map[string]any{"resumed": true})
			synctest.Wait()
			g.Drop()
		}
		if took := time.Since(began); took < 20*time.Second {
			s.Errorf("40 connections in %v", took)
		}
	})
}

func TestDialReturnsDescriptiveErrors(t *testing.T) {
	dial := func(s *stage, o client.Options) error {
		o.HTTPClient = s.client()
		c, err := client.Dial(s.Context(), "ws://game.example/", &o)
		if err == nil {
			c.CloseNow()
			s.Error("no error")
		}
		return err
	}
	onBareStage(t, func(s *stage) {
		s.door.Refuse = func(c net.Conn, _ *http.Request) bool {
			io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 8\r\n\r\ndraining")
			return true
		}
		var refused *client.HandshakeError
		if err := dial(s, client.Options{}); !errors.As(err, &refused) || refused.StatusCode != 503 || refused.Body != "draining" {
			s.Errorf("503: %v", err)
		}
		s.door.Refuse = func(c net.Conn, _ *http.Request) bool {
			io.WriteString(c, "HTTP/1.1 307 Temporary Redirect\r\nLocation: ws://elsewhere.example/\r\nContent-Length: 0\r\n\r\n")
			return true
		}
		if err := dial(s, client.Options{Token: "secret"}); !errors.As(err, &refused) || refused.StatusCode != 307 || s.dials.Load() != 2 {
			s.Errorf("307: %v after %d connections", err, s.dials.Load())
		}
		s.door.Refuse = nil
		s.door.Choose = ""
		if err := dial(s, client.Options{}); !errors.Is(err, client.ErrNotReseat) {
			s.Errorf("no subprotocol: %v", err)
		}
		s.door.Next()
		s.door.Choose = wire.Subprotocol
		began := time.Now()
		if err := dial(s, client.Options{}); !errors.Is(err, client.ErrNotReseat) || time.Since(began) != 5*time.Second {
			s.Errorf("no hello: %v after %v", err, time.Since(began))
		}
		s.door.Next()
		s.down.Store(true)
		if err := dial(s, client.Options{}); err == nil || !strings.Contains(err.Error(), "the network is down") {
			s.Errorf("no network: %v", err)
		}
	})
}

func TestDialReportsSupersededToken(t *testing.T) {
	onBareStage(t, func(s *stage) {
		done := make(chan error, 1)
		go func() {
			_, err := client.Dial(s.Context(), "ws://game.example/", &client.Options{HTTPClient: s.client(), Token: "superseded"})
			done <- err
		}()
		g := s.door.Next()
		if got := stated(g); got != "true superseded 0" {
			s.Errorf("the handshake states %s", got)
		}
		time.Sleep(14 * time.Second) // a resume waits 15 s
		g.Control(`close {"code":4401,"reason":"superseded","retry":false}`)
		var end *client.CloseError
		if err := <-done; !errors.As(err, &end) || end.Code != 4401 || end.FromServer {
			s.Errorf("%v, want code 4401 of the gateway", err)
		}
	})
}

func TestDialContextDoesNotOutliveDial(t *testing.T) {
	onBareStage(t, func(s *stage) {
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		if _, err := client.Dial(ctx, "ws://game.example/", &client.Options{HTTPClient: s.client()}); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("no hello in time: %v", err)
		}
		s.door.Next()
		ctx, cancel = context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		go func() { hello(s.door.Next(), nil) }()
		c, err := client.Dial(ctx, "ws://game.example/", &client.Options{HTTPClient: s.client()})
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := c.Write(s.Context(), client.MessageText, []byte("on and on")); err != nil {
			s.Error(err)
		}
		c.CloseNow()
	})
}

// The library would return an empty message if the stream ended right after a header.
func TestMessageCutAfterItsHeaderIsNotDelivered(t *testing.T) {
	for _, torn := range []string{"\x81\x05", "\x81\x7e\x01\x00", "\x81\x05he", "\x01\x02he\x80\x03"} {
		onStage(t, nil, func(s *stage, g *wstest.Peer) {
			token := fmt.Sprintf("t%d", tokensMade)
			g.Raw([]byte(torn))
			g.Conn.Close()
			next := s.door.Next()
			if got := stated(next); got != "true "+token+" 0" {
				s.Errorf("%q: resumes with %s", torn, got)
			}
			hello(next, map[string]any{"resumed": true, "replay": 1})
			next.Text("hello")
			s.want("hello")
		})
	}
}

// Large messages come in parts, with control messages in between. The gateway hears at least once a second that
// they come.
func TestMessageInPartsIsReadWhole(t *testing.T) {
	onStage(t, map[string]any{"part_bytes": 4096}, func(s *stage, g *wstest.Peer) {
		g.Control(`parts {"bytes":8200,"text":true,"later":1}`)
		part := strings.Repeat("x", 4096)
		g.Binary("\x10\x10" + part[2:])
		g.Control("ping 7")
		for range 3 {
			synctest.Wait()
			time.Sleep(time.Second)
		}
		g.Binary(part)
		s.heard(g, "^ack 0", "^pong 7", "^ack 0")
		g.Binary("yyyyyyyy")
		g.Text("small")
		s.want("\x10"+part[2:]+part+"yyyyyyyy", "small")
		time.Sleep(time.Second)
		s.heard(g, "^ack 2")
	})
}

func TestBadPartsBreakTheConnection(t *testing.T) {
	for name, says := range map[string]func(g *wstest.Peer){
		"text":           func(g *wstest.Peer) { g.Control(`parts {"bytes":10,"text":true}`); g.Text("part") },
		"too much":       func(g *wstest.Peer) { g.Control(`parts {"bytes":3,"text":true}`); g.Binary("part") },
		"empty":          func(g *wstest.Peer) { g.Control(`parts {"bytes":3,"text":true}`); g.Binary("") },
		"twice":          func(g *wstest.Peer) { g.Control(`parts {"bytes":9}`); g.Control(`parts {"bytes":9}`) },
		"no argument":    func(g *wstest.Peer) { g.Control("parts") },
		"over the limit": func(g *wstest.Peer) { g.Control(`parts {"bytes":99999999999}`) },
	} {
		onBareStage(t, func(s *stage) {
			says(s.dial(nil))
			hello(s.door.Next(), nil)
			synctest.Wait()
			if len(s.lost) != 1 {
				s.Errorf("%s: losses %v", name, s.lost)
			}
		})
	}
}
