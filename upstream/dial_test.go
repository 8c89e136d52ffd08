package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var keyLine = regexp.MustCompile(`Sec-WebSocket-Key: (\S+)\r\n`)

func TestDialSendsTheHandshakeAndNothingElse(t *testing.T) {
	g := newGame(t, "wss://game:9000/base", accepting())
	g.URL.Scheme = "ws"
	keys := map[string]bool{}
	for range 2 {
		conn, err := g.Dial(t.Context(), Request{
			Path: "/match/7", RawQuery: "x=1", Host: "game.example", Protocols: []string{"chat.v2", "chat.v1"},
			Header: http.Header{"Cookie": {"a=1"}, "X-Two": {"1", "2"}, "X-Empty": {""}}, Epoch: 12,
		})
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		m := keyLine.FindStringSubmatch(g.head())
		if m == nil {
			t.Fatalf("no key in %q", g.head())
		}
		if raw, err := base64.StdEncoding.DecodeString(m[1]); err != nil || len(raw) != 16 || keys[m[1]] {
			t.Errorf("the key %q is not 16 fresh bytes", m[1])
		}
		keys[m[1]] = true
		want := "GET /base/match/7?x=1 HTTP/1.1\r\nHost: game.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + m[1] + "\r\nSec-WebSocket-Protocol: chat.v2, chat.v1\r\n" +
			"Reseat-Epoch: 12\r\nCookie: a=1\r\nX-Empty: \r\nX-Two: 1\r\nX-Two: 2\r\n\r\n"
		if g.head() != want {
			t.Errorf("sent %q, want %q", g.head(), want)
		}
	}
}

// Headers are built elsewhere; a mistake there must not split the request.
func TestDialCannotBeMadeToSendASecondRequest(t *testing.T) {
	g := newGame(t, "ws://game", accepting())
	conn, err := g.Dial(t.Context(), Request{
		Path: "/\r\n\r\nGET /evil", RawQuery: " HTTP/1.1\r\nA: b", Host: "h\r\nEvil: 1",
		Protocols: []string{"chat", "a\r\nEvil: 1", "a b", "a,b", "", "ü"},
		Header: http.Header{
			"X-A": {"1\r\nEvil: 1", "1\nEvil: 1", "1\rEvil: 1", "\x00\x7f"}, "X\r\nEvil": {"1"}, "": {"1"}, "X Y": {"1"},
			"host": {"evil"}, "Content-Length": {"5"}, "transfer-encoding": {"chunked"}, "Sec_WebSocket_Key": {"evil"}, "upgrade": {"h2c"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	want := "GET /%0D%0A%0D%0AGET%20/evil?%20HTTP/1.1%0D%0AA:%20b HTTP/1.1\r\nHost: game\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: K\r\nSec-WebSocket-Protocol: chat\r\n" +
		"X-A: 1  Evil: 1\r\nX-A: 1 Evil: 1\r\nX-A: 1 Evil: 1\r\nX-A:   \r\n\r\n"
	if got := keyLine.ReplaceAllString(g.head(), "Sec-WebSocket-Key: K\r\n"); got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func TestDialReturnsTheAnswer(t *testing.T) {
	g := newGame(t, "ws://game", func(conn net.Conn, r *http.Request) {
		io.WriteString(conn, switching(r, "Sec-WebSocket-Protocol: chat", "Set-Cookie: a=1", "Reseat-Grace: 2m")+"early")
		io.WriteString(conn, "later")
	})
	conn, err := g.Dial(t.Context(), Request{Path: "/", Protocols: []string{"chat"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pass, d := AnswerHeader(conn.Header)
	if conn.Protocol != "chat" || pass.Get("Set-Cookie") != "a=1" || d.Grace != "2m" || string(conn.Early) != "early" {
		t.Errorf("protocol %q, header %v, early %q", conn.Protocol, conn.Header, conn.Early)
	}
	if rest, _ := io.ReadAll(conn); string(rest) != "later" {
		t.Errorf("the connection went on with %q, want later", rest)
	}
}

// slowGames are upstreams that stall at some point.
var slowGames = map[string]func(conn net.Conn, r *http.Request){
	"never answers": func(conn net.Conn, _ *http.Request) { io.Copy(io.Discard, conn) },
	"sends its head a byte a second": func(conn net.Conn, r *http.Request) {
		for _, c := range []byte(switching(r)) {
			time.Sleep(time.Second)
			if _, err := conn.Write([]byte{c}); err != nil {
				return
			}
		}
	},
	"sends interim answers for ever": func(conn net.Conn, _ *http.Request) {
		for {
			time.Sleep(3 * time.Second)
			if _, err := io.WriteString(conn, "HTTP/1.1 102 Processing\r\n\r\n"); err != nil {
				return
			}
		}
	},
}

func TestSlowConnectIs504(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, dial := range map[string]func(context.Context) (net.Conn, error){
			"no answer to SYN": func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
			"the system gives up": func(context.Context) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: &net.DNSError{IsTimeout: true}}
			},
			"a socket that takes nothing": func(context.Context) (net.Conn, error) {
				c, _ := net.Pipe()
				return c, nil
			},
		} {
			for _, scheme := range []string{"ws", "wss"} {
				target := &Target{URL: mustParse(t, scheme+"://game")}
				target.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := target.Dial(ctx, Request{Path: "/"})
				if kindOf(err) != Timeout || Status(err) != 504 {
					t.Errorf("%s, %s: %v, want a timeout", name, scheme, err)
				}
				cancel()
			}
		}
	})
}

// It ends with its context at once: as a timeout, or as canceled with the cause.
func TestSlowDialEndsWithItsContext(t *testing.T) {
	gone := errors.New("client disconnected")
	for name, serve := range slowGames {
		for _, c := range []struct {
			after  time.Duration
			why    error
			kind   Kind
			status int
		}{{10 * time.Second, context.DeadlineExceeded, Timeout, 504}, {5 * time.Second, gone, Canceled, 502}} {
			t.Run(name+", "+c.why.Error(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGame(t, "ws://game", serve)
					ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
					defer stop()
					ctx, cancel := context.WithCancelCause(ctx)
					defer cancel(nil)
					if c.why == gone {
						time.AfterFunc(c.after, func() { cancel(gone) })
					}
					begun := time.Now()
					_, err := g.Dial(ctx, Request{Path: "/"})
					if kindOf(err) != c.kind || Status(err) != c.status || !errors.Is(err, c.why) || time.Since(begun) != c.after {
						t.Errorf("%v, status %d, after %v; want %v, %d, after %v", err, Status(err), time.Since(begun), c.kind, c.status, c.after)
					}
					g.wantClosed(t)
				})
			})
		}
	}
}

const canary = "canary-s3cret"

func TestErrorsNameTheUpstreamAndNoSecret(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	closed := &Target{URL: mustParse(t, "ws://"+ln.Addr().String())}
	noName := &Target{URL: mustParse(t, "ws://game.invalid:9")}
	noName.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "game.invalid", IsNotFound: true}}
	}
	noTLS := newGame(t, "wss://game.example:9", nil)
	noTLS.serve = answering("not called: no request can be read")
	garbage := newGame(t, "ws://game.example:9", answering("200 OK "+canary+"\r\n\r\n"))
	for _, c := range []struct {
		target *Target
		kind   Kind
		text   string
	}{
		{closed, Unreachable, "upstream " + ln.Addr().String() + ": connect: connection refused"},
		{noName, Unreachable, "upstream game.invalid:9: lookup game.invalid: no such host"},
		{noTLS.Target, Unreachable, "upstream game.example:9: "},
		{garbage.Target, BadAnswer, "upstream game.example:9: answer is not HTTP/1"},
	} {
		_, err := c.target.Dial(t.Context(), Request{Path: "/" + canary, RawQuery: "token=" + canary, Host: canary,
			Header: http.Header{"Authorization": {canary}}, Protocols: []string{canary}})
		var e *Error
		if !errors.As(err, &e) || e.Kind != c.kind || Status(err) != 502 {
			t.Errorf("%v (%v), want %v and 502", err, kindOf(err), c.kind)
			continue
		}
		if !strings.HasPrefix(err.Error(), c.text) || strings.Contains(err.Error(), canary) {
			t.Errorf("the error reads %q, want %q", err, c.text)
		}
	}
	noTLS.wantClosed(t)
	garbage.wantClosed(t)
}

// echoUpgrade answers the handshake on a real connection.
func echoUpgrade(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, switching(r)+"early")
	})
}

func TestDialOverTLSChecksTheServer(t *testing.T) {
	srv := httptest.NewUnstartedServer(echoUpgrade(t))
	srv.Config.ErrorLog = discardLog
	var offered []string
	srv.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		offered = append([]string{h.ServerName}, h.SupportedProtos...)
		return nil, nil
	}}
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	// The certificate is for example.com and 127.0.0.1.
	dialer := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
	}

	good := &Target{URL: mustParse(t, "wss://example.com:1"), RootCAs: roots, DialContext: dialer}
	conn, err := good.Dial(t.Context(), Request{Path: "/", Host: "other.example"})
	if err != nil {
		t.Fatal(err)
	}
	secured, ok := conn.Conn.(*tls.Conn)
	if !ok || secured.ConnectionState().NegotiatedProtocol != "http/1.1" {
		t.Errorf("the connection is a %T, want *tls.Conn with http/1.1", conn.Conn)
	}
	if got := strings.Join(offered, " "); got != "example.com http/1.1" {
		t.Errorf("the client hello said %q, want example.com and http/1.1", got)
	}
	conn.Close()

	for name, bad := range map[string]*Target{
		"unknown authority": {URL: good.URL, RootCAs: x509.NewCertPool(), DialContext: dialer},
		"another name":      {URL: mustParse(t, "wss://evil.test"), RootCAs: roots, DialContext: dialer},
	} {
		if _, err := bad.Dial(t.Context(), Request{Path: "/"}); kindOf(err) != Unreachable || Status(err) != 502 {
			t.Errorf("%s: %v, want unreachable", name, err)
		}
	}
}
