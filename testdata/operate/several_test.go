package operate

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

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
