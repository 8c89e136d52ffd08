package login

import (
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"reseat/tokens/internal/jwttest"
)

// serve returns the URL of a server on loopback.
func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func answering(set string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, set) }
}

// raw answers with text, and closes the connection.
func raw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			fmt.Fprint(c, text)
			c.Close()
		}
	}
}

func TestProbeReadsWhatNewWouldFetchLater(t *testing.T) {
	file := jwttest.Write(t, "jwks.json", []byte(bothSets()))
	key := jwttest.Write(t, "key", jwttest.PKIX(jwttest.Ed25519()))
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "gate" || password != "hunter2" || r.URL.RawQuery != "apikey=hunter2" || r.URL.Path != "/a b/keys" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, oldSet())
	})
	for _, c := range []struct {
		config Config
		want   Probed
	}{
		{Config{JWKS: file}, Probed{file, false, 2}},
		{Config{KeyFile: key}, Probed{key, false, 1}},
		{Config{JWKS: strings.Replace(site, "//", "//gate:hunter2@", 1) + "/a%20b/keys?apikey=hunter2#hunter2"}, Probed{site + "/a%20b/keys", true, 1}},
	} {
		c.config.Log = new(journal).logger()
		if got, err := Probe(t.Context(), c.config); err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v; want %+v", c.config, got, err, c.want)
		}
	}
}

// An error says what is wrong. It must not contain a secret of the URL, or what the server
// answered.
func TestProbeSaysWhyNoKeyCanBeUsed(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	untrusted := httptest.NewUnstartedServer(answering(oldSet()))
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	redirect := func(status int) string {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", elsewhere+"/hunter2")
			w.WriteHeader(status)
			fmt.Fprint(w, oldSet())
		})
	}
	bomb := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		z.Write([]byte(`{"keys":[],"x":"` + strings.Repeat("x", maxSet)))
		z.Close()
	}
	noHTTP := "no valid HTTP answer"
	for _, c := range []struct {
		url, says string
	}{
		{serve(t, answering(`{"keys":[]}`)), "holds no key that can be used"},
		{serve(t, answering(`["hunter2"]`)), "cannot unmarshal array"},
		{serve(t, http.NotFound), "invalid HTTP status code: 404"},
		{"http://127.0.0.1:1", "dial tcp"},
		{untrusted.URL, "failed to verify certificate"},
		{serve(t, bomb), "answered with more than 262144 bytes"},
		{serve(t, raw("hunter2 hunter2\r\n\r\n")), noHTTP},
		{serve(t, raw("")), noHTTP},
		{serve(t, raw("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")), noHTTP},
		{serve(t, raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"keys\":[")), "unexpected EOF"},
		{redirect(301), "redirect, which is not followed"},
		{redirect(307), "redirect, which is not followed"},
	} {
		got, err := Probe(t.Context(), Config{JWKS: c.url + "/keys?hunter2", Log: new(journal).logger()})
		if err == nil || !strings.HasPrefix(err.Error(), c.url+"/keys: ") || !strings.Contains(err.Error(), c.says) || !got.Remote || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v, error %v; want a remote source, and %q", got, err, c.says)
		}
	}
}

// The environment's proxy is for other programs: it could replace the keys.
func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	if newTransport().Proxy != nil {
		t.Error("the transport has a proxy")
	}
}
