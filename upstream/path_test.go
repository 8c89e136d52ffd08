package upstream

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Anything in a client's request line is appended to the target's own path, on the
// target's own host (T17).
// A query of "?" stands for an empty one with its question mark.
var targetTests = []struct{ base, path, query, want string }{
	{"ws://game", "/", "", "/"},
	{"ws://game", "", "", "/"},
	{"ws://game/", "/a/b/c", "x=1&y=2", "/a/b/c?x=1&y=2"},
	{"ws://game", "/a", "?", "/a?"},
	{"ws://game/base", "//a", "?", "/base//a?"},
	{"ws://game", "/a", "=&&b=;", "/a?=&&b=;"},
	{"ws://game", "/a%2Fb", "", "/a%2Fb"},
	{"ws://game", "/a%2fb%2Fc", "", "/a%2fb%2Fc"},
	{"ws://game", "/room/a%20b", "q=%26%3d&z", "/room/a%20b?q=%26%3d&z"},
	{"ws://game", "/x", "a=b?c", "/x?a=b?c"},
	{"ws://game", "/x", "a=1;b=2&%zz&=", "/x?a=1;b=2&%zz&="},
	{"ws://game/base", "/x", "", "/base/x"},
	{"ws://game/base/", "/x", "", "/base/x"},
	{"ws://game/base//", "/x", "", "/base/x"},
	{"ws://game/base", "/", "", "/base/"},
	{"ws://game/base", "x", "", "/base/x"},
	{"ws://game/b%2Fase", "/x", "", "/b%2Fase/x"},
	{"ws://game/b ase", "/x", "", "/b%20ase/x"},
	{"ws://game/base", "//evil.example/x", "", "/base//evil.example/x"},
	{"ws://game", "/@evil.example/", "", "/@evil.example/"},
	{"ws://game", "@evil.example/", "", "/@evil.example/"},
	{"ws://game", ":80@evil.example/", "", "/:80@evil.example/"},
	{"ws://game", "/x%40evil", "", "/x%40evil"},
	{"ws://game", "http://evil.example/", "", "/http://evil.example/"},
	{"ws://game", "/x#frag", "a#b", "/x%23frag?a%23b"},
	{"ws://game", "/x?y", "z", "/x%3Fy?z"},
	{"ws://game", "/x\r\nHost: evil\r\n\r\n", "", "/x%0D%0AHost:%20evil%0D%0A%0D%0A"},
	{"ws://game", "/x", "a\r\nHost: evil", "/x?a%0D%0AHost:%20evil"},
	{"ws://game", "/x HTTP/1.0", "a b", "/x%20HTTP/1.0?a%20b"},
	{"ws://game", "/x\x00\x7f\t", "\x00\x1b", "/x%00%7F%09?%00%1B"},
	{"ws://game", "/x%0d%0aHost:evil", "", "/x%0d%0aHost:evil"},
	{"ws://game", "/../x", "", "/../x"},
	{"ws://game", "/%2e%2e/x", "", "/%2e%2e/x"},
	{"ws://game", "/a|b^c`{d}\"<e>", "|", "/a|b^c`{d}\"<e>?|"},
	{"ws://game", "/[a]\\b", "[x]=\\", "/[a]\\b?[x]=\\"},
	{"ws://game", "/Gr\u00fc\u00dfe", "\u00fc", "/Gr\u00fc\u00dfe?\u00fc"},
	{"ws://game", "/a%2F|b", "", "/a%2F|b"},
	{"ws://game", "/*", "", "/*"},
	{"ws://game", "*", "", "/*"},
}

func askFor(path, query string) Request {
	if query == "?" {
		return Request{Path: path, ForceQuery: true, Host: "game.example"}
	}
	return Request{Path: path, RawQuery: query, Host: "game.example"}
}

func TestRequestTargetKeepsPathAndQuery(t *testing.T) {
	for _, c := range targetTests {
		g := newGame(t, c.base, accepting())
		var dialled []string
		dial := g.DialContext
		g.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled = append(dialled, addr)
			return dial(ctx, network, addr)
		}
		got, err := g.Dial(context.Background(), askFor(c.path, c.query))
		if err != nil {
			t.Errorf("%s + %q: %v", c.base, c.path, err)
			continue
		}
		got.Close()
		line, rest, _ := strings.Cut(g.head(), "\r\n")
		// The reverse proxy uses net/http, which by itself would change a path's escaping.
		ask := askFor(c.path, c.query)
		var b bytes.Buffer
		r := &http.Request{Method: "GET", URL: g.requestURL(&ask), Host: "game.example", Header: http.Header{}}
		if err := r.Write(&b); err != nil || r.URL.Host != "game" || r.URL.Scheme != "http" || !strings.HasPrefix(b.String(), line+"\r\n") {
			t.Errorf("%s + %q: by net/http %q of %s://%s, %v; want %q", c.base, c.path, b.String(), r.URL.Scheme, r.URL.Host, err, line)
		}
		if want := "GET " + c.want + " HTTP/1.1"; line != want {
			t.Errorf("%s + %q ? %q: request line %q, want %q", c.base, c.path, c.query, line, want)
		}
		if !strings.HasPrefix(rest, "Host: game.example\r\n") || strings.Count(rest, "\nHost:") > 0 {
			t.Errorf("%s + %q: the request continues with %q", c.base, c.path, rest)
		}
		if len(dialled) != 1 || dialled[0] != "game:80" {
			t.Errorf("%s + %q: dialled %q, want game:80", c.base, c.path, dialled)
		}
	}
}

// NormalPath refuses such paths before; read as a host they would be the client's choice.
func TestRequestURLNamesTheTargetAlone(t *testing.T) {
	target := &Target{URL: mustParse(t, "https://game")}
	u := target.requestURL(&Request{Path: "//evil.example/x"})
	if got := u.RequestURI(); got != "/evil.example/x" || u.Host != "game" {
		t.Errorf("%s at %s", got, u.Host)
	}
}

func TestClientTargetIsWhatTheClientWrote(t *testing.T) {
	type target struct {
		path, query string
		force       bool
	}
	for line, want := range map[string]target{
		"/a%2Fb?q=%26%3d&z":           {"/a%2Fb", "q=%26%3d&z", false},
		"/x?a=b?c":                    {"/x", "a=b?c", false},
		"/match/7?":                   {"/match/7", "", true},
		"//evil.example/x":            {"//evil.example/x", "", false},
		"/a|b":                        {"/a|b", "", false},
		"/x#y":                        {"/x#y", "", false},
		"http://evil.example/p%2Fq?r": {"/p%2Fq", "r", false},
		"http://evil.example/p?":      {"/p", "", true},
		"/a??":                        {"/a", "?", false},
		"http://evil.example":         {"", "", false},
	} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + line + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var got target
		if got.path, got.query, got.force = ClientTarget(r); got != want {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
	made := &http.Request{URL: &url.URL{Path: "/a/b", RawPath: "/a%2Fb", RawQuery: "x"}}
	if path, query, force := ClientTarget(made); path != "/a%2Fb" || query != "x" || force {
		t.Errorf("a request that was not read: path %q query %q, want /a%%2Fb and x", path, query)
	}
}
