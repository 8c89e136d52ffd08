// Command mutants plants bugs, one at a time, and checks that a test fails: `make
// mutants`. A bug that no test detects shows a missing test. The sources stay
// unchanged: the go command overlays the mutant's files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"reseat/gateway/internal/test/mutants/mutant"
)

func main() {
	only := flag.String("only", "", "regular expression of names")
	jobs := flag.Int("jobs", 2, "mutants at a time")
	timeout := flag.Duration("timeout", 4*time.Minute, "at most, of one mutant's tests: one that hangs is noticed, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(command(ctx, *only, *jobs, *timeout))
}

// command returns the exit status: 1 if a mutant was not detected, 2 if one could not
// be tried.
func command(ctx context.Context, only string, jobs int, timeout time.Duration) int {
	root, err := filepath.Abs(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 2
	}
	list, err := choose(root, only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 2
	}
	return printTable(tryAll(ctx, root, list, jobs, timeout))
}

func choose(root, only string) ([]mutant.Mutant, error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	all, err := mutant.Load(filepath.Join(root, "testdata/mutants"))
	if err != nil {
		return nil, err
	}
	var list []mutant.Mutant
	for _, m := range all {
		if match.MatchString(m.Name) {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no mutant is called %q", only)
	}
	return list, nil
}

// A result is the outcome of one mutant.
type result struct {
	mutant.Mutant
	detected string // the test that failed; "": none
	err      error  // it could not be tried
	took     time.Duration
}

// tryAll tries the mutants, some at a time, and returns the results in order. If a
// package's tests fail without any mutant, its mutants are not tried: the failure would
// count as detection.
func tryAll(ctx context.Context, root string, list []mutant.Mutant, jobs int, timeout time.Duration) []result {
	sound := baseline(ctx, root, list, jobs, timeout)
	results := make([]result, len(list))
	each(len(list), jobs, func(i int) {
		m := list[i]
		results[i] = try(ctx, root, m, sound, timeout)
		fmt.Fprintf(os.Stderr, "%-36s %s %v\n", m.Name, results[i].detected, results[i].err)
	})
	return results
}

// each calls do for 0 to n-1, jobs at a time, and waits for all.
func each(n, jobs int, do func(int)) {
	slots := make(chan struct{}, jobs)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	all.Wait()
}

// An outcome is the result of tests without a mutant.
type outcome struct {
	err  error // why they failed; nil: they passed
	took time.Duration
}

// baseline runs the tests that the list names once, without a mutant.
func baseline(ctx context.Context, root string, list []mutant.Mutant, jobs int, timeout time.Duration) map[string]outcome {
	var named []string
	for _, m := range list {
		named = append(named, m.Tests...)
	}
	slices.Sort(named)
	named = slices.Compact(named)
	outcomes := make([]outcome, len(named))
	each(len(named), jobs, func(i int) {
		began := time.Now()
		by, err := test(ctx, root, named[i:i+1], nil, timeout)
		if err == nil && by != "" {
			err = fmt.Errorf("fails at %s", by)
		}
		outcomes[i] = outcome{err, time.Since(began)}
		fmt.Fprintf(os.Stderr, "%-36s %v\n", "no mutant in "+named[i], err)
	})
	sound := make(map[string]outcome)
	for i, o := range outcomes {
		sound[named[i]] = o
	}
	return sound
}

// try tries a mutant. Tests that take several times as long as without it hang.
func try(ctx context.Context, root string, m mutant.Mutant, sound map[string]outcome, timeout time.Duration) (r result) {
	began := time.Now()
	r.Mutant = m
	defer func() { r.took = time.Since(began) }()
	expected := 10 * time.Second // to build them
	for _, name := range m.Tests {
		if err := sound[name].err; err != nil {
			r.err = fmt.Errorf("%s without any mutant: %w", name, err)
			return r
		}
		expected += sound[name].took
	}
	timeout = min(timeout, 5*expected)
	files, err := m.Apply(root)
	if err != nil {
		r.err = err
		return r
	}
	r.detected, r.err = test(ctx, root, m.Tests, files, timeout)
	return r
}

// test runs tests with files replacing the sources. It returns the test that failed, if
// any, and an error if the tests could not finish.
func test(ctx context.Context, root string, tests []string, files map[string]string, timeout time.Duration) (detected string, err error) {
	dir, err := os.MkdirTemp("", "reseat-mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if tests[0] == "web" {
		detected, err = testClient(ctx, root, dir, files, timeout)
	} else {
		detected, err = testGo(ctx, root, dir, tests, files, timeout)
	}
	if ctx.Err() != nil { // the tests were interrupted
		return "", ctx.Err()
	}
	return detected, err
}

// testGo runs the packages' tests one after another until one fails.
func testGo(ctx context.Context, root, dir string, packages []string, files map[string]string, timeout time.Duration) (string, error) {
	overlay, err := mutant.Overlay(root, dir, files)
	if err != nil {
		return "", err
	}
	args := []string{"test", "-overlay", overlay, "-count=1", "-failfast", "-p=1", "-timeout", timeout.String()}
	out, err := run(ctx, root, "go", append(args, packages...)...)
	switch {
	case err == nil:
		return "", nil
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return "", fmt.Errorf("does not compile: %s", tail(out))
	}
	return detectedBy(out), nil
}

// testClient runs the tests of the browser client and of the panel in a copy of web.
func testClient(ctx context.Context, root, dir string, files map[string]string, timeout time.Duration) (string, error) {
	for _, name := range []string{"web", "testdata"} {
		if err := os.CopyFS(filepath.Join(dir, name), bare{os.DirFS(filepath.Join(root, name))}); err != nil {
			return "", err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tests, err := filepath.Glob(filepath.Join(dir, "web/test/*.test.js"))
	if err != nil {
		return "", err
	}
	panel, err := filepath.Glob(filepath.Join(dir, "web/dev/*.test.mjs"))
	if err != nil {
		return "", err
	}
	tests = append(tests, panel...)
	perFile := fmt.Sprintf("--test-timeout=%d", (timeout * 3 / 4).Milliseconds()) // one that hangs is ended, and named
	out, err := run(ctx, filepath.Join(dir, "web"), "node", append([]string{"--test", "--test-reporter=tap", perFile}, clientTests(tests)...)...)
	if err == nil {
		return "", nil
	}
	return detectedBy(out), nil
}

// clientTests omits the tests that need what npm installs.
func clientTests(tests []string) (list []string) {
	for _, t := range tests {
		switch filepath.Base(t) {
		case "types.test.js", "package.test.js", "ws.test.js":
		default:
			list = append(list, t)
		}
	}
	return list
}

func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return "", err
	}
	return string(out), err
}

// failed matches the name of the innermost test that failed first.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^\s*not ok \d+ - (.+)$|^\s+(Test\S+) \(\d`)

func detectedBy(out string) string {
	all := failed.FindAllStringSubmatch(out, -1)
	switch {
	case len(all) > 0:
		return strings.Join(all[0][1:], "")
	case strings.Contains(out, "panic: "):
		return "a panic"
	}
	return "a test that ended without a word: " + tail(out)
}

func tail(s string) string {
	s = strings.TrimSpace(s)
	return strings.ReplaceAll(s[max(0, len(s)-300):], "\n", " | ")
}

// printTable prints the table and returns the exit status.
func printTable(results []result) (status int) {
	t := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "mutant\tnoticed by\tseconds\twhat is wrong with it")
	detected := 0
	for _, r := range results {
		by := r.detected
		switch {
		case r.err != nil:
			by, status = "ERROR: "+r.err.Error(), 2
		case by == "":
			by, status = "NO TEST", max(status, 1)
		default:
			detected++
		}
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%s\n", r.Name, by, r.took.Seconds(), r.Why)
	}
	t.Flush()
	fmt.Printf("\n%d of %d noticed\n", detected, len(results))
	return status
}
