package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"reseat/gateway/internal/test/testcert"
)

// A started is the program, running within the test on loopback ports.
type started struct {
	t       *testing.T
	lines   chan []byte // of its log
	signals chan os.Signal
	status  chan int
	over    chan struct{}  // closed when it has exited
	clients map[string]any // the log line of the client address
	admin   string         // URL of its admin address
	demo    string         // URL of the demo's page
}

// override replaces flags in args. All have the form --name=value, or --name for a
// boolean.
func override(args []string, others ...string) []string {
	name := func(arg string) string { n, _, _ := strings.Cut(arg, "="); return n }
	kept := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return slices.ContainsFunc(others, func(other string) bool { return name(other) == name(arg) })
	})
	return append(kept, others...)
}

// begin runs the program with the demo game, and waits until it serves. It is stopped at
// the end of the test.
func begin(t *testing.T, args ...string) *started {
	t.Helper()
	p := beginWith(t, override([]string{"--demo"}, args...)...)
	p.demo = p.wait("demo.ready")["url"].(string)
	return p
}

// beginWith is begin with another game.
func beginWith(t *testing.T, args ...string) *started {
	t.Helper()
	out, in := io.Pipe()
	p := &started{t: t, lines: make(chan []byte, 1000), signals: make(chan os.Signal, 1), status: make(chan int, 1), over: make(chan struct{})}
	args = override([]string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log-format=json"}, args...)
	go func() {
		p.status <- Run(args, nil, io.Discard, in, p.signals)
		in.Close()
		close(p.over)
	}()
	t.Cleanup(p.stop)
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- append([]byte(nil), s.Bytes()...)
		}
	}()
	p.clients = p.wait("listen.clients")
	p.admin = p.wait("listen.admin")["http"].(string)
	return p
}

// stop sends signals until the program has exited; the second one makes it exit at once.
func (p *started) stop() {
	for {
		select {
		case p.signals <- syscall.SIGTERM:
		case <-p.over:
			return
		}
	}
}

// wait reads the log up to a line with this message.
func (p *started) wait(msg string) map[string]any {
	p.t.Helper()
	for raw := range p.lines {
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			p.t.Fatalf("log line %s: %v", raw, err)
		}
		if s, _ := line["msg"].(string); strings.HasPrefix(s, msg) {
			return line
		}
	}
	p.t.Fatalf("the log ended before %q", msg)
	return nil
}

// ask sends a request to the admin address with a token, "" for none.
func (p *started) ask(method, path, token string) *http.Response {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.admin+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (p *started) want(token string, status int) {
	p.t.Helper()
	if resp := p.ask("GET", "/api/v1/drain", token); resp.StatusCode != status {
		p.t.Errorf("with %q: %d, want %d", token, resp.StatusCode, status)
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAdminTokensAreReloadedOnSIGHUP(t *testing.T) {
	const older, newer, viewer = "older-0123456789ab", "newer-0123456789ab", "viewer-0123456789ab"
	file := writeFile(t, filepath.Join(t.TempDir(), "admin"), older)
	p := begin(t, "--admin-token-file="+file, "--viewer-token-file="+writeFile(t, filepath.Join(t.TempDir(), "viewer"), viewer))
	p.want("", http.StatusUnauthorized)
	p.want(older, http.StatusOK)
	p.want(viewer, http.StatusOK)
	if resp := p.ask("POST", "/api/v1/drain", viewer); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer's write: %d", resp.StatusCode)
	}
	writeFile(t, file, newer)
	p.signals <- syscall.SIGHUP
	p.wait("admin.tokens_reloaded")
	p.want(older, http.StatusUnauthorized)
	p.want(newer, http.StatusOK)
	writeFile(t, file, "with a blank")
	p.signals <- syscall.SIGHUP
	p.wait("admin.tokens_reload_failed")
	p.want(newer, http.StatusOK)
	writeFile(t, file, "short")
	p.signals <- syscall.SIGHUP
	if line := p.wait("admin.tokens_weak"); line["flag"] != "--admin-token-file" || line["text"] != "tokens of less than 16 characters, or of less than 6 different ones, might be guessed: line 1" {
		t.Errorf("%v", line)
	}
	p.want("short", http.StatusOK)
	p.signals <- syscall.SIGTERM
	if status := <-p.status; status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// A reader of the events must get the last event, and then a clean end of the stream.
func TestEventStreamEndsCleanlyAtShutdown(t *testing.T) {
	p := begin(t)
	stream := p.ask("GET", "/api/v1/events", "")
	p.ask("POST", "/api/v1/drain", "") // SIGTERM must end the process all the same
	p.signals <- syscall.SIGTERM
	if status := <-p.status; status != 0 {
		t.Errorf("exit status %d", status)
	}
	if got, err := io.ReadAll(stream.Body); err != nil || !strings.HasPrefix(string(got), ":") {
		t.Errorf("%q, %v", got, err)
	}
}

// once runs the program until it exits by itself.
func once(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = Run(onFreePorts(args), nil, &out, &errs, make(chan os.Signal))
	return status, out.String(), errs.String()
}

// onFreePorts returns the arguments of a check with ports that are free, if they name none.
func onFreePorts(args []string) []string {
	if len(args) == 0 || args[0] != "check" {
		return args
	}
	return append(args[:1:1], override([]string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0"}, args[1:]...)...)
}

func TestExitStatus(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	game, free := "--upstream=ws://127.0.0.1:9", "--listen=127.0.0.1:0"
	pair := testcert.New(t, "game.example")
	cert, key := pair.Write(t.TempDir())
	for _, c := range []struct {
		what   string
		args   []string
		status int
		says   string // how the only line begins: on stdout for status 0, else on stderr
	}{
		{"version", []string{"--version"}, 0, "reseat "},
		{"help", []string{"--help"}, 0, "reseat keeps"},
		{"help of check", []string{"check", "--help"}, 0, "reseat keeps"},
		{"a wrong value", []string{game, "--grace=45"}, 2, "reseat: --grace: want a duration"},
		{"an unknown flag", []string{game, "--grce=45s"}, 2, "reseat: --grce: unknown flag"},
		{"nothing to serve", nil, 2, "reseat: --upstream, --route, --demo: want at least one"},
		{"a taken port", []string{game, "--listen=" + taken.Addr().String(), "--admin=off"}, 1, "reseat: --listen: listen tcp " + taken.Addr().String() + ": bind: address already in use; another program listens there: stop it, or choose another port"},
		{"an address of another machine", []string{game, "--listen=192.0.2.1:8080", "--admin=off"}, 1, "reseat: --listen: listen tcp 192.0.2.1:8080: bind: cannot assign requested address; use an address of this machine"},
		{"a taken port with TLS", []string{game, "--tls-cert=" + cert, "--tls-key=" + key, "--listen=" + taken.Addr().String(), "--admin=off"}, 1, "reseat: --listen: "},
		{"a taken port of the admin address", []string{game, free, "--admin=" + taken.Addr().String()}, 1, "reseat: --admin: "},
	} {
		status, stdout, stderr := once(append(c.args, "--log-level=error")...)
		said, other := stderr, stdout
		if c.status == 0 {
			said, other = other, said
		}
		if status != c.status || !strings.HasPrefix(said, c.says) || other != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want %d and %q", c.what, status, stdout, stderr, c.status, c.says)
		}
		if c.status > 0 && strings.Count(said, "\n") != 1 {
			t.Errorf("%s: want one line, got %q", c.what, said)
		}
	}
}

func TestSecondSignalExitsImmediately(t *testing.T) {
	p := begin(t)
	join(t, p.clients["ws"].(string)+"/demo/play", nil)
	p.signals <- syscall.SIGTERM
	p.wait("shutdown.started") // a player is attached: the drain takes ten seconds
	p.signals <- syscall.SIGTERM
	if status := <-p.status; status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
}

func TestLogNamesAddressesThatBrowsersCanOpen(t *testing.T) {
	p := begin(t, "--listen=:0")
	_, port, err := net.SplitHostPort(p.clients["addr"].(string))
	if err != nil || p.clients["http"] != "http://localhost:"+port || p.clients["ws"] != "ws://localhost:"+port {
		t.Errorf("clients: %v, %v", p.clients, err)
	}
	if p.demo != "http://localhost:"+port+"/" || !strings.HasPrefix(p.admin, "http://127.0.0.1:") {
		t.Errorf("demo %s, admin %s", p.demo, p.admin)
	}
	for _, url := range []string{p.demo, p.admin + "/healthz"} {
		if resp := get(t, http.DefaultClient, url); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
}

// metrics are those of a scrape.
func (p *started) metrics() map[string]*dto.MetricFamily {
	p.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(p.ask("GET", "/metrics", "").Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return families
}

// reloaded sends SIGHUP twice: when the line of the second reload is logged, the first one
// has been counted.
func (p *started) reloaded(result, line string) {
	p.t.Helper()
	for range 2 {
		p.signals <- syscall.SIGHUP
		p.wait(line)
	}
	for _, m := range p.metrics()["reseat_reloads_total"].Metric {
		if m.Label[0].GetValue() == result && m.Counter.GetValue() == 0 {
			p.t.Errorf("a reload is not counted as %s", result)
		}
	}
}

func TestScrapeIncludesProcessMetricsByTheirConventions(t *testing.T) {
	pair := testcert.New(t, "game.example")
	cert, key := pair.Write(t.TempDir())
	p := begin(t, "--tls-cert="+cert, "--tls-key="+key)
	resp := p.ask("GET", "/metrics", "")
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain; version=0.0.4") || resp.StatusCode != http.StatusOK {
		t.Errorf("%s, %s", resp.Status, resp.Header)
	}
	if problems, err := promlint.New(resp.Body).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	m := p.metrics()
	for _, name := range []string{
		"go_goroutines", "go_memstats_heap_inuse_bytes", "process_open_fds", "process_max_fds", "process_resident_memory_bytes",
		"process_cpu_seconds_total", "process_start_time_seconds", "reseat_sessions", "reseat_admin_refused_total", "reseat_log_lines_dropped_total",
	} {
		if m[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	labels := make(map[string]string)
	for _, l := range m["reseat_build_info"].GetMetric()[0].Label {
		labels[l.GetName()] = l.GetValue()
	}
	if labels["version"] == "" || !strings.HasPrefix(labels["goversion"], "go1.") || len(labels) != 2 {
		t.Errorf("build info %v", labels)
	}
	if got := m["reseat_certificate_not_after_timestamp_seconds"].GetMetric()[0].Gauge.GetValue(); got != float64(pair.Leaf.NotAfter.Unix()) {
		t.Errorf("the certificate is good until %v, want %v", got, pair.Leaf.NotAfter.Unix())
	}
}

func TestReloadsAreCountedByTheirResult(t *testing.T) {
	pair := testcert.New(t, "game.example")
	cert, key := pair.Write(t.TempDir())
	tokens := writeFile(t, filepath.Join(t.TempDir(), "key"), strings.Repeat("0123456789abcdef", 2))
	p := begin(t, "--tls-cert="+cert, "--tls-key="+key, "--token-key-file="+tokens)
	p.reloaded("ok", "keys.reloaded")
	if err := os.WriteFile(cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.reloaded("failed", "cert.reload_failed")
}

// Each row is a way to something of --dev. With the flag the gateway answers, and the game server sees nothing of it;
// without it each is a request like any other, and the game server gets it as it came.
func TestNothingOfDevIsThereWithoutIt(t *testing.T) {
	const key = "0123456789abcdef0123456789abcdef"
	const handshake = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	rows := []struct{ method, target, header, body string }{
		{"GET", "/reseat.dev.js", "", ""},
		{"GET", "/reseat.dev.js.map", "", ""},
		{"POST", "/reseat.dev/faults", "Authorization: Page " + key, `{"fault":"reset"}`},
		{"DELETE", "/reseat.dev/faults", "Authorization: Page " + key, ""},
		{"OPTIONS", "/reseat.dev/faults", "Origin: http://evil.example", ""},
		{"GET", "/reseat.dev/session", "Authorization: Bearer x\nReseat-Dev: x", ""},
		{"GET", "/play?reseat.dev=" + key, handshake, ""},
		{"GET", "/", "Accept: text/html", ""},
	}
	for _, dev := range []bool{false, true} {
		seen := ""
		game := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			seen = r.Method + " " + r.RequestURI + " " + string(body) + r.Header.Get("Authorization")
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<head>the game")
		}))
		t.Cleanup(game.Close)
		flags := []string{"--upstream=ws" + strings.TrimPrefix(game.URL, "http")}
		if dev {
			flags = append(flags, "--dev")
		}
		p := beginWith(t, flags...)
		send := func(method, target, header, body string) (int, http.Header, string) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(header) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				r.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, resp.Header, string(text)
		}
		for _, row := range rows {
			seen = ""
			want := row.method + " " + row.target + " " + row.body
			if _, value, ok := strings.Cut(row.header, "Authorization: "); ok {
				value, _, _ = strings.Cut(value, "\n")
				want += value
			}
			_, h, text := send(row.method, p.clients["http"].(string)+row.target, row.header, row.body)
			same := seen == want && h.Get("Access-Control-Allow-Origin") == "" && (strings.Contains(row.header, handshake) || text == "<head>the game")
			if same == dev {
				t.Errorf("--dev %v: %s %s: the game server got %q, the client %q", dev, row.method, row.target, seen, text)
			}
		}
		for _, name := range []string{"/reseat.js", "/reseat.install.js"} {
			if _, _, text := send("GET", p.clients["http"].(string)+name, "", ""); strings.Contains(text, "reseat-dev") != dev {
				t.Errorf("--dev %v: %s has the panel: %v", dev, name, !dev)
			}
		}
		for _, method := range []string{"POST", "DELETE"} {
			status, _, text := send(method, p.admin+"/api/v1/sessions/x/faults", "Content-Type: application/json", `{"fault":"node"}`)
			if refused := status == http.StatusConflict && strings.Contains(text, "--dev"); refused == dev {
				t.Errorf("--dev %v: %s faults: %d %s", dev, method, status, text)
			}
		}
	}
	var out bytes.Buffer
	if Run([]string{"--upstream=ws://127.0.0.1:1", "--dev-token-file=x"}, nil, io.Discard, &out, nil) == 0 || !strings.Contains(out.String(), "--dev") {
		t.Errorf("a token file alone: %s", &out)
	}
}

const (
	webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw3vFbBsz5Bd0="
	laterSecret   = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD1h0qDyyrJ2k="
)

// A hookServer receives the program's posts, once its gate is closed.
type hookServer struct {
	*httptest.Server
	got  chan hookPost
	gate chan struct{}
}

type hookPost struct {
	Type, Session, Reason string

	header http.Header
	body   []byte
}

func newHookServer(t *testing.T) *hookServer {
	h := &hookServer{got: make(chan hookPost, 1000), gate: make(chan struct{})}
	close(h.gate)
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p := hookPost{header: r.Header}
		p.body, _ = io.ReadAll(r.Body)
		json.Unmarshal(p.body, &p)
		select {
		case <-h.gate:
			h.got <- p
		case <-r.Context().Done(): // its sender has exited
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// want returns the next post, which must be of this type and signed with the secret.
func (h *hookServer) want(t *testing.T, kind, secret string) hookPost {
	t.Helper()
	p := <-h.got
	verify, err := standardwebhooks.NewWebhook(secret)
	if err == nil {
		err = verify.Verify(p.body, p.header)
	}
	if p.Type != kind || err != nil {
		t.Errorf("got %s, %v; want %s", p.body, err, kind)
	}
	return p
}

func TestEventsArePostedToTheWebhookUntilTheProcessEnds(t *testing.T) {
	hooks := newHookServer(t)
	file := writeFile(t, filepath.Join(t.TempDir(), "secret"), webhookSecret)
	p := begin(t, "--webhook="+hooks.URL+"/events", "--webhook-secret-file="+file, "--drain=10ms")
	leaver := join(t, p.clients["ws"].(string)+"/demo/play", nil)
	created := hooks.want(t, "session.created", webhookSecret)
	leaver.Close(websocket.StatusNormalClosure, "")
	if ended := hooks.want(t, "session.ended", webhookSecret); ended.Session != created.Session || ended.Reason != "bye" {
		t.Errorf("%+v after %+v", ended, created)
	}
	writeFile(t, file, laterSecret)
	p.signals <- syscall.SIGHUP
	p.wait("webhook.secrets_reloaded")
	join(t, p.clients["ws"].(string)+"/demo/play", nil)
	hooks.want(t, "session.created", webhookSecret) // which still signs as well
	p.signals <- syscall.SIGTERM
	ended := hooks.want(t, "session.ended", laterSecret)
	if status := <-p.status; status != 0 || ended.Reason != "draining" {
		t.Errorf("exit status %d, the last event %s", status, ended.body)
	}
	p.wait("shutdown.finished")
}

func TestUndeliveredEventsAreLoggedAtShutdown(t *testing.T) {
	closed := newHookServer(t)
	closed.Close()
	file := writeFile(t, filepath.Join(t.TempDir(), "secret"), webhookSecret)
	p := begin(t, "--webhook="+closed.URL, "--webhook-secret-file="+file, "--drain=10ms")
	join(t, p.clients["ws"].(string)+"/demo/play", nil)
	body, _ := io.ReadAll(p.ask("GET", "/metrics", "").Body)
	if !strings.Contains(string(body), `reseat_webhook_events_total{result="delivered"} 0`) {
		t.Errorf("no metrics of the webhook:\n%s", body)
	}
	p.signals <- syscall.SIGTERM
	if line := p.wait("webhook.undelivered"); line["events"] != 2.0 {
		t.Errorf("%v", line)
	}
	if status := <-p.status; status != 0 {
		t.Errorf("exit status %d", status)
	}
}
