package server

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

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
