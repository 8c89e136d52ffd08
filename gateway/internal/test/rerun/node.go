package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A nodeTest is a command line of node --test.
type nodeTest struct{ args []string }

func (n nodeTest) first(out io.Writer) outcome {
	return n.run(n.args[2:], out)
}

// alone runs whole files, since a file's tests may build on each other.
func (n nodeTest) alone(failed []failure, out io.Writer) outcome {
	args := []string{"--test-concurrency=1"}
	for _, arg := range n.args[2:] {
		if strings.HasPrefix(arg, "-") {
			args = append(args, arg)
		}
	}
	for _, f := range failed {
		args = append(args, f.test)
	}
	return n.run(args, out)
}

func (n nodeTest) run(args []string, out io.Writer) outcome {
	said, err := run(out, append([]string{n.args[0], "--test", "--test-reporter=tap"}, args...)...)
	o := outcome{err: err, never: neverForm.FindString(said)}
	if err == nil && !passedForm.MatchString(said) {
		o.err, o.never = errors.New("no test passed"), "no test passed"
	}
	if o.err != nil && o.never == "" {
		o.failed, o.never = failedFiles(said)
	}
	return o
}

var (
	passedForm = regexp.MustCompile(`(?m)^# pass [1-9]`)
	// notOKForm matches a test that failed, with the location and the kind of failure.
	notOKForm = regexp.MustCompile(`(?m)^ *not ok \d+ .*\n *---\n(?: *(?:duration_ms|type): .*\n)*(?: *location: '(.+):\d+:\d+'\n)?(?: *failureType: '(\w+)'\n)?`)
)

// failedFiles returns the files of the tests that failed, and why they cannot be repeated, if so.
func failedFiles(said string) (failed []failure, never string) {
	dir, _ := os.Getwd()
	count := 0
	seen := map[string]bool{}
	for _, m := range notOKForm.FindAllStringSubmatch(said, -1) {
		if m[2] == "subtestsFailed" { // which are counted
			continue
		}
		file, err := filepath.Rel(dir, m[1])
		if err != nil || !strings.Contains(filepath.Base(file), ".test.") {
			return nil, fmt.Sprintf("the file of a test that failed is not known: %q", m[0])
		}
		if count++; !seen[file] {
			seen[file] = true
			failed = append(failed, failure{filepath.Base(dir), file})
		}
	}
	if count > maxFailed {
		return nil, fmt.Sprintf("%d tests failed, which is more than %d", count, maxFailed)
	}
	return failed, ""
}
