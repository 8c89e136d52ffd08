package server

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/secure"
	"reseat/tokens"
)

// A backlog is a listener whose connections are pipes.
type backlog chan net.Conn

func (b backlog) Accept() (net.Conn, error) {
	c, ok := <-b
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (b backlog) Addr() net.Addr { return &net.TCPAddr{} }
func (b backlog) Close() error   { close(b); return nil }

func (b backlog) dial() net.Conn {
	client, server := net.Pipe()
	b <- server
	return client
}

// serving answers every request with ok, over connections in memory, with TLS if pair is not nil.
func serving(t *testing.T, pair *testcert.Pair) backlog {
	b := make(backlog)
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	gw, err := gateway.New(gateway.Config{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	s := server(ok, gw.Conns(), slog.New(slog.DiscardHandler))
	ln := gw.Conns().Listen(b, false)
	if pair != nil {
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		ln = secure.Terminate(ln, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	go s.Serve(ln)
	t.Cleanup(func() {
		s.Close()
		gw.Close()
		time.Sleep(time.Second) // fake: net/http lingers after a refusal
	})
	return b
}

// Half of the slow ones have sent a part of their request, or of their ClientHello.
func TestSlowClientsTimeOutWithoutDelayingOthers(t *testing.T) {
	for _, secured := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%v", secured), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pair *testcert.Pair
				part := "GET / HTTP/1.1\r\nHost: game.example\r\nX-Slow: "
				if secured {
					pair, part = testcert.New(t, "game.example"), "\x16\x03\x01\x02\x00\x01\x00"
				}
				b := serving(t, pair)
				began := time.Now()
				slow := make([]net.Conn, 2000)
				for i := range slow {
					slow[i] = b.dial()
					if i%2 == 1 {
						io.WriteString(slow[i], part)
					}
				}
				time.Sleep(4 * time.Second)
				honest := b.dial()
				if secured {
					honest = tls.Client(honest, pair.Client())
				}
				defer honest.Close()
				io.WriteString(honest, "GET / HTTP/1.1\r\nHost: game.example\r\n\r\n")
				if resp, err := http.ReadResponse(bufio.NewReader(honest), nil); err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("another client: %v, %v", resp, err)
				}
				for _, c := range slow {
					if _, err := io.Copy(io.Discard, c); err != nil {
						t.Fatal(err)
					}
					c.Close()
				}
				if took := time.Since(began); took != headerTimeout {
					t.Errorf("the slow ones were closed after %v, want %v", took, headerTimeout)
				}
			})
		})
	}
}

func TestPlainHTTPIsAnsweredWith400(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t, testcert.New(t, "game.example"))
		for request, want := range map[string]string{"GET / HTTP/1.1\r\nHost: game.example\r\n\r\n": "HTTP/1.0 400 ", "SSH-2.0-OpenSSH\r\n": ""} {
			c := b.dial()
			go io.WriteString(c, request)
			if answer, _ := io.ReadAll(c); !strings.HasPrefix(string(answer), want) || want == "" && strings.Contains(string(answer), "HTTP") {
				t.Errorf("%q is answered with %q", request, answer)
			}
			c.Close()
		}
	})
}

func TestOversizedRequestHeaderIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t, nil)
		for size, want := range map[int]int{maxHeader - 1<<10: http.StatusOK, maxHeader + 8<<10: http.StatusRequestHeaderFieldsTooLarge} {
			c := b.dial()
			go fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: game.example\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", size))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%d bytes: %v, %v; want %d", size, resp, err, want)
			}
			c.Close()
		}
	})
}
