//go:build linux

package drive_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// BenchmarkRelay relays messages of 128 bytes down and as many of 48 bytes up:
// one each way for each operation, or 32 that arrive together. On raw frames as
// this package does it, with the buffer at work, and for comparison by a pump on
// a WebSocket library's message API, which keeps nothing. The ends are the same
// raw sockets in both; their CPU time is in cpu-ns/op as well.
func BenchmarkRelay(b *testing.B) {
	for name, n := range map[string]int{"one": 1, "burst": 32} {
		for driver, kind := range kinds {
			b.Run(name+"/"+driver, func(b *testing.B) {
				r := newRig(b, newDriver(b, kind), zeroKey)
				trips(b, r.client, r.game, n)
			})
		}
		b.Run(name+"/library", func(b *testing.B) {
			client, game := libraryPump(b)
			trips(b, client, game, n)
		})
	}
}

func trips(b *testing.B, client, game net.Conn, n int) {
	down := bytes.Repeat(numbered(nil, 1, 128, false), n)
	up := bytes.Repeat(numbered(nil, 1, 48, true), n)
	got := make([]byte, len(down))
	b.ReportAllocs()
	before := cpuTime()
	for b.Loop() {
		game.Write(down)
		io.ReadFull(client, got[:len(down)])
		client.Write(up)
		io.ReadFull(game, got[:len(up)])
	}
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// libraryPump is a proxy made of two library connections and two goroutines.
func libraryPump(b *testing.B) (client, game net.Conn) {
	gameEnd := make(chan net.Conn, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+acceptKey(r)+"\r\n\r\n")
		gameEnd <- conn
	}))
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		down, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		up, _, err := websocket.Dial(context.Background(), strings.Replace(upstream.URL, "http", "ws", 1), nil)
		if err != nil {
			return
		}
		go pump(up, down)
		pump(down, up)
	}))
	conn, err := net.Dial("tcp", proxy.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	readHead(b, conn)
	game = <-gameEnd
	b.Cleanup(func() {
		conn.Close()
		game.Close()
		proxy.Close()
		upstream.Close()
	})
	return conn, game
}

func pump(from, to *websocket.Conn) {
	defer to.CloseNow()
	buf := make([]byte, 32<<10)
	for {
		kind, r, err := from.Reader(context.Background())
		if err != nil {
			return
		}
		w, err := to.Writer(context.Background(), kind)
		if err != nil {
			return
		}
		if _, err := io.CopyBuffer(w, r, buf); err != nil || w.Close() != nil {
			return
		}
	}
}
