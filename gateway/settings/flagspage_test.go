package settings

import (
	"os"
	"strings"
	"testing"
)

const flagsPage = "../../docs/flags.md"

const flagsHead = `# Flags

All of them, made from the table that the program itself reads (` + "`go test ./gateway/settings -update`" + ` writes this page, and a test holds
it against the table). ` + "`reseat --help`" + ` prints the same, ` + "[running.md](running.md)" + ` has the config file and ` + "`reseat check`" + `.

Each can also be set in the environment, and in the file of ` + "`--config`" + ` under its own name without the dashes. A flag beats the environment, which beats the file.
**(R)** can be set for a single route as well, and a text or timer that holds for all can be switched off for one by an empty value (` + "`on-detach=`" + `); **(+)** can be given several times, in the environment with one value a line.
DUR is a duration with its unit (` + "`500ms`, `45s`, `1h30m`" + `), SIZE a number of bytes or of ` + "`KiB`, `MiB`, `GiB`" + `.
`

// The page is made of the table: this is its generator.
func flagsText() string {
	var b strings.Builder
	b.WriteString(flagsHead)
	group := ""
	for i := range table {
		f := &table[i]
		if f.group != group {
			group = f.group
			b.WriteString("\n## " + group + "\n\n| flag | default | environment | |\n| --- | --- | --- | --- |\n")
		}
		b.WriteString(f.pageRow())
	}
	return b.String()
}

func (f *flag) pageRow() string {
	cell := strings.NewReplacer("|", `\|`).Replace
	env, marks := "`"+envName(f.name)+"`", ""
	if f.onlyArg() {
		env = ""
	}
	if f.perRoute() {
		marks += " **(R)**"
	}
	if f.repeat {
		marks += " **(+)**"
	}
	return "| `" + cell(strings.TrimSpace("--"+f.name+" "+f.arg)) + "` | " + cell(f.shownDefault()) + " | " + env + " | " + cell(escaped(f.help)) + marks + " |\n"
}

// escaped keeps what the help says from being markup.
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
		t.Errorf("%s is not made of the table (go test ./gateway/settings -update writes it)", flagsPage)
	}
	for i := range table {
		if n := strings.Count(want, "| `--"+table[i].name); n < 1 {
			t.Errorf("--%s is not on the page", table[i].name)
		}
	}
}
