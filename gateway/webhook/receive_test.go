package webhook_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"reseat/gateway/events"
	"reseat/gateway/webhook"
)

// What follows, up to the mark, is in docs/webhooks.md.

// Receive takes the events that are signed with secret, each once.
func Receive(secret string, take func(Event)) (http.Handler, error) {
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, err
	}
	var seen sync.Map // a database, with several receivers
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil || webhook.Verify(body, r.Header) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var event Event
		if err := json.Unmarshal(body, &event); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if _, twice := seen.LoadOrStore(r.Header.Get("Webhook-Id"), true); !twice {
			take(event)
		}
		w.WriteHeader(http.StatusNoContent)
	}), nil
}

// An Event is the body of a post.
type Event struct {
	Type, Session, Player, Group, Reason string
	Timestamp                            time.Time
}

// The mark.

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw3vFbBsz5Bd0="

func TestPageShowsTheReceiverOfThisTest(t *testing.T) {
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("receive_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), "is in docs/webhooks.md.\n\n")
	code, _, ok := strings.Cut(rest, "\n// The mark.")
	if !ok || !strings.Contains(string(page), "```go\n"+code+"```") {
		t.Errorf("docs/webhooks.md does not show this:\n%s", code)
	}
}

// start posts the events of a hub to h, over loopback, until the test ends.
func start(t *testing.T, h http.Handler) (*events.Hub, *webhook.Hook) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets, err := webhook.LoadSecrets(file)
	if err != nil {
		t.Fatal(err)
	}
	hub := events.New(time.Now)
	return hub, webhook.Start(webhook.Config{Target: target, Secrets: secrets, Events: hub, Counter: webhook.Unseen})
}

func TestReceiverOfThePageTakesEachEventOnce(t *testing.T) {
	got := make(chan Event, 10)
	receive, err := Receive(secret, func(e Event) { got <- e })
	if err != nil {
		t.Fatal(err)
	}
	lost := false
	hub, hook := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rec := httptest.NewRecorder(); !lost { // it handles the first event, but its answer is lost
			lost = true
			receive.ServeHTTP(rec, r)
			panic(http.ErrAbortHandler)
		}
		receive.ServeHTTP(w, r)
	}))
	hub.Publish(events.Event{Type: events.Created, Session: "s1", Player: "ada"})
	hub.Publish(events.Event{Type: events.Ended, Session: "s1", Reason: "bye"})
	first, second := <-got, <-got
	if first.Type != events.Created || first.Player != "ada" || second.Type != events.Ended || second.Reason != "bye" || first.Timestamp.After(second.Timestamp) {
		t.Errorf("got %+v and %+v", first, second)
	}
	if n := hook.Close(t.Context()); n != 0 || len(got) != 0 {
		t.Errorf("%d left, %d more taken", n, len(got))
	}
}

func TestReceiverOfThePageRefusesUnsignedPosts(t *testing.T) {
	receive, err := Receive(secret, func(e Event) { t.Errorf("took %+v", e) })
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"type":"session.ended"}`))
	r.Header.Set("Webhook-Id", "evt_1")
	r.Header.Set("Webhook-Timestamp", fmt.Sprint(time.Now().Unix()))
	r.Header.Set("Webhook-Signature", "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=")
	rec := httptest.NewRecorder()
	receive.ServeHTTP(rec, r)
	if rec.Code != http.StatusUnauthorized {
		t.Errorf("answered %d", rec.Code)
	}
}
