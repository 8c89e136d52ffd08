package wstest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
