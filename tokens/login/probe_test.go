package login

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProbeReadsWhatNewWouldFetchLater(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, []byte(bothSets()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, answering(oldSet()))
	for _, c := range []struct {
		what   string
		config Config
		source string
		remote bool
		keys   int
	}{
		{"a file", Config{JWKS: file}, file, false, 2},
		{"a URL", Config{JWKS: s.URL + "/keys?secret=hunter2"}, s.URL + "/keys", true, 1},
	} {
		c.config.Log = new(journal).logger()
		got, err := Probe(context.Background(), c.config)
		if want := (Probed{c.source, c.remote, c.keys}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", c.what, got, err, want)
		}
	}
}

func TestProbeSaysWhyNoKeyCanBeUsed(t *testing.T) {
	s := serve(t, answering(`{"keys":[]}`))
	gone := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) })
	for _, c := range []struct {
		jwks, says string
		remote     bool
	}{
		{"/no/such/file", "/no/such/file: ", false},
		{s.URL + "/keys?secret=hunter2", s.URL + "/keys: holds no key", true},
		{gone.URL, gone.URL + ": answered 404, want 200", true},
		{"http://127.0.0.1:1/", "http://127.0.0.1:1/: dial", true},
	} {
		got, err := Probe(context.Background(), Config{JWKS: c.jwks, Log: new(journal).logger()})
		if err == nil || !strings.HasPrefix(err.Error(), c.says) || got.Remote != c.remote || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %+v, %v; want %q", c.jwks, got, err, c.says)
		}
	}
}
