package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"reseat/gateway/events"
	"reseat/gateway/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A receiver replaces a server. One goroutine owns it, so that concurrent attempts are
// answered one after the other.
type receiver struct {
	asked   chan *post
	got     []*post // what was answered, in order
	answer  func(p *post) *http.Response
	control chan func()
	over    chan struct{}
}

// A post is one attempt as it arrived.
type post struct {
	*http.Request
	body  []byte
	event struct {
		Type, Session, Player, Group, Reason string
		Time, Timestamp                      time.Time
	}
	at    time.Time
	reply chan *http.Response
}

func (p *post) id() string { return p.Header.Get("webhook-id") }

func answered(status int, header ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func ok(*post) *http.Response { return answered(http.StatusNoContent) }

func newReceiver(t *testing.T) *receiver {
	r := &receiver{asked: make(chan *post), control: make(chan func()), over: make(chan struct{}), answer: ok}
	go func() {
		for {
			select {
			case p := <-r.asked:
				r.got = append(r.got, p)
				if resp := r.answer(p); resp != nil { // nil: never
					p.reply <- resp
				}
			case f := <-r.control:
				f()
			case <-r.over:
				return
			}
		}
	}()
	t.Cleanup(func() { close(r.over) })
	return r
}

// do calls f as the owner.
func (r *receiver) do(f func()) {
	done := make(chan struct{})
	r.control <- func() { defer close(done); f() }
	<-done
}

func (r *receiver) answers(f func(*post) *http.Response) { r.do(func() { r.answer = f }) }

// posts returns the posts so far.
func (r *receiver) posts() (list []*post) {
	synctest.Wait()
	r.do(func() { list = append(list, r.got...) })
	return list
}

// RoundTrip hands a request to the receiver.
func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	p := &post{Request: req, body: body, at: time.Now(), reply: make(chan *http.Response, 1)}
	if err := json.Unmarshal(body, &p.event); err != nil {
		return nil, err
	}
	select {
	case r.asked <- p:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	select {
	case resp := <-p.reply:
		if resp.StatusCode == 0 {
			return nil, errors.New("connection reset")
		}
		return resp, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// A desk is a Hook with its Hub and its receiver, in a synctest bubble.
type desk struct {
	*testing.T
	hub      *events.Hub
	hook     *Hook
	receiver *receiver
	file     string
	secret   string
	log      bytes.Buffer
}

func newSecret(seed byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(seed), 32)))
}

func write(t *testing.T, file string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Unseen is a Counter that is not registered.
func Unseen(name, help, label string, _ ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
}

func inDesk(t *testing.T, f func(d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{T: t, hub: events.New(time.Now), receiver: newReceiver(t), secret: newSecret('a')}
		secrets, file := loadSecret(t)
		d.file = file
		target, _ := url.Parse("https://user:pass@hooks.example/reseat?key=1")
		d.hook = Start(Config{Target: target, Secrets: secrets, Events: d.hub, Counter: Unseen, Transport: d.receiver, Log: slog.New(slog.NewTextHandler(&d.log, nil))})
		f(d)
		d.close(-1)
	})
}

func (d *desk) publish(session, kind string) {
	d.hub.Publish(events.Event{Type: kind, Session: session, Player: "p", Group: "g", Path: "/m", Reason: "r"})
}

// close closes the Hook, which must leave so many events undelivered.
func (d *desk) close(left int) {
	d.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if n := d.hook.Close(ctx); n != left && left >= 0 {
		d.Errorf("%d events left, want %d", n, left)
	}
}

func (d *desk) count(result string) int {
	return int(testutil.ToFloat64(d.hook.metrics.events.WithLabelValues(result)))
}

// types returns the types of a session's posts, in order.
func (d *desk) types(session string) (list []string) {
	for _, p := range d.receiver.posts() {
		if p.event.Session == session {
			list = append(list, p.event.Type)
		}
	}
	return list
}

func (d *desk) wantTypes(session string, want ...string) {
	d.Helper()
	if got := d.types(session); fmt.Sprint(got) != fmt.Sprint(want) {
		d.Errorf("session %q: %v, want %v", session, got, want)
	}
}
