package server

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Each row is a way to something of --dev. With the flag the gateway answers, and the game server sees nothing of it;
// without it each is a request like any other, and the game server gets it as it came.
func TestNothingOfDevIsThereWithoutIt(t *testing.T) {
	const key = "0123456789abcdef0123456789abcdef"
	const handshake = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	rows := []struct{ method, target, header, body string }{
		{"GET", "/reseat.dev.js", "", ""},
		{"GET", "/reseat.dev.js.map", "", ""},
		{"POST", "/reseat.dev/faults", "Authorization: Page " + key, `{"fault":"reset"}`},
		{"DELETE", "/reseat.dev/faults", "Authorization: Page " + key, ""},
		{"OPTIONS", "/reseat.dev/faults", "Origin: http://evil.example", ""},
		{"GET", "/reseat.dev/session", "Authorization: Bearer x\nReseat-Dev: x", ""},
		{"GET", "/play?reseat.dev=" + key, handshake, ""},
		{"GET", "/", "Accept: text/html", ""},
	}
	for _, dev := range []bool{false, true} {
		seen := ""
		game := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			seen = r.Method + " " + r.RequestURI + " " + string(body) + r.Header.Get("Authorization")
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<head>the game")
		}))
		t.Cleanup(game.Close)
		flags := []string{"--upstream=ws" + strings.TrimPrefix(game.URL, "http")}
		if dev {
			flags = append(flags, "--dev")
		}
		p := beginWith(t, flags...)
		send := func(method, target, header, body string) (int, http.Header, string) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(header) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				r.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, resp.Header, string(text)
		}
		for _, row := range rows {
			seen = ""
			want := row.method + " " + row.target + " " + row.body
			if _, value, ok := strings.Cut(row.header, "Authorization: "); ok {
				value, _, _ = strings.Cut(value, "\n")
				want += value
			}
			_, h, text := send(row.method, p.clients["http"].(string)+row.target, row.header, row.body)
			same := seen == want && h.Get("Access-Control-Allow-Origin") == "" && (strings.Contains(row.header, handshake) || text == "<head>the game")
			if same == dev {
				t.Errorf("--dev %v: %s %s: the game server got %q, the client %q", dev, row.method, row.target, seen, text)
			}
		}
		for _, name := range []string{"/reseat.js", "/reseat.install.js"} {
			if _, _, text := send("GET", p.clients["http"].(string)+name, "", ""); strings.Contains(text, "reseat-dev") != dev {
				t.Errorf("--dev %v: %s has the panel: %v", dev, name, !dev)
			}
		}
		for _, method := range []string{"POST", "DELETE"} {
			status, _, text := send(method, p.admin+"/api/v1/sessions/x/faults", "Content-Type: application/json", `{"fault":"node"}`)
			if refused := status == http.StatusConflict && strings.Contains(text, "--dev"); refused == dev {
				t.Errorf("--dev %v: %s faults: %d %s", dev, method, status, text)
			}
		}
	}
	var out bytes.Buffer
	if Run([]string{"--upstream=ws://127.0.0.1:1", "--dev-token-file=x"}, nil, io.Discard, &out, nil) == 0 || !strings.Contains(out.String(), "--dev") {
		t.Errorf("a token file alone: %s", &out)
	}
}
