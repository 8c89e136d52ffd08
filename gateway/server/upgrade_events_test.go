//go:build linux

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"reseat/gateway/events"
)

// bySession are the types of a session's events, in order.
type bySession map[string][]string

// want checks that so many sessions have these events.
func (of bySession) want(t *testing.T, count int, types ...string) {
	t.Helper()
	n := 0
	for _, got := range of {
		if fmt.Sprint(got) == fmt.Sprint(types) {
			n++
		}
	}
	if n != count {
		t.Errorf("%d sessions have %v, want %d: %v", n, types, count, of)
	}
}

// A receiver that does not answer for some time must get each event of each process, in the order
// of its session.
func TestWebhookQueueGoesThroughUpgrades(t *testing.T) {
	s, hooks := newStage(t), newHookServer(t)
	hooks.gate = make(chan struct{})
	secret := writeFile(t, filepath.Join(s.dir, "secret"), webhookSecret+"\n")
	n := s.start("--webhook="+hooks.URL, "--webhook-secret-file="+secret)
	const count = 30
	var conns []*websocket.Conn
	join := func() {
		t.Helper()
		c, err := s.dial(n, "/")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.CloseNow() })
		conns = append(conns, c)
	}
	leave := func(conns []*websocket.Conn) {
		for _, c := range conns {
			c.Close(websocket.StatusNormalClosure, "")
		}
	}
	posted, seen := bySession{}, map[string]bool{}
	wait := func(n int) {
		for len(seen) < n {
			p := <-hooks.got
			if id := p.header.Get("Webhook-Id"); !seen[id] { // the same may be posted again
				seen[id] = true
				posted[p.Session] = append(posted[p.Session], p.Type)
			}
		}
	}
	for range count {
		join()
	}
	pid := n.upgrade(n.pid())
	leave(conns[:count/2])
	pid = n.upgrade(pid)
	close(hooks.gate)
	leave(conns[count/2:])
	wait(2 * count)
	n.upgrade(pid)
	join()
	wait(2*count + 1)
	posted.want(t, count, events.Created, events.Ended)
	posted.want(t, 1, events.Created)
}

// A reader of the event stream that comes again with Last-Event-ID sees every event once, with
// increasing ids and no gap.
func TestEventStreamGoesThroughUpgradesWithoutGap(t *testing.T) {
	s := newStage(t)
	n := s.start()
	ctx, stop := context.WithCancel(t.Context())
	began := make(chan struct{})
	var ended atomic.Int64
	of := bySession{}
	var reading sync.WaitGroup
	reading.Go(func() {
		for last := uint64(0); ctx.Err() == nil; {
			req, _ := http.NewRequestWithContext(ctx, "GET", n.admin+"/api/v1/events", nil)
			if last > 0 {
				req.Header.Set("Last-Event-ID", fmt.Sprint(last))
			}
			resp, err := ask.Do(req)
			if err != nil {
				continue
			}
			if began != nil {
				close(began)
				began = nil
			}
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				switch key, value, _ := strings.Cut(lines.Text(), ": "); key {
				case "id":
					id, err := strconv.ParseUint(value, 10, 64)
					if err != nil || id <= last {
						t.Errorf("id %s after %d, %v", value, last, err)
					}
					last = id
				case "data":
					var e events.Event
					json.Unmarshal([]byte(value), &e)
					of[e.Session] = append(of[e.Session], e.Type)
					if e.Type == events.Ended {
						ended.Add(1)
					}
				}
			}
			resp.Body.Close()
		}
	})
	<-began
	const count = 120
	var coming sync.WaitGroup
	coming.Go(func() {
		for i := range count {
			c, err := s.dial(n, "/")
			if err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			c.Close(websocket.StatusNormalClosure, "")
		}
	})
	pid := n.pid()
	for range 5 {
		pid = n.upgrade(pid)
	}
	coming.Wait()
	reaches(t, "events of ended sessions", &ended, count)
	stop()
	reading.Wait()
	of.want(t, count, events.Created, events.Ended)
	if len(of) != count {
		t.Errorf("%d sessions, want %d", len(of), count)
	}
}
