package login

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reseat/tokens/internal/jwttest"
)

// eager fetches for every unknown kid, and at the start.
var eager = pace{every: time.Hour, retry: time.Hour, retryMax: time.Hour, cooldown: time.Nanosecond}

// fetching is a Verifier for a JWKS URL on loopback.
func fetching(t *testing.T, url string) (*Verifier, *journal) {
	t.Helper()
	j := new(journal)
	v, err := open(context.Background(), Config{JWKS: url, Now: atEpoch, Log: j.logger()}, newTransport(), eager)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v, j
}

// A served is a real server with a replaceable answer.
type served struct {
	*httptest.Server
	handler atomic.Pointer[http.HandlerFunc]
}

func serve(t *testing.T, h http.HandlerFunc) *served {
	s := new(served)
	s.handler.Store(&h)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.handler.Load())(w, r) }))
	t.Cleanup(s.Close)
	return s
}

func (s *served) now(h http.HandlerFunc) { s.handler.Store(&h) }

func answering(set string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, set) }
}

// wantPlayerSoon allows for a fetch that was in flight when the answer changed.
func wantPlayerSoon(t *testing.T, v *Verifier, token string) {
	t.Helper()
	for range 20 {
		if _, err := v.Verify(t.Context(), token); err == nil {
			return
		}
	}
	wantPlayer(t, v, token)
}

// A key's life over a real connection: published, used, withdrawn.
func TestRotationOverHTTP(t *testing.T) {
	s := serve(t, answering(oldSet()))
	v, j := fetching(t, s.URL)
	wantPlayer(t, v, oldToken(t))
	s.now(answering(bothSets()))
	wantPlayerSoon(t, v, newToken(t))
	wantPlayer(t, v, oldToken(t))
	s.now(answering(newSet()))
	wantRefused(t, v, edToken(t, "third", jwttest.Ed25519()), ErrUnknownKey) // this triggers a fetch
	wantRefused(t, v, oldToken(t), ErrUnknownKey)
	wantPlayer(t, v, newToken(t))
	s.Close()
	wantRefused(t, v, oldToken(t), ErrUnknownKey) // without success
	wantPlayer(t, v, newToken(t))
	if j.count("connection refused") == 0 {
		t.Errorf("the log does not say what was wrong:\n%s", j)
	}
}

// A redirect could lead anywhere, also into the operator's network. Nothing must follow it,
// and the log must not repeat the answer.
func TestRedirectIsNotFollowed(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer target.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", target.URL+"/hunter2")
			w.WriteHeader(status)
			fmt.Fprint(w, oldSet())
		})
		v, j := fetching(t, s.URL)
		wantRefused(t, v, oldToken(t), ErrNoKeys)
		if j.count(fmt.Sprintf("answered %d: no redirect is followed", status)) == 0 || j.count("hunter2") > 0 {
			t.Errorf("status %d: the log says:\n%s", status, j)
		}
	}
}

func TestPasswordOfTheURLIsSentAndNotLogged(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "gate" || password != "hunter2" || r.URL.RawQuery != "apikey=hunter2" || r.URL.Path != "/a b/keys" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, oldSet())
	})
	v, j := fetching(t, strings.Replace(s.URL, "http://", "http://gate:hunter2@", 1)+"/a%20b/keys?apikey=hunter2#hunter2")
	wantPlayer(t, v, oldToken(t))
	s.now(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	wantRefused(t, v, newToken(t), ErrUnknownKey)
	s.Close()
	wantRefused(t, v, newToken(t), ErrUnknownKey)
	if j.count("hunter2") > 0 || j.count("gate:") > 0 || j.count(s.URL+"/a%20b/keys") == 0 || j.count("answered 401") == 0 || j.count("connection refused") == 0 {
		t.Errorf("the log says:\n%s", j)
	}
}

// An answer must not appear in the log, and must not use much memory.
func TestBadAnswersOverHTTP(t *testing.T) {
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				fmt.Fprint(c, text)
				c.Close()
			}
		}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"no HTTP":       {raw("hunter2 hunter2\r\n\r\n"), "no valid HTTP answer"},
		"cut off":       {raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"keys\":["), "no valid HTTP answer"},
		"nothing":       {raw(""), "no valid HTTP answer"},
		"a huge header": {raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), "no valid HTTP answer"},
		"a gzip bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write(make([]byte, 2*maxSet))
			z.Close()
		}, "answered with more than 262144 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			v, j := fetching(t, serve(t, tt.answer).URL)
			wantRefused(t, v, oldToken(t), ErrNoKeys)
			if j.count(tt.want) == 0 || j.count("hunter2") > 0 {
				t.Errorf("the log says, without %q:\n%s", tt.want, j)
			}
		})
	}
}

func TestUntrustedCertificateIsRefused(t *testing.T) {
	s := httptest.NewUnstartedServer(answering(oldSet()))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	v, j := fetching(t, s.URL)
	wantRefused(t, v, oldToken(t), ErrNoKeys)
	if j.count("failed to verify certificate") == 0 {
		t.Errorf("the log does not say what was wrong:\n%s", j)
	}
}

// The environment's proxy is for other programs: it could replace the keys.
func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	if newTransport().(*http.Transport).Proxy != nil {
		t.Error("the transport has a proxy")
	}
}
