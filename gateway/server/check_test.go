package server

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"reseat/gateway/internal/test/testcert"
	"reseat/upstream"
)

// A gameServer accepts connections and counts the bytes that are sent to it.
type gameServer struct {
	net.Listener
	got chan int // per connection, once it has ended
}

func startGame(t *testing.T, config *tls.Config) *gameServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	t.Cleanup(func() { ln.Close() })
	g := &gameServer{ln, make(chan int, 100)}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n, _ := io.Copy(io.Discard, c)
			c.Close()
			g.got <- int(n)
		}
	}()
	return g
}

// closedGame is one that nobody can reach any more.
func closedGame(t *testing.T) *gameServer {
	t.Helper()
	g := startGame(t, nil)
	g.Close()
	return g
}

func (g *gameServer) url(scheme string) string { return scheme + "://" + g.Addr().String() }

func secretFile(t *testing.T) string {
	t.Helper()
	return writeFile(t, filepath.Join(t.TempDir(), "secret"), goodSecret)
}

// wantLines checks that a report has exactly the lines that begin with want.
func wantLines(t *testing.T, report string, want ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(report, "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), report)
	}
	for i := range lines {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("line %d is %q, want %q", i+1, lines[i], want[i])
		}
	}
}

func TestCheckReportsEachWorkingPart(t *testing.T) {
	pair := testcert.New(t, "127.0.0.1")
	dir := t.TempDir()
	cert, key := pair.Write(dir)
	served, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	hooks, signs := startGame(t, nil), writeFile(t, filepath.Join(dir, "signs"), webhookSecret)
	plain, secured := startGame(t, nil), startGame(t, &tls.Config{Certificates: []tls.Certificate{served}})
	jwks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","alg":"EdDSA","use":"sig","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)
	}))
	defer jwks.Close()
	secret, logins, admin := secretFile(t), secretFile(t), writeFile(t, filepath.Join(dir, "admin"), "0123456789abcdef")
	status, report, errs := once("check",
		"--upstream", plain.url("ws"), "--route", "/a/*="+plain.url("ws")+"/base", "--route", "/b/*="+secured.url("wss")+";upstream-ca="+cert+";auth-key-file="+logins,
		"--auth-audience=game",
		"--auth-jwks", jwks.URL, "--token-key-file", secret, "--admin-token-file", admin, "--tls-cert", cert, "--tls-key", key,
		"--webhook", "http://u:p@"+hooks.Addr().String()+"/events?key=1", "--webhook-secret-file", signs)
	if status != 0 || errs != "" {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	wantLines(t, report,
		"ok    settings: 3 routes",
		"ok    --token-key-file: 1 key; "+secret+" signs",
		"ok    tokens of the admin address: read",
		"ok    --auth-jwks: "+jwks.URL+", 1 key",
		"ok    --auth-key-file: "+logins+", 1 key",
		"ok    --tls-cert "+cert+": for 127.0.0.1, until ",
		"ok    upstream "+plain.url("ws")+": accepts connections; no WebSocket handshake was sent",
		"ok    upstream "+secured.url("wss")+": accepts connections",
		"ok    --webhook-secret-file: 1 secret",
		"ok    --webhook http://"+hooks.Addr().String()+"/events: accepts connections; nothing was posted")
	for _, g := range []*gameServer{plain, secured, hooks} {
		if n := <-g.got; n != 0 || len(g.got) > 0 {
			t.Errorf("%s got %d bytes, and %d more connections; want one without any", g.Addr(), n, len(g.got))
		}
	}
}

func TestCheckTriesThePorts(t *testing.T) {
	taken, free, game := startGame(t, nil), closedGame(t), startGame(t, nil)
	status, report, _ := once("check", "--upstream="+game.url("ws"), "--listen="+taken.Addr().String(), "--admin="+free.Addr().String())
	if line := "FAIL  --listen " + taken.Addr().String() + ": listen tcp " + taken.Addr().String() + ": bind: address already in use; another program listens there: stop it, or choose another port\n"; status != 1 || !strings.Contains(report, line) {
		t.Errorf("status %d, want 1 and %s:\n%s", status, line, report)
	}
	if line := "ok    ports: " + free.Addr().String() + " can be opened\n"; !strings.Contains(report, line) {
		t.Errorf("want %s:\n%s", line, report)
	}
}

// Beside a running gateway, new settings can be checked.
func TestCheckBesideARunningGatewayWarnsOfItsPorts(t *testing.T) {
	p, game := begin(t), startGame(t, nil)
	listen, admin := p.clients["addr"].(string), strings.TrimPrefix(p.admin, "http://")
	status, report, _ := once("check", "--upstream="+game.url("ws"), "--listen="+listen, "--admin="+admin)
	for _, line := range []string{"WARN  --listen " + listen + ": in use while a Reseat gateway runs here", "WARN  --admin " + admin + ": in use while"} {
		if status != 0 || !strings.Contains(report, line) {
			t.Errorf("status %d, want 0 and %s:\n%s", status, line, report)
		}
	}
}

func TestErrorsOfTheSystemSayWhatToDo(t *testing.T) {
	listen := func(err error) error {
		return fmt.Errorf("--listen: %w", &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", err)})
	}
	for _, c := range []struct {
		err  error
		want string // "" for no advice
	}{
		{listen(syscall.EADDRINUSE), "choose another port"},
		{listen(syscall.EACCES), "CAP_NET_BIND_SERVICE"},
		{listen(syscall.EADDRNOTAVAIL), "use an address of this machine"},
		{fmt.Errorf("--token-key-file: k: open: %w", syscall.EACCES), "give that user access"},
		{fmt.Errorf("--token-key-file: k: open: %w", syscall.ENOENT), ""},
		{&net.OpError{Op: "listen", Net: "unix", Err: os.NewSyscallError("bind", syscall.EACCES)}, ""},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}, ""},
		{os.NewSyscallError("connect", syscall.EACCES), ""},
	} {
		if got := cure(c.err); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestCheckReportsEachFailingPart(t *testing.T) {
	closed := closedGame(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // connections wait in its backlog
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	expired, dir := testcert.Between(t, time.Now().AddDate(-1, 0, 0), time.Now().AddDate(0, 0, -1), "game.example"), t.TempDir()
	cert, key := expired.Write(dir)
	served, err := tls.X509KeyPair(expired.Cert, expired.Key)
	if err != nil {
		t.Fatal(err)
	}
	signs := writeFile(t, filepath.Join(dir, "signs"), webhookSecret)
	good, untrusted := startGame(t, nil), startGame(t, &tls.Config{Certificates: []tls.Certificate{served}})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--upstream", closed.url("ws")}, "FAIL  upstream " + closed.url("ws") + ": connect: connection refused; " + unreachableText},
		{[]string{"--upstream", untrusted.url("wss")}, "FAIL  upstream " + untrusted.url("wss") + ": tls: failed to verify certificate"},
		{[]string{"--upstream", "wss://" + mute.Addr().String(), "--dial-timeout=20ms"}, "FAIL  upstream wss://" + mute.Addr().String() + ": no answer in time"},
		{[]string{"--demo", "--tls-cert", cert, "--tls-key", key}, "FAIL  --tls-cert " + cert + ": for game.example, until " + expired.Leaf.NotAfter.UTC().Format(time.DateOnly) + ": expired"},
		{[]string{"--upstream", good.url("ws"), "--auth-jwks", closed.url("http")}, "FAIL  --auth-jwks: " + closed.url("http") + ": dial"},
		{[]string{"--demo", "--webhook", closed.url("http"), "--webhook-secret-file", signs}, "FAIL  --webhook " + closed.url("http") + ": dial"},
		{[]string{"--demo", "--webhook", untrusted.url("https"), "--webhook-secret-file", signs}, "FAIL  --webhook " + untrusted.url("https") + ": tls: failed to verify certificate"},
		{[]string{"--demo", "--acme-domain=a.example", "--acme-cache", dir, "--acme-directory", closed.url("https") + "/dir"}, "FAIL  certificate for a.example: --acme-directory: "},
	} {
		status, report, _ := once(append([]string{"check"}, c.args...)...)
		if status != 1 || !strings.Contains("\n"+report, "\n"+c.want) || strings.Count(report, "FAIL") != 1 {
			t.Errorf("%q: status %d, want 1 and one line %q:\n%s", c.args, status, c.want, report)
		}
	}
}

func TestCheckEndsAtASignal(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	var out bytes.Buffer
	if status := Run([]string{"check", "--upstream=wss://" + mute.Addr().String(), "--dial-timeout=1h"}, nil, &out, io.Discard, signals); status != 1 {
		t.Errorf("status %d, want 1: %s", status, out.String())
	}
}

func TestOmittedPortOfURLIsShown(t *testing.T) {
	for raw, want := range map[string]string{
		"ws://game":           "ws://game (port 80)",
		"https://game/play":   "https://game (port 443)",
		"wss://[::1]":         "wss://[::1] (port 443)",
		"ws://game:9000/play": "ws://game:9000",
	} {
		u, err := upstream.ParseTarget(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := shown(&upstream.Target{URL: u}); got != want {
			t.Errorf("%s is shown as %q, want %q", raw, got, want)
		}
	}
}
