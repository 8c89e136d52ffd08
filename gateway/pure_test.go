package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/wire"
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

func TestSessionIDsAre128RandomBits(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := registry.NewID()
		if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}

// Protocol section 6: each status that a first handshake can get, as a close.
func TestEachRefusedStatusHasItsCode(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusBadRequest: "4403 false", http.StatusUnauthorized: "4403 false", http.StatusNotFound: "4403 false", http.StatusConflict: "4403 false",
		http.StatusLoopDetected: "4403 false", http.StatusTooManyRequests: "4429 true", http.StatusInternalServerError: "1011 false",
		http.StatusBadGateway: "4502 true", http.StatusGatewayTimeout: "4502 true", http.StatusServiceUnavailable: "4503 true",
		http.StatusUpgradeRequired: "by HTTP", http.StatusMethodNotAllowed: "by HTTP", http.StatusForbidden: "by HTTP", http.StatusMisdirectedRequest: "by HTTP",
	} {
		c, ok := closing(status, "x", "7")
		got := "by HTTP"
		if ok {
			got = fmt.Sprint(c.Code, c.Retry)
		}
		if got != want || ok && (c != wire.Closing{Code: c.Code, Reason: "x", Status: status, Retry: c.Retry, RetryAfter: 7000}) {
			t.Errorf("%d: %s, %+v, want %s", status, got, c, want)
		}
	}
}

func TestUpstreamsRetryAfterIsParsedInBothForms(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-7": 0, "1.5": 0, "soon": 0, "4294967295": 24 * time.Hour, "99999999999": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:00:05 GMT": 0,
		"Fri, 02 Jan 2099 03:00:05 GMT": 24 * time.Hour,
	} {
		if got := retryAfterOf(value, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// A token is replaced after half of its lifetime, or earlier if it would not outlive twice
// the heartbeat plus the grace period: protocol section 7.
func TestRenewalTime(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	for _, c := range []struct {
		name                         string
		life, heartbeat, grace, want time.Duration
	}{
		{"half its life", h, 15 * s, 30 * s, 30 * m},
		{"three quarters of what is spare", 10 * m, 15 * s, 5 * m, 202500 * time.Millisecond},
		{"the grace period is half its life", 10 * m, 0, 5 * m, 225 * s},
		{"spare is two thirds: both are the same", 9 * m, 0, 3 * m, 4*m + 30*s},
		{"hardly anything is spare", 10 * m, 15 * s, 9*m + 29900*time.Millisecond, minRenewInterval},
		{"nothing is spare", 10 * m, 15 * s, 9*m + 30*s, 5 * m},
		{"less than nothing", 10 * m, h, h, 5 * m},
		{"a life shorter than the least pause", 600 * time.Millisecond, 0, 0, 300 * time.Millisecond},
	} {
		if got := renewal(c.life, c.heartbeat, c.grace); got != c.want {
			t.Errorf("%s: life %v, heartbeat %v, grace %v: renewed after %v, want %v", c.name, c.life, c.heartbeat, c.grace, got, c.want)
		}
	}
	for life := time.Second; life < 48*h; life = life*3/2 + 7 {
		for grace := time.Duration(0); grace < 24*h; grace = grace*2 + 11*s {
			at := renewal(life, 15*s, grace)
			if spare := life - 30*s - grace; spare > time.Second && life-at < 30*s+grace {
				t.Errorf("life %v, grace %v: renewed after %v, too late for a drop just before", life, grace, at)
			}
			if at <= 0 || at > life/2 {
				t.Errorf("life %v, grace %v: renewed after %v", life, grace, at)
			}
		}
	}
}
