// Command rerun runs the tests of go test or node --test once, and those that failed
// again, alone. A run that passes only so is reported as FLAKY, which is a bug: of the test
// or of the product. See CONTRIBUTING.md.
//
//	rerun go test -race -timeout=10m ./...    flags as -name=value, packages last
//	rerun node --test FILES...
//
// The output of every run is printed. What a repetition would hide is not repeated: a
// data race, a panic, a fatal error, a build failure, a timeout of a whole package, and more
// than maxFailed failures.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// maxFailed is how many tests may fail by chance.
const maxFailed = 5

func main() {
	list := flag.String("list", "", "append the tests that passed only alone to this file")
	flag.Parse()
	os.Exit(command(flag.Args(), os.Stdout, *list))
}

// command returns the exit status.
func command(args []string, out io.Writer, list string) int {
	err := errors.New("want go test or node --test, with arguments")
	var flaky []failure
	switch {
	case len(args) > 1 && filepath.Base(args[0]) == "go" && args[1] == "test":
		flaky, err = again(goTest{args}, 2, out)
	case len(args) > 1 && filepath.Base(args[0]) == "node" && args[1] == "--test":
		flaky, err = again(nodeTest{args}, 1, out)
	}
	if err == nil {
		err = report(flaky, out, list)
	}
	if err != nil {
		fmt.Fprintln(out, "rerun:", err)
		return 1
	}
	return 0
}

// A failure is a test that failed.
type failure struct {
	where string // package, or directory
	test  string // its name, or its file; "": the package itself failed
}

func (f failure) String() string {
	return strings.TrimSpace(f.where + " " + f.test)
}

// A runner runs tests.
type runner interface {
	// first runs all tests.
	first(out io.Writer) outcome
	// alone runs one where's failed tests one after the other, and nothing beside them. The
	// outcome's failures are those that did not pass.
	alone(failed []failure, out io.Writer) outcome
}

// An outcome is what a run said.
type outcome struct {
	failed []failure
	never  string // why nothing is repeated; "": it may be
	err    error  // of the run as a whole
}

// again runs all tests, and those that fail up to so many times more. It returns those that
// passed then, and an error if one did not.
func again(r runner, times int, out io.Writer) (flaky []failure, err error) {
	all := r.first(out)
	if all.err == nil {
		return nil, nil
	}
	failed := all
	for i := 0; i < times && failed.err != nil; i++ {
		if err := failed.mayRepeat(); err != nil {
			return nil, err
		}
		failed = repeat(r, failed.failed, out)
	}
	if failed.err != nil {
		return nil, fmt.Errorf("failed again, alone: %v", failed.failed)
	}
	return all.failed, nil
}

func (o *outcome) mayRepeat() error {
	switch {
	case o.never != "":
		return fmt.Errorf("not repeated: %s", o.never)
	case len(o.failed) > maxFailed:
		return fmt.Errorf("not repeated: %d tests failed, which is more than %d", len(o.failed), maxFailed)
	case len(o.failed) == 0:
		return fmt.Errorf("not repeated: no test failed: %w", o.err)
	}
	return nil
}

// repeat runs failed tests alone.
func repeat(r runner, failed []failure, out io.Writer) (sum outcome) {
	for len(failed) > 0 {
		n := 1
		for n < len(failed) && failed[n].where == failed[0].where {
			n++
		}
		fmt.Fprintf(out, "\nrerun: %v failed, and run once more, alone\n", failed[:n])
		one := r.alone(failed[:n], out)
		sum.failed = append(sum.failed, one.failed...)
		sum.err = errors.Join(sum.err, one.err)
		if sum.never == "" {
			sum.never = one.never
		}
		failed = failed[n:]
	}
	return sum
}

// report prints the headlines.
func report(flaky []failure, out io.Writer, list string) error {
	var lines strings.Builder
	for _, f := range flaky {
		fmt.Fprintf(&lines, "FLAKY: %s failed once and passed alone\n", f)
	}
	io.WriteString(out, lines.String())
	if list == "" || len(flaky) == 0 {
		return nil
	}
	f, err := os.OpenFile(list, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, lines.String())
	return errors.Join(err, f.Close())
}

// neverForm matches what must not be lost by a repetition, in a test's output or that of a process
// that it started.
var neverForm = regexp.MustCompile(`WARNING: DATA RACE|race detected during execution of test|panic: |fatal error: |(?m:^FAIL\t\S+ \[(build|setup) failed\])|(?m:^signal: )|ran too long`)

// run runs a program, and returns what it said, which is printed as well.
func run(out io.Writer, args ...string) (said string, err error) {
	var b bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = io.MultiWriter(out, &b)
	cmd.Stderr = cmd.Stdout // the same writer: one goroutine copies both
	err = cmd.Run()
	return b.String(), err
}
