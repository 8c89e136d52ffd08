package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A goTest is a command line of go test.
type goTest struct{ args []string }

func (g goTest) first(out io.Writer) outcome {
	said, err := run(out, g.args...)
	return outcome{failed: failedPackages(said), never: neverForm.FindString(said), err: err}
}

var (
	resultForm = regexp.MustCompile(`^(ok  |FAIL|---|\?   )\t(\S+)`)
	failForm   = regexp.MustCompile(`^--- FAIL: (\S+) `)
)

// failedPackages returns the tests that failed. The output of a package ends with its result.
func failedPackages(said string) (failed []failure) {
	var tests []string
	for line := range strings.Lines(said) {
		if m := failForm.FindStringSubmatch(line); m != nil {
			tests = append(tests, m[1])
		}
		m := resultForm.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if m[1] == "FAIL" && len(tests) == 0 { // TestMain, or a search for leaks
			tests = []string{""}
		}
		for _, t := range tests {
			failed = append(failed, failure{m[2], t})
		}
		tests = nil
	}
	return failed
}

// alone runs tests of one package. They must be reported as passed: a test that is not run, or
// skipped, has not passed.
func (g goTest) alone(failed []failure, out io.Writer) outcome {
	args := append(g.flags(), "-v", "-count=1", "-p=1", "-parallel=1")
	if pattern := namesOf(failed); pattern != "" {
		args = append(args, "-run="+pattern)
	}
	said, err := run(out, append(args, failed[0].where)...)
	o := outcome{never: neverForm.FindString(said), err: err}
	for _, f := range failed {
		passed := regexp.MustCompile(`(?m)^--- PASS: ` + regexp.QuoteMeta(f.test) + ` `)
		if f.test == "" && err != nil || f.test != "" && !passed.MatchString(said) {
			o.failed = append(o.failed, f)
		}
	}
	switch {
	case err == nil && len(o.failed) > 0:
		o.err = fmt.Errorf("%v did not run", o.failed)
	case err != nil && len(o.failed) == 0:
		o.failed = []failure{{where: failed[0].where}}
	}
	return o
}

// namesOf is a pattern of the tests, "" for all of the package.
func namesOf(failed []failure) string {
	var names []string
	for _, f := range failed {
		if f.test == "" {
			return ""
		}
		names = append(names, regexp.QuoteMeta(f.test))
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// flags are those of the command line, without the packages.
func (g goTest) flags() []string {
	return slices.DeleteFunc(slices.Clone(g.args), func(arg string) bool {
		return arg != g.args[0] && arg != "test" && !strings.HasPrefix(arg, "-")
	})
}
