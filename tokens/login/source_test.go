package login

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"reseat/tokens/internal/jws"
)

func TestSourcesAreParsedAsInTheFlag(t *testing.T) {
	for list, want := range map[string]string{
		"header":             "header",
		"query:access_token": "query:access_token",
		"header,query:t,cookie:sid,protocol:jwt.": "header,query:t,cookie:sid,protocol:jwt.",
		" header , query:t ":                      "header,query:t",
		"query:a,query:b":                         "query:a,query:b",
		"query:a:b":                               "query:a:b",
		"query:auth[token]":                       "query:auth[token]",
		"protocol:res":                            "", "protocol:reseat.jwt.": "", "protocol:reseat.": "", "protocol:r": "",
		"protocol:resume.": "protocol:resume.", "protocol:Reseat.": "protocol:Reseat.",
		"": "", ",": "", "header,": "", "Header": "", "header:": "", "header:X-Token": "", "query": "", "query:": "", "cookie": "", "cookie:": "", "protocol": "", "protocol:": "",
		"body:x": "", "query:a b": "", "query:a&b": "", "query:a=b": "", "query:a%20b": "", "query:ä": "", "query:a;b": "", "query:a+b": "",
		"cookie:a=b": "", "cookie:a;b": "", "cookie:a b": "", "protocol:a/b": "", "protocol:a b": "", "header,header": "", "query:t,query:t": "",
	} {
		got, err := ParseSources(list)
		var parts []string
		for _, s := range got {
			parts = append(parts, s.String())
		}
		if (err == nil) != (want != "") || strings.Join(parts, ",") != want {
			t.Errorf("%q: %v, error %v, want %q", list, got, err, want)
		}
	}
}

// An error says what is accepted, and what was there instead.
func TestBadSourceIsExplained(t *testing.T) {
	for list, want := range map[string]string{
		"header,body": `want header, query:NAME, cookie:NAME or protocol:PREFIX, got "body"`,
		"header,":     `want header, query:NAME, cookie:NAME or protocol:PREFIX, got ""`,
		"query:":      `want query:NAME`, "cookie:;": `want cookie:NAME`, "protocol:": `want protocol:PREFIX`,
		"protocol:reseat.v1": `another PREFIX than those of reseat.*, got "protocol:reseat.v1"`,
		"header:x":           `want header without a name, got "header:x"`,
		"query:a,query:a":    `"query:a" is listed twice`,
	} {
		if _, err := ParseSources(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", list, err, want)
		}
	}
}

func sources(t testing.TB, list string) Sources {
	t.Helper()
	s, err := ParseSources(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request makes a request from lines "Name: value" and a query.
func request(query string, lines ...string) *http.Request {
	r := httptest.NewRequest("GET", "/match/7", nil)
	r.URL.RawQuery = query
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

const (
	everywhere = "header,query:t,cookie:c,protocol:jwt."
	none       = "!none"
	several    = "!several"
)

// carried are requests, and the login found in each.
var carried = []struct {
	list  string
	query string
	lines []string
	want  string
}{
	{"header", "", []string{"Authorization: Bearer a.b.c"}, "a.b.c"},
	{"header", "", []string{"Authorization: bearer a.b.c"}, "a.b.c"},
	{"header", "", []string{"Authorization: BEARER \t  a.b.c "}, "a.b.c"},
	{"header", "", []string{"Authorization: Bearer\ta.b.c"}, "a.b.c"},
	{"header", "", []string{"Authorization: Bearer a.b.c, Bearer d"}, "a.b.c, Bearer d"}, // which Verify refuses
	{"header", "", []string{"Authorization: Basic dXNlcjpwdw=="}, none},
	{"header", "", []string{"Authorization: Basic dXNlcjpwdw==", "Authorization: Bearer a.b.c"}, "a.b.c"},
	{"header", "", []string{"Authorization: Bearer a.b.c", "Authorization: Bearer a.b.c"}, "a.b.c"},
	{"header", "", []string{"Authorization: Bearer a.b.c", "Authorization: Bearer a.b.d"}, several},
	{"header", "", []string{"Authorization: Bearer"}, none},
	{"header", "", []string{"Authorization: Bearer "}, none},
	{"header", "", []string{"Authorization: Bearerx a.b.c"}, none},
	{"header", "", []string{"Authorization: a.b.c"}, none},
	{"header", "", []string{"X-Authorization: Bearer a.b.c", "Proxy-Authorization: Bearer a.b.c"}, none},
	{"header", "t=a.b.c", []string{"Cookie: c=a.b.c", "Sec-WebSocket-Protocol: jwt.a.b.c"}, none},

	{"query:t", "t=a.b.c", nil, "a.b.c"},
	{"query:t", "room=7&t=a.b.c&x", nil, "a.b.c"},
	{"query:t", "room=7;t=a.b.c;x", nil, "a.b.c"},
	{"query:t", "%74=a%2Eb%2ec", nil, "a.b.c"},
	{"query:t", "t=a.b.c&t=a.b.c", nil, "a.b.c"},
	{"query:t", "t=a.b.c&t=", nil, "a.b.c"},
	{"query:t", "t=a.b.c&t=a.b.d", nil, several},
	{"query:t", "t=a.b.c&%74=a.b.d", nil, several},
	{"query:t", "t=a%zzb", nil, "a%zzb"}, // which Verify refuses
	{"query:t", "t=a.b.c=d", nil, "a.b.c=d"},
	{"query:t", "T=a.b.c&tt=a.b.c&%zz=a.b.c&t%00=a.b.c", nil, none},
	{"query:t", "t=&t", nil, none},
	{"query:t", "", []string{"Authorization: Bearer a.b.c", "Cookie: t=a.b.c"}, none},
	{"query:auth[token]", "auth%5Btoken%5D=a.b.c", nil, "a.b.c"},

	{"cookie:c", "", []string{"Cookie: c=a.b.c"}, "a.b.c"},
	{"cookie:c", "", []string{"Cookie: x=1; c=a.b.c;y=2"}, "a.b.c"},
	{"cookie:c", "", []string{`Cookie: c="a.b.c"`}, "a.b.c"},
	{"cookie:c", "", []string{"Cookie: c = a.b.c"}, "a.b.c"},
	{"cookie:c", "", []string{"Cookie: c=a.b.c; c=a.b.c"}, "a.b.c"},
	{"cookie:c", "", []string{"Cookie: c=a.b.c; c=a.b.d"}, several},
	{"cookie:c", "", []string{"Cookie: c=a.b.c", "Cookie: c=a.b.d"}, several},
	{"cookie:c", "", []string{"Cookie: C=a.b.c; cc=a.b.c; c"}, none},

	{"protocol:jwt.", "", []string{"Sec-WebSocket-Protocol: chat, jwt.a.b.c, reseat.v1"}, "a.b.c"},
	{"protocol:jwt.", "", []string{"Sec-WebSocket-Protocol: chat", "Sec-WebSocket-Protocol: jwt.a.b.c"}, "a.b.c"},
	{"protocol:jwt.", "", []string{"Sec-WebSocket-Protocol: jwt.a.b.c,jwt.a.b.d"}, several},
	{"protocol:jwt.", "", []string{"Sec-WebSocket-Protocol: JWT.a.b.c, jwt., xjwt.a"}, none},

	{everywhere, "t=q", []string{"Authorization: Bearer h", "Cookie: c=k", "Sec-WebSocket-Protocol: jwt.p"}, "h"},
	{everywhere, "t=q", []string{"Cookie: c=k", "Sec-WebSocket-Protocol: jwt.p"}, "q"},
	{everywhere, "", []string{"Cookie: c=k", "Sec-WebSocket-Protocol: jwt.p"}, "k"},
	{everywhere, "t=", []string{"Authorization: Basic x", "Cookie: c=", "Sec-WebSocket-Protocol: jwt.p"}, "p"},
	{"protocol:jwt.,header", "", []string{"Authorization: Bearer h", "Sec-WebSocket-Protocol: jwt.p"}, "p"},
	{"query:t,query:u", "u=2&t=1", nil, "1"},
	{everywhere, "t=1&t=2", []string{"Cookie: c=k"}, several},
	{everywhere, "", nil, none},
}

func TestLoginIsFoundInItsSources(t *testing.T) {
	for _, tt := range carried {
		got, err := sources(t, tt.list).Find(request(tt.query, tt.lines...))
		switch tt.want {
		case none:
			if got != "" || !errors.Is(err, ErrMissing) {
				t.Errorf("%s, %q, %q: %q, error %v, want none", tt.list, tt.query, tt.lines, got, err)
			}
		case several:
			if got != "" || !errors.Is(err, ErrMalformed) {
				t.Errorf("%s, %q, %q: %q, error %v, want it refused", tt.list, tt.query, tt.lines, got, err)
			}
		default:
			if got != tt.want || err != nil {
				t.Errorf("%s, %q, %q: %q, error %v, want %q", tt.list, tt.query, tt.lines, got, err, tt.want)
			}
		}
	}
}

func TestReasonsAreAFixedSet(t *testing.T) {
	for err, want := range map[error]string{
		nil: "", ErrMissing: "missing", ErrTooLong: "too_long", ErrMalformed: "malformed", ErrForged: "forged", ErrUnknownKey: "unknown_key",
		ErrNoKeys: "no_keys", ErrForeign: "foreign", ErrNoSubject: "no_subject", ErrExpired: "expired", ErrNotYet: "not_yet", errors.New("x"): "other",
		fmt.Errorf("login: %w", ErrExpired): "expired",
	} {
		if got := Reason(err); got != want {
			t.Errorf("reason of %v: %q, want %q", err, got, want)
		}
	}
	for err := range map[error]bool{ErrMissing: true, ErrUnknownKey: true, ErrExpired: true, errors.New("x"): true} {
		if !slices.Contains(Reasons(), Reason(err)) {
			t.Errorf("%q is not among %q", Reason(err), Reasons())
		}
	}
	if !errors.Is(ErrUnknownKey, ErrForged) {
		t.Error("a token by an unknown key is not counted as forged")
	}
}

// RFC 6750 section 3: no error code without a login; the characters allowed in
// error_description.
func TestChallenge(t *testing.T) {
	for err, want := range map[error]string{
		nil:               `Bearer realm="reseat"`,
		ErrMissing:        `Bearer realm="reseat"`,
		errNoKeys:         `Bearer realm="reseat", error="invalid_token", error_description="the token cannot be verified yet"`,
		errUnknownKid:     `Bearer realm="reseat", error="invalid_token", error_description="the token is signed by an unknown key"`,
		errors.New(`x"y`): `Bearer realm="reseat", error="invalid_token"`,
		&jws.Refusal{Kind: ErrExpired, Detail: ""}: `Bearer realm="reseat", error="invalid_token", error_description="the token has expired"`,
	} {
		if got := Challenge(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	allowed := regexp.MustCompile(`^Bearer realm="reseat", error="invalid_token", error_description="[\x20-\x21\x23-\x5B\x5D-\x7E]+"$`)
	for _, d := range descriptions {
		if got := Challenge(d.kind); !allowed.MatchString(got) {
			t.Errorf("%v: %s", d.kind, got)
		}
	}
}
