package front

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"
)

// T43: a client cannot fill the log.
func TestLogValuesAreBounded(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("\u20ac", 100), strings.Repeat("x", 1<<20)} {
		got := Clip(s)
		if len(got) > 200 || !strings.HasPrefix(s, got) || !utf8.ValidString(got) || len(s) <= 200 && got != s {
			t.Errorf("%d bytes become %d", len(s), len(got))
		}
	}
}

func TestForwardedHostIsReadFromTrustedProxiesOnly(t *testing.T) {
	for _, tt := range []struct{ peer, forwarded, want string }{
		{"10.1.2.3:5000", "play.example", "play.example"},
		{"10.1.2.3:5000", "play.example, inner.example", "play.example"},
		{"10.1.2.3:5000", "", "game.example"},
		{"192.0.2.7:5000", "evil.example", "game.example"},
	} {
		r := httptest.NewRequest("GET", "http://game.example/", nil)
		r.RemoteAddr = tt.peer
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-Host", tt.forwarded)
		}
		if got := Read(r, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, NewTable()).Target.Host; got != tt.want {
			t.Errorf("%s forwards %q: asked for %q, want %q", tt.peer, tt.forwarded, got, tt.want)
		}
	}
}
