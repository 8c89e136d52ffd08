package upstream

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

// T45: spellings of one resource have one normal form.
func TestSpellingsOfOnePathHaveOneNormalForm(t *testing.T) {
	for _, spelling := range []string{
		"/ranked/7", "/%72anked/7", "/r%61nked/7", "/%72%61%6e%6B%65%64/%37", "/./ranked/7", "/%2e/ranked/7", "/ranked/./7",
		"/lobby/../ranked/7", "/lobby/%2e%2e/ranked/7", "/lobby/%2E./ranked/7", "/lobby/x/../../ranked/7", "/../ranked/7",
		"/../../ranked/7", "/%2e%2e/%2e%2e/ranked/7", "/ranked/x/%2e%2e/7", "/a/b/c/../../../ranked/7",
	} {
		if p, err := NormalPath(spelling); err != nil || p.Escaped != "/ranked/7" || p.Decoded != "/ranked/7" {
			t.Errorf("%q: %+v, %v, want /ranked/7", spelling, p, err)
		}
	}
}

func TestNormalForms(t *testing.T) {
	for _, c := range []struct{ raw, escaped, decoded string }{
		{"", "/", "/"},
		{"/", "/", "/"},
		{"/.", "/", "/"},
		{"/..", "/", "/"},
		{"/a/.", "/a/", "/a/"},
		{"/a/..", "/", "/"},
		{"/a/b/..", "/a/", "/a/"},
		{"/a/", "/a/", "/a/"},
		{"/room/a b", "/room/a%20b", "/room/a b"},
		{"/room/a%20b", "/room/a%20b", "/room/a b"},
		{"/r\u00e4ume", "/r%C3%A4ume", "/r\u00e4ume"},
		{"/r%c3%a4ume", "/r%C3%A4ume", "/r\u00e4ume"},
		{"/%3a%40%21%2b", "/:@!+", "/:@!+"},
		{"/a%3bb", "/a%3Bb", "/a;b"},
		{"/a;b=c,d", "/a;b=c,d", "/a;b=c,d"},
		{"/a%3Db", "/a%3Db", "/a=b"},
		{"/100%25", "/100%25", "/100%"},
		{"/100%25zz", "/100%25zz", "/100%zz"},
		{"/%22%3c%7C", "/%22%3C%7C", "/\"<|"},
		{"/\"<|", "/%22%3C%7C", "/\"<|"},
		{"/%ff", "/%FF", "/\xff"},
		{"/%e0%a0%80", "/%E0%A0%80", "/\u0800"},
		{"/%f0%90%80%80", "/%F0%90%80%80", "/\U00010000"},
		{"/%e0", "/%E0", "/\xe0"},
		{"/a/;v=1", "/a/;v=1", "/a/;v=1"},
		{"/%3F%23", "/%3F%23", "/?#"},
		{"/...", "/...", "/..."},
		{"/.a/..b", "/.a/..b", "/.a/..b"},
	} {
		if p, err := NormalPath(c.raw); err != nil || p.Escaped != c.escaped || p.Decoded != c.decoded {
			t.Errorf("%q: %+v, %v, want %q and %q", c.raw, p, err, c.escaped, c.decoded)
		}
	}
}

func TestPathsWithoutASafeNormalFormAreRefused(t *testing.T) {
	for _, c := range []struct {
		raw string
		why error
	}{
		{"/ranked%2f7", errSlash}, {"/ranked%2F7", errSlash}, {"/%2fetc", errSlash},
		{"/ranked\\7", errBackslash}, {"/ranked%5c7", errBackslash}, {"/..%5cranked", errBackslash},
		{"//ranked/7", errEmpty}, {"/ranked//7", errEmpty}, {"/a//", errEmpty}, {"//", errEmpty},
		{"/;/ranked/7", errEmpty}, {"/;v=1/ranked/7", errEmpty}, {"/%3b/ranked/7", errEmpty}, {"/ranked/;/7", errEmpty}, {"/a/;/..", errEmpty},
		{"/a%00", errControl}, {"/a%0d%0ab", errControl}, {"/a\tb", errControl}, {"/%7f", errControl},
		{"/%2572anked/7", errTwice}, {"/%25%37%32anked/7", errTwice}, {"/%252e%252e/x", errTwice},
		{"/%c0%ae%c0%ae/x", errOverlong}, {"/\xc1\x81", errOverlong}, {"/x%e0%80%afranked", errOverlong}, {"/%e0%80%ae%E0%80%AE/x", errOverlong},
		{"/%f0%80%80%ae/x", errOverlong}, {"/%f8%80%80%80%ae/x", errOverlong}, {"/%fc%80%80%80%80%ae/x", errOverlong}, {"/\xe0\x9f\xbf", errOverlong}, {"/\xf0\x8f\xbf\xbf", errOverlong},
		{"/lobby/..;/ranked/7", errParams}, {"/lobby/..;x=1/ranked", errParams}, {"/.;/x", errParams}, {"/%2e%2e%3b/x", errParams},
		{"/%", errEscape}, {"/%4", errEscape}, {"/%zz", errEscape},
		{"ranked", errRelative}, {"*", errRelative}, {"http://x/", errRelative},
	} {
		if p, err := NormalPath(c.raw); !errors.Is(err, c.why) {
			t.Errorf("%q: %+v, %v, want %v", c.raw, p, err, c.why)
		}
	}
}

func TestPathParametersAreDetected(t *testing.T) {
	for _, c := range []struct {
		raw, want string
		other     bool
	}{
		{"/a/b", "/a/b", false}, {"/ranked;v=1/7", "/ranked/7", true}, {"/ranked%3Bx/7;y", "/ranked/7", true}, {"/b/;a", "/b/", true},
	} {
		p, err := NormalPath(c.raw)
		if got, other := p.WithoutParams(); err != nil || got != c.want || other != c.other {
			t.Errorf("%q: %q %v, %v, want %q %v", c.raw, got, other, err, c.want, c.other)
		}
	}
}

// The upstream gets the path that was matched, and normalising it again changes nothing.
func FuzzNormalPath(f *testing.F) {
	for _, s := range []string{"/a/../b", "/%25%34%31", "/a;b/..", "/%2e", "//", "/%c0%ae", "/a%3d", "/\xff%FF", "/.%2e/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := NormalPath(raw)
		if err != nil {
			return
		}
		again, err := NormalPath(p.Escaped)
		if err != nil || again != p {
			t.Fatalf("%q is %+v, and that is %+v, %v", raw, p, again, err)
		}
		if strings.ContainsAny(p.Escaped, " \r\n?#\\") || p.Escaped[0] != '/' {
			t.Fatalf("%q is %q, which is invalid in a request line", raw, p.Escaped)
		}
		for _, s := range strings.Split(p.Escaped, "/") {
			if d, _ := url.PathUnescape(s); d == "." || d == ".." {
				t.Fatalf("%q is %q, which has a dot segment", raw, p.Escaped)
			}
		}
		if d, err := url.PathUnescape(p.Escaped); err != nil || d != p.Decoded {
			t.Fatalf("%q: %q decodes to %q, not %q", raw, p.Escaped, d, p.Decoded)
		}
	})
}
