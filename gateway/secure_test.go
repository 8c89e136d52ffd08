package gateway_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/control"
	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/listen"
	"reseat/gateway/policy"
	"reseat/gateway/secure"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A secureWorld is a world with TLS at the client address. Its players connect through
// tunnels that add TLS.
type secureWorld struct {
	*world
	inner *wstest.Listener
	pair  *testcert.Pair
}

func newSecureWorld(t *testing.T, p policy.Policy) *secureWorld {
	t.Helper()
	w := &secureWorld{newWorld(t, p), wstest.NewListener(64 << 10), testcert.New(t, "game.example")}
	cert, key := w.pair.Write(t.TempDir())
	certs, err := secure.Open(secure.Config{CertFile: cert, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w.gw, ConnContext: listen.ConnContext, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(certs.Listen(w.inner))
	tunnels := wstest.NewListener(64 << 10)
	go w.tunnel(tunnels)
	w.Door = wstest.Knock(t, tunnels)
	t.Cleanup(func() {
		tunnels.Close()
		server.Close()
	})
	return w
}

// dial opens a connection and negotiates one of the protocols.
func (w *secureWorld) dial(protocols ...string) (*tls.Conn, *wstest.Conn) {
	raw, err := w.inner.Dial()
	if err != nil {
		w.t.Error(err)
		return nil, nil
	}
	return tls.Client(raw, w.pair.Client(protocols...)), raw
}

// tunnel carries each connection over a TLS connection, including closes and resets.
func (w *secureWorld) tunnel(ln *wstest.Listener) {
	for {
		plain, err := ln.Accept()
		if err != nil {
			return
		}
		secured, raw := w.dial("http/1.1")
		go func() {
			if _, err := io.Copy(secured, plain); err != nil {
				raw.Reset()
			}
			secured.CloseWrite()
		}()
		go func() {
			io.Copy(plain, secured)
			plain.Close()
			raw.Close()
		}()
	}
}

func TestSessionsWorkOverTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSecureWorld(t, testPolicy())
		p, game := w.play()
		if got := game.Req.Header.Get("X-Forwarded-Proto"); got != "https" {
			t.Errorf("X-Forwarded-Proto is %q, want https", got)
		}
		large := strings.Repeat("x", 1<<20)
		p.Pass(game, large)
		game.Pass(p, large)
		p.Drop()
		w.wantState(p, session.Detached)
		game.Text("while you were away")
		time.Sleep(29 * time.Second)
		p = p.Resume(1)
		p.Want("while you were away")
		p.Pass(game, "still me")
		p.Control(`bye {"code":1000}`)
		game.WantClose(wire.CodeNormal)
	})
}

func TestOperatorsDisconnectReachesClientOverTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSecureWorld(t, testPolicy())
		p, _ := w.play()
		if got := w.gw.Control().Disconnect(p.Hello.Session); got != control.Done {
			t.Fatalf("Disconnect: %v", got)
		}
		p.WantEnd()
		p.Resume(0)
	})
}

func TestPlainClientOverTLSSeesClosingHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSecureWorld(t, testPolicy())
		c, game := w.plain()
		c.Pass(game, "hello")
		game.Close(4007, "the end")
		c.WantReason(4007, "the end")
		c.Close(4007, "")
		c.WantEnd()
	})
}

// http2 returns a client that uses only HTTP/2.
func (w *secureWorld) http2() *http.Client {
	tr := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, _ := w.dial("h2")
		return c, c.HandshakeContext(ctx)
	}}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestOrdinaryRequestsOverHTTP2ReachTheGame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSecureWorld(t, testPolicy())
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			body, _ := io.ReadAll(r.Body)
			text := r.Method + " " + r.RequestURI + " " + r.Host + " " + r.Header.Get("X-Forwarded-Proto") + " " + string(body)
			resp := http.Response{ProtoMajor: 1, ProtoMinor: 1, StatusCode: http.StatusCreated, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}
			resp.Write(c)
			return true
		}
		resp, err := w.http2().Post("https://game.example/matchmaking?size=2", "text/plain", strings.NewReader("me"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if want := "POST /matchmaking?size=2 game.example https me"; resp.ProtoMajor != 2 || resp.StatusCode != http.StatusCreated || string(body) != want || err != nil {
			t.Errorf("%s %s %q, %v; want HTTP/2, 201 and %q", resp.Proto, resp.Status, body, err, want)
		}
	})
}

func TestUpgradeRequiredOverHTTP2OmitsConnectionFields(t *testing.T) {
	for _, off := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := testPolicy()
			p.HTTPOff = off
			w := newSecureWorld(t, p)
			w.game.Refuse = func(conn net.Conn, _ *http.Request) bool {
				io.WriteString(conn, "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n")
				return true
			}
			resp, err := w.http2().Get("https://game.example/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUpgradeRequired || resp.Header["Upgrade"] != nil || resp.Header["Connection"] != nil {
				t.Errorf("--http off %t: %s with %v, want 426 without connection-specific fields (RFC 9113 section 8.2.2)", off, resp.Status, resp.Header)
			}
		})
	}
}
