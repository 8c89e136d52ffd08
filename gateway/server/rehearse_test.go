package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A planned writes a plan and returns its name.
func planned(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "commute.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// An api answers as the control API does, for two sessions on two pages, of which one has just ended.
type api struct {
	mu    sync.Mutex
	calls []string
	deny  bool
	empty bool // nobody plays
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Header.Get("Authorization") != "Bearer secret":
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodGet && a.empty:
		io.WriteString(w, `{"sessions":[],"next":""}`)
	case r.Method == http.MethodGet && r.URL.Query().Get("cursor") == "":
		io.WriteString(w, `{"sessions":[{"id":"a","state":"attached"}],"next":"7"}`)
	case r.Method == http.MethodGet:
		io.WriteString(w, `{"sessions":[{"id":"gone","state":"detached"},{"id":"b","state":"attached"}],"next":""}`)
	case a.deny:
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"detail":"faults need --dev"}`)
	case strings.Contains(r.URL.Path, "/gone/"), strings.Contains(r.URL.Path, "/-/"):
		w.WriteHeader(http.StatusNotFound)
	default:
		a.calls = append(a.calls, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, body))
		w.WriteHeader(http.StatusNoContent)
	}
}

func (a *api) start(t *testing.T) (args []string) {
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	os.WriteFile(token, []byte("secret\nother\n"), 0o600)
	return []string{"rehearse", "--admin", server.URL, "--admin-token-file", token, "--plan"}
}

// The command is that of docs/dev.md.
func TestRehearsalReplaysThePlanInItsOrder(t *testing.T) {
	a := new(api)
	plan := planned(t, "[[fault]]\nat = '20ms'\nfault = 'silence'\nfor = '1ms'\n[[fault]]\nat = '0s'\nfault = 'slow'\nfor = '1ms'\nrate = 1000\n")
	var out, errs bytes.Buffer
	if status := Run(append(a.start(t), plan), nil, &out, &errs, nil); status != 0 {
		t.Fatalf("status %d: %s", status, &errs)
	}
	slow, silence := ` {"fault":"slow","for":"1ms","rate":1000}`, ` {"fault":"silence","for":"1ms"}`
	want := []string{"POST /api/v1/sessions/a/faults" + slow, "POST /api/v1/sessions/b/faults" + slow, "POST /api/v1/sessions/a/faults" + silence, "POST /api/v1/sessions/b/faults" + silence}
	if !slices.Equal(a.calls, want) {
		t.Errorf("calls %q, want %q", a.calls, want)
	}
	if !strings.Contains(out.String(), "slow: 2 sessions") || !strings.HasSuffix(out.String(), "over\n") {
		t.Errorf("it says %q", &out)
	}
}

func TestInterruptedRehearsalEndsAllFaults(t *testing.T) {
	a := new(api)
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	if status := Run(append(a.start(t), planned(t, "[[fault]]\nat = '1h'\nfault = 'tunnel'\n")), nil, io.Discard, io.Discard, signals); status != 0 {
		t.Errorf("status %d", status)
	}
	if want := []string{"DELETE /api/v1/sessions/a/faults ", "DELETE /api/v1/sessions/b/faults "}; !slices.Equal(a.calls, want) {
		t.Errorf("calls %q, want %q", a.calls, want)
	}
}

func TestRehearsalSaysWhyItCannotBegin(t *testing.T) {
	good := planned(t, "[[fault]]\nat = '0s'\nfault = 'tunnel'\n")
	denied := (&api{deny: true}).start(t)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"rehearse"}, 2, "--plan: want a file"},
		{[]string{"rehearse", "--plan", good + "x"}, 2, "no such file"},
		{[]string{"rehearse", "--plan", planned(t, "x")}, 2, "--plan"},
		{[]string{"rehearse", "--plan", planned(t, "")}, 2, "want [[fault]] tables"},
		{[]string{"rehearse", "--plan", planned(t, "[[fault]]\nfault='tunnel'")}, 2, "fault 1: want at"},
		{[]string{"rehearse", "--plan", planned(t, "[[fault]]\nat='1s'\nfault='quake'")}, 2, "want one of silence"},
		{[]string{"rehearse", "--plan", planned(t, "[[fault]]\nat='1s'\nfault='tunnel'\nx=1")}, 2, "x"},
		{[]string{"rehearse", "--plan", good, "--admin", "127.0.0.1:8081"}, 2, "want a URL"},
		{append(denied, good), 1, "faults need --dev"},
		{append((&api{deny: true, empty: true}).start(t), good), 1, "faults need --dev"},
	} {
		var errs bytes.Buffer
		if status := Run(c.args, nil, io.Discard, &errs, nil); status != c.status || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: status %d, %q; want %d, %q", c.args, status, &errs, c.status, c.want)
		}
	}
}
