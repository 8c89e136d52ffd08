package client

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"reseat/gateway/wire"
)

var goodControl = map[string]controlMessage{
	"ack 7": {verb: wire.VerbAck, number: 7}, "grace 0": {verb: wire.VerbGrace}, "ping": {verb: wire.VerbPing}, "ping a b": {verb: wire.VerbPing, text: "a b"},
	"pong " + strings.Repeat("é", 32):        {verb: wire.VerbPong, text: strings.Repeat("é", 32)},
	`token {"token":"t","news":[]}`:          {verb: wire.VerbToken, text: "t"},
	`move {"within_ms":1500}`:                {verb: wire.VerbMove, within: 1500 * time.Millisecond},
	`move {"within_ms":1000000000000000000}`: {verb: wire.VerbMove, within: 365 * 24 * time.Hour},
	`parts {"bytes":9,"text":true}`:          {verb: wire.VerbParts, part: wire.Part{Bytes: 9, Text: true}},
	`parts {"bytes":9,"from":8}`:             {verb: wire.VerbParts, part: wire.Part{Bytes: 9, From: 8}}, "part 9": {verb: wire.VerbPart, number: 9}, "skip 9": {verb: wire.VerbSkip, number: 9},
	`upstream {"state":"lost"}`: {verb: wire.VerbUpstream, lost: true}, `upstream {"state":"back"}`: {verb: wire.VerbUpstream},
	`hello {"session":"s","token":"t","answer_ms":5}`: {verb: wire.VerbHello, hello: wire.Hello{Session: "s", Token: "t", Answer: 5}},
	`end {"code":1005,"reason":"r"}`:                  {verb: wire.VerbEnd, verdict: verdict{CloseError: CloseError{Code: 1005, Reason: "r", FromServer: true}}},
	`close {"code":4409,"retry":false,"status":503}`:  {verb: wire.VerbClose, verdict: verdict{CloseError: CloseError{Code: 4409, Status: 503}}},
	`close {"code":4999,"retry_after_ms":70}`:         {verb: wire.VerbClose, verdict: verdict{CloseError: CloseError{Code: 4999}, retry: true, after: 70 * time.Millisecond}},
	// Later versions may add verbs and states.
	"sing {a song}": {}, "sing": {}, `upstream {"state":"odd"}`: {},
}

var badControl = []string{
	"", "ack", "ack x", "ack 12345678901234567", "Ack 0", "averyveryverylongverb", "\x10", "unknown \xff", "bye", "leaving", "grace", "grace soon", "ping ", "ping " + strings.Repeat("x", 33),
	"hello", "hello {}", `hello {"token":"t"}`, `hello {"session":"s"}`, `hello {"session":"s","token":"t","received":-1}`, `hello {"session":"s","token":"t","received":1e99}`,
	`hello {"session":"s","token":"t","grace_ms":-1}`, `hello {"session":"s","token":"t","heartbeat_ms":-1}`, `hello {"session":"s","token":"t","answer_ms":-1}`,
	"token", `token {"token":""}`, "move", "move {", "move null", `move {"within_ms":-1}`, "parts", `parts {"bytes":0}`, `parts {"bytes":9,"from":9}`, `parts {"bytes":9,"from":-1}`, "part", "part -1", "skip", "skip 0",
	`hello {"session":"s","token":"t","partial":{"down":-1}}`, `hello {"session":"s","token":"t","partial":{"up":-1}}`, "upstream", "end", "end {}", `end {"code":999}`, `end {"code":5000}`,
	"close", `close {"code":"x"}`, `close {"code":4409,"retry_after_ms":-1}`,
}

func TestControlMessagesAreParsed(t *testing.T) {
	for text, want := range goodControl {
		if got, err := parseControl(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range badControl {
		if got, err := parseControl(text); err == nil {
			t.Errorf("%q is accepted: %+v", text, got)
		}
	}
}

// Protocol section 3.
func TestEscapedTextIsNoControlMessage(t *testing.T) {
	for _, c := range []struct {
		typ      MessageType
		data, on string // on the wire
	}{
		{MessageText, "", ""}, {MessageText, "x\x10", "x\x10"}, {MessageText, "\x10", "\x10\x10"}, {MessageText, "\x10\x10ack 9", "\x10\x10\x10ack 9"},
		{MessageBinary, "", ""}, {MessageBinary, "\x10\x10", "\x10\x10"},
	} {
		wire := escape(c.typ, []byte(c.data))
		if string(wire) != c.on || isControl(c.typ, wire) || string(unescape(c.typ, wire)) != c.data {
			t.Errorf("%v %q becomes %q, a control message: %t, and %q; want %q", c.typ, c.data, wire, isControl(c.typ, wire), unescape(c.typ, wire), c.on)
		}
	}
	for _, text := range []string{"\x10", "\x10ack 9"} {
		if !isControl(MessageText, []byte(text)) || isControl(MessageBinary, []byte(text)) {
			t.Errorf("%q is a control message as text alone", text)
		}
	}
}

// Whatever the gateway sends is a control message, an unknown one, or an error.
func FuzzParseControl(f *testing.F) {
	for text := range goodControl {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parseControl(text)
		verb, _, _ := strings.Cut(text, " ")
		if err != nil && w.verb != "" || w.verb != "" && w.verb != verb || w.within < 0 || w.verdict.after < 0 {
			t.Errorf("%q is %+v, %v", text, w, err)
		}
	})
}
