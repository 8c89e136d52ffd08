package server

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
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

	"reseat/gateway/cluster/engine"
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
