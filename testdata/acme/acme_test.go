// Package acme runs bin/reseat against a real ACME CA: make test-acme.
package acme

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

// program is the program under test: bin/reseat, or RESEAT_BIN.
var program = cmp.Or(os.Getenv("RESEAT_BIN"), "../../bin/reseat")

func init() { os.Unsetenv("RESEAT_BIN") } // to the program it would be a setting

// An authority is a CA with an HTTPS address that resolves every name to loopback.
type authority struct {
	*httptest.Server
	roots *x509.CertPool
	asked atomic.Int32
	open  chan struct{} // requests wait until it is closed
	inner http.Handler
	trust string // file with the certificate of its own address
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{open: make(chan struct{})}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.asked.Add(1)
		<-a.open
		a.inner.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	a.trust = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	if err := os.WriteFile(a.trust, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// serve starts to answer; names are validated at a loopback port.
func (a *authority) serve(t *testing.T, port int) {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	quiet, store := log.New(io.Discard, "", 0), db.NewMemoryStore()
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	checker := va.New(quiet, 1, port, true, resolver(t), store)
	front := wfe.New(quiet, store, checker, issuer, []string{"ca.example"}, true, false, 1, 1)
	a.roots = x509.NewCertPool()
	a.roots.AddCert(issuer.GetRootCert(0).Cert)
	a.inner = front.Handler()
	close(a.open)
}

// resolver starts a DNS server that resolves every name to 127.0.0.1.
func resolver(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{Listener: ln, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg)
		answer.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}
			answer.Answer = append(answer.Answer, &dns.A{Hdr: head, A: net.IPv4(127, 0, 0, 1)})
		}
		w.WriteMsg(answer)
	})}
	go s.ActivateAndServe()
	t.Cleanup(func() { s.Shutdown() })
	return ln.Addr().String()
}

func (a *authority) command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+a.trust)
	return cmd
}

// A gateway is a running bin/reseat with the demo.
type gateway struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	read  []map[string]any // lines not returned by says yet
	addr  string
}

func (a *authority) start(t *testing.T, cache string, domains ...string) *gateway {
	t.Helper()
	args := []string{"--demo", "--listen=127.0.0.1:0", "--admin=off", "--acme-directory=" + a.URL + wfe.DirectoryPath, "--acme-cache=" + cache}
	for _, d := range domains {
		args = append(args, "--acme-domain="+d)
	}
	g := &gateway{t: t, cmd: a.command(t, args...)}
	out, err := g.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	g.lines = bufio.NewScanner(out)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := g.says("listen.clients")
	g.addr = line["addr"].(string)
	if _, port, _ := net.SplitHostPort(g.addr); line["http"] != "https://"+domains[0]+":"+port {
		t.Errorf("the log names %v", line["http"])
	}
	return g
}

// says waits for a log line that it has not returned before.
func (g *gateway) says(msg string) map[string]any {
	g.t.Helper()
	for i, line := range g.read {
		if line["msg"] == msg {
			g.read = slices.Delete(g.read, i, i+1)
			return line
		}
	}
	for g.lines.Scan() {
		line := map[string]any{}
		if err := json.Unmarshal(g.lines.Bytes(), &line); err != nil {
			g.t.Fatalf("%s: %v", g.lines.Bytes(), err)
		}
		if line["level"] == "ERROR" {
			g.t.Fatalf("%v", line)
		}
		if line["msg"] == msg {
			return line
		}
		g.read = append(g.read, line)
	}
	g.t.Fatalf("the gateway has ended and never said %q", msg)
	return nil
}

func (g *gateway) port() int {
	_, port, _ := net.SplitHostPort(g.addr)
	n, _ := strconv.Atoi(port)
	return n
}

func (g *gateway) stop() {
	g.t.Helper()
	g.cmd.Process.Signal(syscall.SIGTERM)
	for g.lines.Scan() {
	}
	if err := g.cmd.Wait(); err != nil {
		g.t.Errorf("the gateway ended with %v", err)
	}
}

// shown returns the verified certificate for a domain, and checks the page served with
// it.
func (g *gateway) shown(a *authority, domain string) *x509.Certificate {
	g.t.Helper()
	tr := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: a.roots},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, g.addr)
		},
	}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("https://" + domain + "/")
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	if page, err := io.ReadAll(resp.Body); err != nil || resp.ProtoMajor != 2 || !bytes.Contains(page, []byte("<html")) {
		g.t.Errorf("%s: %s %s, %v", domain, resp.Proto, resp.Status, err)
	}
	return resp.TLS.PeerCertificates[0]
}

func TestCertificatesAreRequestedOnceAndThenCached(t *testing.T) {
	a, cache := newAuthority(t), t.TempDir()
	domains := []string{"play.game.example", "chess.game.example"}
	g := a.start(t, cache, domains...)
	a.serve(t, g.port())
	serials := map[string]string{}
	for range domains {
		line := g.says("acme.obtained")
		serials[line["domain"].(string)] = ""
	}
	for _, d := range domains {
		leaf := g.shown(a, d)
		if _, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || len(leaf.DNSNames) != 1 {
			t.Errorf("%s: a %T for %q", d, leaf.PublicKey, leaf.DNSNames)
		}
		serials[d] = leaf.SerialNumber.String()
	}
	if len(serials) != len(domains) {
		t.Errorf("certificates for %v", serials)
	}
	if _, err := tls.Dial("tcp", g.addr, &tls.Config{ServerName: "other.example", InsecureSkipVerify: true}); err == nil {
		t.Error("there is a certificate for a name that was not requested")
	}
	g.stop()

	a.asked.Store(0)
	g = a.start(t, cache, domains...)
	defer g.stop()
	for range domains {
		g.says("acme.obtained")
	}
	for _, d := range domains {
		if got := g.shown(a, d).SerialNumber.String(); got != serials[d] {
			t.Errorf("%s: certificate %s after a restart, want %s", d, got, serials[d])
		}
	}
	if n := a.asked.Load(); n > 0 {
		t.Errorf("the CA was asked %d times after the restart", n)
	}
}

func TestCheckRequestsOnlyTheCAsDirectory(t *testing.T) {
	a := newAuthority(t)
	a.serve(t, 1)
	cache := filepath.Join(t.TempDir(), "cache")
	out, err := a.command(t, "check", "--demo", "--acme-domain=play.game.example", "--acme-directory="+a.URL+wfe.DirectoryPath, "--acme-cache="+cache).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok    certificate for play.game.example: ") {
		t.Errorf("%v: %s", err, out)
	}
	if n := a.asked.Load(); n != 1 {
		t.Errorf("the CA was asked %d times, want once", n)
	}
	if _, err := os.Stat(cache); err == nil {
		t.Error("check has made the cache's directory")
	}
}
