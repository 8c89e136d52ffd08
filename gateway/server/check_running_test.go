package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// check sees no client, so it asks the gateway that serves.
func TestCheckNamesKeepaliveThatRunningGatewayHasNoticed(t *testing.T) {
	body := `{"routes": [{"pattern": "/chess/*", "keepalive": "--keepalive-send '5s:ping'"}, {"pattern": "/go/*", "keepalive": ""}]}`
	status, asked := http.StatusOK, ""
	running := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization") + r.RequestURI
		w.WriteHeader(status)
		w.Write([]byte(body))
	}))
	defer running.Close()
	admin := "--admin=" + strings.TrimPrefix(running.URL, "http://")
	at := "=ws://127.0.0.1:9"
	const want = "WARN  --keepalive-send: route /chess/*: clients of the gateway at --admin "
	for _, c := range []struct {
		args   []string
		status int
		warned bool
	}{
		{[]string{"--route=/chess/*" + at, "--route=/go/*" + at}, 200, true},
		{[]string{"--route=/chess/*" + at, "--keepalive-send=1s:other"}, 200, true},
		{[]string{"--route=/chess/*" + at, "--keepalive-send=5s:ping"}, 200, false},
		{[]string{"--route=/chess/*" + at, "--keepalive=auto"}, 200, false},
		{[]string{"--route=/chess/*" + at + ";keepalive=off"}, 200, false},
		{[]string{"--route=/chess/*" + at, "--disconnect=hard"}, 200, false},
		{[]string{"--route=/go/*" + at}, 200, false},
		{[]string{"--route=/chess/*" + at}, 401, false},
	} {
		status = c.status
		_, report, _ := once(append([]string{"check", admin}, c.args...)...)
		if got := strings.Contains(report, want) && strings.Contains(report, "set --keepalive-send '5s:ping', or"); got != c.warned {
			t.Errorf("%v: warned %v in\n%s", c.args, got, report)
		}
		if asked != "/api/v1/overview?limit=0&node=self" {
			t.Errorf("asked %q", asked)
		}
	}
}
