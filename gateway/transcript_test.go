package gateway_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/wire"
)

const (
	transcripts  = "../testdata/transcripts/"
	protocolPage = "../docs/protocol.md"
)

// readTranscripts reads all golden transcripts, by file name.
func readTranscripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(transcripts + "*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	texts := make(map[string]string)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(f)] = string(b)
	}
	return texts
}

func parseTranscript(t *testing.T, name, text string) []wstest.Step {
	t.Helper()
	steps, err := wstest.ParseTranscript(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// played returns the error of play for a transcript.
func played(t *testing.T, steps []wstest.Step) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { err = play(t, steps) })
	return err
}

func TestTranscripts(t *testing.T) {
	for name, text := range readTranscripts(t) {
		t.Run(strings.TrimSuffix(name, ".txt"), func(t *testing.T) {
			if err := played(t, parseTranscript(t, name, text)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What a transcript expects is checked: a step that is left out, or says something else, is noticed.
func TestTranscriptWithOneCorruptedCheckFails(t *testing.T) {
	for name, text := range readTranscripts(t) {
		steps := parseTranscript(t, name, text)
		for i, step := range steps {
			if step.Actor != 'G' && !(step.Actor == 'U' && step.Told) {
				continue
			}
			other := slices.Clone(steps)
			switch b := step.Body.(type) {
			case wstest.Data:
				other[i].Body = wstest.Data{Op: b.Op, Payload: b.Payload + "x"}
			case wstest.Closing:
				other[i].Body = wstest.Closing{Code: b.Code + 1, Any: true}
			case wstest.Control:
				other[i].Body = wstest.Control{Verb: b.Verb + "x", Arg: b.Arg, Members: b.Members}
			}
			if played(t, other) == nil {
				t.Errorf("%s: %s: something else is not noticed", step.At, step.Text)
			}
			if _, ok := step.Body.(wstest.Data); ok && played(t, slices.Delete(slices.Clone(steps), i, i+1)) == nil {
				t.Errorf("%s: %s: it may be left out", step.At, step.Text)
			}
		}
	}
}

// section returns the text of the protocol page under a heading, given without its number.
func section(t *testing.T, heading string) string {
	t.Helper()
	b, err := os.ReadFile(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`(?m)^#{2,3} [0-9.]+ ` + heading + `$`).FindIndex(b)
	if at == nil {
		t.Fatalf("%s has no heading %q", protocolPage, heading)
	}
	text, _, _ := strings.Cut(string(b[at[1]:]), "\n## ")
	return text
}

// The page must print a transcript and explain each of its steps, in order.
func TestProtocolPagePrintsAndExplainsTheTranscript(t *testing.T) {
	const name = "drop-and-resume.txt"
	text := section(t, "Worked example")
	_, text, _ = strings.Cut(text, "\n```text\n")
	block, list, ok := strings.Cut(text, "```\n")
	if file := readTranscripts(t)[name]; !ok || block != file {
		t.Fatalf("%s prints\n%s\nand %s is\n%s", protocolPage, block, name, file)
	}
	list = strings.Join(strings.Fields(list), " ") // a step may be wrapped
	for _, step := range parseTranscript(t, name, block) {
		var found bool
		if _, list, found = strings.Cut(list, "`"+step.Text+"`"); !found {
			t.Fatalf("%s: no explanation of `%s` after those of the previous steps", step.At, step.Text)
		}
	}
}

func TestProtocolPageHasTheGatewaysCodes(t *testing.T) {
	got := map[int]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([0-9]+) \\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(section(t, "Codes"), -1) {
		code, _ := strconv.Atoi(row[1])
		if _, twice := got[code]; twice {
			t.Errorf("code %d is there twice", code)
		}
		got[code] = row[2]
	}
	want := map[int]string{}
	for code := range 5000 {
		if name := wire.Name(code); name != "" {
			want[code] = name
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s has the codes %v, the gateway %v", protocolPage, got, want)
	}
}

func TestProtocolPageHasTheGatewaysVerbs(t *testing.T) {
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| (?:gateway|client|both) \\|").FindAllStringSubmatch(section(t, "Verbs"), -1) {
		got = append(got, row[1])
	}
	want := []string{
		wire.VerbHello, wire.VerbAck, wire.VerbToken, wire.VerbGrace, wire.VerbPing, wire.VerbPong,
		wire.VerbBye, wire.VerbLeaving, wire.VerbSkip, wire.VerbParts, wire.VerbPart, wire.VerbMove, wire.VerbUpstream, wire.VerbEnd, wire.VerbClose,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has the verbs %v, the gateway %v", protocolPage, got, want)
	}
}
