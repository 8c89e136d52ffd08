//go:build linux

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/events"
)

// A receiver takes webhook posts, when open lets it.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	posts []hookPost
	open  chan struct{}
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{open: make(chan struct{})}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		p := hookPost{header: req.Header}
		p.body, _ = io.ReadAll(req.Body)
		json.Unmarshal(p.body, &p)
		select {
		case <-r.open:
		case <-req.Context().Done():
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.posts = append(r.posts, p)
	}))
	t.Cleanup(r.Close)
	return r
}

// wait waits until n posts have come, each counted once by its id.
func (r *receiver) wait(t *testing.T, n int) []hookPost {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		var once []hookPost
		ids := map[string]bool{}
		for _, p := range r.posts {
			if id := p.header.Get("Webhook-Id"); !ids[id] {
				ids[id] = true
				once = append(once, p)
			}
		}
		r.mu.Unlock()
		if len(once) >= n {
			return once
		}
		if time.Now().After(end) {
			t.Fatalf("%d posts, want %d", len(once), n)
		}
	}
}

// A receiver that does not answer for some time must get each event of each process, in the order
// of its session.
func TestWebhookQueueGoesThroughUpgrades(t *testing.T) {
	s := newStage(t)
	r := newReceiver(t)
	secret := writeFile(t, filepath.Join(s.dir, "secret"), webhookSecret+"\n")
	n := s.start("--webhook="+r.URL, "--webhook-secret-file="+secret)
	pid := n.cmd.Process.Pid
	const count = 30
	var conns []*websocket.Conn
	for range count {
		c, _, err := websocket.Dial(t.Context(), "ws://"+n.addr+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	pid = n.upgradeOver(pid)
	for _, c := range conns[:count/2] {
		c.Close(websocket.StatusNormalClosure, "")
	}
	pid = n.upgradeOver(pid)
	close(r.open)
	for _, c := range conns[count/2:] {
		c.Close(websocket.StatusNormalClosure, "")
	}
	r.wait(t, 2*count)
	n.upgradeOver(pid)
	c, _, err := websocket.Dial(t.Context(), "ws://"+n.addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	posts := r.wait(t, 2*count+1)
	of := map[string][]string{}
	for _, p := range posts {
		of[p.Session] = append(of[p.Session], p.Type)
	}
	full := 0
	for id, types := range of {
		switch fmt.Sprint(types) {
		case fmt.Sprint([]string{events.Created, events.Ended}):
			full++
		case fmt.Sprint([]string{events.Created}):
		default:
			t.Errorf("session %s: %v", id, types)
		}
	}
	if full != count || len(posts) != 2*count+1 {
		t.Errorf("%d posts, %d sessions with both events, want %d and %d", len(posts), full, 2*count+1, count)
	}
}

// A reader of the event stream that comes again with Last-Event-ID sees every event once, with
// increasing ids and no gap.
func TestEventStreamGoesThroughUpgradesWithoutGap(t *testing.T) {
	s := newStage(t)
	n := s.start()
	type seen struct {
		id  uint64
		typ string
		ses string
	}
	var mu sync.Mutex
	var all []seen
	ctx, stop := context.WithCancel(t.Context())
	began := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		last := ""
		for ctx.Err() == nil {
			req, _ := http.NewRequestWithContext(ctx, "GET", n.admin+"/api/v1/events", nil)
			if last != "" {
				req.Header.Set("Last-Event-ID", last)
			}
			resp, err := ask.Do(req)
			if err != nil {
				continue
			}
			if resp.StatusCode == http.StatusOK && last == "" {
				select {
				case <-began:
				default:
					close(began)
				}
			}
			var e seen
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				key, value, _ := strings.Cut(lines.Text(), ": ")
				switch key {
				case "id":
					e.id, _ = strconv.ParseUint(value, 10, 64)
					last = value
				case "data":
					var data events.Event
					json.Unmarshal([]byte(value), &data)
					e.typ, e.ses = data.Type, data.Session
					mu.Lock()
					all = append(all, e)
					mu.Unlock()
				}
			}
			resp.Body.Close()
		}
	})
	<-began
	const count = 120
	pid := n.cmd.Process.Pid
	var coming sync.WaitGroup
	coming.Go(func() {
		for i := range count {
			c, _, err := websocket.Dial(ctx, "ws://"+n.addr+"/", nil)
			if err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			c.Close(websocket.StatusNormalClosure, "")
		}
	})
	for range 5 {
		pid = n.upgradeOver(pid)
	}
	coming.Wait()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		got := slices.Clone(all)
		mu.Unlock()
		ended := 0
		for _, e := range got {
			if e.typ == events.Ended {
				ended++
			}
		}
		if ended >= count || time.Now().After(end) {
			break
		}
	}
	stop()
	reading.Wait()
	of := map[string][]string{}
	for i, e := range all {
		of[e.ses] = append(of[e.ses], e.typ)
		if i > 0 && e.id <= all[i-1].id {
			t.Errorf("id %d after %d", e.id, all[i-1].id)
		}
	}
	for id, types := range of {
		if fmt.Sprint(types) != fmt.Sprint([]string{events.Created, events.Ended}) {
			t.Errorf("session %q: %v", id, types)
		}
	}
	if len(of) != count {
		t.Errorf("%d sessions, want %d", len(of), count)
	}
}
