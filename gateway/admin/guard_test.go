package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"reseat/gateway"
)

func TestLoopbackNameMatchesOnlyLoopback(t *testing.T) {
	for _, host := range []string{
		"localhost", "localhost:8081", "LOCALHOST:8081", "Localhost.", "localhost.:8081",
		"127.0.0.1", "127.0.0.1:8081", "127.0.0.2", "127.255.255.254:1", "[::1]", "[::1]:8081", "::1", "[0:0:0:0:0:0:0:1]:8081", "[::ffff:127.0.0.1]:8081",
	} {
		if !loopbackName(host) {
			t.Errorf("%q is refused", host)
		}
	}
	for _, host := range []string{
		"", ":8081", "evil.example", "evil.example:8081", "localhost.evil.example", "localhost.evil.example:8081", "127.0.0.1.evil.example", "evil-localhost", "localhostx", "xlocalhost",
		"foo.localhost", "local", "ip6-localhost", "127.0.0.1.nip.io", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.01", "127.0.0.256", "0.0.0.0", "0.0.0.0:8081", "[::]", "[::]:8081",
		"128.0.0.1", "10.0.0.1", "192.168.0.1:8081", "169.254.169.254", "[fe80::1]", "[::2]", "[::ffff:10.0.0.1]", "localhost@evil.example", "evil.example@localhost", "localhost:8081:8081", "localhost/x", "localhost evil.example",
		"localhost..", "loc\u0430lhost", "null", "*",
	} {
		if loopbackName(host) {
			t.Errorf("%q passes", host)
		}
	}
}

// An asked is a request to the admin address as a browser sends it.
type asked struct {
	host   string
	origin []string
	site   string // Sec-Fetch-Site
}

func (a asked) request() *http.Request {
	r := httptest.NewRequest("GET", "/api/v1/sessions", nil)
	r.Host = a.host
	if a.origin != nil {
		r.Header["Origin"] = a.origin
	}
	if a.site != "" {
		r.Header.Set("Sec-Fetch-Site", a.site)
	}
	return r
}

// T11, T44: who passes where no token is set.
var passes = map[string]asked{
	"curl":                     {host: "127.0.0.1:8081"},
	"curl by name":             {host: "localhost:8081"},
	"typed into the address":   {host: "localhost:8081", site: "none"},
	"the dashboard":            {host: "localhost:8081", site: "same-origin"},
	"the dashboard's post":     {host: "localhost:8081", origin: []string{"http://localhost:8081"}, site: "same-origin"},
	"over IPv6":                {host: "[::1]:8081", origin: []string{"http://[::1]:8081"}, site: "same-origin"},
	"in other letters":         {host: "LOCALHOST:8081", origin: []string{"http://localhost:8081"}},
	"an old browser, no fetch": {host: "127.0.0.1:8081", origin: []string{"http://127.0.0.1:8081"}},
}

var refused = map[string]asked{
	"rebound name":                     {host: "evil.example:8081"},
	"rebound name, matching origin":    {host: "evil.example:8081", origin: []string{"http://evil.example:8081"}, site: "same-origin"},
	"rebound name without a port":      {host: "evil.example", origin: []string{"http://evil.example"}},
	"name that begins like ours":       {host: "localhost.evil.example:8081", origin: []string{"http://localhost.evil.example:8081"}},
	"address in a name":                {host: "127.0.0.1.nip.io:8081", origin: []string{"http://127.0.0.1.nip.io:8081"}},
	"address of the net":               {host: "192.168.1.2:8081"},
	"no host":                          {host: ""},
	"foreign page":                     {host: "localhost:8081", origin: []string{"https://evil.example"}, site: "cross-site"},
	"foreign page, old browser":        {host: "localhost:8081", origin: []string{"https://evil.example"}},
	"foreign image":                    {host: "localhost:8081", site: "cross-site"},
	"page of another port":             {host: "localhost:8081", origin: []string{"http://localhost:3000"}, site: "same-site"},
	"page of another port, no fetch":   {host: "localhost:8081", origin: []string{"http://localhost:3000"}},
	"page of another port, no origin":  {host: "localhost:8081", site: "same-site"},
	"page by another name":             {host: "localhost:8081", origin: []string{"http://127.0.0.1:8081"}},
	"sandboxed page":                   {host: "localhost:8081", origin: []string{"null"}},
	"sandboxed page, same site stated": {host: "localhost:8081", origin: []string{"null"}, site: "same-origin"},
	"empty origin":                     {host: "localhost:8081", origin: []string{""}},
	"host without scheme":              {host: "localhost:8081", origin: []string{"localhost:8081"}},
	"two origins":                      {host: "localhost:8081", origin: []string{"http://localhost:8081", "https://evil.example"}},
	"user in the origin":               {host: "localhost:8081", origin: []string{"http://localhost:8081@evil.example"}},
	"origin that cannot be read":       {host: "localhost:8081", origin: []string{"http://[::1"}},
	"odd fetch site":                   {host: "localhost:8081", site: "same-origin, cross-site"},
}

// A route whose upstream is the admin address would open it to every client, since the
// gateway forwards the client's Host.
func TestForwardedRequestsAreRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, path := range []string{"/", "/metrics", "/api/v1/sessions", "/debug/pprof/"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = "localhost"
			r.Header.Set(gateway.ViaHeader, "0123456789abcdef0123456789abcdef")
			got := httptest.NewRecorder()
			w.admin.ServeHTTP(got, r)
			if got.Code != http.StatusLoopDetected {
				t.Errorf("%s: %d, want 508", path, got.Code)
			}
		}
	})
}
