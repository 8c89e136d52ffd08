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
	"strings"
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
	cfg     Config
	gateway *process.Process
	client  *http.Client
	game    *http.Server

	mu     sync.Mutex
	report *Report
}

// Run runs the sessions.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	began := time.Now()
	r := &run{cfg: cfg, report: &Report{Config: cfg, Ends: map[string]int{}}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.game = &http.Server{Handler: http.HandlerFunc(serve)}
	go r.game.Serve(ln)
	defer r.game.Close()
	r.gateway, err = process.Start(nil, filepath.Join(cfg.Dir, "gateway.log"), nil, cfg.Bin, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0",
		"--upstream=ws://"+ln.Addr().String(), "--driver="+cfg.Driver, "--grace="+grace.String(), "--heartbeat=1s", "--log-format=json", "--log-level=info")
	if err != nil {
		return nil, err
	}
	defer r.gateway.Kill()
	r.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: seat.DialTCP}}
	if err := r.rounds(ctx); err != nil {
		return nil, err
	}
	r.report.Took = time.Since(began)
	r.report.Faults = append(r.report.Faults, r.gateway.Faults()...)
	r.report.Faults = append(r.report.Faults, judge(r.report.Samples)...)
	return r.report, nil
}

// rounds measures before the first session and after each share of them.
func (r *run) rounds(ctx context.Context) error {
	began := time.Now()
	for done, i := 0, 0; ctx.Err() == nil; i++ {
		s, err := r.measure(ctx, done)
		if err != nil {
			return err
		}
		s.at = time.Since(began)
		if i < r.cfg.Rounds { // the last waits for the end of all
			s.tombstones = ended(r.report.Samples, s)
		}
		r.report.Samples = append(r.report.Samples, s)
		if i == r.cfg.Rounds {
			return nil
		}
		share := r.cfg.Sessions*(i+1)/r.cfg.Rounds - done
		r.share(ctx, done, share)
		done += share
	}
	return ctx.Err()
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
	for range r.cfg.AtOnce {
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
		if err != nil {
			return
		}
		switch string(p) {
		case "close":
			ws.Close(4001, "as asked")
			return
		case "die":
			return
		}
		if ws.Write(context.Background(), kind, p) != nil {
			return
		}
	}
}

// A kind is how a session ends.
type kind struct {
	name string
	end  func(ctx context.Context, r *run, c *seat.Conn, h *seat.Hello) error
}

var kinds = []kind{
	{"bye", func(ctx context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error {
		return closedWith(ctx, c, 1000, c.Say(ctx, "bye", ""))
	}},
	{"cut, and never back", func(_ context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error {
		c.Drop()
		return nil
	}},
	{"closed by the game server", func(ctx context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error {
		return closedWith(ctx, c, 4001, c.Send(ctx, true, []byte("close")))
	}},
	{"game server's connection lost", func(ctx context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error {
		return closedWith(ctx, c, 4502, c.Send(ctx, true, []byte("die")))
	}},
	{"ended over the control API", func(ctx context.Context, r *run, c *seat.Conn, h *seat.Hello) error {
		return closedWith(ctx, c, 4410, r.ask(ctx, "DELETE", "/api/v1/sessions/"+h.Session))
	}},
	{"protocol violated", func(ctx context.Context, _ *run, c *seat.Conn, _ *seat.Hello) error {
		return closedWith(ctx, c, 4400, c.Say(ctx, "ack", "999999"))
	}},
	{"superseded, then an old token", func(ctx context.Context, r *run, c *seat.Conn, h *seat.Hello) error {
		return r.takeOver(ctx, c, h)
	}},
	{"plain client", nil},
}

// closedWith reads until the connection is closed, which must be with code.
func closedWith(ctx context.Context, c *seat.Conn, code int, err error) error {
	for err == nil {
		_, err = c.Read(ctx)
	}
	if got := seat.CloseOf(err); got != code {
		return fmt.Errorf("closed with %d, want %d (%w)", got, code, err)
	}
	return nil
}

// takeOver resumes while the older connection is open, checks that the older token is
// refused, and sends bye.
func (r *run) takeOver(ctx context.Context, c *seat.Conn, h *seat.Hello) error {
	defer c.Drop()
	newer, now, err := r.resume(ctx, h.Token, 1)
	if err != nil {
		return err
	}
	defer newer.Drop()
	if err := echo(ctx, newer, "after the takeover"); err != nil {
		return err
	}
	if _, _, err := r.resume(ctx, h.Token, 2); err == nil || !strings.Contains(err.Error(), "4401") {
		return fmt.Errorf("a superseded token: %v", err)
	}
	if now.Session != h.Session {
		return fmt.Errorf("taken over into session %q", now.Session)
	}
	return closedWith(ctx, newer, 1000, newer.Say(ctx, "bye", ""))
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
	err := r.live(ctx, k, rand.New(rand.NewPCG(r.cfg.Seed, uint64(i))))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Ends[k.name]++
	if err != nil && len(r.report.Faults) < 10 {
		r.report.Faults = append(r.report.Faults, fmt.Sprintf("session %d (%s): %v", i, k.name, err))
	}
}

func (r *run) live(ctx context.Context, k kind, rnd *rand.Rand) error {
	c, _, err := seat.Dial(ctx, r.client, "ws://"+r.gateway.Addr+"/", seat.Offer{Plain: k.end == nil})
	if err != nil {
		return err
	}
	if k.end == nil {
		return r.plain(ctx, c)
	}
	h, _, err := c.Hello(ctx)
	if err == nil {
		c.Ack(ctx, 0)
		err = echo(ctx, c, "hello")
	}
	if err == nil && rnd.IntN(2) == 0 { // disconnected, with an unread message
		c.Send(ctx, false, make([]byte, rnd.IntN(20_000)))
		c.Drop()
		r.mu.Lock()
		r.report.Resumes++
		r.mu.Unlock()
		c, h, err = r.resume(ctx, h.Token, 1)
	}
	if err != nil {
		c.Drop()
		return err
	}
	defer c.Drop()
	return k.end(ctx, r, c, h)
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

func (r *run) plain(ctx context.Context, c *seat.Conn) error {
	defer c.Drop()
	if err := echo(ctx, c, "plain"); err != nil {
		return err
	}
	return c.Close(1000, "")
}

// resume resumes with a received count.
func (r *run) resume(ctx context.Context, token string, received uint64) (*seat.Conn, *seat.Hello, error) {
	c, _, err := seat.Dial(ctx, r.client, "ws://"+r.gateway.Addr+"/", seat.Offer{Token: token, Received: received})
	if err != nil {
		return &seat.Conn{}, nil, err
	}
	h, k, err := c.Hello(ctx)
	switch {
	case err != nil:
		return c, nil, err
	case k != nil:
		return c, nil, fmt.Errorf("refused with %d %s", k.Code, k.Reason)
	}
	return c, h, c.Ack(ctx, received)
}

// A sample is what the gateway holds at one time.
type sample struct {
	sessions                                         int           // finished so far
	at                                               time.Duration // since the begin
	tombstones                                       int           // at most, that the gateway still keeps
	heap, resident, goroutines, descriptors, buffers float64
}

// measure waits until the gateway has no sessions, and then measures. Before the first
// and after the last session it waits until the tombstones have expired.
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
	if done == r.cfg.Sessions {
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
