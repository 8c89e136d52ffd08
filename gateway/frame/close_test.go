package frame

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"
)

// maySend spells out RFC 6455 section 7.4 and the IANA registry: 1004 is reserved;
// 1005, 1006 and 1015 are never sent; the other codes up to 2999 are unassigned.
func maySend(code int) bool {
	switch code {
	case 1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014:
		return true
	}
	return code/1000 == 3 || code/1000 == 4
}

func TestValidCodeFollowsTheRFC(t *testing.T) {
	for code := range 1 << 16 {
		want := maySend(code)
		if got := ValidCode(code); got != want {
			t.Errorf("ValidCode(%d) = %t", code, got)
		}
		got, reason, err := ParseClose(append(binary.BigEndian.AppendUint16(nil, uint16(code)), "why"...))
		switch {
		case want && (got != code || reason != "why" || err != nil):
			t.Errorf("Close %d: %d %q %v", code, got, reason, err)
		case !want && (got != 0 || reason != "" || err != ErrClose):
			t.Errorf("Close %d, which must not travel: %d %q %v", code, got, reason, err)
		}
	}
	if ValidCode(-1000) || ValidCode(1<<16+1000) {
		t.Error("a code of more than two bytes is valid")
	}
}

func TestClosePayloadIsReadStrictly(t *testing.T) {
	long := strings.Repeat("x", MaxReason)
	for _, tt := range []struct {
		payload string
		code    int
		reason  string
		err     error
	}{
		{"", NoStatus, "", nil},
		{"\x03", 0, "", ErrClose},
		{"\x03\xe8", 1000, "", nil},
		{"\x03\xe8bye", 1000, "bye", nil},
		{"\x03\xe8gr\u00fc\u00dfe \U0001F44B", 1000, "gr\u00fc\u00dfe \U0001F44B", nil},
		{"\x03\xe8" + long, 1000, long, nil},
		{"\x03\xe8\xff", 0, "", ErrCloseReason},
		{"\x03\xe8half a character \xc3", 0, "", ErrCloseReason},
		{"\x03\xe8\xed\xa0\x80", 0, "", ErrCloseReason}, // a surrogate
		{"\x03\xe8\xc0\x80", 0, "", ErrCloseReason},     // a NUL in two bytes
		{"\x03\xe8a\x00b", 1000, "a\x00b", nil},
		{"\x00\x00", 0, "", ErrClose},
	} {
		code, reason, err := ParseClose([]byte(tt.payload))
		if code != tt.code || reason != tt.reason || err != tt.err {
			t.Errorf("ParseClose(%q) = %d %q %v, want %d %q %v", tt.payload, code, reason, err, tt.code, tt.reason, tt.err)
		}
	}
}

func TestClosePayloadFitsIntoAControlFrame(t *testing.T) {
	for _, tt := range []struct{ reason, want string }{
		{"", ""},
		{"done", "done"},
		{strings.Repeat("x", 123), strings.Repeat("x", 123)},
		{strings.Repeat("x", 124), strings.Repeat("x", 123)},
		{strings.Repeat("\u00e9", 62), strings.Repeat("\u00e9", 61)}, // 124 bytes
		{strings.Repeat("\u20ac", 50), strings.Repeat("\u20ac", 41)}, // 150 bytes
		{strings.Repeat("\U0001F44B", 31), strings.Repeat("\U0001F44B", 30)},
	} {
		p := ClosePayload(4410, tt.reason)
		code, reason, err := ParseClose(p)
		if code != 4410 || reason != tt.want || err != nil || len(p) > MaxControl {
			t.Errorf("%d bytes of reason: %d %q %v in %d bytes", len(tt.reason), code, reason, err, len(p))
		}
		if _, err := Parse(Append(nil, Close, p)); err != nil {
			t.Errorf("%d bytes of reason: %v", len(tt.reason), err)
		}
	}
	if p := ClosePayload(NoStatus, "never sent"); len(p) != 0 {
		t.Errorf("no status: payload % x, want none", p)
	}
}

func TestClipKeepsAsManyCharactersAsFit(t *testing.T) {
	for _, s := range []string{"", "plain", "\u00e9\u00e9\u00e9", "a\u20acb\u20ac", "\U0001F44B\U0001F44B", "x\u00e9\u20ac\U0001F44Bx", strings.Repeat("\u20ac", 80)} {
		for n := range len(s) + 3 {
			want := ""
			for i := range len(s) + 1 {
				if i <= n && (i == len(s) || utf8.RuneStart(s[i])) {
					want = s[:i]
				}
			}
			if got := Clip(s, n); got != want {
				t.Errorf("Clip(%q, %d) = %q, want %q", s, n, got, want)
			}
		}
	}
	for _, s := range []string{"\x80\x80\x80\x80", "ab\xbf\xbf\xbf\xbf", "\xff\xff\xff", "\xf0\x9f\x91"} { // no UTF-8
		for n := range len(s) + 1 {
			if got := Clip(s, n); len(got) > n || !strings.HasPrefix(s, got) {
				t.Errorf("Clip(%q, %d) = %q", s, n, got)
			}
		}
	}
}

// The example of RFC 6455 section 1.3.
func TestAcceptKeyMatchesTheExampleOfTheRFC(t *testing.T) {
	if got := AcceptKey("dGhlIHNhbXBsZSBub25jZQ=="); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Errorf("AcceptKey = %q", got)
	}
}
