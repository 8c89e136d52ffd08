package wstest

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
)

const start = "C> GET /m chat.v2, reseat.v1\n"

func TestStepsAreReadAsWritten(t *testing.T) {
	for text, want := range map[string]Step{
		`@ grace=10s`:                            {Body: Setting{"grace", "10s"}},
		`@ on-detach={"a": "b=c"}`:               {Body: Setting{"on-detach", `{"a": "b=c"}`}},
		`--- drop`:                               {Body: Drop},
		`--- half-open`:                          {Body: HalfOpen},
		`+++ 29s`:                                {Body: Clock(29 * time.Second)},
		`+++ 1500ms`:                             {Body: Clock(1500 * time.Millisecond)},
		`+++ 2m`:                                 {Body: Clock(2 * time.Minute)},
		`C> GET /a?b=c reseat.v1`:                {Actor: 'C', Body: Handshake{Path: "/a?b=c", Offer: []string{"reseat.v1"}}},
		`C> GET / x, reseat.v1, received=007`:    {Actor: 'C', Body: Handshake{"/", []string{"x", "reseat.v1", "received=007"}, true, 7}},
		`C> "a \"b\"  c\u0010"`:                  {Actor: 'C', Body: Data{frame.Text, "a \"b\"  c\x10"}},
		`C> ""`:                                  {Actor: 'C', Body: Data{frame.Text, ""}},
		`G#12> x"0aFF"`:                          {Actor: 'G', Conn: 12, Body: Data{frame.Binary, "\x0a\xff"}},
		`U> x""`:                                 {Actor: 'U', Body: Data{frame.Binary, ""}},
		`U< "x"`:                                 {Actor: 'U', Told: true, Body: Data{frame.Text, "x"}},
		`C> ^bye`:                                {Actor: 'C', Body: Control{Verb: "bye"}},
		`C> ^ping a b`:                           {Actor: 'C', Body: Control{Verb: "ping", Arg: "a b"}},
		`G> ^ack 7`:                              {Actor: 'G', Body: Control{Verb: "ack", Arg: "7"}},
		`G> ^end {"code":1000, "reason":"a  b"}`: {Actor: 'G', Body: Control{"end", `{"code":1000, "reason":"a  b"}`, map[string]any{"code": 1000.0, "reason": "a  b"}}},
		`G> Close 4404`:                          {Actor: 'G', Body: Closing{Code: 4404, Any: true}},
		`U< Close 1001 "grace period over"`:      {Actor: 'U', Told: true, Body: Closing{Code: 1001, Reason: "grace period over"}},
		`C> Close 1000 ""`:                       {Actor: 'C', Body: Closing{Code: 1000}},
		`U> Close 1005`:                          {Actor: 'U', Body: Closing{Code: 1005, Any: true}},
		`A> close 4001 "x"`:                      {Actor: 'A', Body: Application{}},
		`A> online`:                              {Actor: 'A', Body: Application{}},
		`A> "x"`:                                 {Actor: 'A', Body: Application{}},
		`A< resume {"lost":2}`:                   {Actor: 'A', Told: true, Body: Application{}},
		`A< close {"code":4000,"reason":"match  over"}`: {Actor: 'A', Told: true, Body: Application{}},
	} {
		got, err := parseStep(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
		if steps := cutSteps(text); len(steps) != 1 {
			t.Errorf("%s: cut into %q", text, steps)
		}
	}
}

func TestInvalidStepIsReportedWithFileAndLine(t *testing.T) {
	for _, bad := range []string{
		"G>", "G>\"x\"", "X> \"x\"", "hello", "G> hello", "G> \"x", "G> 'x'", `G> "a" "b"`, `G> x"0"`, `G> x"0g"`, "G> 7", "C< \"x\"", "G< \"x\"", "U#1> \"x\"", "A#1> \"x\"",
		"G#0> \"x\"", "G#2> \"x\"", "G> ^", "G> ^Hello {}", "G> ^hello  {}", "G> ^hello {", "G> ^abcdefghijklmnopq", "U> ^hello {}", "C> ^ack", "G> ^ack x", "G> ^ack 12345678901234567",
		"G> Close", "G> Close 999", "G> Close 1006", "G> Close 1000 x", "G> close 1000", "A> Close 1000", "A> offline", "A< message", "A< close {", "G> GET / reseat.v1", "C> GET / chat",
		"C> GET / chat,reseat.v1", "C> GET x reseat.v1", "C> GET / reseat.v1, received=x", "C> GET / reseat.v1, received=1, received=1", "--- cut", "+++ 5", "+++ 1.5s", "+++ 0s", "@ grace=1s", "@ grace",
	} {
		_, err := ParseTranscript("bad.txt", "# one\n"+start+"U> \"x\"  "+bad+"\n")
		if err == nil || !strings.HasPrefix(err.Error(), "bad.txt:3: ") {
			t.Errorf("%q: %v, want an error of bad.txt:3", bad, err)
		}
	}
	for _, early := range []string{"U> \"x\"", "C> \"x\"", "--- drop", "+++ 1s", "A> online", "", "@ grace=1s"} {
		if _, err := ParseTranscript("bad.txt", early); err == nil || !strings.HasPrefix(err.Error(), "bad.txt:1: ") {
			t.Errorf("%q without a handshake before it: %v, want an error of bad.txt:1", early, err)
		}
	}
}

// The parser skips only blank lines and comments of the golden transcripts.
func TestParserReadsEveryLineOfTheTranscripts(t *testing.T) {
	files, _ := filepath.Glob("../../../../testdata/transcripts/*.txt")
	if len(files) == 0 {
		t.Fatal("no transcripts")
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := ParseTranscript(filepath.Base(f), string(b))
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, s := range steps {
			got = append(got, strings.Fields(s.Text)...)
		}
		for line := range strings.Lines(string(b)) {
			if !strings.HasPrefix(line, "#") {
				want = append(want, strings.Fields(line)...)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
	}
}

func TestHandshakeOffersTheNewestToken(t *testing.T) {
	h := Handshake{Offer: []string{"chat.v2", "reseat.v1", "received=3"}}
	if got := h.Protocols("T"); !slices.Equal(got, []string{"chat.v2", "reseat.v1", "reseat.token.T", "reseat.received.3"}) {
		t.Errorf("%q", got)
	}
	if got := h.Own(); !slices.Equal(got, []string{"chat.v2"}) {
		t.Errorf("the application's own: %q", got)
	}
}
