package operate

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A service passes TCP connections on to its backends in turns, as a Service of Kubernetes does: it knows no
// HTTP, keeps no client where it was, and tries no other backend.
type service struct {
	net.Listener
	mu       sync.Mutex
	backends []string
	next     int
}

func newService(t *testing.T) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	s := &service{Listener: ln}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go s.pass(c)
		}
	}()
	return s
}

func (s *service) pass(c net.Conn) {
	defer c.Close()
	s.mu.Lock()
	backend := s.backends[s.next%len(s.backends)]
	s.next++
	s.mu.Unlock()
	b, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer b.Close()
	done := make(chan struct{})
	go func() {
		io.Copy(b, c)
		b.Close()
		close(done)
	}()
	io.Copy(c, b)
	c.Close()
	<-done
}

// replace replaces one backend by another, or adds it.
func (s *service) replace(old, backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = slices.DeleteFunc(append(s.backends, backend), func(b string) bool { return b == old })
}

// A rollout is a Deployment of the example in the course of a rolling update.
type rollout struct {
	*cluster
	service *service
	args    []string
	fit     *strings.Replacer
	started int
}

func newRollout(t *testing.T) *rollout {
	t.Helper()
	r := &rollout{cluster: &cluster{T: t, nats: startNATSWith(t, chartConfig(t)), game: newGame(t, 5*time.Millisecond)}, service: newService(t)}
	_, c := pods(t)
	dir := secrets(t)
	r.fit = strings.NewReplacer("/etc/reseat", dir, "ws://game:9000", r.game.url(), "@nats:4222", "@127.0.0.1:"+r.nats.port,
		"--listen=:8080", "--listen=127.0.0.1:0", "--admin=:8081", "--admin=127.0.0.1:0")
	args, environ := expanded(c, map[string]string{"NATS_PASSWORD": natsPassword})
	for _, a := range args { // without tokens the test may read metrics
		if !strings.HasPrefix(a, "--admin-token-file=") && !strings.HasPrefix(a, "--viewer-token-file=") {
			r.args = append(r.args, r.fit.Replace(a))
		}
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(r.fit.Replace(e), "=")
		t.Setenv(name, value)
	}
	return r
}

// pod starts a pod, and waits until it is ready. Each has an address of its own, so here a port.
func (r *rollout) pod() *gateway {
	r.Helper()
	r.started++
	node := freePort(r.T)
	fit := strings.NewReplacer("--node-listen=:8082", "--node-listen=127.0.0.1:"+node, "$(POD_IP):8082", "127.0.0.1:"+node, "$(POD_NAME)", fmt.Sprint("reseat-", r.started))
	var args []string
	for _, a := range r.args {
		args = append(args, fit.Replace(a))
	}
	g := start(r.T, args...)
	g.get("/readyz")
	return g
}

func (r *rollout) player() *player {
	r.Helper()
	return (&player{url: "ws://" + r.service.Addr().String(), header: http.Header{"Origin": {"https://play.example"}}}).join(r.T)
}

// All pods are replaced, one after another, while players resume all the time. Each resume lands anywhere.
// No session is lost, and the game server notices nothing.
func TestRollingUpdateLosesNoSession(t *testing.T) {
	r := newRollout(t)
	for range 3 {
		g := r.pod()
		r.nodes = append(r.nodes, g)
		r.service.replace("", g.addr)
	}
	for _, g := range r.nodes {
		r.wantNodes(g, "up", 3)
	}
	var players []*player
	var rounds []*atomic.Int64 // resumes of each
	var busy sync.WaitGroup
	stop := make(chan struct{})
	play := func() {
		p, n := r.player(), new(atomic.Int64)
		players, rounds = append(players, p), append(rounds, n)
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					p.counts(3)
					p.say("still here")
					p.resume()
					n.Add(1)
				}
			}
		})
	}
	for range 12 {
		play()
	}
	old := slices.Clone(r.nodes)
	for i, was := range old {
		r.nodes[i] = r.pod()
		r.service.replace(was.addr, r.nodes[i].addr)
		was.cmd.Process.Signal(syscall.SIGTERM)
		play()
	}
	for _, g := range r.nodes {
		r.wantNodes(g, "draining", 3)
	}
	for _, n := range rounds {
		before := n.Load()
		eventually(t, "all resume five times without the old pods", func() bool { return n.Load() >= before+5 })
	}
	close(stop)
	busy.Wait()
	forwarded := 0.0
	for _, g := range r.nodes {
		forwarded += g.metric("reseat_forwards_total", "out")
	}
	if forwarded < 12 {
		t.Errorf("%v resumes were passed on: the sessions of the old pods were reached otherwise", forwarded)
	}
	for _, p := range players {
		p.counts(3)
		p.tell("bye")
	}
	if n := len(r.game.joined()); n != len(players) {
		t.Errorf("the game server had %d connections for %d players", n, len(players))
	}
	for _, g := range old {
		g.says("shutdown.finished")
	}
	for _, g := range r.nodes {
		r.wantNodes(g, "gone", 3)
	}
}
