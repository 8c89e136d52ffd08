package config

import (
	"errors"
	stdflag "flag"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

var update = stdflag.Bool("update", false, "rewrite testdata/golden/help.txt")

const goldenHelp = "../../testdata/golden/help.txt"

func TestHelpIsTheGoldenFile(t *testing.T) {
	_, err := Parse([]string{"--help"}, nil)
	if !errors.Is(err, ErrHelp) {
		t.Fatalf("Parse(--help): %v, want ErrHelp", err)
	}
	got := err.Error() + "\n"
	if *update {
		if err := os.MkdirAll(filepath.Dir(goldenHelp), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(goldenHelp, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenHelp)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the help is not %s (go test ./gateway/config -update writes it):\n%s", goldenHelp, got)
	}
}

func TestHelpAndVersionAreAnsweredBeforeAnythingElse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want error
	}{
		{[]string{"--help"}, ErrHelp},
		{[]string{"-h"}, ErrHelp},
		{[]string{"help"}, ErrHelp},
		{[]string{game, "-h"}, ErrHelp},
		{[]string{"--version"}, ErrVersion},
		{[]string{"version"}, ErrVersion},
		{[]string{"--help", "--version", "--nonsense"}, ErrHelp},
		{[]string{"--grace", "nonsense", "--version"}, ErrVersion},
		{[]string{"--grace", "--help"}, ErrHelp},
	} {
		s, err := Parse(c.args, []string{"RESEAT_NONSENSE=1"})
		if s != nil || !errors.Is(err, c.want) {
			t.Errorf("Parse(%q) = %v, %v; want nil, %v", c.args, s, err, c.want)
		}
	}
	if errors.Is(ErrHelp, ErrVersion) {
		t.Error("ErrHelp is ErrVersion")
	}
}

func TestVersionNamesProgramCommitGoAndPlatform(t *testing.T) {
	words := strings.Fields(ErrVersion.Error())
	if len(words) != 6 || words[0] != "reseat" || words[2] != "(commit" || words[4] != runtime.Version() || words[5] != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("the version is %q", words)
	}
	wantLine(t, ErrVersion.Error())
	defer func(v, c string) { version, commit = v, c }(version, commit)
	version, commit = "v1.2.3", "0123abcd"
	if got := ErrVersion.Error(); !strings.HasPrefix(got, "reseat v1.2.3 (commit 0123abcd) go") {
		t.Errorf("with a linked version: %q", got)
	}
}

func TestCommitIsThatOfTheBuildInformation(t *testing.T) {
	for want, settings := range map[string][]debug.BuildSetting{
		"unknown":    {{Key: "GOOS", Value: "linux"}},
		"0123":       {{Key: "vcs.revision", Value: "0123"}, {Key: "vcs.modified", Value: "false"}},
		"0123+dirty": {{Key: "vcs.revision", Value: "0123"}, {Key: "vcs.modified", Value: "true"}},
	} {
		if got := commitOf(settings); got != want {
			t.Errorf("%v: %q, want %q", settings, got, want)
		}
	}
}

const flagsPage = "../../docs/flags.md"

const flagsHead = `# Flags

All flags, with their defaults, as in ` + "`reseat --help`" + `. ` + "`--buffer-bytes`" + ` can also be set by the environment variable ` + "`RESEAT_BUFFER_BYTES`" + `, or as ` + "`buffer-bytes`" + ` in the
[config file](running.md#the-config-file). A flag overrides the environment, which overrides the file.

- **(R)** can also be set for a single route. An empty value (` + "`on-detach=`" + `) switches a global text or timer off for that route.
- **(+)** can be repeated; in the environment, write one value a line.
- DUR is a duration with its unit (` + "`500ms`, `45s`, `1h30m`" + `). SIZE is a number of bytes, or of ` + "`KiB`, `MiB`, `GiB`" + `.

This page is generated: ` + "`go test ./gateway/config -update`" + ` writes it.
`

// flagsText generates the flags page from the table.
func flagsText() string { return flagsHead + listed("\n## %s\n\n", (*flag).pageRow) }

// pageRow returns a list item: the flag, its default if it has one, its marks, its help.
func (f *flag) pageRow() string {
	row := "- `" + strings.TrimSpace("--"+f.name+" "+f.arg) + "`"
	if d := f.shownDefault(); d != "" && d != "none" {
		row += " (" + escaped(d) + ")"
	}
	if f.perRoute() {
		row += " **(R)**"
	}
	if f.repeat {
		row += " **(+)**"
	}
	return row + ": " + escaped(f.help) + "\n"
}

// escaped escapes Markdown in a help text.
func escaped(help string) string {
	return strings.NewReplacer("*", `\*`, "<", "&lt;", "_", `\_`).Replace(help)
}

func TestFlagsPageIsGeneratedFromTheTable(t *testing.T) {
	want := flagsText()
	if *update {
		if err := os.WriteFile(flagsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(flagsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s does not match the table (go test ./gateway/config -update writes it)", flagsPage)
	}
	for i := range table {
		if n := strings.Count(want, "- `--"+table[i].name); n < 1 {
			t.Errorf("--%s is not on the page", table[i].name)
		}
	}
}
