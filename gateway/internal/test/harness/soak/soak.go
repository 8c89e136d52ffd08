//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/harness/seat"
)

const (
	grace    = 2 * time.Second
	remember = 30 * time.Second // min tombstone lifetime, protocol section 6
	patience = 30 * time.Second // for one session
)

// A run is a gateway and its load.
type run struct {
	Config
	gateway *process.Process
	client  *http.Client

	mu      sync.Mutex
	ends    map[string]int
	resumes int
	late    int // resumes that this machine made after the grace period
	samples []sample
	faults  []string
}

// Run runs the sessions. Its error says why it could not run.
func Run(ctx context.Context, cfg Config) (*run, error) {
	r := &run{Config: cfg, ends: map[string]int{}, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: seat.DialTCP}}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	game := &http.Server{Handler: http.HandlerFunc(serve)}
	go game.Serve(ln)
	defer game.Close()
	r.gateway, err = process.Start(nil, filepath.Join(cfg.Dir, "gateway.log"), nil, cfg.Bin, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0",
		"--upstream=ws://"+ln.Addr().String(), "--driver="+cfg.Driver, "--grace="+grace.String(), "--heartbeat=1s", "--log-format=json", "--log-level=info")
	if err != nil {
		return nil, err
	}
	defer r.gateway.Kill()
	began := time.Now()
	for done, i := 0, 0; ; i++ { // a sample before the first session, and after each share of them
		s, err := r.measure(ctx, done)
		if err != nil {
			return nil, err
		}
		if s.at = time.Since(began); i < cfg.Rounds { // the last waits for the end of all
			s.tombstones = ended(r.samples, s)
		}
		if r.samples = append(r.samples, s); i == cfg.Rounds {
			break
		}
		share := cfg.Sessions*(i+1)/cfg.Rounds - done
		r.share(ctx, done, share)
		done += share
	}
	r.faults = append(append(r.faults, r.gateway.Faults()...), judge(r.samples)...)
	return r, ctx.Err()
}

// ended returns how many sessions can have ended within the time of a tombstone before s.
func ended(earlier []sample, s sample) int {
	before := 0
	for _, e := range earlier {
		if e.at <= s.at-remember {
			before = e.sessions
		}
	}
	return s.sessions - before
}

// share runs n sessions, some at a time.
func (r *run) share(ctx context.Context, first, n int) {
	next := make(chan int)
	var all sync.WaitGroup
	for range r.AtOnce {
		all.Go(func() {
			for i := range next {
				r.session(ctx, i)
			}
		})
	}
	for i := range n {
		next <- first + i
	}
	close(next)
	all.Wait()
}

// serve is the game server: an echo that also obeys commands in messages.
func serve(w http.ResponseWriter, req *http.Request) {
	ws, err := websocket.Accept(w, req, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	for {
		kind, p, err := ws.Read(context.Background())
		switch {
		case err != nil || string(p) == "die":
			return
		case string(p) == "close":
			ws.Close(4001, "as asked")
			return
		case ws.Write(context.Background(), kind, p) != nil:
			return
		}
	}
}

// A kind is how a session ends: do has it end, with a Close of this code from the gateway; 0: the client ends it.
type kind struct {
	name string
	code int
	do   func(ctx context.Context, r *run, c *seat.Conn, h *seat.Hello) error
}

var kinds = []kind{
	{"bye", 1000, func(ctx context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error { return c.Say(ctx, "bye", "") }},
	{"cut, and never back", 0, func(context.Context, *run, *seat.Conn, *seat.Hello) error { return nil }},
	{"closed by the game server", 4001, func(ctx context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error {
		return c.Send(ctx, true, []byte("close"))
	}},
	{"game server's connection lost", 4502, func(ctx context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error {
		return c.Send(ctx, true, []byte("die"))
	}},
	{"ended over the control API", 4410, func(ctx context.Context, r *run, _ *seat.Conn, h *seat.Hello) error {
		return r.ask(ctx, "DELETE", "/api/v1/sessions/"+h.Session)
	}},
	{"protocol violated", 4400, func(ctx context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error {
		return c.Say(ctx, "ack", "999999")
	}},
	{"superseded, then an old token", 4409, func(ctx context.Context, r *run, _ *seat.Conn, h *seat.Hello) error {
		newer, _, err := r.resume(ctx, h.Token)
		if err != nil {
			return err
		}
		defer newer.Drop()
		if err := echo(ctx, newer, "after the takeover"); err != nil {
			return err
		}
		if old, _, err := r.resume(ctx, h.Token); err == nil {
			old.Drop()
			return errors.New("a superseded token was accepted")
		}
		return newer.Say(ctx, "bye", "")
	}},
	{"plain client", 0, func(_ context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error { return c.Close(1000, "") }},
}

func (r *run) ask(ctx context.Context, method, path string) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.gateway.Admin+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return nil
}

// session runs one session.
func (r *run) session(ctx context.Context, i int) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	k := kinds[i%len(kinds)]
	err := r.live(ctx, k, rand.New(rand.NewPCG(r.Seed, uint64(i))))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[k.name]++
	if err != nil && len(r.faults) < 10 {
		r.faults = append(r.faults, fmt.Sprintf("session %d (%s): %v", i, k.name, err))
	}
}

func (r *run) live(ctx context.Context, k kind, rnd *rand.Rand) error {
	plain := k.name == "plain client"
	c, _, err := seat.Dial(ctx, r.client, "ws://"+r.gateway.Addr+"/", seat.Offer{Plain: plain})
	if err != nil {
		return err
	}
	defer func() { c.Drop() }()
	var h *seat.Hello
	if !plain {
		if h, _, err = c.Hello(ctx); err != nil {
			return err
		}
		c.Ack(ctx, 0)
	}
	if err := echo(ctx, c, "hello"); err != nil {
		return err
	}
	if !plain && rnd.IntN(2) == 0 { // disconnected, with an unread message
		c.Send(ctx, false, make([]byte, rnd.IntN(20_000)))
		since := time.Now()
		c.Drop()
		r.mu.Lock()
		r.resumes++
		r.mu.Unlock()
		newer, hello, err := r.resume(ctx, h.Token)
		if errors.Is(err, errOver) && time.Since(since) > grace {
			r.mu.Lock()
			r.late++
			r.mu.Unlock()
			return nil
		}
		if err != nil {
			return err
		}
		c, h = newer, hello
	}
	if err = k.do(ctx, r, c, h); k.code == 0 {
		return err
	}
	for err == nil {
		_, err = c.Read(ctx)
	}
	if got := seat.CloseOf(err); got != k.code {
		return fmt.Errorf("closed with %d, want %d (%w)", got, k.code, err)
	}
	return nil
}

// echo sends a text and waits for the echo.
func echo(ctx context.Context, c *seat.Conn, text string) error {
	err := c.Send(ctx, true, []byte(text))
	for err == nil {
		var m seat.Message
		if m, err = c.Read(ctx); err == nil && string(m.Data) == text {
			return nil
		}
	}
	return err
}

// errOver is the refusal of a resume whose session is over.
var errOver = errors.New("refused with 4404")

// resume resumes after the first message.
func (r *run) resume(ctx context.Context, token string) (*seat.Conn, *seat.Hello, error) {
	c, _, err := seat.Dial(ctx, r.client, "ws://"+r.gateway.Addr+"/", seat.Offer{Token: token, Received: 1})
	if err != nil {
		return nil, nil, err
	}
	h, k, err := c.Hello(ctx)
	if k != nil {
		err = fmt.Errorf("refused with %d %s", k.Code, k.Reason)
		if k.Code == 4404 {
			err = fmt.Errorf("%w: %s", errOver, k.Reason)
		}
	}
	if err != nil {
		c.Drop()
		return nil, nil, err
	}
	return c, h, c.Ack(ctx, 1)
}

// A sample is what the gateway holds at one time.
type sample struct {
	sessions                                         int           // finished so far
	at                                               time.Duration // since the begin
	tombstones                                       int           // at most, that the gateway still keeps
	heap, resident, goroutines, descriptors, buffers float64
}

// measure waits until the gateway has no sessions, and then measures. After the last session it waits until
// the tombstones have expired.
func (r *run) measure(ctx context.Context, done int) (s sample, err error) {
	s.sessions = done
	if what := process.Await(ctx, patience, func() string {
		if n := process.Sum(r.gateway.Metrics(), "reseat_sessions"); n > 0 {
			return fmt.Sprintf("%v sessions live after their clients' end", n)
		}
		return ""
	}); what != "" {
		return s, errors.New(what)
	}
	if done == r.Sessions {
		process.Sleep(ctx, remember+5*time.Second)
	}
	for range 2 { // each collects; pooled memory survives the first
		if err := r.ask(ctx, "GET", "/debug/pprof/heap?gc=1"); err != nil {
			return s, err
		}
	}
	m := r.gateway.Metrics()
	if _, ok := m["go_goroutines"]; !ok {
		return s, errors.New("/metrics has no go_goroutines")
	}
	s.heap, s.goroutines, s.buffers = m["go_memstats_heap_alloc_bytes"], m["go_goroutines"], m["reseat_buffer_bytes"]
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.gateway.PID))
	if err != nil {
		return s, err
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", r.gateway.PID))
	if err != nil {
		return s, err
	}
	var total, pages float64
	_, err = fmt.Sscan(string(statm), &total, &pages)
	s.descriptors, s.resident = float64(len(fds)), pages*float64(os.Getpagesize())
	return s, err
}
