package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

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

// browser trusts a certificate, whatever its names.
func browser(t *testing.T, pair *testcert.Pair, protocols ...string) *http.Client {
	tr := &http.Transport{TLSClientConfig: pair.Client(protocols...), ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func join(t *testing.T, url string, client *http.Client, protocols ...string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPClient: client, Subprotocols: protocols})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

func get(t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	resp.Body.Close()
	return resp
}

func TestLogUsesNameOfTheCertificate(t *testing.T) {
	for want, name := range map[string]string{"https://game.example:": "game.example", "https://localhost:": "localhost", "https://127.0.0.1:": "127.0.0.1"} {
		cert, key := testcert.New(t, name).Write(t.TempDir())
		p := begin(t, "--tls-cert", cert, "--tls-key", key)
		url := p.clients["http"].(string)
		if !strings.HasPrefix(url, want) || p.clients["ws"] != "wss"+strings.TrimPrefix(url, "https") || p.demo != url+"/" {
			t.Errorf("clients %v, demo %s; want %s", p.clients, p.demo, want)
		}
		if !strings.HasPrefix(p.admin, "http://127.0.0.1:") {
			t.Errorf("the admin address: %s", p.admin)
		}
	}
}

// secured serves the demo with a certificate from the directory.
func secured(t *testing.T) (p *started, pair *testcert.Pair, dir, addr string) {
	t.Helper()
	pair, dir = testcert.New(t, "localhost", "127.0.0.1"), t.TempDir()
	cert, key := pair.Write(dir)
	p = begin(t, "--tls-cert", cert, "--tls-key", key)
	return p, pair, dir, p.clients["addr"].(string)
}

// serial returns the serial number of the certificate at an address.
func serial(t *testing.T, addr string, trusted *testcert.Pair) string {
	t.Helper()
	c, err := tls.Dial("tcp", addr, trusted.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func TestTLSServesPagesByHTTP2AndWebSocketsByHTTP1(t *testing.T) {
	p, pair, _, addr := secured(t)
	if resp := get(t, browser(t, pair), "https://"+addr+"/"); resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
		t.Errorf("the page: %s %s, want 200 by HTTP/2", resp.Proto, resp.Status)
	}
	c := join(t, "wss://"+addr+"/demo/play", browser(t, pair, "http/1.1"))
	if _, _, err := c.Read(t.Context()); err != nil {
		t.Errorf("the game: %v", err)
	}
	if resp := get(t, http.DefaultClient, p.admin+"/healthz"); resp.StatusCode != http.StatusOK {
		t.Errorf("the admin address, without TLS: %s", resp.Status)
	}
}

func TestSIGHUPReloadsCertificateWithoutDisconnecting(t *testing.T) {
	p, one, dir, addr := secured(t)
	c := join(t, "wss://"+addr+"/demo/play", browser(t, one, "http/1.1"))
	two := testcert.New(t, "localhost", "127.0.0.1")
	two.Write(dir)
	p.signals <- syscall.SIGHUP
	p.wait("cert.reloaded")
	if got := serial(t, addr, two); got != two.Leaf.SerialNumber.String() {
		t.Errorf("certificate %s is shown, want %s", got, two.Leaf.SerialNumber)
	}
	if err := os.WriteFile(filepath.Join(dir, "key.pem"), one.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	p.signals <- syscall.SIGHUP
	if line := p.wait("cert.reload_failed"); line["level"] != "ERROR" || !strings.Contains(line["err"].(string), "does not match") {
		t.Errorf("a key of another certificate: %v", line)
	}
	if got := serial(t, addr, two); got != two.Leaf.SerialNumber.String() {
		t.Errorf("certificate %s is shown, want %s as before", got, two.Leaf.SerialNumber)
	}
	for range 3 {
		if _, _, err := c.Read(t.Context()); err != nil {
			t.Fatalf("the player from before: %v", err)
		}
	}
}

func TestDemoDropsConnectionsUnderTLS(t *testing.T) {
	_, pair, _, addr := secured(t)
	c := join(t, "wss://"+addr+"/demo/play", browser(t, pair, "http/1.1"), "reseat.v1")
	_, hello, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var h struct{ Token string }
	if err := json.Unmarshal(bytes.TrimPrefix(hello, []byte("\x10hello ")), &h); err != nil {
		t.Fatalf("%q: %v", hello, err)
	}
	r, _ := http.NewRequest(http.MethodPost, "https://"+addr+"/reseat.dev/faults", strings.NewReader(`{"fault":"reset"}`))
	r.Header.Set("Authorization", "Bearer "+h.Token)
	resp, err := browser(t, pair).Do(r)
	if err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatalf("the cut: %v, %v", resp, err)
	}
	for err == nil {
		_, _, err = c.Read(context.Background())
	}
	if websocket.CloseStatus(err) != -1 {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
}

// Each stream may hold a connection to the game server, so the number of streams per client connection is limited. If the
// server announced extended CONNECT (RFC 8441 section 3), browsers would open their WebSockets over HTTP/2.
func TestHTTP2StreamsAreLimitedAndExtendedConnectIsNotAnnounced(t *testing.T) {
	_, pair, _, addr := secured(t)
	c, err := tls.Dial("tcp", addr, pair.Client("h2"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	var head [9]byte // RFC 9113 section 4.1
	if _, err := io.ReadFull(c, head[:]); err != nil || head[3] != 4 {
		t.Fatalf("frame %x, %v, want SETTINGS", head, err)
	}
	frame := make([]byte, int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(c, frame); err != nil {
		t.Fatal(err)
	}
	settings := map[uint16]uint32{}
	for s := frame; len(s) >= 6; s = s[6:] {
		settings[binary.BigEndian.Uint16(s)] = binary.BigEndian.Uint32(s[2:])
	}
	const streams, extendedConnect = 3, 8 // RFC 9113 section 6.5.2, RFC 8441
	if _, ok := settings[extendedConnect]; settings[streams] != 32 || ok {
		t.Errorf("the settings %v, want 32 streams at a time and no extended CONNECT", settings)
	}
}

const mib = 1 << 20

func TestGarbageOfBurstIsCollectedWhenIdle(t *testing.T) {
	for name, c := range map[string]struct {
		looks []heap // the first is right after a collection
		want  []bool
	}{
		"nothing happens": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {100 * mib, 80 * mib, 0, 0}},
			[]bool{false, false},
		},
		"handshakes stop": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {112 * mib, 80 * mib, 0, 0}, {112*mib + 1, 80 * mib, 0, 0}, {112*mib + 2, 80 * mib, 0, 0}},
			[]bool{false, false, true, false},
		},
		"buffers in use during a collection are pooled later": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {136 * mib, 116 * mib, 0, 0}, {136 * mib, 116 * mib, 0, 0}, {136 * mib, 80 * mib, 0, 0}},
			[]bool{false, false, true, false},
		},
		"too little to be worth it": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {109 * mib, 80 * mib, 0, 0}, {109 * mib, 80 * mib, 0, 0}},
			[]bool{false, false, false},
		},
		"little, of a small heap": {
			[]heap{{10 * mib, mib, 0, 0}, {15 * mib, mib, 0, 0}, {15 * mib, mib, 0, 0}},
			[]bool{false, false, true},
		},
		"little by little": {
			[]heap{{100 * mib, 4 * mib, 0, 0}, {100*mib + mib*9/10, 4 * mib, 0, 0}, {101*mib + mib*8/10, 4 * mib, 0, 0}, {102*mib + mib*7/10, 4 * mib, 0, 0}, {103*mib + mib*6/10, 4 * mib, 0, 0}, {104*mib + mib*5/10, 4 * mib, 0, 0}},
			[]bool{false, false, false, false, false, true},
		},
		"old buffers are emptied": {
			[]heap{{100 * mib, 80 * mib, 0, 30 * mib}, {100 * mib, 80 * mib, 0, 25 * mib}, {100 * mib, 80 * mib, 0, 0}},
			[]bool{false, false, true},
		},
		"free memory is not returned": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {100 * mib, 80 * mib, 12 * mib, 0}},
			[]bool{false, true},
		},
		"buffers are filled": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {100 * mib, 80 * mib, 0, 30 * mib}},
			[]bool{false, false},
		},
	} {
		var one tidier
		one.last, one.tidy = c.looks[0], c.looks[0]
		for i, h := range c.looks {
			if got := one.look(h); got != c.want[i] {
				t.Errorf("%s: look %d: collected: %v", name, i, got)
			}
		}
	}
}
