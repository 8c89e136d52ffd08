package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A proxy is a running proxy with a recipe of docs/deploy.
type proxy struct {
	t      *testing.T
	cmd    *exec.Cmd
	addr   string
	said   *bytes.Buffer
	conf   string // only for nginx: the file of docs/deploy, as changed
	reload func()
}

// run starts a proxy and waits until it accepts connections.
func (p *proxy) run(name string, args ...string) *proxy {
	p.t.Helper()
	p.said = new(bytes.Buffer)
	p.cmd = exec.Command(name, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	p.cmd.Env = append(os.Environ(), "HOME="+p.t.TempDir())
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("%s said: %s", name, p.said)
		}
	})
	p.awaitPort()
	return p
}

func (p *proxy) awaitPort() {
	p.t.Helper()
	eventually(p.t, "the proxy listens at "+p.addr, func() bool { return listens(p.addr) })
}

func (p *proxy) url(path string) string { return "ws://" + p.addr + path }

// join begins a session through the proxy.
func (p *proxy) join(t *testing.T) *player {
	t.Helper()
	return (&player{url: p.url("/match/7")}).join(t)
}

// A recipe starts one kind of proxy with its file.
type recipe func(t *testing.T, change ...string) *proxy

// nginx runs docs/deploy/FILE with changes to it.
func nginx(file string) recipe {
	return func(t *testing.T, change ...string) *proxy {
		t.Helper()
		p := &proxy{t: t, addr: "127.0.0.1:" + freePort(t)}
		dir := t.TempDir()
		os.Chmod(dir, 0o755)
		conf := readFile(t, file, append(change, "listen 80;", "listen "+p.addr+";", "server_name play.example;", "server_name 127.0.0.1;")...)
		p.conf = write(t, filepath.Join(dir, "reseat.conf"), conf)
		main := write(t, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(`
daemon off;
pid %[1]s/pid;
error_log stderr warn;
worker_processes 1;
worker_shutdown_timeout 1s;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
    server { listen %[2]s default_server; return 404; } # as distributions bring one along
    include %[1]s/reseat.conf;
}`, dir, p.addr))
		p.reload = func() { p.cmd.Process.Signal(syscall.SIGHUP) }
		return p.run("nginx", "-p", dir, "-c", main)
	}
}

// haproxy runs docs/deploy/FILE in master-worker mode.
func haproxy(file string) recipe {
	return func(t *testing.T, change ...string) *proxy {
		t.Helper()
		p := &proxy{t: t, addr: "127.0.0.1:" + freePort(t)}
		conf := readFile(t, file, append(change, "bind :80", "bind "+p.addr, "hard-stop-after 10s", "hard-stop-after 1s")...)
		name := write(t, filepath.Join(t.TempDir(), "haproxy.cfg"), conf)
		p.reload = func() { p.cmd.Process.Signal(syscall.SIGUSR2) }
		return p.run("haproxy", "-W", "-db", "-f", name)
	}
}

func caddy(t *testing.T, change ...string) *proxy {
	t.Helper()
	p := &proxy{t: t, addr: "127.0.0.1:" + freePort(t)}
	dir := t.TempDir()
	sock := "unix/" + filepath.Join(dir, "admin")
	conf := readFile(t, "Caddyfile", append(change, "play.example {", "http://"+p.addr+" {\n\tbind 127.0.0.1")...)
	name := write(t, filepath.Join(dir, "Caddyfile"), "{\n\tadmin "+sock+"\n}\n"+conf)
	p.reload = func() {
		cmd := exec.Command("caddy", "reload", "--force", "--config", name, "--adapter", "caddyfile", "--address", sock)
		cmd.Env = p.cmd.Env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("caddy reload: %v: %s", err, out)
		}
	}
	return p.run("caddy", "run", "--config", name, "--adapter", "caddyfile")
}

func readFile(t *testing.T, name string, change ...string) string {
	t.Helper()
	return replaced(t, file(t, "deploy/"+name), change...)
}

var alone = map[string]recipe{"nginx": nginx("nginx.conf"), "HAProxy": haproxy("haproxy.cfg"), "Caddy": caddy}

// behind starts a game server, a gateway and a proxy, one behind the other.
func behind(t *testing.T, make recipe, tick time.Duration, change []string, flags ...string) (*game, *gateway, *proxy) {
	t.Helper()
	ga := newGame(t, tick)
	g := start(t, append([]string{"--upstream=" + ga.url(), "--trusted-proxy=127.0.0.1/32"}, flags...)...)
	return ga, g, make(t, append(change, "127.0.0.1:8080", g.addr)...)
}

// wantInOrder checks that the game server's count arrives completely, up to its final
// message, and that the player's messages did.
func wantInOrder(t *testing.T, p *player, from int) {
	t.Helper()
	for n := from; ; n++ {
		switch got := p.next(); got {
		case fmt.Sprint(n):
		case "last word":
			return
		default:
			t.Errorf("got %q, want %d", got, n)
			return
		}
	}
}

func TestDisconnectIsResumedThroughEachProxy(t *testing.T) {
	for name, make := range alone {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ga, _, px := behind(t, make, 5*time.Millisecond, nil)
			p := px.join(t)
			n := 1
			for i := range 10 {
				for range 10 {
					p.counts(1)
					p.say(fmt.Sprint("word ", n))
					n++
				}
				p.conn.CloseNow()
				if p.resumes < i {
					t.Errorf("%d resumes after %d cuts", p.resumes, i)
				}
			}
			close(ga.stop)
			wantInOrder(t, p, n)
			wantAllHeard(t, ga, p, n-1)
		})
	}
}

// wantAllHeard checks that the game server has had one connection, which is still open,
// and has received all the player's messages on it.
func wantAllHeard(t *testing.T, ga *game, p *player, words int) {
	t.Helper()
	for len(p.unacked) > 0 { // acked messages have reached the game server's socket
		p.tell("ping now")
		_, b, err := p.conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b[0] == 0x10 {
			p.control(string(b[1:]))
		}
	}
	joins := ga.joined()
	if len(joins) != 1 {
		t.Fatalf("the game had %d connections, want 1", len(joins))
	}
	j := joins[0]
	eventually(t, "the game has heard every word, or lost the connection", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.heard) >= words || j.lost != nil
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lost != nil || len(j.heard) != words {
		t.Fatalf("the game heard %d words, want %d; its connection: %v", len(j.heard), words, j.lost)
	}
	for i, w := range j.heard {
		if w != fmt.Sprint("word ", i+1) {
			t.Fatalf("word %d is %q", i+1, w)
		}
	}
}

// Reloading a proxy disconnects all clients sooner or later, and all resume.
func TestProxyReloadLosesNoSession(t *testing.T) {
	for name, make := range alone {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "Caddy" && strings.HasPrefix(version(t, "caddy"), "2.6.") {
				t.Skip("at a reload this version sends the gateway a Close frame that RFC 6455 section 5.1 forbids, not masked: see docs/operating.md")
			}
			ga, g, px := behind(t, make, 10*time.Millisecond, nil)
			const players = 20
			var all sync.WaitGroup
			cut := new(sync.WaitGroup)
			cut.Add(players)
			for range players {
				p := px.join(t)
				all.Go(func() {
					func() {
						defer cut.Done() // even if it fails
						for n := 1; p.resumes == 0; n++ {
							if got := p.next(); got != fmt.Sprint(n) {
								t.Errorf("got %q, want %d", got, n)
								break
							}
						}
					}()
					wantInOrder(t, p, int(p.received)+1)
				})
			}
			cutting, done := context.WithCancel(t.Context())
			go func() { cut.Wait(); done() }()
			for cutting.Err() == nil { // HAProxy's master forgets a signal that comes before it is ready
				px.reload()
				select {
				case <-cutting.Done():
				case <-time.After(5 * time.Second):
				}
			}
			close(ga.stop)
			all.Wait()
			if n := len(ga.joined()); n != players {
				t.Errorf("the game had %d connections, want %d", n, players)
			}
			for _, s := range g.sessions() {
				if s.State != "attached" {
					t.Errorf("session %s is %s", s.ID, s.State)
				}
			}
		})
	}
}

func version(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command(name, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(string(out), "v")
}

// The gateway trusts the proxy, and the proxy trusts nobody.
func TestClientAddressPassesEachProxy(t *testing.T) {
	for name, make := range alone {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ga, g, px := behind(t, make, 0, nil, "--max-sessions-per-ip=1")
			forged := http.Header{"X-Forwarded-For": {"203.0.113.9"}}
			for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
				(&player{url: px.url("/"), from: from, header: forged}).join(t)
			}
			peers := map[string]bool{}
			for _, s := range g.sessions() {
				peers[s.Peer] = true
			}
			if len(peers) != 2 || !peers["127.0.0.2"] || !peers["127.0.0.3"] {
				t.Errorf("the gateway sees %v", peers)
			}
			(&player{t: t, url: px.url("/"), from: "127.0.0.2", header: forged}).wantRefused("a second session from one address", "429")
			for _, j := range ga.joined() {
				from := j.head.Get("X-Forwarded-For")
				if j.head.Get("X-Forwarded-Proto") != "http" || j.head.Get("X-Forwarded-Host") != px.addr || !strings.HasPrefix(from, "127.0.0.") || strings.Contains(from, "203.0.113.9") {
					t.Errorf("the game sees %v", j.head)
				}
			}
		})
	}
}

// A proxy closes connections that are idle for longer than its timeout: heartbeats keep
// a connection open, and without them it is resumed.
func TestHeartbeatsKeepAnIdleConnectionOpenThroughTheProxy(t *testing.T) {
	short := map[string][]string{
		"nginx":   {"proxy_read_timeout 60s;", "proxy_read_timeout 1s;"},
		"HAProxy": {"timeout tunnel 60s", "timeout tunnel 1s"},
	}
	for name, change := range short {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, px := behind(t, alone[name], 0, change, "--heartbeat=300ms")
			p := px.join(t)
			for p.pings < 10 { // three seconds
				p.readControl()
			}
			if p.wantEcho("there?"); p.resumes > 0 {
				t.Errorf("%d resumes, want none", p.resumes)
			}
			_, _, px = behind(t, alone[name], 0, change)
			p = px.join(t)
			if _, err := p.read(); err == nil {
				t.Error("a message from nowhere")
			}
			if p.wantEcho("there?"); p.resumes != 1 {
				t.Errorf("%d resumes, want 1", p.resumes)
			}
		})
	}
}

// readControl reads one control message.
func (p *player) readControl() {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	_, b, err := p.conn.Read(ctx)
	if err != nil || b[0] != 0x10 {
		p.t.Fatalf("%q, %v, want a control message", b, err)
	}
	p.control(string(b[1:]))
}

// identities are headers that say who a client is, or what it requested: those that the
// files remove, all of which the gateway trusts in this test.
var identities = strings.Fields(`
	Forwarded X-Real-IP X-Client-IP X-Cluster-Client-IP X-Original-Forwarded-For True-Client-IP CF-Connecting-IP
	CF-Access-Authenticated-User-Email X-Envoy-External-Address X-Forwarded-Server X-Forwarded-Port X-Forwarded-Prefix
	X-Forwarded-Uri X-Forwarded-User X-Forwarded-Email X-Forwarded-Groups X-Forwarded-Preferred-Username
	X-Forwarded-Client-Cert X-Auth-Request-User X-Auth-Request-Email Remote-User X-Remote-User Client-Cert
	SSL-Client-Cert X-SSL-Client-Cert X-Original-URL X-Rewrite-URL X-HTTP-Method-Override Proxy`)

// A client's own claims do not pass a proxy, although the gateway would forward them.
func TestIdentityHeadersDoNotPassAProxy(t *testing.T) {
	var flags []string
	forged := http.Header{"Connection": {"X-Forwarded-For, X-Real-IP"}}
	for _, name := range identities {
		flags = append(flags, "--trusted-header="+name)
		forged.Set(name, "forged")
	}
	forged["x_real_ip"] = []string{"forged"}
	for name, make := range alone {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(strings.ToLower(name)); err != nil {
				t.Skipf("there is no %s here", name)
			}
			ga, g, px := behind(t, make, 0, nil, flags...)
			(&player{url: px.url("/"), from: "127.0.0.2", header: forged}).join(t)
			(&player{url: g.url(), header: forged}).join(t) // without a proxy the gateway trusts them
			eventually(t, "the game server has two connections", func() bool { return len(ga.joined()) == 2 })
			heads := ga.joined()
			through := 0
			for _, h := range heads {
				if h.head.Get("X-Forwarded-For") != "127.0.0.2, 127.0.0.1" {
					if h.head.Get("X-Real-IP") != "forged" {
						t.Errorf("the gateway does not believe its trusted peer: %v", h.head)
					}
					continue
				}
				through++
				for header, values := range h.head {
					if strings.Contains(strings.Join(values, " "), "forged") {
						t.Errorf("%s comes through", header)
					}
				}
			}
			if through != 1 {
				t.Errorf("%d connections came through the proxy", through)
			}
		})
	}
}

// The files for several gateways remove the same headers as those for one.
func TestFilesForSeveralGatewaysRemoveTheSameHeaders(t *testing.T) {
	for name, line := range map[string]string{"nginx.conf": "proxy_set_header %s \"\";", "nginx-several.conf": "proxy_set_header %s \"\";", "nginx-cluster.conf": "proxy_set_header %s \"\";",
		"haproxy.cfg": "http-request del-header %s\n", "haproxy-several.cfg": "http-request del-header %s\n", "haproxy-cluster.cfg": "http-request del-header %s\n", "Caddyfile": "header_up -%s\n"} {
		text := file(t, "deploy/"+name)
		for _, header := range identities {
			if !strings.Contains(text, fmt.Sprintf(line, header)) {
				t.Errorf("%s does not take off %s", name, header)
			}
		}
	}
}

// several are two gateways behind one proxy, which must route a resume to the gateway
// that holds the session: by a cookie, or by the path.
var several = map[string]struct {
	make    recipe
	change  []string
	cookies bool
}{
	"nginx, cookie": {nginx("nginx-several.conf"), nil, true},
	"nginx, path": {nginx("nginx-several.conf"), []string{
		"split_clients $request_id", "split_clients $uri", "http://reseat_$reseat_seat;", "http://reseat_$reseat_new;",
	}, false},
	"HAProxy, cookie": {haproxy("haproxy-several.cfg"), nil, true},
	"HAProxy, path": {haproxy("haproxy-several.cfg"), []string{
		"balance leastconn", "balance uri\n    hash-type consistent",
		"    cookie reseat_seat insert indirect nocache httponly attr SameSite=Lax\n", "", " cookie one", "", " cookie two", "",
	}, false},
}

// A pair is two gateways of one game behind one proxy.
type pair struct {
	game  *game
	both  [2]*gateway
	proxy *proxy
}

func newPair(t *testing.T, make recipe, change []string) *pair {
	t.Helper()
	key := tokenKey(t)
	p := &pair{game: newGame(t, 5*time.Millisecond)}
	for i := range p.both {
		g := start(t, "--upstream="+p.game.url(), "--trusted-proxy=127.0.0.1", "--token-key-file="+key, "--drain=1m")
		p.both[i] = g
		was, is := fmt.Sprintf("10.0.0.%d:8080", i+1), g.addr
		change = append(change, was, is)
		if strings.Contains(t.Name(), "HAProxy") {
			change = append(change, is+" port 8081", is+" port "+g.admin[strings.LastIndex(g.admin, ":")+1:])
		}
	}
	p.proxy = make(t, change...)
	return p
}

// held returns how many sessions each gateway has.
func (p *pair) held() (n [2]int) {
	for i, g := range p.both {
		n[i] = len(g.sessions())
	}
	return n
}

func newJar(t *testing.T) http.CookieJar {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return jar
}

func TestEachResumeReachesItsGatewayAmongSeveral(t *testing.T) {
	for name, c := range several {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPair(t, c.make, c.change)
			var all sync.WaitGroup
			for i := range 16 {
				var jar http.CookieJar
				if c.cookies {
					jar = newJar(t)
				}
				p := (&player{url: w.proxy.url(fmt.Sprintf("/match/%d", i)), jar: jar}).join(t)
				all.Go(func() {
					for range 10 {
						p.counts(10)
						p.conn.CloseNow()
					}
					if p.resumes != 9 {
						t.Errorf("%d resumes, want 9", p.resumes)
					}
				})
			}
			all.Wait()
			if n := len(w.game.joined()); n != 16 {
				t.Errorf("the game had %d connections, want 16", n)
			}
			if n := w.held(); n[0] == 0 || n[1] == 0 || n[0]+n[1] != 16 {
				t.Errorf("the gateways have %v sessions, want 16 on both together", n)
			}
		})
	}
}

// A draining gateway gets no new players, and its own players resume there.
func TestDrainingGatewayKeepsItsPlayersBehindHAProxy(t *testing.T) {
	w := newPair(t, haproxy("haproxy-several.cfg"), nil)
	w.drainTheFirst(t, func() {}) // HAProxy polls /readyz
}

func TestDrainingGatewayKeepsItsPlayersBehindNginx(t *testing.T) {
	w := newPair(t, nginx("nginx-several.conf"), nil)
	w.drainTheFirst(t, func() {
		text, err := os.ReadFile(w.proxy.conf)
		if err != nil {
			t.Fatal(err)
		}
		write(t, w.proxy.conf, replaced(t, string(text), "    50% one;\n", ""))
		w.proxy.reload()
	})
}

// drainTheFirst drains the first gateway, after tell has reconfigured the proxy.
func (p *pair) drainTheFirst(t *testing.T, tell func()) {
	t.Helper()
	var players []*player
	for range 8 {
		players = append(players, (&player{url: p.proxy.url("/"), jar: newJar(t)}).join(t))
	}
	before := p.held()
	tell()
	p.both[0].ask("POST", "/api/v1/drain", "").want(t, "the drain", 200, "")
	fresh := 0
	for began := time.Now(); fresh < 8 && time.Since(began) < patience; <-time.After(50 * time.Millisecond) {
		q := &player{t: t, url: p.proxy.url("/")}
		if q.connect() == nil { // otherwise 503: the proxy has not noticed yet
			fresh++
			defer q.conn.CloseNow()
		}
	}
	if n := p.held(); n != [2]int{before[0], before[1] + fresh} || fresh < 8 {
		t.Errorf("%v sessions after %d new ones, %v before: want all new ones on the second", n, fresh, before)
	}
	for _, q := range players {
		q.conn.CloseNow()
		q.next()
	}
	if n := p.held(); n[0] != before[0] {
		t.Errorf("the gateway that drains has %d sessions, want its %d", n[0], before[0])
	}
}

// front is a cluster of three behind a proxy that keeps no player where they were.
type front struct {
	*cluster
	proxy *proxy
}

func newFront(t *testing.T, make recipe) *front {
	t.Helper()
	c := newCluster(t, 3, "--trusted-proxy=127.0.0.1", "--drain=1m")
	var change []string
	for i, g := range c.nodes {
		is := g.addr
		change = append(change, fmt.Sprintf("10.0.0.%d:8080", i+1), is)
		if strings.Contains(t.Name(), "HAProxy") {
			change = append(change, is+" port 8081", is+" port "+g.admin[strings.LastIndex(g.admin, ":")+1:])
		}
	}
	return &front{c, make(t, change...)}
}

// rovers are players who resume all the time, wherever that leads.
type rovers struct {
	players []*player
	ids     []string // of their sessions, at first
	rounds  []*atomic.Int64
	busy    sync.WaitGroup
	stop    chan struct{}
}

func (f *front) rove(n int) *rovers {
	f.Helper()
	r := &rovers{stop: make(chan struct{})}
	for range n {
		p, done := f.proxy.join(f.T), new(atomic.Int64)
		r.players, r.ids, r.rounds = append(r.players, p), append(r.ids, p.session), append(r.rounds, done)
		r.busy.Go(func() {
			for {
				select {
				case <-r.stop:
					return
				default:
				}
				p.counts(3)
				p.conn.CloseNow()
				p.counts(3)
				done.Add(1)
			}
		})
	}
	return r
}

// again waits until each player has resumed some times more.
func (r *rovers) again(t *testing.T) {
	t.Helper()
	for _, n := range r.rounds {
		before := n.Load()
		eventually(t, "all resume three times more", func() bool { return n.Load() >= before+3 })
	}
}

// A drained node loses nobody: its players come back through the others, no stickiness needed. New
// players get another node.
func (f *front) drainTheFirst(tell, drained func()) {
	f.Helper()
	t := f.T
	r := f.rove(12)
	r.again(t)
	tell()
	held := 0
	for _, id := range r.ids {
		if strings.HasPrefix(id, f.nodeID(0)) {
			held++
		}
	}
	if held == 0 {
		t.Fatal("the node that is to drain has no players")
	}
	f.nodes[0].cmd.Process.Signal(syscall.SIGTERM)
	f.wantNodes(f.nodes[1], "draining", 1)
	for fresh, began := 0, time.Now(); fresh < 6; <-time.After(20 * time.Millisecond) {
		p := &player{t: t, url: f.proxy.url("/")}
		if err := p.connect(); err == nil {
			fresh++
			defer p.conn.CloseNow()
		} else if time.Since(began) > patience { // 503: the proxy has not noticed yet
			t.Fatalf("new players are refused: %v", err)
		}
	}
	drained()
	r.again(t)
	eventually(t, "the node that drains has its sessions, and no others", func() bool { return f.nodes[0].metric("reseat_sessions", "") == float64(held) })
	close(r.stop)
	r.busy.Wait()
	for _, p := range r.players {
		p.counts(3)
		p.tell("bye")
	}
	f.nodes[0].says("shutdown.finished") // long before --drain is over
	for i, p := range r.players {
		if p.session != r.ids[i] {
			t.Errorf("a player has session %s, and had %s", p.session, r.ids[i])
		}
	}
}

func TestDrainedNodeLosesNobodyBehindHAProxy(t *testing.T) {
	f := newFront(t, haproxy("haproxy-cluster.cfg"))
	var still *player // connected to the node that drains, and not disconnected by that
	f.drainTheFirst(func() {
		for still == nil || !strings.HasPrefix(still.session, f.nodeID(0)) {
			if still != nil {
				still.tell("bye")
			}
			still = f.proxy.join(t)
		}
	}, func() { // HAProxy has asked /readyz?draining=404, and leads new players elsewhere
		for range 200 {
			if _, err := still.read(); err != nil {
				t.Fatalf("a player of the node that drains was disconnected: %v", err)
			}
		}
		still.tell("bye")
	})
}

func TestDrainedNodeLosesNobodyBehindNginx(t *testing.T) {
	f := newFront(t, nginx("nginx-cluster.conf"))
	f.drainTheFirst(func() {
		text, err := os.ReadFile(f.proxy.conf)
		if err != nil {
			t.Fatal(err)
		}
		write(t, f.proxy.conf, replaced(t, string(text), "    server "+f.nodes[0].addr+" max_fails=1 fail_timeout=2s;\n", ""))
		f.proxy.reload()
	}, func() {})
}

// A node that is killed takes its own players with it, and no others: the proxies go on to the next.
func TestKilledNodeIsLeftOutByProxies(t *testing.T) {
	for name, make := range map[string]recipe{"nginx": nginx("nginx-cluster.conf"), "HAProxy": haproxy("haproxy-cluster.cfg")} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, make)
			var others []*player
			for range 8 {
				p := f.proxy.join(t)
				if id := f.nodeID(0); !strings.HasPrefix(p.session, id) {
					others = append(others, p)
				}
			}
			if len(others) == 8 || len(others) == 0 {
				t.Fatalf("%d of 8 players are at the other nodes", len(others))
			}
			f.nodes[0].cmd.Process.Kill()
			for range 5 {
				for _, p := range others {
					p.counts(2)
					p.conn.CloseNow()
					p.counts(2)
				}
			}
			for range 6 {
				f.proxy.join(t).counts(1)
			}
		})
	}
}

// nodeID is the id of a node, which begins those of its sessions.
func (f *front) nodeID(i int) string {
	f.Helper()
	var list struct{ Nodes []struct{ ID string } }
	if err := json.Unmarshal(f.nodes[i].get("/api/v1/nodes"), &list); err != nil || len(list.Nodes) == 0 {
		f.Fatal(err)
	}
	return list.Nodes[0].ID
}
