//go:build linux

package main

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/proxy"
)

func find(t *testing.T, name string) workload {
	t.Helper()
	list := workloads()
	i := slices.IndexFunc(list, func(w workload) bool { return w.name == name })
	if i < 0 {
		t.Fatalf("there is no workload %q", name)
	}
	return list[i]
}

// With compression there is only one driver; the game server has no TLS.
func TestSubjectsWithTLSAndCompression(t *testing.T) {
	for name, want := range map[string]string{
		"noTLS": "direct nginx plain@net plain@poll", "TLS": "nginx plain@net plain@poll",
		"nodeflate": "direct nginx plain@net plain@poll", "deflate": "direct nginx plain@net",
	} {
		var got []string
		for _, s := range proxy.Subjects("--driver auto|net|poll") {
			if find(t, name).takesPart(s) {
				got = append(got, s.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// All of it may take at most three minutes.
func TestLegsTakeLittleTime(t *testing.T) {
	var sum time.Duration
	for _, name := range []string{"noTLS", "TLS", "nodeflate", "deflate"} {
		w := find(t, name)
		for _, s := range proxy.Subjects("--driver auto|net|poll") {
			if w.takesPart(s) {
				sum += time.Duration(w.rounds) * (w.warm + w.measure + time.Second)
			}
		}
	}
	if sum > 3*time.Minute {
		t.Errorf("%v", sum)
	}
}

// A minimal TLS proxy replaces those that must be installed.
func TestTLSIsMeasuredThroughASubjectWithTLS(t *testing.T) {
	w := find(t, "TLS")
	w.sessions, w.warm, w.measure = 8, 10*time.Millisecond, time.Second
	w.game.Sessions, w.game.Up = w.sessions, w.up
	g, err := game.Start([]string{os.Args[0], asGame}, w.game)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	at, err := w.leg.proxies(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	fig, err := w.onLeg(&stage{w: w, game: g, proxy: &proxy.Proxy{Addr: unwrap(t, at, g.Addr), PIDs: []int{os.Getpid()}}, at: at})
	if err != nil {
		t.Fatal(err)
	}
	// For a message of 128 bytes: 4 for the frame, 5 and 17 for a TLS record, 154 in
	// total. The counts of messages and of bytes are read one after the other.
	if b := fig["wire_bytes"]; b < 140 || b > 170 {
		t.Errorf("%v bytes a message on the wire", b)
	}
	if fig["cpu_us"] <= 0 || fig["both_us"] <= fig["cpu_us"] || fig["p50_us"] <= 0 || fig["p99_us"] < fig["p50_us"] {
		t.Errorf("%v", fig)
	}
	at.Roots = nil
	if _, err := w.onLeg(&stage{w: w, game: g, proxy: &proxy.Proxy{Addr: unwrap(t, at, g.Addr), PIDs: []int{os.Getpid()}}, at: at}); err == nil {
		t.Error("clients without TLS are served")
	}
}

func TestDifferentKeyLengthsAreNotCompared(t *testing.T) {
	for suite, good := range map[uint16]bool{
		tls.TLS_AES_128_GCM_SHA256: true, tls.TLS_CHACHA20_POLY1305_SHA256: true, tls.TLS_AES_256_GCM_SHA384: false,
	} {
		if err := equalTerms(tls.ConnectionState{CipherSuite: suite}); (err == nil) != good {
			t.Errorf("%s: %v", tls.CipherSuiteName(suite), err)
		}
	}
}

// unwrap accepts TLS and forwards the plain bytes.
func unwrap(t *testing.T, at proxy.Leg, to netip.AddrPort) netip.AddrPort {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(at.Cert, at.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to.String())
			if err != nil {
				near.Close()
				continue
			}
			carry := func(to, from net.Conn) { io.Copy(to, from); to.Close(); from.Close() }
			go carry(near, far)
			go carry(far, near)
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}
