package login

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestProtocolsWithLoginAreStripped(t *testing.T) {
	s := sources(t, "header,protocol:jwt.,protocol:Bearer-")
	offer := []string{"chat.v2", "jwt.a.b.c", "reseat.v1", "Bearer-x", "jwt.", " jwt.y", "xjwt.z", "JWT.a", "reseat.token.a.b.c"}
	before := slices.Clone(offer)
	want := []string{"chat.v2", "reseat.v1", "xjwt.z", "JWT.a", "reseat.token.a.b.c"}
	if got := s.StripProtocols(offer); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !slices.Equal(offer, before) {
		t.Errorf("the offer itself was changed: %q", offer)
	}
	if got := sources(t, "header").StripProtocols(offer); !slices.Equal(got, offer) {
		t.Errorf("without such a source: %q", got)
	}
}

func TestHeaderWithLoginIsStripped(t *testing.T) {
	s := sources(t, "header,cookie:c,cookie:d")
	for _, tt := range []struct{ name, lines, want string }{
		{"nothing", "X: 1", "X: 1"},
		{"bearer", "Authorization: Bearer a.b.c|X: 1", "X: 1"},
		{"bearer in capitals, no good", "Authorization: BEARER", ""},
		{"basic stays", "Authorization: Basic dXNlcjpwdw==", "Authorization: Basic dXNlcjpwdw=="},
		{"basic and bearer", "Authorization: Basic x|Authorization: Bearer a|Authorization: bearer b", "Authorization: Basic x"},
		{"others' cookies", "Cookie: a=1;b=2; e=\"3\"", "Cookie: a=1;b=2; e=\"3\""},
		{"the cookie alone", "Cookie: c=a.b.c", ""},
		{"first", "Cookie: c=a.b.c; a=1;  b=2", "Cookie: a=1;  b=2"},
		{"in the middle", "Cookie: a=1; c=a.b.c;b=2", "Cookie: a=1;b=2"},
		{"last", "Cookie: a=1; c=a.b.c", "Cookie: a=1"},
		{"twice, and another", "Cookie: c=1; a=1; c = 2; d=3; b=2", "Cookie: a=1; b=2"},
		{"without a value", "Cookie: c; a=1", "Cookie: a=1"},
		{"two lines", "Cookie: c=1|Cookie: a=1; c=2", "Cookie: a=1"},
		{"similar names", "Cookie: cc=1; C=2; xc=3; c.=4", "Cookie: cc=1; C=2; xc=3; c.=4"},
		{"the subprotocols are not its business", "Sec-Websocket-Protocol: jwt.a", "Sec-Websocket-Protocol: jwt.a"},
	} {
		h := http.Header{}
		for line := range strings.SplitSeq(tt.lines, "|") {
			name, value, _ := strings.Cut(line, ": ")
			h.Add(name, value)
		}
		original := maps.Clone(h)
		before := slices.Concat(slices.Collect(maps.Values(original))...)
		s.StripHeader(h)
		want := http.Header{}
		for line := range strings.SplitSeq(tt.want, "|") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				want.Add(name, value)
			}
		}
		if !maps.EqualFunc(h, want, slices.Equal) {
			t.Errorf("%s: %q, want %q", tt.name, h, want)
		}
		after := slices.Concat(slices.Collect(maps.Values(original))...)
		if slices.Sort(before); !slices.Equal(before, slices.Sorted(slices.Values(after))) {
			t.Errorf("%s: a header that shares its values was changed: %q", tt.name, original)
		}
	}
}

func TestQueryKeepsItsOtherBytes(t *testing.T) {
	s := sources(t, "query:t,query:u")
	for _, tt := range []struct{ raw, stripped string }{
		{"", ""},
		{"t=a.b.c", ""},
		{"t=a.b.c&x=1", "x=1"},
		{"x=1&t=a.b.c", "x=1"},
		{"x=1&t=a.b.c&y=2", "x=1&y=2"},
		{"x=%20+%zz&t=a&y&&z=", "x=%20+%zz&y&&z="},
		{"%74=a&x", "x"},
		{"t=1&u=2&t=3", ""},
		{"t&x", "x"},
		{"t=&x", "x"},
		{"x=1;t=a.b.c;y=2", "x=1;y=2"},
		{"x=1;t=a.b.c&y=2", "x=1&y=2"},
		{"t=a=b=c&x", "x"},
		{"T=1&tt=2&xt=3&t%00=4&t%=5", "T=1&tt=2&xt=3&t%00=4&t%=5"},
		{"x=t=1", "x=t=1"},
		{"&t=1&", "&"},
	} {
		if got := s.StripQuery(tt.raw); got != tt.stripped {
			t.Errorf("strip %q: %q, want %q", tt.raw, got, tt.stripped)
		}
	}
}

// FuzzQuery: the stripped query must have no parameter with the names, however it is
// parsed, and all others.
func FuzzQuery(f *testing.F) {
	s := sources(f, "query:t,query:auth[token]")
	for _, raw := range []string{"t=a.b.c&x=1", "x;t=1;%74=2&auth%5btoken%5D=3", "%zz&t%=1&&;", "t", "+t=1", "x=t=1&T=2"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		stripped := s.StripQuery(raw)
		for _, separated := range []string{stripped, strings.ReplaceAll(stripped, ";", "&")} {
			values, _ := url.ParseQuery(separated) // keeps what it could read
			if values.Get("t") != "" || values.Get("auth[token]") != "" {
				t.Errorf("%q: %q still has a login", raw, stripped)
			}
		}
		if _, err := s.Find(request(stripped)); Reason(err) != "missing" {
			t.Errorf("%q: found in the stripped query, %q: %v", raw, stripped, err)
		}
		if s.StripQuery(stripped) != stripped {
			t.Errorf("%q: not the same when stripped again: %q", raw, stripped)
		}
		if got, want := others(stripped), others(raw); !slices.Equal(got, want) {
			t.Errorf("%q: others are %q, want %q", raw, got, want)
		}
	})
}

// others are the parts of a query without the names, as written, without empty ones.
func others(raw string) (kept []string) {
	for _, part := range strings.FieldsFunc(raw, func(r rune) bool { return r == '&' || r == ';' }) {
		name, err := url.PathUnescape(strings.ReplaceAll(part[:max(strings.IndexByte(part+"=", '='), 0)], "+", " "))
		if err != nil || name != "t" && name != "auth[token]" {
			kept = append(kept, part)
		}
	}
	return kept
}

// FuzzCookies: the standard library must find no login in the stripped line, and all the
// other cookies.
func FuzzCookies(f *testing.F) {
	s := sources(f, "cookie:c")
	for _, line := range []string{"c=1; a=2", `a="1"; c="2"`, "c;c=;;c =1", " c=1;\tc=2;b=3", "a=c=1"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return // net/http lets no such value in
		}
		read := func(h http.Header) (logins, others []string) {
			for _, c := range (&http.Request{Header: h}).Cookies() {
				if c.Name == "c" {
					logins = append(logins, c.Value)
				} else {
					others = append(others, c.Name+"="+c.Value)
				}
			}
			return logins, others
		}
		h := http.Header{"Cookie": {line}}
		_, before := read(h)
		s.StripHeader(h)
		logins, after := read(h)
		if len(logins) > 0 || !slices.Equal(before, after) {
			t.Errorf("%q: left is %q, with the logins %q, and others %q, want %q", line, h["Cookie"], logins, after, before)
		}
		if _, err := s.Find(&http.Request{Header: h}); Reason(err) != "missing" {
			t.Errorf("%q: found in the stripped line, %q", line, h["Cookie"])
		}
	})
}
