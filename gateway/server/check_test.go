package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/cluster/engine"
	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
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
		{fmt.Errorf("--token-key-file: k: %w", syscall.EACCES), "give that user access"},
		{fmt.Errorf("--token-key-file: k: %w", syscall.ENOENT), ""},
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

// fakeNATS answers as a NATS server of a version does, up to the first PING.
func fakeNATS(t *testing.T, version string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "INFO {\"server_id\":\"x\",\"version\":%q,\"headers\":true,\"max_payload\":1000}\r\n", version)
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if lines.Text() == "PING" {
					fmt.Fprint(c, "PONG\r\n")
				}
			}
			c.Close()
		}
	}()
	return ln.Addr().String()
}

const rightsLine = `ok    rights of a NATS user that is for nodes alone: permissions: {publish: ["test.>", "$JS.API.INFO", `

func TestCheckReportsNATSThatCannotBeUsed(t *testing.T) {
	down, old := closedGame(t).Addr().String(), fakeNATS(t, "2.11.8")
	game, keys := startGame(t, nil), secretFile(t)
	status, report, errs := once("check", "--upstream", game.url("ws"), "--token-key-file", keys, "--cluster-name=test",
		"--cluster=nats://someone:secret@"+down, "--cluster=nats://"+old, "--node-advertise="+down, "--node-listen=127.0.0.1:0")
	if status != 1 || errs != "" || strings.Contains(report, "secret@") {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	wantLines(t, report, "ok    settings", "ok    --token-key-file", "ok    upstream",
		"FAIL  --cluster nats://"+down+": cannot be reached",
		`FAIL  --cluster nats://`+old+`: NATS cannot be used: the NATS server has version "2.11.8", want 2.12 or newer`,
		rightsLine,
		"ok    certificate of the node: derived from --token-key-file",
		"ok    --node-advertise "+down+": reachable, and nobody listens there yet")
}

// Whether a game server takes redials cannot be tried without being a player.
func TestCheckSaysWhatDurableRoutesAskOfTheGameServer(t *testing.T) {
	game, keys := startGame(t, nil), secretFile(t)
	closed := closedGame(t)
	status, report, errs := once("check", "--route", "/a/*="+game.url("ws")+";durable=on", "--route", "/b/*="+game.url("ws"), "--route", "/c="+game.url("ws")+";durable=on",
		"--token-key-file", keys, "--cluster=nats://"+closed.Addr().String())
	if want := "\nok    --durable /a/*, /c: cannot be tried: the game server must take a further request with the same Reseat-Session"; status != 1 || errs != "" || !strings.Contains(report, want) {
		t.Errorf("status %d, stderr %q, want %q:\n%s", status, errs, want, report)
	}
}

func TestCheckReportsTheNodesAddress(t *testing.T) {
	free := closedGame(t).Addr().String()
	other := startGame(t, nil) // accepts, and does not speak TLS
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--node-advertise=" + other.Addr().String()}, "FAIL  --node-advertise " + other.Addr().String() + ": no answer: does a firewall, or a network policy, let other nodes connect?"},
		{[]string{"--node-listen=" + free}, "ok    --node-advertise " + free + ": reachable, and nobody listens there yet"},
	} {
		args := append([]string{"check", "--demo", "--token-key-file", secretFile(t), "--cluster=nats://" + free}, c.args...)
		if status, report, _ := once(args...); status != 1 || !strings.Contains(report, "\n"+c.want) {
			t.Errorf("%q: status %d, want %q:\n%s", c.args, status, c.want, report)
		}
	}
}

// The limits of the clock are those of a start.
func TestCheckReportsTheClock(t *testing.T) {
	for _, c := range []struct {
		skew   time.Duration
		known  bool
		want   string
		status int
	}{
		{3 * time.Millisecond, true, "ok    clock: 3ms ahead of the NATS server's", 0},
		{-999 * time.Millisecond, true, "ok    clock: 999ms behind the NATS server's", 0},
		{time.Second, true, "WARN  clock: 1s ahead of the NATS server's: set it by NTP", 0},
		{-29 * time.Second, true, "WARN  clock: 29s behind the NATS server's: set it by NTP", 0},
		{-30 * time.Second, true, "FAIL  clock: 30s behind the NATS server's: from 30s on a node may not join", 1},
		{0, false, "ok    clock: not compared: NATS reports its time once the first node has made its bucket", 0},
	} {
		var out bytes.Buffer
		r := &report{out: &out}
		if r.clock(&engine.Found{Skew: c.skew, SkewKnown: c.known}); out.String() != c.want+"\n" || r.status != c.status {
			t.Errorf("%v: status %d, %s", c.skew, r.status, &out)
		}
	}
}

// One NATS server, or one replica, is enough to try it out, and no more.
func TestCheckReportsTheReplicasOfBuckets(t *testing.T) {
	a, b := engine.FoundBucket{Name: "x_nodes"}, engine.FoundBucket{Name: "x_players"}
	with := func(f engine.FoundBucket, replicas int) engine.FoundBucket {
		f.Exists, f.Replicas = true, replicas
		return f
	}
	broken := with(b, 3)
	broken.Err = fmt.Errorf("has no leader")
	for _, c := range []struct {
		clustered bool
		list      []engine.FoundBucket
		want      []string
		status    int
	}{
		{false, []engine.FoundBucket{a, b}, []string{"WARN  buckets x_nodes and x_players: not there yet: the first node makes them. There is one NATS server, so they get 1 replica: a lost NATS server loses the directory"}, 0},
		{true, []engine.FoundBucket{a, b}, []string{"ok    buckets x_nodes and x_players: not there yet: the first node makes them, with up to 3 replicas"}, 0},
		{true, []engine.FoundBucket{with(a, 3), with(b, 3)}, []string{"ok    buckets x_nodes and x_players: 3 replicas"}, 0},
		{true, []engine.FoundBucket{with(a, 3), with(b, 1)}, []string{"ok    bucket x_nodes: 3 replicas", "WARN  bucket x_players: 1 replica: a lost NATS server loses the directory"}, 0},
		{true, []engine.FoundBucket{with(a, 2), with(b, 2)}, []string{"WARN  buckets x_nodes and x_players: 2 replicas: while one of the two servers is down nothing can be written. Use three servers"}, 0},
		{true, []engine.FoundBucket{with(a, 3), broken}, []string{"ok    bucket x_nodes: 3 replicas", "FAIL  bucket x_players: has no leader"}, 1},
		{true, []engine.FoundBucket{with(a, 3), with(a, 3), with(b, 3)}, []string{"ok    buckets x_nodes to x_players: 3 replicas"}, 0},
		{true, nil, []string{""}, 0},
	} {
		var out bytes.Buffer
		r := &report{out: &out}
		r.buckets(c.clustered, "a lost NATS server loses the directory", c.list...)
		wantLines(t, out.String(), c.want...)
		if r.status != c.status {
			t.Errorf("%+v: status %d", c.list, r.status)
		}
	}
}

// check sees no client, so it asks the gateway that serves.
func TestCheckNamesKeepaliveThatRunningGatewayHasNoticed(t *testing.T) {
	body := `{"routes": [{"pattern": "/chess/*", "keepalive": "--keepalive-send '5s:ping'"}, {"pattern": "/go/*", "keepalive": ""}]}`
	status, asked := http.StatusOK, ""
	running := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization") + r.RequestURI
		w.WriteHeader(status)
		w.Write([]byte(body))
	}))
	defer running.Close()
	admin := "--admin=" + strings.TrimPrefix(running.URL, "http://")
	at := "=ws://127.0.0.1:9"
	const want = "WARN  --keepalive-send: route /chess/*: clients of the gateway at --admin "
	for _, c := range []struct {
		args   []string
		status int
		warned bool
	}{
		{[]string{"--route=/chess/*" + at, "--route=/go/*" + at}, 200, true},
		{[]string{"--route=/chess/*" + at, "--keepalive-send=1s:other"}, 200, true},
		{[]string{"--route=/chess/*" + at, "--keepalive-send=5s:ping"}, 200, false},
		{[]string{"--route=/chess/*" + at, "--keepalive-send=auto"}, 200, false},
		{[]string{"--route=/chess/*" + at + ";keepalive-send=off"}, 200, false},
		{[]string{"--route=/chess/*" + at, "--disconnect=hard"}, 200, false},
		{[]string{"--route=/go/*" + at}, 200, false},
		{[]string{"--route=/chess/*" + at}, 401, false},
	} {
		status = c.status
		_, report, _ := once(append([]string{"check", admin}, c.args...)...)
		if got := strings.Contains(report, want) && strings.Contains(report, "set --keepalive-send '5s:ping', or"); got != c.warned {
			t.Errorf("%v: warned %v in\n%s", c.args, got, report)
		}
		if asked != "/api/v1/overview?limit=0&node=self" {
			t.Errorf("asked %q", asked)
		}
	}
}

func TestCheckSaysWhatWasNoticedOfASession(t *testing.T) {
	bodies := map[string]string{
		"/":                      "<title>Reseat</title>", // so that its port is no fault
		"/api/v1/sessions/quiet": `{"id": "quiet", "state": "attached", "route": "/*", "grace": "2m"}`,
		"/api/v1/sessions/ticks": `{"id": "ticks", "state": "detached", "route": "/*", "grace": "2m", "buffer_messages": 600, "newest_hint": "--newest 'state=pos|'", "keepalive": "--keepalive-send 5s:x"}`,
	}
	running := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		io.WriteString(w, body)
	}))
	defer running.Close()
	for _, c := range []struct {
		id     string
		status int
		lines  []string
	}{
		{"quiet", 0, []string{"ok    --session quiet: attached on route /*, grace 2m; 0 messages in the replay buffer, 0 dropped, 0 skipped"}},
		{"ticks", 0, []string{"; 600 messages in the replay buffer", "WARN  --session ticks: most of what waited for its client looks like states. If only the newest of each counts, set --newest 'state=pos|'", "set --keepalive-send 5s:x"}},
		{"gone", 1, []string{"FAIL  --session gone: no gateway at --admin "}},
	} {
		status, report, _ := once("check", "--demo", "--admin="+strings.TrimPrefix(running.URL, "http://"), "--session", c.id)
		if status != c.status {
			t.Errorf("%s: status %d in\n%s", c.id, status, report)
		}
		for _, line := range c.lines {
			if !strings.Contains(report, line) {
				t.Errorf("%s: no %q in\n%s", c.id, line, report)
			}
		}
		if c.id == "quiet" && strings.Contains(report, "WARN  --session") {
			t.Errorf("a warning in\n%s", report)
		}
	}
	if status, _, errs := once("check", "--demo", "--session", "a/b"); status != 2 || !strings.Contains(errs, "--session: want the id of a session") {
		t.Errorf("%d, %s", status, errs)
	}
}

// startedWith starts the program, stops it at once, and returns its exit status and log.
func startedWith(args ...string) (status int, said string) {
	var log bytes.Buffer
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	args = override([]string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--drain=1ms", "--log-format=text"}, args...)
	status = Run(args, nil, io.Discard, &log, signals)
	return status, log.String()
}

const goodSecret = "q8Zr1xKw0mVb5tYp3nLc7dHs9fJg2aQe"

// mistaken writes the files that the arguments of mistakes name.
func mistaken(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	pair, other := testcert.New(t, "game.example"), testcert.New(t, "game.example")
	pair.Write(dir)
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]struct {
		mode os.FileMode
		text string
	}{
		"secret":        {0o600, goodSecret},
		"readable":      {0o644, goodSecret},
		"grouped":       {0o640, goodSecret},
		"writable":      {0o666, goodSecret},
		"weak":          {0o600, strings.Repeat("a", 40)},
		"empty":         {0o600, ""},
		"text":          {0o600, "nothing of the kind"},
		"tokens":        {0o600, "an-admin-token-0123"},
		"blank":         {0o600, "SECRET SECRET"},
		"weak-tokens":   {0o600, "changeme\n"},
		"signs":         {0o600, webhookSecret},
		"login.pub":     {0o644, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))},
		"locked.pem":    {0o600, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"},
		"other.pem":     {0o600, string(other.Key)},
		"open.toml":     {0o666, "grace = \"45s\"\n"},
		"misspelt.toml": {0o600, "\n\ngrce = \"5s\"\n"},
	} {
		if err := os.Chmod(writeFile(t, filepath.Join(dir, name), f.text), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "open"), 0o700); err != nil {
		t.Fatal(err)
	}
	os.Chmod(filepath.Join(dir, "open"), 0o777)
	return dir
}

// mistakes in the settings, in files and in what this machine has. Those of the settings alone are in the tests of package
// config. $UP is a good --upstream, $DIR has the files, and $NATS, where nobody listens, makes a cluster.
var mistakes = []struct {
	args string
	want string // of a warning, or of a refusal: its flag, and what it says; or that a warning does not come
}{
	{"$UP --grce=5s", "refused --grce: unknown flag; the nearest is --grace"},
	{"$UP --grace=30", "refused --grace: want a duration such as 45s"},
	{"$UP --grace=45ms", "warned --grace: route /*: 45ms is too short"},
	{"$UP --max-sessions=1000000000", "warned --max-sessions: raise it (ulimit -n, LimitNOFILE)"},
	{"$UP --admin=0.0.0.0:0", "refused --admin: can reach that address without a token"},

	{"$UP --config=$DIR/misspelt.toml", "refused $DIR/misspelt.toml: grce: unknown setting; the nearest is grace"},
	{"$UP --config=/no/such.toml", "refused --config: want a TOML file"},
	{"$UP --config=$DIR/open.toml", "warned --config: may be written by everybody on this machine: chmod o-w it"},

	{"$UP --token-key-file=/no/such/key", "refused --token-key-file: no such file"},
	{"$UP --token-key-file=$DIR/empty", "refused --token-key-file: $DIR/empty"},
	{"$UP --token-key-file=$DIR/cert.pem", "refused --token-key-file: $DIR/cert.pem"},
	{"$UP --token-key-file=$DIR", "refused --token-key-file: $DIR"},
	{"$UP --token-key-file=$DIR/writable", "refused --token-key-file: want a file that others cannot write"},
	{"$UP --token-key-file=$DIR/readable", "warned --token-key-file: may be read by everybody on this machine: chmod 600 it"},
	{"$UP --token-key-file=$DIR/grouped", "warned --token-key-file: may be read by its group"},
	{"$UP --token-key-file=$DIR/weak", "warned --token-key-file: not random"},
	{"$UP --token-key-file=$DIR/key.pem --tls-cert=$DIR/cert.pem --tls-key=$DIR/key.pem", "warned --token-key-file: same file as --tls-key"},

	{"$UP --auth-audience=a --auth-key-file=/no/such/file", "refused --auth-key-file: /no/such/file: "},
	{"$UP --auth-audience=a --auth-key-file=$DIR/writable", "refused --auth-key-file: want a file that others cannot write"},
	{"$UP --auth-audience=a --auth-jwks=$DIR/writable", "refused --auth-jwks: want a file that others cannot write"},
	{"$UP --auth-audience=a --auth-key-file=$DIR/readable", "warned --auth-key-file: may be read by everybody"},
	{"$UP --auth-audience=a --auth-key-file=$DIR/login.pub", "silent --auth-key-file: may be read by everybody"},
	{"$UP --auth-audience=a --auth-key-file=$DIR/weak", "warned --auth-key-file: not random"},
	{"$UP --auth-audience=a --auth-key-file=$DIR/secret --token-key-file=$DIR/secret", "warned --auth-key-file: same file as --token-key-file"},

	{"$UP --admin-token-file=/no/such/file", "refused --admin-token-file: "},
	{"$UP --viewer-token-file=/no/such/file", "refused --viewer-token-file: "},
	{"$UP --admin-token-file=$DIR/empty", "refused --admin-token-file: want a token, got an empty file"},
	{"$UP --admin-token-file=$DIR/blank", "refused --admin-token-file: "},
	{"$UP --admin-token-file=$DIR/tokens --viewer-token-file=$DIR/tokens", "refused --viewer-token-file: is in --admin-token-file too"},
	{"$UP --admin-token-file=$DIR/weak-tokens", "warned --admin-token-file: tokens of less than 16 characters, or of less than 6 different ones, might be guessed: line 1"},
	{"$UP --admin-token-file=$DIR/readable", "warned --admin-token-file: may be read by everybody"},

	{"$UP --tls-cert=$DIR/cert.pem --tls-key=/no/such/file", "refused --tls-key: /no/such/file: "},
	{"$UP --tls-cert=$DIR/cert.pem --tls-key=$DIR/locked.pem", "refused --tls-key: is encrypted: want a key without a passphrase"},
	{"$UP --tls-cert=$DIR/key.pem --tls-key=$DIR/cert.pem", "refused --tls-cert $DIR/key.pem with --tls-key $DIR/cert.pem: PEM inputs may have been switched"},
	{"$UP --tls-cert=$DIR/cert.pem --tls-key=$DIR/other.pem", "refused --tls-cert $DIR/cert.pem with --tls-key $DIR/other.pem: private key does not match"},
	{"$UP --acme-domain=play.example --acme-directory=https://127.0.0.1:9/d --acme-cache=$DIR/text", "refused --acme-cache: "},
	{"$UP --listen=:443 --acme-domain=play.example --acme-directory=https://127.0.0.1:9/d --acme-cache=$DIR/open", "warned --acme-cache: may be written by everybody on this machine"},

	{"$UP --webhook=https://127.0.0.1:9/x --webhook-secret-file=/no/such/file", "refused --webhook-secret-file: want a file of secrets, got"},
	{"$UP --webhook=https://127.0.0.1:9/x --webhook-secret-file=$DIR/tokens", "refused --webhook-secret-file: line 1"},

	{"$NATS --cluster-creds=/no/such/file", "refused --cluster-creds: open /no/such/file"},
	{"$NATS --cluster-creds=$DIR/text", "refused --cluster-creds: $DIR/text: want NATS user credentials, or the seed of a user's nkey"},
	{"$NATS --cluster-ca=$DIR/text", "refused --cluster-ca: $DIR/text: has no certificate in PEM"},
}

// A mistake is refused, or warned about, in one line that says what to do: by check and by
// a start alike. Check goes on after a file that is refused.
func TestCheckAndStartReportMistakesAlike(t *testing.T) {
	dir := mistaken(t)
	closed := closedGame(t)
	up := "--upstream=" + startGame(t, nil).url("ws")
	fill := strings.NewReplacer("$UP", up, "$DIR", dir,
		"$NATS", up+" --token-key-file="+dir+"/secret --node-listen=127.0.0.1:0 --cluster=nats://"+closed.Addr().String()).Replace
	for _, c := range mistakes {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Fields(fill(c.args))
			kind, rest, _ := strings.Cut(fill(c.want), " ")
			flag, text, _ := strings.Cut(rest, ": ")
			has := func(said, flag string) bool {
				for line := range strings.Lines(said) {
					if i := strings.Index(line, flag); i >= 0 && strings.Contains(line[i:], text) {
						return true
					}
				}
				return false
			}
			checked, report, errs := once(append([]string{"check"}, args...)...)
			started, said := startedWith(args...)
			switch kind {
			case "warned":
				if checked == 2 || !has(report, "WARN  "+flag+": ") {
					t.Errorf("check: status %d, want the warning %s:\n%s%s", checked, rest, report, errs)
				}
				if started == 2 || started == 0 && !has(said, "level=WARN msg=settings.warning flag="+flag) && !has(said, "level=WARN msg=admin.tokens_weak flag="+flag) {
					t.Errorf("the start: status %d, want the warning %s:\n%s", started, rest, said)
				}
			case "silent":
				if checked == 2 || started == 2 || has(report+said, flag) {
					t.Errorf("check: status %d, the start: %d, want no warning %s:\n%s%s", checked, started, rest, report, said)
				}
			case "refused":
				if checked != 2 || !has(report+errs, flag+": ") || report != "" && !strings.Contains(report, " upstream ") {
					t.Errorf("check: status %d, want the refusal %s, and the other parts:\n%s%s", checked, rest, report, errs)
				}
				if started != 2 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "reseat: ") || !has(said, flag+": ") {
					t.Errorf("the start: status %d, want the one line %s:\n%s", started, rest, said)
				}
			}
			if strings.Contains(report+errs+said, "SECRET") {
				t.Errorf("a secret is shown:\n%s%s%s", report, errs, said)
			}
		})
	}
}

func TestTryReportsRouteAndUpstreamResponse(t *testing.T) {
	asked := make(chan string, 10)
	game := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
		if r.URL.Path == "/closed" {
			http.Error(w, "closed", http.StatusForbidden)
			return
		}
		if c, err := websocket.Accept(w, r, nil); err == nil {
			c.CloseNow()
		}
	}))
	defer game.Close()
	at := strings.Replace(game.URL, "http", "ws", 1)
	args := []string{"check", "--route=/chess/*=" + at + ";grace=5m;origin=https://play.example", "--route=/closed=" + at}
	for _, c := range []struct {
		path   string
		status int
		want   []string
		asked  string
	}{
		{"/lobby/../%63hess/7?x=1", 0, []string{`ok    --try "/lobby/../%63hess/7?x=1": route /chess/*, sent on as /chess/7`, "the game server answered 101"}, "/chess/7?x=1"},
		{"/closed", 1, []string{`ok    --try "/closed": route /closed`, "FAIL", "answered the handshake with 403 Forbidden"}, "/closed"},
		{"/other", 1, []string{`FAIL  --try "/other": clients get 404: no route matches /other`}, ""},
		{"/a%2fb", 1, []string{`FAIL  --try "/a%2fb": clients get 400`}, ""},
		{"chess", 2, []string{"--try: want a path such as /match/7"}, ""},
		{"", 2, []string{"--try: want a path"}, ""},
	} {
		status, report, errs := once(append(args, "--try", c.path)...)
		for _, want := range c.want {
			if !strings.Contains(report+errs, want) {
				t.Errorf("%s: want %q in\n%s%s", c.path, want, report, errs)
			}
		}
		if status != c.status {
			t.Errorf("%s: status %d, want %d\n%s", c.path, status, c.status, report)
		}
		if c.asked != "" {
			if got := <-asked; got != c.asked {
				t.Errorf("%s: the game server was asked for %s, want %s", c.path, got, c.asked)
			}
		}
		if len(asked) > 0 {
			t.Errorf("%s: the game server was asked for %s as well", c.path, <-asked)
		}
	}
	for _, args := range [][]string{{"check", "--demo", "--try"}, {"check", "--try", "--demo"}} { // a flag is not a path
		if status, _, errs := once(args...); status != 2 || !strings.Contains(errs, "--try: want a path such as /match/7, got none") {
			t.Errorf("%q: status %d, %s", args, status, errs)
		}
	}
	if status, _, errs := once("--try=/x", "--demo"); status != 2 || !strings.Contains(errs, "--try") {
		t.Errorf("a start with --try: %d, %s", status, errs)
	}
}

func TestUnreachableUpstreamIsLoggedAtStart(t *testing.T) {
	closed := closedGame(t)
	p := beginWith(t, "--upstream="+closed.url("ws"))
	if line := p.wait("dashboard.ready"); line["level"] != "INFO" || !strings.HasPrefix(line["url"].(string), "http://127.0.0.1:") {
		t.Errorf("%v", line)
	}
	if line := p.wait("upstream.unreachable"); line["level"] != "WARN" || line["upstream"] != closed.url("ws") || !strings.Contains(line["text"].(string), "--upstream") {
		t.Errorf("%v", line)
	}
}

// A game server that cannot be reached is said to be so once, and once when it can.
func TestAnUpstreamThatBecomesReachableIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said wstest.Log
		var up atomic.Bool
		var dials atomic.Int64
		at := func(scheme, host string) policy.Route {
			return policy.Route{Policy: policy.Policy{DialTimeout: time.Second}, Upstream: upstream.Target{
				URL: &url.URL{Scheme: scheme, Host: host},
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					if dials.Add(1); !up.Load() && host == "late:1" {
						return nil, errors.New("connection refused")
					}
					near, _ := net.Pipe()
					return near, nil
				},
			}}
		}
		done := make(chan bool)
		go func() {
			logUnreachable(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), []policy.Route{at("ws", "late:1"), at("ws", "late:1"), at("ws", "good:1")})
			close(done)
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := said.Take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "upstream.unreachable upstream=ws://late:1") {
			t.Errorf("in an hour: %s", got)
		}
		if n := dials.Load(); n > 140 {
			t.Errorf("%d dials in an hour", n)
		}
		up.Store(true)
		<-done
		if got := said.Take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO msg=upstream.reachable upstream=ws://late:1") {
			t.Errorf("once it is there: %s", got)
		}
	})
}

// Nobody has to send SIGHUP to learn that a change of the file needs a restart.
func TestChangedConfigFileIsLoggedByItself(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "reseat.toml"), "grace = \"5s\"\n")
	p := begin(t, "--config="+file)
	writeFile(t, file, "grace = \"60s\"\n")
	if line := p.wait("settings.changed"); line["text"] != "settings changed; restart to apply" {
		t.Errorf("%v", line)
	}
}

func TestEachChangeOfTheConfigFileIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said wstest.Log
		file := filepath.Join(t.TempDir(), "reseat.toml")
		write := func(text string) { writeFile(t, file, text) }
		want := func(lines ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			got := strings.TrimSpace(said.Take())
			if n := strings.Count(got, "msg="); n != len(lines) {
				t.Errorf("%d lines, want %d: %s", n, len(lines), got)
			}
			for _, l := range lines {
				if !strings.Contains(got, l) {
					t.Errorf("no %q in %s", l, got)
				}
			}
		}
		write("grace = \"5s\"\n")
		c := watchConfig(file, []string{"--demo", "--config=" + file}, nil)
		log := slog.New(slog.NewTextHandler(&said, nil))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		write("grace = \"60s\"\n") // between its reading and the first check
		go c.watch(ctx, log)
		want("restart to apply")
		write("grace = \"5s\"\n")
		want("settings.restored")
		write("grace = \"5s\"\n") // the content counts
		want()
		write("grace = 6\n")
		want("would fail")
		write("grace = \"6s\"\n")
		want("restart to apply")
		c.compare(log, true)
		want("restart to apply") // SIGHUP asks
		os.Remove(file)
		want("would fail")
		write("grace = \"5s\"\n")
		want("settings.restored")
		time.Sleep(configEvery / 2) // between two looks: at the same instant either may come first
		for i := range 20 {         // while it is being written nothing is said
			write(fmt.Sprintf("grace = \"%d", i))
			time.Sleep(configEvery)
		}
		write("grace = \"5s\"\n")
		want()
	})
}

func TestChangedConfigFileIsLoggedOnSIGHUP(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "reseat.toml"), "grace = \"5s\"\n")
	p := begin(t, "--config="+file)
	p.signals <- syscall.SIGHUP
	p.wait("keys.reloaded") // no settings.changed before it: see below
	writeFile(t, file, "grace = \"6s\"\n")
	p.signals <- syscall.SIGHUP
	if line := p.wait("settings.changed"); line["text"] != "settings changed; restart to apply" || line["file"] != file {
		t.Errorf("%v", line)
	}
	writeFile(t, file, "grace = 6\n")
	p.signals <- syscall.SIGHUP
	line := p.wait("settings.changed")
	if line["err"] == nil { // of the change before, by the watch of the file
		line = p.wait("settings.changed")
	}
	if !strings.Contains(line["text"].(string), "a restart would fail") || !strings.Contains(line["err"].(string), "grace") {
		t.Errorf("%v", line)
	}
	writeFile(t, file, "grace = \"5s\"\n")
	c := watchConfig(file, nil, nil)
	var log bytes.Buffer
	if c.compare(slog.New(slog.NewTextHandler(&log, nil)), true); log.Len() > 0 {
		t.Errorf("unchanged content: %s", log.String())
	}
}

// net/http's own errors are logged, but clients cannot fill the log with them.
func TestErrorsOfNetHTTPAreLoggedAndLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := serverLog(slog.New(slog.NewTextHandler(&said, nil)))
		for range 1000 {
			log.Print("http: Accept error: accept tcp: too many open files; retrying in 5ms")
		}
		if n := strings.Count(said.String(), "\n"); n != serverLinesAtOnce || !strings.Contains(said.String(), "level=WARN msg=http.server") {
			t.Errorf("%d lines, want %d warnings:\n%s", n, serverLinesAtOnce, said.String())
		}
		time.Sleep(time.Second)
		said.Reset()
		log.Printf("http: panic serving 127.0.0.1:1: %v\n%s", errors.New("a fault"), strings.Repeat("stack\n", 10_000))
		if s := said.String(); !strings.Contains(s, "level=ERROR") || !strings.Contains(s, "left_out_before=990") || len(s) > 2*maxServerLine {
			t.Errorf("%d bytes: %.200s", len(s), s)
		}
		time.Sleep(time.Minute)
		said.Reset()
		log.Print("http2: server connection error from 192.0.2.1:1: PROTOCOL_ERROR")
		if said.Len() > 0 {
			t.Errorf("a client's error is logged: %s", said.String())
		}
	})
}

// A planned writes a plan and returns its name.
func planned(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "commute.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// An api answers as the control API does, for two sessions on two pages, of which one has just ended.
type api struct {
	mu    sync.Mutex
	calls []string
	deny  bool
	empty bool // nobody plays
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Header.Get("Authorization") != "Bearer secret":
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodGet && a.empty:
		io.WriteString(w, `{"sessions":[],"next":""}`)
	case r.Method == http.MethodGet && r.URL.Query().Get("cursor") == "":
		io.WriteString(w, `{"sessions":[{"id":"a","state":"attached"}],"next":"7"}`)
	case r.Method == http.MethodGet:
		io.WriteString(w, `{"sessions":[{"id":"gone","state":"detached"},{"id":"b","state":"attached"}],"next":""}`)
	case a.deny:
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"detail":"faults need --dev"}`)
	case strings.Contains(r.URL.Path, "/gone/"), strings.Contains(r.URL.Path, "/-/"):
		w.WriteHeader(http.StatusNotFound)
	default:
		a.calls = append(a.calls, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, body))
		w.WriteHeader(http.StatusNoContent)
	}
}

func (a *api) start(t *testing.T) (args []string) {
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	os.WriteFile(token, []byte("secret\nother\n"), 0o600)
	return []string{"rehearse", "--admin", server.URL, "--admin-token-file", token, "--plan"}
}

// The command is that of docs/dev.md.
func TestRehearsalReplaysThePlanInItsOrder(t *testing.T) {
	a := new(api)
	plan := planned(t, "[[fault]]\nat = '20ms'\nfault = 'silence'\nfor = '1ms'\n[[fault]]\nat = '0s'\nfault = 'slow'\nfor = '1ms'\nrate = 1000\n")
	var out, errs bytes.Buffer
	if status := Run(append(a.start(t), plan), nil, &out, &errs, nil); status != 0 {
		t.Fatalf("status %d: %s", status, &errs)
	}
	slow, silence := ` {"fault":"slow","for":"1ms","rate":1000}`, ` {"fault":"silence","for":"1ms"}`
	want := []string{"POST /api/v1/sessions/a/faults" + slow, "POST /api/v1/sessions/b/faults" + slow, "POST /api/v1/sessions/a/faults" + silence, "POST /api/v1/sessions/b/faults" + silence}
	if !slices.Equal(a.calls, want) {
		t.Errorf("calls %q, want %q", a.calls, want)
	}
	if !strings.Contains(out.String(), "slow: 2 sessions") || !strings.HasSuffix(out.String(), "over\n") {
		t.Errorf("it says %q", &out)
	}
}

func TestInterruptedRehearsalEndsAllFaults(t *testing.T) {
	a := new(api)
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	if status := Run(append(a.start(t), planned(t, "[[fault]]\nat = '1h'\nfault = 'tunnel'\n")), nil, io.Discard, io.Discard, signals); status != 0 {
		t.Errorf("status %d", status)
	}
	if want := []string{"DELETE /api/v1/sessions/a/faults ", "DELETE /api/v1/sessions/b/faults "}; !slices.Equal(a.calls, want) {
		t.Errorf("calls %q, want %q", a.calls, want)
	}
}

func TestRehearsalSaysWhyItCannotBegin(t *testing.T) {
	good := planned(t, "[[fault]]\nat = '0s'\nfault = 'tunnel'\n")
	denied := (&api{deny: true}).start(t)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"rehearse"}, 2, "--plan: want a file"},
		{[]string{"rehearse", "--plan", good + "x"}, 2, "no such file"},
		{[]string{"rehearse", "--plan", planned(t, "x")}, 2, "--plan"},
		{[]string{"rehearse", "--plan", planned(t, "")}, 2, "want [[fault]] tables"},
		{[]string{"rehearse", "--plan", planned(t, "[[fault]]\nfault='tunnel'")}, 2, "fault 1: want at"},
		{[]string{"rehearse", "--plan", planned(t, "[[fault]]\nat='1s'\nfault='quake'")}, 2, "want one of silence"},
		{[]string{"rehearse", "--plan", planned(t, "[[fault]]\nat='1s'\nfault='tunnel'\nx=1")}, 2, "x"},
		{[]string{"rehearse", "--plan", good, "--admin", "127.0.0.1:8081"}, 2, "want a URL"},
		{append(denied, good), 1, "faults need --dev"},
		{append((&api{deny: true, empty: true}).start(t), good), 1, "faults need --dev"},
	} {
		var errs bytes.Buffer
		if status := Run(c.args, nil, io.Discard, &errs, nil); status != c.status || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: status %d, %q; want %d, %q", c.args, status, &errs, c.status, c.want)
		}
	}
}
