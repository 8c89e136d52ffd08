package handshake

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func origin(values ...string) http.Header {
	if len(values) == 0 {
		return http.Header{}
	}
	return http.Header{"Origin": values}
}

// T10: by default a page must come from the host that it connects to.
func TestOriginIsTheSameHostByDefault(t *testing.T) {
	for _, c := range []struct {
		host    string
		yes, no []string
	}{
		{"game.example", []string{"https://game.example", "http://game.example", "https://game.example:443", "http://game.example:80"}, []string{
			"null", "", "game.example", "https://evil.example", "https://game.example.evil.example", "https://evil-game.example", "https://x.game.example",
			"https://example", "https://game.example:8443", "https://game.example:4430", "https://game.example@evil.example",
			"https://evil.example@game.example", "https://user:pw@game.example", "https://evil.example/game.example", "https://game.example/",
			"https://game.example/path", "https://game.example?q=1", "https://game.example#f", "https://evil.example#@game.example",
			"https://evil.example\\@game.example", "https://game.example, https://game.example", "https://game.example https://evil.example",
			"https://g\u0430me.example", "https:game.example", "https://game.example\n", "\nhttps://game.example", " https://game.example",
			"https://game.example\x00", "https://game.example:", "https://game.example:443:443", "1https://game.example",
		}},
		{"game.EXAMPLE", []string{"https://GAME.Example"}, nil},
		{"game.example:8443", []string{"https://game.example:8443"}, []string{"https://game.example"}},
		{"game.example:443", []string{"https://game.example"}, nil},
		{"game.example:80", []string{"http://game.example"}, []string{"https://game.example:8080"}},
		{"[::1]:8443", []string{"https://[::1]:8443"}, nil},
		{"[::1]:443", []string{"https://[::1]"}, nil},
		{"127.0.0.1:8080", []string{"http://127.0.0.1:8080"}, nil},
		{"null", nil, []string{"null"}},
		{"", nil, []string{"", "file://"}},
		{"other.example", nil, []string{"//game.example"}},
		{"x.game.example", nil, []string{"https://game.example"}},
		{"game.example:8444", nil, []string{"https://game.example:8443"}},
		{"[::1:443]", nil, []string{"https://[::1]:443"}},
		{"%", nil, []string{"%"}},
	} {
		wantEach(t, "Host "+c.host, func(o string) bool { return OriginAllowed(nil, origin(o), Target{Host: c.host}) }, c.yes, c.no)
	}
	// An attacker on the path can forge a page of http://, but not one of https://.
	wantEach(t, "under TLS", func(o string) bool { return OriginAllowed(nil, origin(o), Target{"game.example", true}) },
		[]string{"https://game.example", "wss://game.example"}, []string{"http://game.example", "http://game.example:443", "ws://game.example"})
}

// A library alone may accept the second of two. All browsers send an Origin, and only browsers do.
func TestTwoOriginsNeverPass(t *testing.T) {
	for _, patterns := range [][]string{nil, {"*"}, {"https://game.example"}} {
		if !OriginAllowed(patterns, origin(), Target{Host: "game.example"}) {
			t.Errorf("a request without an Origin is refused with --origin %q", patterns)
		}
		for _, twice := range [][]string{{"https://game.example", "https://game.example"}, {"https://game.example", "https://evil.example"}, {"", ""}, {"null", "https://game.example"}} {
			if OriginAllowed(patterns, origin(twice...), Target{Host: "game.example"}) {
				t.Errorf("Origins %q pass with --origin %q", twice, patterns)
			}
		}
	}
}

func TestOriginMatchesItsPattern(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{"*", []string{"https://anything.example", "http://x:1", "null", ""}, nil},
		{"https://game.example",
			[]string{"https://game.example", "https://game.example:443", "HTTPS://GAME.EXAMPLE"},
			[]string{"http://game.example", "http://game.example:443", "https://game.example:80", "https://game.example:8443", "https://x.game.example", "https://game.example.evil.example", "https://agame.example", "https://game.exampl", "null", "", "game.example", "https://", "://game.example"}},
		{"https://game.example:443", []string{"https://game.example", "https://game.example:443"}, []string{"https://game.example:444", "http://game.example"}},
		{"http://game.example", []string{"http://game.example", "http://game.example:80"}, []string{"https://game.example", "http://game.example:443"}},
		{"https://game.example:8443", []string{"https://game.example:8443"}, []string{"https://game.example", "https://game.example:84430", "https://game.example:443"}},
		{"https://*.game.example",
			[]string{"https://eu.game.example", "https://EU.game.example", "https://x-1.game.example"},
			[]string{"https://game.example", "https://a.b.game.example", "https://evil.example.game.example", "http://eu.game.example", "https://eu.game.example:8443", "https://eu.game.example.evil", "https://eugame.example", "https://eu.game.example@evil.example", "https://evil.example/.game.example"}},
		{"https://*.*.game.example", []string{"https://a.b.game.example"}, []string{"https://b.game.example", "https://a.b.c.game.example"}},
		{"https://eu*.game.example", []string{"https://eu.game.example", "https://eu1.game.example"}, []string{"https://xeu.game.example", "https://eu.x.game.example"}},
		{"https://*", []string{"https://localhost", "https://intranet"}, []string{"https://game.example", "https://a.b", "http://localhost", "https://localhost:1"}},
		{"https://game.example:*", []string{"https://game.example", "https://game.example:1", "https://game.example:65535"}, []string{"http://game.example:1", "https://x.example:1", "https://game.example.evil:1"}},
		{"http://localhost:*", []string{"http://localhost:5173", "http://localhost"}, []string{"http://localhost.evil:5173", "https://localhost:5173", "http://evil.localhost:1"}},
		{"*://game.example:8443", []string{"https://game.example:8443", "http://game.example:8443", "app://game.example:8443"}, []string{"https://game.example", "https://x.example:8443"}},
		{"*://game.example", []string{"https://game.example", "https://game.example:443", "http://game.example", "http://game.example:80"}, []string{"https://game.example:80", "http://game.example:443", "https://x.example"}},
		{"https://game.example:*", []string{"https://game.example:5"}, []string{"https://game.example:80@evil.example", "https://game.example:80/x", "https://game.example:x", "https://game.example:", "https://game.example:123456", "https://game.example:80#", "https://game.example:80\n"}},
		{"https://*.example", []string{"https://game.example", "https://a-b_c.example"}, []string{"https://evil/x.example", "https://evil@x.example", "https://evil#x.example", "https://evil?x.example", "https://evil\\x.example", "https://evil:1.example", "https://evil x.example", "https://evil%2e.example", "https://\u0430.example"}},
		{"http*://game.example:80", []string{"http://game.example", "http://game.example:80", "https://game.example:80"}, []string{"https://game.example", "ftp://game.example:80"}},
		{"*://*:*", []string{"https://localhost:1", "app://x"}, []string{"https://game.example", "null"}},
		{"https://[::1]:8443", []string{"https://[::1]:8443"}, []string{"https://[::1]", "https://[::2]:8443"}},
		{"https://[::1]", []string{"https://[::1]", "https://[::1]:443"}, []string{"https://[::1]:8443", "https://[::1:443]"}},
		{"HTTPS://*.Game.Example", []string{"https://eu.game.example"}, []string{"https://game.example"}},
		{"null", []string{"null", "NULL"}, []string{"https://null", "", "nul"}},
		{"app://game", []string{"app://game"}, []string{"app://game2", "https://game"}},
		{"game.example", []string{}, []string{"https://game.example", "http://game.example"}},
	} {
		patterns := []string{"https://other.example", tt.pattern}
		at := func(host string) func(string) bool {
			return func(o string) bool { return OriginAllowed(patterns, origin(o), Target{Host: host}) }
		}
		wantEach(t, "--origin "+tt.pattern, at("unasked.example"), tt.yes, nil)
		wantEach(t, "--origin "+tt.pattern, at("game.example"), nil, tt.no)
	}
}

// With patterns the same host is not enough: only listed origins pass.
func TestPatternsReplaceTheDefault(t *testing.T) {
	if OriginAllowed([]string{"https://site.example"}, origin("https://game.example"), Target{Host: "game.example"}) {
		t.Error("the host's own origin passes unlisted")
	}
}

// likeStar is the reference implementation of matchStar.
func likeStar(pattern, s, without string) bool {
	run := "(?s:.*)"
	if without != "" {
		run = "[^" + regexp.QuoteMeta(without) + "]*"
	}
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, run) + "$").MatchString(s)
}

func TestStarMatchesAnyRunWithinItsBounds(t *testing.T) {
	words := []string{"", "a", "b", ".", "ab", "a.b", "aab", "a.a.b", "..", "ba", "aaa.b", "abab"}
	for _, p := range append(words, "*", "**", "a*", "*a", "*b", "a*b", "*.b", "a.*", "*.*", "*a*", "a*a*b", "*.*.b", "a**b", "*ab*ab") {
		for _, s := range words {
			for _, without := range []string{"", "."} {
				if got, want := matchStar(p, s, without), likeStar(p, s, without); got != want {
					t.Errorf("%q against %q without %q: %t, want %t", s, p, without, got, want)
				}
			}
		}
	}
}

func FuzzStar(f *testing.F) {
	f.Add("*.game.example", "eu.game.example")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if strings.Count(pattern, "*") > 4 || len(s) > 100 || !utf8.ValidString(pattern) || !utf8.ValidString(s) {
			return // patterns are set by operators: few stars
		}
		for _, without := range []string{"", "."} {
			if got, want := matchStar(pattern, s, without), likeStar(pattern, s, without); got != want {
				t.Errorf("%q against %q without %q: %t, want %t", s, pattern, without, got, want)
			}
		}
	})
}
