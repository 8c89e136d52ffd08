package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"reseat/gateway/internal/test/testcert"
)

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
