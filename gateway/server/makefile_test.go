package server

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// `make help` must list every target, and .PHONY must name exactly these.
func TestMakefileListsItsTargets(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([A-Za-z0-9_-]+):(?:[^=]|$)`).FindAllStringSubmatch(string(text), -1) {
		targets = append(targets, m[1])
	}
	var phony []string
	for _, m := range regexp.MustCompile(`(?m)^\.PHONY:(.*)$`).FindAllStringSubmatch(string(text), -1) {
		phony = append(phony, strings.Fields(m[1])...)
	}
	slices.Sort(targets)
	slices.Sort(phony)
	if len(targets) < 20 || !slices.Equal(targets, phony) {
		t.Errorf("the targets are\n%q\n.PHONY names\n%q", targets, phony)
	}
	list, err := exec.Command("make", "-C", "../..", "--no-print-directory", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(list)) {
		listed = append(listed, strings.Fields(line)[0])
	}
	slices.Sort(listed)
	if !slices.Equal(listed, targets) {
		t.Errorf("make help lists\n%q\nwant\n%q", listed, targets)
	}
}
