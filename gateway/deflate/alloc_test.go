//go:build !race

package deflate_test

import (
	"net"
	"testing"

	"reseat/gateway/deflate"
	"reseat/gateway/frame"
)

// A loop is a connection that reads the same bytes again and again, and discards
// writes.
type loop struct {
	net.Conn
	b    []byte
	at   int
	sent int
}

func (l *loop) Read(p []byte) (int, error) {
	n := copy(p, l.b[l.at:])
	l.at = (l.at + n) % len(l.b)
	return n, nil
}

func (l *loop) Write(p []byte) (int, error) {
	l.sent += len(p)
	return len(p), nil
}

// Under the race detector sync.Pool drops items on purpose, so this runs without it.
func TestRelayingAMessageAllocatesNothing(t *testing.T) {
	l := &loop{b: compressed(frame.Text, prose(1000))}
	c := deflate.NewConn(l, nil, agreedWith(t, "permessage-deflate; client_max_window_bits", window), deflate.Options{Limit: limit, Charge: func(int) {}})
	down := serverFrame(frame.Text, true, prose(1000))
	p := make([]byte, 4096)
	trip := func() {
		c.Read(p)
		c.Write(down)
	}
	for range 100 {
		trip()
	}
	if n := testing.AllocsPerRun(1000, trip); n >= 1 {
		t.Fatalf("%v allocations for a message each way, want 0", n)
	}
}

// BenchmarkConn reads one message of a client's, or sends one to it, on a connection
// that costs nothing.
func BenchmarkConn(b *testing.B) {
	for _, c := range []struct {
		name string
		text string
	}{{"100", prose(100)}, {"128", prose(128)}, {"1KiB", prose(1 << 10)}, {"16KiB", prose(16 << 10)}, {"1KiB-noise", noise(1 << 10)}} {
		p := make([]byte, 64<<10)
		l := &loop{b: compressed(frame.Text, c.text)}
		conn := deflate.NewConn(l, nil, agreed(b, "permessage-deflate"), deflate.Options{Limit: limit, Charge: func(int) {}})
		b.Run("up/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for want := len(c.text); b.Loop(); {
				for n := 0; n < want; {
					k, _ := conn.Read(p)
					n += k
				}
			}
		})
		down := serverFrame(frame.Text, true, c.text)
		b.Run("down/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			before := l.sent
			for b.Loop() {
				conn.Write(down)
			}
			b.ReportMetric(float64(l.sent-before)/float64(b.N), "wire-B/op")
		})
	}
}
