package gateway

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"reseat/gateway/registry"
)

func TestDurationIsFormattedAsFlagsParseIt(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                             "0s",
		time.Millisecond:              "1ms",
		1500 * time.Millisecond:       "1.5s",
		45 * time.Second:              "45s",
		time.Minute:                   "1m",
		90 * time.Second:              "1m30s",
		10 * time.Minute:              "10m",
		time.Hour:                     "1h",
		time.Hour + time.Second:       "1h0m1s",
		time.Hour + 10*time.Minute:    "1h10m",
		20 * time.Hour:                "20h",
		100*time.Hour + 5*time.Minute: "100h5m",
	} {
		if got := registry.FormatDuration(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

func TestDurationSurvivesFormattingAndParsing(t *testing.T) {
	for _, step := range []time.Duration{time.Nanosecond, 7 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 37 * time.Minute, time.Hour} {
		for i := range 400 {
			d := time.Duration(i) * step
			if got, err := time.ParseDuration(registry.FormatDuration(d)); got != d || err != nil {
				t.Fatalf("%v is written %q, which reads %v, %v", d, registry.FormatDuration(d), got, err)
			}
		}
	}
}

// T43: a client cannot fill the log.
func TestLogValuesAreBounded(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("\u20ac", 100), strings.Repeat("x", 1<<20)} {
		got := clip(s)
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
		g := &Gateway{cfg: Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
		r := httptest.NewRequest("GET", "http://game.example/", nil)
		r.RemoteAddr = tt.peer
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-Host", tt.forwarded)
		}
		if got := g.target(r).Host; got != tt.want {
			t.Errorf("%s forwards %q: asked for %q, want %q", tt.peer, tt.forwarded, got, tt.want)
		}
	}
}

func TestSessionIDsAre128RandomBits(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := newID()
		if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}
