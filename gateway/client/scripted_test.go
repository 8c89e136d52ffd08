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
