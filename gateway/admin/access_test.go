package admin

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"reseat/gateway"
	"reseat/gateway/front"
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
			r.Header.Set(front.ViaHeader, "0123456789abcdef0123456789abcdef")
			got := httptest.NewRecorder()
			w.admin.ServeHTTP(got, r)
			if got.Code != http.StatusLoopDetected {
				t.Errorf("%s: %d, want 508", path, got.Code)
			}
		}
	})
}

const (
	adminToken  = "admin-CANARY-0123456789"
	viewerToken = "viewer-CANARY-0123456789"
)

// tokenFile writes a token file.
func tokenFile(t *testing.T, lines ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, name, lines...)
	return name
}

func writeTokens(t *testing.T, name string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withTokens makes the admin address require a token.
func withTokens(t *testing.T) change {
	t.Helper()
	c, err := LoadCredentials(tokenFile(t, adminToken), tokenFile(t, viewerToken))
	if err != nil {
		t.Fatal(err)
	}
	return func(_ *gateway.Config, o *Options) { o.Credentials = c }
}

func TestTokenFileHasOneTrimmedTokenPerLine(t *testing.T) {
	if c, err := LoadCredentials("", ""); c != nil || err != nil {
		t.Errorf("without files: %v, %v, want that no token is required", c, err)
	}
	c, err := LoadCredentials(tokenFile(t, "  first-0123456789ab\t\r", "", "\tsecond-0123456789a", ""), tokenFile(t, "watch-0123456789ab"))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]caller{
		"first-0123456789ab":   {name: "admin-token line 1", write: true},
		"second-0123456789a":   {name: "admin-token line 3", write: true},
		"watch-0123456789ab":   {name: "viewer-token line 1", write: false},
		"first-0123456789a":    {},
		"first-0123456789abc":  {},
		"First-0123456789ab":   {},
		" first-0123456789ab":  {},
		"":                     {},
		"second-0123456789a\n": {},
	} {
		if got, ok := c.who(token); got != want || ok != (want.name != "") {
			t.Errorf("%q is %+v, %t", token, got, ok)
		}
	}
}

func TestErrorsOfBadTokenFilesRevealNothing(t *testing.T) {
	const secret = "SECRET-in-a-file"
	good := tokenFile(t, adminToken)
	for name, c := range map[string]struct{ admin, viewer, says string }{
		"third line":   {tokenFile(t, adminToken, "", secret+"\x7f"), "", "--admin-token-file: line 3: want visible ASCII"},
		"blank within": {"", tokenFile(t, secret+" "+secret), "--viewer-token-file: line 1: want visible ASCII"},
		"not ASCII":    {tokenFile(t, secret+"é"), "", "visible ASCII"},
		"zero byte":    {tokenFile(t, secret+"\x00"), "", "visible ASCII"},
		"empty":        {tokenFile(t, " ", "\t", ""), "", "got an empty file"},
		"empty viewer": {good, tokenFile(t), "--viewer-token-file: want a token"},
		"missing":      {filepath.Join(t.TempDir(), "no\nsuch"), "", `no\nsuch": no such file or directory`},
		"a directory":  {t.TempDir(), "", "is a directory"},
		"in both":      {good, tokenFile(t, "other-0123456789a", adminToken), "--viewer-token-file: viewer-token line 2 is in --admin-token-file too"},
		"endless":      {tokenFile(t, strings.Repeat("x", 1<<17)), "", "larger than 65536 bytes"},
	} {
		creds, err := LoadCredentials(c.admin, c.viewer)
		if err == nil || creds != nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "SECRET") || strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%s: %v, want a word on %q", name, err, c.says)
		}
	}
}

// The operator may choose weak tokens, and is warned.
func TestWeakTokensAreAcceptedWithWarning(t *testing.T) {
	c, err := LoadCredentials(tokenFile(t, adminToken, "SECRET-of-15-ch"), tokenFile(t, "SECRET"))
	if err != nil {
		t.Fatal(err)
	}
	if who, _ := c.who("SECRET"); who != (caller{name: "viewer-token line 1", write: false}) {
		t.Errorf("its bearer is %+v", who)
	}
	const guessed = "tokens of less than 16 characters, or of less than 6 different ones, might be guessed: "
	if got, want := c.Warnings(), map[string]string{"admin-token-file": guessed + "line 2", "viewer-token-file": guessed + "line 1"}; !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if c, err = LoadCredentials(tokenFile(t, adminToken), tokenFile(t, "SECRET-of-16-chr")); err != nil || len(c.Warnings()) > 0 {
		t.Errorf("%v, %q", err, c.Warnings())
	}
}

func TestReloadTakesGoodFilesAndKeepsTheTokensOfBadOnes(t *testing.T) {
	const a1, a2, v1, v2 = "admin-old-0123456", "admin-new-0123456", "viewer-old-012345", "viewer-new-012345"
	admins, viewers := tokenFile(t, a1), tokenFile(t, v1)
	c, err := LoadCredentials(admins, viewers)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what            string
		admins, viewers []string // the files' lines
		known           []string // afterwards
		bad             string   // the flag in the error
	}{
		{"rotation", []string{a1, a2}, []string{v1}, []string{a1, a2, v1}, ""},
		{"error within", []string{a2, "with a blank"}, []string{v1}, []string{a1, a2, v1}, "--admin-token-file: "},
		{"error in one file", []string{"with a blank"}, []string{v2}, []string{a1, a2, v2}, "--admin-token-file: "},
		{"end of the rotation", []string{a2}, []string{v2}, []string{a2, v2}, ""},
		{"same token in both", []string{a1}, []string{a1}, []string{a1, v2}, "--viewer-token-file: "},
	} {
		writeTokens(t, admins, tt.admins...)
		writeTokens(t, viewers, tt.viewers...)
		errs := c.Reload()
		if len(errs) > 1 || (tt.bad != "") != (len(errs) == 1 && strings.HasPrefix(errs[0].Error(), tt.bad)) {
			t.Errorf("%s: errors %v, want one of %q", tt.what, errs, tt.bad)
		}
		for _, token := range []string{a1, a2, v1, v2} {
			who, ok := c.who(token)
			if want := slices.Contains(tt.known, token); ok != want || who.write != (want && token[0] == 'a') {
				t.Errorf("%s: %s is known: %t, want %t; %+v", tt.what, token, ok, want, who)
			}
		}
	}
}

// credentials are the headers of a caller, and the role that they give.
var credentials = map[string]struct {
	header []string
	who    string // "", viewer or admin
}{
	"none":             {nil, ""},
	"admin":            {[]string{"Authorization: Bearer " + adminToken}, "admin"},
	"viewer":           {[]string{"Authorization: Bearer " + viewerToken}, "viewer"},
	"small letters":    {[]string{"Authorization: bearer " + adminToken}, "admin"},
	"more blanks":      {[]string{"Authorization: Bearer   " + adminToken + " "}, "admin"},
	"unknown":          {[]string{"Authorization: Bearer unknown-0123456789a"}, ""},
	"part":             {[]string{"Authorization: Bearer " + adminToken[:len(adminToken)-1]}, ""},
	"more":             {[]string{"Authorization: Bearer " + adminToken + "x"}, ""},
	"both in one":      {[]string{"Authorization: Bearer " + adminToken + "," + viewerToken}, ""},
	"twice":            {[]string{"Authorization: Bearer " + adminToken, "Authorization: Bearer " + adminToken}, ""},
	"empty":            {[]string{"Authorization: "}, ""},
	"scheme alone":     {[]string{"Authorization: Bearer"}, ""},
	"no scheme":        {[]string{"Authorization: " + adminToken}, ""},
	"Basic":            {[]string{"Authorization: Basic " + adminToken}, ""},
	"cookie":           {[]string{"Cookie: token=" + adminToken}, ""},
	"proxy's header":   {[]string{"Proxy-Authorization: Bearer " + adminToken}, ""},
	"resume token":     {[]string{"Reseat-Token: " + adminToken}, ""},
	"own page":         {[]string{"Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:8081"}, ""},
	"subprotocol":      {[]string{"Sec-WebSocket-Protocol: reseat.token." + adminToken}, ""},
	"trusted by a lie": {[]string{"X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1"}, ""},
}

// guardedCalls are all routes, and some unknown paths; %s is a session.
var guardedCalls = []struct {
	method, target string
	least          string // the required role: viewer or admin
	body           string
}{
	{"GET", "/metrics", "viewer", ""},
	{"GET", "/api/v1/openapi.json", "viewer", ""},
	{"GET", "/api/v1/sessions", "viewer", ""},
	{"GET", "/api/v1/sessions/%s", "viewer", ""},
	{"HEAD", "/api/v1/sessions/%s", "viewer", ""},
	{"GET", "/api/v1/sessions/%s/data", "viewer", ""},
	{"GET", "/api/v1/drain", "viewer", ""},
	{"GET", "/api/v1/nothing", "viewer", ""},
	{"HEAD", "/api/v1/events", "viewer", ""},
	{"GET", "/api/v1/overview", "viewer", ""},
	{"GET", "/api/v1/refusals", "viewer", ""},
	{"GET", "/api/v1/upgrade", "viewer", ""},
	{"GET", "/api/v1/sessions/%s/history", "viewer", ""},
	{"POST", "/api/v1/sessions", "admin", `{"path":"/nowhere"}`},
	{"PATCH", "/api/v1/sessions/%s", "admin", `{}`},
	{"PUT", "/api/v1/sessions/%s/data", "admin", "x"},
	{"POST", "/api/v1/groups/none/start", "admin", ""},
	{"POST", "/api/v1/groups/none/end", "admin", ""},
	{"POST", "/api/v1/drain", "admin", ""},
	{"DELETE", "/api/v1/drain", "admin", ""},
	{"GET", "/api/v1/nodes", "viewer", ""},
	{"GET", "/api/v1/cluster", "viewer", ""},
	{"GET", "/api/v1/nodes/none/drain", "viewer", ""},
	{"POST", "/api/v1/nodes/none/drain", "admin", ""},
	{"DELETE", "/api/v1/nodes/none/drain", "admin", ""},
	{"GET", "/debug/pprof/", "admin", ""},
	{"GET", "/debug/pprof/heap", "admin", ""},
	{"GET", "/debug/pprof/cmdline", "admin", ""},
	{"GET", "/debug/pprof/nothing", "admin", ""},
	{"POST", "/debug/pprof/symbol", "admin", ""},
	{"OPTIONS", "/api/v1/sessions", "admin", ""},
	{"TRACE", "/api/v1/sessions", "admin", ""},
	{"PUT", "/metrics", "admin", ""},
	{"POST", "/api/v1/sessions/%s/disconnect", "admin", ""},
	{"POST", "/api/v1/sessions/%s/faults", "admin", `{"fault":"reset"}`},
	{"DELETE", "/api/v1/sessions/%s/faults", "admin", ""},
	{"DELETE", "/api/v1/sessions/%s", "admin", ""},
}

// T44: every route with every credential.
func TestEveryRouteRequiresItsToken(t *testing.T) {
	for name, cred := range credentials {
		inWorld(t, func(t *testing.T, w *world) {
			p, _ := w.play("")
			for _, c := range guardedCalls {
				rec := w.send(c.method, strings.Replace(c.target, "%s", p.Hello.Session, 1), c.body, cred.header...)
				want := 0
				switch {
				case cred.who == "":
					want = http.StatusUnauthorized
				case cred.who == "viewer" && c.least == "admin":
					want = http.StatusForbidden
				}
				denied := rec.Code == http.StatusUnauthorized || rec.Code == http.StatusForbidden
				if want > 0 && rec.Code != want || want == 0 && denied {
					t.Errorf("%s %s with %s: %d, want %d", c.method, c.target, name, rec.Code, want)
				}
				if denied != strings.HasPrefix(rec.Header().Get("WWW-Authenticate"), "Bearer ") {
					t.Errorf("%s %s with %s: %d with WWW-Authenticate %q", c.method, c.target, name, rec.Code, rec.Header().Get("WWW-Authenticate"))
				}
			}
			if i, _ := w.gw.Control().Session(p.Hello.Session); (i.State == "ended") != (cred.who == "admin") {
				t.Errorf("with %s the session came to be %s", name, i.State)
			}
		}, withTokens(t))
	}
}

func TestCredentialsTableNamesEveryRoute(t *testing.T) {
	open := []string{"GET /healthz", "GET /readyz", "GET /", "GET /dashboard/{file}", "GET /dashboard/vendor/{file}", "GET /api/v1/events"} // the last is tested by HEAD
	inTable := map[string]bool{}
	for _, o := range open {
		inTable[o] = true
	}
	for _, c := range guardedCalls {
		target := strings.Replace(c.target, "%s", "{id}", 1)
		target = strings.Replace(target, "groups/none", "groups/{group}", 1)
		target = strings.Replace(target, "nodes/none", "nodes/{name}", 1)
		target = regexp.MustCompile(`pprof/[hcn].*`).ReplaceAllString(target, "pprof/{profile}")
		inTable[c.method+" "+target] = true
	}
	for path, item := range described.Paths.Map() {
		for method := range item.Operations() {
			if !inTable[method+" "+path] {
				t.Errorf("%s %s is not in the table", method, path)
			}
		}
	}
}

func TestRefusalsAreCountedAndTheirLogIsLimited(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for range 200 {
			w.call("GET", "/metrics")
		}
		w.send("POST", "/api/v1/drain", "", "Authorization: Bearer "+viewerToken)
		body := w.send("GET", "/metrics", "", "Authorization: Bearer "+viewerToken).Body.String()
		for _, line := range []string{`reseat_admin_refused_total{reason="no_token"} 200`, `reseat_admin_refused_total{reason="viewer"} 1`, `reseat_admin_refused_total{reason="host"} 0`} {
			if !strings.Contains(body, line) {
				t.Errorf("no line %s", line)
			}
		}
		if n := strings.Count(w.log.String(), "admin.refused"); n < 10 || n > 50 {
			t.Errorf("%d lines for 201 refusals", n)
		}
	}, withTokens(t))
}
