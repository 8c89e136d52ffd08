package config

import (
	"os"
	"strings"
	"testing"
)

const flagsPage = "../../docs/flags.md"

const flagsHead = `# Flags

All flags, as in ` + "`reseat --help`" + `. Each can also be set by its environment variable, or in the [config file](running.md#the-config-file) under its name
without the dashes. A flag overrides the environment, which overrides the file.

- **(R)** can also be set for a single route. An empty value (` + "`on-detach=`" + `) switches a global text or timer off for that route.
- **(+)** can be repeated; in the environment, write one value a line.
- DUR is a duration with its unit (` + "`500ms`, `45s`, `1h30m`" + `). SIZE is a number of bytes, or of ` + "`KiB`, `MiB`, `GiB`" + `.

This page is generated: ` + "`go test ./gateway/config -update`" + ` writes it.
`

// flagsText generates the flags page from the table.
func flagsText() string {
	var b strings.Builder
	b.WriteString(flagsHead)
	group := ""
	for i := range table {
		f := &table[i]
		if f.group != group {
			group = f.group
			b.WriteString("\n## " + group + "\n\n| flag | default | environment | meaning |\n| --- | --- | --- | --- |\n")
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
		if n := strings.Count(want, "| `--"+table[i].name); n < 1 {
			t.Errorf("--%s is not on the page", table[i].name)
		}
	}
}
