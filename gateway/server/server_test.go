package server

import (
	"bufio"
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

// serving answers every request with ok, over connections in memory.
func serving(t *testing.T) backlog {
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
	go s.Serve(b)
	t.Cleanup(func() {
		s.Close()
		gw.Close()
		time.Sleep(time.Second) // fake: net/http lingers after a refusal
	})
	return b
}

func TestSlowRequestHeaderTimesOutWithoutDelayingOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t)
		began := time.Now()
		slow := make([]net.Conn, 5000)
		for i := range slow {
			slow[i] = b.dial()
			if i%2 == 1 {
				io.WriteString(slow[i], "GET / HTTP/1.1\r\nHost: game.example\r\nX-Slow: ")
			}
		}
		time.Sleep(4 * time.Second)
		honest := b.dial()
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
}

func TestOversizedRequestHeaderIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t)
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
