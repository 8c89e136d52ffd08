//go:build linux

package load

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/message"
)

// visitors are clients of a library whose connections pass through an interceptor.
type visitors struct {
	*Library
	moved chan struct{} // one slot: something has passed
}

// visiting makes visitors. upward and downward may change what passes; nil changes
// nothing.
func visiting(t *testing.T, down, up message.Kind, upward, downward func([]byte) []byte) *visitors {
	t.Helper()
	const sessions = 4
	spec := game.Spec{Mode: game.Tick, Sessions: sessions, Down: down, Up: up, Every: 2 * time.Millisecond}
	g, err := game.Start([]string{os.Args[0], asGame}, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	v := &visitors{moved: make(chan struct{}, 1)}
	v.Library = &Library{Setup: Setup{
		Target: passOn(t, g.Addr, v.watch(upward), v.watch(downward)), Game: g, Sessions: sessions, Down: down, Up: up, Every: 4 * time.Millisecond,
	}}
	t.Cleanup(v.Close)
	return v
}

// watch wraps change, and signals when something has passed.
func (v *visitors) watch(change func([]byte) []byte) func([]byte) []byte {
	return func(b []byte) []byte {
		select {
		case v.moved <- struct{}{}:
		default:
		}
		if change == nil {
			return b
		}
		return change(b)
	}
}

// passOn listens, and forwards both directions.
func passOn(t *testing.T, to netip.AddrPort, upward, downward func([]byte) []byte) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to.String())
			if err != nil {
				near.Close()
				continue
			}
			go carry(far, near, upward)
			go carry(near, far, downward)
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// carry ends both connections when either ends and nothing is left to forward.
func carry(to, from net.Conn, change func([]byte) []byte) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		b := change(buf[:n])
		if _, err := to.Write(b); err != nil || len(b) == 0 {
			return
		}
	}
}

// visit connects, sends until each side has received enough, and stops.
func visit(t *testing.T, l *visitors, enough uint64) error {
	t.Helper()
	if err := l.Connect(limit); err != nil {
		return err
	}
	if err := l.Start(); err != nil {
		return err
	}
	patience := time.After(limit)
	for {
		if received, written, _ := l.Counts(); received >= enough && written >= enough || l.Faults().Any() {
			_, err := l.Stop(limit)
			return err
		}
		select {
		case <-l.moved:
		case <-patience:
			t.Fatalf("nothing moves: %v", l.Faults())
		}
	}
}

var gameState = message.Kind{Way: message.Down, Size: 512, Text: true, State: true}

func TestLibraryReceivesEveryMessage(t *testing.T) {
	l := visiting(t, down, up, nil, nil)
	if err := visit(t, l, 200); err != nil {
		t.Fatalf("%v: %v", err, l.Faults())
	}
	received, _, bytes := l.Counts()
	if q := l.Latency(); q.N != received || q.P50 <= 0 || bytes < int64(received)*int64(down.Size) {
		t.Errorf("%d received in %d bytes, %+v", received, bytes, q)
	}
	if l.Reset(); l.Latency().N != 0 {
		t.Error("the latencies are not forgotten")
	}
}

func TestLibraryCompressesBothWays(t *testing.T) {
	var packed, plain atomic.Int64 // upward: frames by their first bytes
	l := visiting(t, gameState, message.Kind{Way: message.Up, Size: 48, Text: true}, func(b []byte) []byte {
		switch b[0] {
		case 0xC1:
			packed.Add(1)
		case 0x81:
			plain.Add(1)
		}
		return b
	}, nil)
	l.Deflate = true
	if err := visit(t, l, 60); err != nil {
		t.Fatalf("%v: %v", err, l.Faults())
	}
	if packed.Load() == 0 || plain.Load() > 0 {
		t.Errorf("upward %d are compressed, %d not", packed.Load(), plain.Load())
	}
	if received, _, bytes := l.Counts(); bytes > int64(received)*int64(gameState.Size)*3/4 {
		t.Errorf("%d messages of %d came in %d bytes", received, gameState.Size, bytes)
	}
}

func TestLibraryDetectsDamagedAndMissingMessages(t *testing.T) {
	for name, tt := range map[string]struct {
		up, down func([]byte) []byte
		want     string
	}{
		"a byte downward": {nil, once(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), "1 wrong"},
		"a byte upward":   {once(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), nil, "1 wrong"},
		"cut":             {nil, once(func([]byte) []byte { return nil }), "1 dropped"},
	} {
		l := visiting(t, down, up, tt.up, tt.down)
		if err := visit(t, l, 100); err == nil || !strings.Contains(l.Faults().String(), tt.want) {
			t.Errorf("%s: %v, %v", name, err, l.Faults())
		}
	}
}

// once changes one message after the handshakes.
func once(change func([]byte) []byte) func([]byte) []byte {
	var done atomic.Bool
	return func(b []byte) []byte {
		if bytes.Contains(b, []byte("\r\n")) || done.Swap(true) {
			return b
		}
		return change(b)
	}
}

func TestLibraryRequiresTheOfferedCompression(t *testing.T) {
	l := visiting(t, gameState, up, func(b []byte) []byte {
		return bytes.Replace(b, []byte("permessage-deflate"), []byte("permessage-inflate"), 1)
	}, nil)
	l.Deflate = true
	if err := l.Connect(limit); err == nil || !strings.Contains(err.Error(), `extensions "" agreed on`) {
		t.Error(err)
	}
}
