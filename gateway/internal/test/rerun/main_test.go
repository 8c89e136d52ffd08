package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// inDir writes files, and has the test run in their directory.
func inDir(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// goFiles is a module with these packages' tests.
func goFiles(tests map[string]string) map[string]string {
	files := map[string]string{"go.mod": "module m\n"}
	for pkg, code := range tests {
		files[pkg+"/a_test.go"] = "package " + pkg + "\n\nimport (\n\t\"os\"\n\t\"sync\"\n\t\"testing\"\n)\n\n" + code + "\nvar _, _ = os.Exit, sync.NewCond\n\nfunc TestGood(t *testing.T) {}\n"
	}
	return files
}

// at is a test that fails up to its nth run.
func at(name, n string) string {
	return `func ` + name + `(t *testing.T) {
	f, _ := os.OpenFile("` + name + `", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	f.WriteString("x")
	f.Close()
	if b, _ := os.ReadFile("` + name + `"); len(b) < ` + n + ` {
		t.Error("run", len(b), "of ` + name + `")
	}
}
`
}

// ran is how often a test of at has run.
func ran(t *testing.T, name string) int {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// rerun runs a command, with the headlines that it appended to a list.
func rerun(t *testing.T, args ...string) (status int, said, list string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "list")
	var out strings.Builder
	status = command(args, &out, file)
	if b, err := os.ReadFile(file); err == nil {
		list = string(b)
	}
	t.Logf("%v: status %d\n%s", args, status, &out)
	return status, out.String(), list
}

func TestTestsThatPassAloneAreReportedAsFlaky(t *testing.T) {
	inDir(t, goFiles(map[string]string{
		"good":  "",
		"once":  at("TestOnce", "2") + "func TestSub(t *testing.T) { t.Run(\"below\", testSub) }\n\n" + at("testSub", "2"),
		"twice": at("TestTwice", "3"),
		"whole": "func TestMain(m *testing.M) {\n\tcode := m.Run()\n\tif f, err := os.OpenFile(\"ran\", os.O_CREATE|os.O_EXCL, 0o600); err == nil {\n\t\tf.Close()\n\t\tcode = 1\n\t}\n\tos.Exit(code)\n}\n",
	}))
	status, said, list := rerun(t, "go", "test", "-count=1", "./...")
	want := "FLAKY: m/once TestOnce failed once and passed alone\nFLAKY: m/once TestSub failed once and passed alone\n" +
		"FLAKY: m/twice TestTwice failed once and passed alone\nFLAKY: m/whole failed once and passed alone\n"
	if status != 0 || list != want || !strings.HasSuffix(said, "\n"+want) {
		t.Errorf("status %d, headlines\n%swant\n%s", status, list, want)
	}
	for _, s := range []string{"run 1 of TestOnce", "run 1 of testSub", "run 1 of TestTwice", "run 2 of TestTwice", "ok  \tm/good\t", "FAIL\tm/once\t"} {
		if !strings.Contains(said, s) {
			t.Errorf("the output has no %q", s)
		}
	}
	if n := ran(t, "twice/TestTwice"); n != 3 {
		t.Errorf("TestTwice ran %d times, want 3", n)
	}
}

func TestRunWithoutFailureIsNotRepeated(t *testing.T) {
	inDir(t, goFiles(map[string]string{"good": at("TestCounted", "0")}))
	status, said, list := rerun(t, "go", "test", "-count=1", "./...")
	if status != 0 || list != "" || strings.Contains(said, "rerun") || ran(t, "good/TestCounted") != 1 {
		t.Errorf("status %d, headlines %q", status, list)
	}
}

func TestTestThatAlwaysFailsRunsThreeTimes(t *testing.T) {
	inDir(t, goFiles(map[string]string{"a": at("TestNever", "1000") + at("TestOnce", "2")}))
	status, said, list := rerun(t, "go", "test", "-count=1", "./...")
	if status != 1 || list != "" || !strings.Contains(said, "rerun: failed again, alone: [m/a TestNever]") {
		t.Errorf("status %d, headlines %q", status, list)
	}
	if n := ran(t, "a/TestNever"); n != 3 {
		t.Errorf("the failing test ran %d times, want 3", n)
	}
	if n := ran(t, "a/TestOnce"); n != 2 {
		t.Errorf("the test that passed alone ran %d times, want 2", n)
	}
}

// Each of these passes when it is run again, which must not happen.
func TestFailuresThatAreNeverRepeated(t *testing.T) {
	first := func(code string) string {
		return "func TestX(t *testing.T) {\n\tif f, err := os.OpenFile(\"ran\", os.O_CREATE|os.O_EXCL, 0o600); err == nil {\n\t\tf.Close()\n\t\t" + code + "\n\t}\n}\n"
	}
	many := ""
	for _, name := range []string{"TestA", "TestB", "TestC", "TestD", "TestE", "TestF"} {
		many += at(name, "2")
	}
	for name, c := range map[string]struct{ code, want string }{
		"race":              {first("n := 0\n\t\tdone := make(chan bool)\n\t\tgo func() { n++; done <- true }()\n\t\tn++\n\t\t<-done"), "WARNING: DATA RACE"},
		"panic":             {first("panic(\"x\")"), "panic: "},
		"fatal error":       {first("new(sync.Mutex).Unlock()"), "fatal error: "},
		"of a child":        {first("t.Error(\"it says\\npanic: x\")"), "panic: "},
		"build":             {"func TestX(t *testing.T) { nothing() }\n", "FAIL\tm/a [build failed]"},
		"timeout":           {"func init() { go func() { select {} }() }\n\nvar forever = make(chan int)\n\n" + first("<-forever"), "panic: "},
		"killed":            {first("p, _ := os.FindProcess(os.Getpid())\n\t\tp.Kill()\n\t\tselect {}"), "signal: "},
		"too many failures": {many, "6 tests failed, which is more than 5"},
	} {
		t.Run(name, func(t *testing.T) {
			inDir(t, goFiles(map[string]string{"a": c.code}))
			timeout := "-timeout=1m"
			if name == "timeout" {
				timeout = "-timeout=1s"
			}
			args := []string{"go", "test", "-count=1", timeout, "./..."}
			if name == "race" {
				args = []string{"go", "test", "-race", "-count=1", timeout, "./..."}
			}
			status, said, list := rerun(t, args...)
			if last := said[strings.LastIndex(said, "rerun: "):]; status != 1 || list != "" || !strings.HasPrefix(last, "rerun: not repeated: "+c.want) {
				t.Errorf("status %d, headlines %q, %q", status, list, last)
			}
		})
	}
}

// A test that is skipped, or does not run at all, has not passed.
func TestSkippedTestHasNotPassed(t *testing.T) {
	inDir(t, goFiles(map[string]string{"a": "func TestX(t *testing.T) {\n\tif f, err := os.OpenFile(\"ran\", os.O_CREATE|os.O_EXCL, 0o600); err == nil {\n\t\tf.Close()\n\t\tt.Fatal(\"x\")\n\t}\n\tt.Skip(\"now it does not\")\n}\n"}))
	if status, _, list := rerun(t, "go", "test", "-count=1", "./..."); status != 1 || list != "" {
		t.Errorf("status %d, headlines %q", status, list)
	}
	got := goTest{[]string{"go", "test", "-count=1", "./..."}}.alone([]failure{{"m/a", "TestNowhere"}}, t.Output())
	if got.err == nil || len(got.failed) != 1 {
		t.Errorf("a test that is not there: %+v", got)
	}
}

func TestWrongCommandIsRefused(t *testing.T) {
	for _, args := range [][]string{nil, {"true"}, {"go", "vet"}, {"node", "x.js"}, {"/no/such/dir/go", "test"}} {
		if status, _, _ := rerun(t, args...); status != 1 {
			t.Errorf("%q: status %d", args, status)
		}
	}
}

func node(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
}

// nodeFile is a test file with tests that fail up to the nth run of the file.
func nodeFile(n, tests string) string {
	return `import { appendFileSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

const file = import.meta.filename + '.ran';
appendFileSync(file, 'x');
const wrong = readFileSync(file, 'utf8').length < ` + n + `;
` + tests
}

func TestFilesOfNodeThatPassAloneAreReportedAsFlaky(t *testing.T) {
	node(t)
	inDir(t, map[string]string{
		"good.test.mjs":   nodeFile("0", "test('good', () => {});\n"),
		"below.test.mjs":  nodeFile("2", "test('a', async (t) => {\n  await t.test('b', () => {\n    if (wrong) throw new Error('wrong below');\n  });\n});\n"),
		"import.test.mjs": nodeFile("2", "if (wrong) throw new Error('wrong at once');\ntest('a', () => {});\n"),
	})
	status, said, list := rerun(t, "node", "--test")
	dir, _ := os.Getwd()
	want := "FLAKY: " + filepath.Base(dir) + " below.test.mjs failed once and passed alone\nFLAKY: " + filepath.Base(dir) + " import.test.mjs failed once and passed alone\n"
	if status != 0 || list != want || !strings.HasSuffix(said, "\n"+want) {
		t.Errorf("status %d, headlines\n%swant\n%s", status, list, want)
	}
	if !strings.Contains(said, "wrong below") || !strings.Contains(said, "wrong at once") || !regexp.MustCompile(`(?m)^# fail [1-9]`).MatchString(said) {
		t.Error("the first run's output is missing")
	}
	if n := ran(t, "good.test.mjs.ran"); n != 1 {
		t.Errorf("the file that passed ran %d times", n)
	}
}

func TestFailuresOfNodeThatAreNotForgiven(t *testing.T) {
	node(t)
	throws := "() => {\n  if (wrong) throw new Error('wrong');\n}"
	for name, c := range map[string]struct{ tests, want string }{
		"always":            {"test('a', () => {\n  throw new Error('always');\n});\n", "failed again, alone: "},
		"a panic":           {"test('a', () => {\n  if (wrong) throw new Error('the gateway says\\npanic: x');\n});\n", "not repeated: panic: "},
		"too many failures": {"for (const i of [1, 2, 3, 4, 5, 6]) test(`${i}`, " + throws + ");\n", "not repeated: 6 tests failed, which is more than 5"},
		"no test at all":    {"process.exit(0);\n", "no test"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"a.test.mjs": nodeFile("2", c.tests)}
			args := []string{"node", "--test"}
			if name == "no test at all" {
				files = map[string]string{"a.test.mjs": "import { test } from 'node:test';\ntest.skip('a', () => {});\n"}
			}
			inDir(t, files)
			status, said, list := rerun(t, args...)
			if last := said[strings.LastIndex(said, "rerun: "):]; status != 1 || list != "" || !strings.Contains(last, c.want) {
				t.Errorf("status %d, headlines %q, %q", status, list, last)
			}
		})
	}
}
