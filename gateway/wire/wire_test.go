package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// unknown is what an unknown verb reads as: nothing, to be ignored.
var unknown = Message{}

func TestValidControlMessagesAreRead(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Message
	}{
		{"ack 0", Message{Verb: "ack", Arg: "0"}},
		{"ack 1", Message{Verb: "ack", Arg: "1", Ack: 1}},
		{"ack 0017", Message{Verb: "ack", Arg: "0017", Ack: 17}},
		{"ack 9999999999999999", Message{Verb: "ack", Arg: "9999999999999999", Ack: 9999999999999999}},
		{"ping", Message{Verb: "ping"}},
		{"ping 1", Message{Verb: "ping", Arg: "1"}},
		{"ping a b c", Message{Verb: "ping", Arg: "a b c"}},
		{"pong", Message{Verb: "pong"}},
		{"pong ping", Message{Verb: "pong", Arg: "ping"}},
		{"ping " + strings.Repeat("x", 32), Message{Verb: "ping", Arg: strings.Repeat("x", 32)}},
		{"ping " + strings.Repeat("\U0001F44B", 32), Message{Verb: "ping", Arg: strings.Repeat("\U0001F44B", 32)}}, // characters, not bytes
		{"ping \u2028\u00a0", Message{Verb: "ping", Arg: "\u2028\u00a0"}},                                          // odd, but no control characters
		{"bye", Message{Verb: "bye", Bye: Bye{Code: 1000}}},
		{"leaving", Message{Verb: "leaving"}},
		{"part 4096", Message{Verb: "part", Arg: "4096", Ack: 4096}},
		{`parts {"bytes":9}`, Message{Verb: "parts", Arg: `{"bytes":9}`, Part: Part{Bytes: 9}}},
		{
			`parts {"bytes":9,"text":true,"from":8,"more":null}`,
			Message{Verb: "parts", Arg: `{"bytes":9,"text":true,"from":8,"more":null}`, Part: Part{Bytes: 9, Text: true, From: 8}},
		},
		{`bye {"code":1001}`, Message{Verb: "bye", Arg: `{"code":1001}`, Bye: Bye{Code: 1001}}},
	} {
		if got, err := ParseClient([]byte(tt.text)); got != tt.want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", tt.text, got, err, tt.want)
		}
	}
}

// protocol section 3: this lets the protocol grow.
func TestUnknownVerbIsIgnoredWithAnyArgument(t *testing.T) {
	for _, text := range []string{
		"x", "resync", "abcdefghijklmnop", "acknowledge 5", "acks 5", "pingx", "byebye",
		"x ", "x  ", "x  y ", "x \x00\x1f", "x " + strings.Repeat("long ", 1000), `x {"code":`, "hellos {}", "z\u0020\u00e9",
	} {
		if got, err := ParseClient([]byte(text)); got != unknown || err != nil {
			t.Errorf("%q: %+v, %v, want nothing at all", text, got, err)
		}
	}
}

// protocol sections 3 and 5: each of these means 4400.
func TestInvalidControlMessagesAreRefused(t *testing.T) {
	for want, texts := range map[error][]string{
		ErrVerb: {
			"", " ", "  ", " ack 5", "Ack 5", "ACK 5", "aCk 5", "ack5", "ack5 5", "ack-5", "ack_x 5", "ack\t5", "ack\n5", "ack\x005",
			"ack=5", "0", "ack\u00a05", "\u00e4ck 5", "\u0430ck 5", "{}", "abcdefghijklmnopq", "abcdefghijklmnopq x", "\x10ack 5", "ack\u20095",
			"x\x7f", "ack,5", "bye{}", "ping.", "ack{", "ack`", "ack{ 5", "`ack", "acK", "Z",
		},
		ErrArgument: {
			"ack", "ack ", "ack  5", "ack 5 ", "ack 5  ", "ack +5", "ack -5", "ack -0", "ack 5.0", "ack 5e1", "ack 0x5", "ack 5,", "ack 5 6", "ack five",
			"ack 12345678901234567", "ack 00000000000000000", "ack 99999999999999999999", "ack 5\n", "ack 5\x00", "ack \t5", "ack \u0665", "ack \uff15", "ack 1_000", "ack \"5\"", "ack {}",
			"ping ", "ping  ", "ping  x", "ping x ", "ping x  y", "pong ", "pong  x", "pong x ", "pong x  y",
			"ping " + strings.Repeat("x", 33), "pong " + strings.Repeat("\u00e9", 33),
			"ping \x00", "ping a\x10", "ping a\tb", "ping a\nb", "ping \x1f", "pong \x7f", "ping \u0080", "pong \u0085", "ping \u009f",
			"part", "part -1", "parts", "parts 9", `parts {}`, `parts {"bytes":0}`, `parts {"bytes":9,"from":9}`, `parts {"bytes":9,"from":-1}`, `parts {"bytes":9} `,
			"leaving ", "leaving x", "bye ", "bye  ", "bye x", "bye 1000", "bye  {}", "bye {} ",
		},
		ErrDirection: {
			"hello", "hello {}", "token", `token {"token":"x"}`, "grace", "grace 30000", "grace x ", "move", `move {"within_ms":1}`,
			"end", `end {"code":1000,"reason":""}`, "close", `close {"code":4400}`, "close  x", "end ",
		},
		ErrUTF8: {
			"\xff", "ack \xff", "ack 5\x80", "ping \xc3", "pong \xed\xa0\x80", "bye {\"reason\":\"\xff\"}", "x \xff", "hello \xff", "\xc0\x80", "Ack \xff", "ping \xf8",
		},
	} {
		for _, text := range texts {
			if got, err := ParseClient([]byte(text)); got != (Message{}) || err != want {
				t.Errorf("%.60q: %+v, error %v, want the error %v", text, got, err, want)
			}
		}
	}
}

func TestByeArgumentIsReadAsJSON(t *testing.T) {
	full := strings.Repeat("x", 123)
	for _, tt := range []struct {
		arg  string
		want Bye
	}{
		{`{}`, Bye{Code: 1000}},
		{`{"code":1000,"reason":"done"}`, Bye{1000, "done"}},
		{`{ "reason" : "done" , "code" : 3000 }`, Bye{3000, "done"}},
		{`{"code":4999}`, Bye{Code: 4999}},
		{`{"reason":"only"}`, Bye{1000, "only"}},
		{`{"reason":"` + full + `"}`, Bye{1000, full}},
		{`{"reason":"gr\u00fc\u00dfe \ud83d\udc4b"}`, Bye{1000, "gr\u00fc\u00dfe \U0001F44B"}},
		{`{"reason":"` + strings.Repeat(`\u0041`, 123) + `"}`, Bye{1000, strings.Repeat("A", 123)}}, // the limit is on the decoded reason
		{`{"code":1001,"more":{"deep":[1,null,"x"]},"":0}`, Bye{Code: 1001}},
		{`{"Code":1,"CODE":"x","Reason":7,"\u0063ode":3001}`, Bye{Code: 3001}}, // member names are compared exactly
	} {
		m, err := ParseClient([]byte("bye " + tt.arg))
		if m.Bye != tt.want || m.Verb != VerbBye || err != nil {
			t.Errorf("bye %.60s: %+v, %v, want %+v", tt.arg, m, err, tt.want)
		}
	}
}

func TestInvalidByeIsRefused(t *testing.T) {
	for _, arg := range []string{
		`null`, `true`, `1000`, `"bye"`, `[]`, `[1000]`, `{`, `}`, `{]`, `{}}`, `{}{}`, `{"code":1000}{"code":1000}`, ` {}`, `{} `, "{}\n", "\t{}",
		`{"code"}`, `{"code":}`, `{code:1000}`, `{'code':1000}`, `{"code":1000,}`, `{"code":1000 "reason":""}`, `{"code":1000}//`, `{"code":1000,"code":1000}`, `{"reason":"","\u0072eason":""}`, "{\"reason\":\"a\nb\"}",
		`{"code":null}`, `{"reason":null}`, `{"code":"1000"}`, `{"code":1000.5}`, `{"code":true}`, `{"code":[1000]}`, `{"code":{}}`,
		`{"reason":7}`, `{"reason":["x"]}`, `{"reason":{}}`,
		`{"code":0}`, `{"code":-1000}`, `{"code":999}`, `{"code":1002}`, `{"code":1004}`, `{"code":1006}`, `{"code":1015}`, `{"code":2999}`, `{"code":5000}`,
		`{"code":66536}`, `{"code":99999999999999999999}`, `{"code":01000}`, `{"code":+1000}`, `{"code":0x3e8}`,
		`{"reason":"` + strings.Repeat("x", 124) + `"}`, `{"reason":"` + strings.Repeat("\u00e9", 62) + `"}`, `{"reason":"` + strings.Repeat(`\u20ac`, 42) + `"}`,
		strings.Repeat("{", 20000) + strings.Repeat("}", 20000), `{"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
	} {
		if m, err := ParseClient([]byte("bye " + arg)); m != (Message{}) || err != ErrArgument {
			t.Errorf("bye %.60s: %+v, %v, want the error %v", arg, m, err, ErrArgument)
		}
	}
}

// protocol section 5: 1000, 1001, 1005 (none) or 3000 to 4999.
func TestByeAcceptsOnlyApplicationCodes(t *testing.T) {
	for code := -1; code < 6000; code++ {
		want := code == 1000 || code == 1001 || code == 1005 || code/1000 == 3 || code/1000 == 4
		if got := ByeCode(code); got != want {
			t.Errorf("ByeCode(%d) = %t", code, got)
		}
		_, err := ParseClient(fmt.Appendf(nil, `bye {"code":%d}`, code))
		if want != (err == nil) || !want && !errors.Is(err, ErrArgument) {
			t.Errorf("bye with %d: %v", code, err)
		}
	}
}

func TestNumberHasAtMostSixteenDigits(t *testing.T) {
	for s, want := range map[string]uint64{
		"0": 0, "7": 7, "0000000000000000": 0, "0000000000000001": 1, "18": 18, "9999999999999999": 9999999999999999, "9007199254740991": 1<<53 - 1,
	} {
		if got, ok := ParseNumber(s); got != want || !ok {
			t.Errorf("ParseNumber(%q) = %d, %t, want %d", s, got, ok, want)
		}
	}
	for _, s := range []string{"", " ", "+1", "-1", "1 ", " 1", "1.", "1e3", "0x1", "1_0", "\u0661", "\uff11", "1\n", "00000000000000000", "10000000000000000", "18446744073709551616", "/", ":"} {
		if got, ok := ParseNumber(s); got != 0 || ok {
			t.Errorf("ParseNumber(%q) = %d, %t, want a refusal", s, got, ok)
		}
	}
}

// A client's message is parsed in its read buffer, which later reads overwrite.
func TestMessageDoesNotPointIntoTheBuffer(t *testing.T) {
	b := []byte(`ping before`)
	m, err := ParseClient(b)
	copy(b, "xxxxxxxxxxx")
	if m.Arg != "before" || err != nil {
		t.Errorf("the argument has become %q, %v", m.Arg, err)
	}
}
