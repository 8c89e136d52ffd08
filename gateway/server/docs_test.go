package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"reseat/gateway/client"
	proto "reseat/gateway/wire"
)

// Every command on the pages is run. A sh block is run by bash as it stands, in a directory
// that the blocks of a page share, with reseat in PATH. A program that serves is stopped
// once it does, and must then exit cleanly. A comment before a block says how to run it:
//
//	<!-- sh: needs openssl -->         only if that is installed
//	<!-- sh: with reseat --demo -->    while reseat serves; localhost:8080
//	                                   and 127.0.0.1:8081 are its addresses
//	<!-- sh: with a player of the demo -->   the same, and $ID is a session's id
//	<!-- sh: as make -n run -->        runs that instead, in the repository
//	<!-- sh: run by FILE -->           FILE is a test, and names the page
//
// "needs" may precede another mark, separated by a semicolon. The last mark may say "every
// block" for a whole page. Other addresses on localhost are replaced by that of a server
// that accepts connections.

// root is the root of the repository.
const root = "../.."

// ownProcess is the name by which the test binary is the program.
const ownProcess = "reseat-process"

// TestMain runs reseat itself if a block calls the test binary as reseat, or a test of
// upgrades by another name.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "reseat":
		os.Exit(calledByAPage(os.Args[1:]))
	case ownProcess:
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, Signals...)
		os.Exit(Run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, signals))
	}
	os.Exit(m.Run())
}

// calledByAPage runs the program on free ports.
func calledByAPage(args []string) int {
	signals := make(chan os.Signal, 1)
	asks := func(arg string) bool { return arg == "check" || arg == "--help" || arg == "--version" }
	if slices.ContainsFunc(args, asks) {
		return Run(onFreePorts(args), os.Environ(), os.Stdout, os.Stderr, signals)
	}
	args = append(args, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log-format=json")
	served := &watcher{want: []byte(`"listen.clients"`), seen: func() { signals <- syscall.SIGTERM }}
	return Run(args, os.Environ(), os.Stdout, io.MultiWriter(os.Stderr, served), signals)
}

// A watcher calls seen once the output contains want.
type watcher struct {
	want, got []byte
	seen      func()
}

func (w *watcher) Write(b []byte) (int, error) {
	w.got = append(w.got, b...)
	if w.seen != nil && bytes.Contains(w.got, w.want) {
		w.seen()
		w.seen, w.got = nil, nil
	}
	return len(b), nil
}

// A block is a sh block of a page.
type block struct {
	line int
	code string
	mark string // of the comment before it, or of the page
}

var (
	markForm  = regexp.MustCompile(`^<!-- sh: (every block )?(.+) -->$`)
	strayForm = regexp.MustCompile(`^(?: {4}|\t)(?:\$ )?(?:[A-Z_]+=\S* )*(?:reseat|bin/reseat|\./\S+|make|curl|go|git|npm|npx|node|docker|kubectl|systemctl|openssl) `)
)

// blocksOf returns the sh blocks of a page. A command outside of a block is an error, since
// nothing would run it.
func blocksOf(page string) (list []block, err error) {
	var mark, every, fence string
	var open *block
	for i, line := range strings.Split(page, "\n") {
		switch m := markForm.FindStringSubmatch(line); {
		case open != nil && line == "```":
			list, open = append(list, *open), nil
		case open != nil:
			open.code += line + "\n"
		case fence != "" || strings.HasPrefix(line, "```") && line != "```sh":
			fence = fenceAfter(fence, line)
		case line == "```sh":
			open = &block{line: i + 1, mark: mark}
			if mark == "" {
				open.mark = every
			}
			mark = ""
		case m != nil && m[1] != "":
			every = m[2]
		case m != nil:
			mark = m[2]
		case strayForm.MatchString(line):
			return nil, fmt.Errorf("line %d: %q is in no sh block (see gateway/server/docs_test.go)", i+1, strings.TrimSpace(line))
		case mark != "" && line != "":
			return nil, fmt.Errorf("line %d: a mark without a sh block after it", i)
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: a block that does not end", open.line)
	}
	return list, nil
}

// fenceAfter returns the fence that is open after a line: that of a block in another
// language.
func fenceAfter(fence, line string) string {
	switch {
	case fence == "":
		return "```"
	case line == "```":
		return ""
	}
	return fence
}

// A reader runs the commands of a page.
type reader struct {
	*testing.T
	page string // its path in the repository
	dir  string
	stub string // HOST:PORT of a server that accepts connections
}

func newReader(t *testing.T, page string) *reader {
	t.Helper()
	r := &reader{T: t, page: page, dir: t.TempDir(), stub: startGame(t, nil).Addr().String()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(r.dir, "bin", "reseat")); err != nil {
		t.Fatal(err)
	}
	return r
}

// do runs a block as its mark says.
func (r *reader) do(b block) error {
	if tools, ok := strings.CutPrefix(b.mark, "needs "); ok {
		tools, b.mark, _ = strings.Cut(tools, "; ")
		for _, tool := range strings.Fields(tools) {
			if _, err := exec.LookPath(tool); err != nil {
				r.Logf("%s:%d: not run: %s is missing", r.page, b.line, tool)
				return nil
			}
		}
	}
	verb, rest, _ := strings.Cut(b.mark, " ")
	switch {
	case b.mark == "":
		return r.sh(r.dir, b.code, nil)
	case b.mark == "with reseat --demo":
		return r.beside(begin(r.T), b.code)
	case b.mark == "with a player of the demo":
		p := begin(r.T)
		join(r.T, p.clients["ws"].(string)+"/demo/play", nil)
		var found struct{ Sessions []struct{ ID string } }
		if err := json.NewDecoder(p.ask("GET", "/api/v1/sessions", "").Body).Decode(&found); err != nil || len(found.Sessions) != 1 {
			return fmt.Errorf("%+v: %w", found, err)
		}
		return r.beside(p, "ID="+found.Sessions[0].ID+"\n"+b.code)
	case verb == "as" && rest != "":
		return r.sh(root, rest, nil)
	case strings.HasPrefix(b.mark, "run by "):
		return namesPage(strings.TrimPrefix(b.mark, "run by "), strings.TrimPrefix(r.page, "docs/"))
	}
	return fmt.Errorf("unknown mark %q", b.mark)
}

// beside runs a script while the program serves.
func (r *reader) beside(p *started, code string) error {
	host := func(url any) string { return strings.TrimPrefix(url.(string), "http://") }
	return r.sh(r.dir, code, map[string]string{"localhost:8080": host(p.clients["http"]), "127.0.0.1:8081": host(p.admin)})
}

// namesPage checks that a test exists, and names the page.
func namesPage(test, page string) error {
	source, err := os.ReadFile(filepath.Join(root, test))
	if err == nil && !bytes.Contains(source, []byte(page)) {
		err = fmt.Errorf("%s does not name %s", test, page)
	}
	return err
}

var local = regexp.MustCompile(`(?:localhost|127\.0\.0\.1):[0-9]{2,5}`)

// sh runs a script with its addresses replaced: those in known by the given ones, others by
// the stub's.
func (r *reader) sh(dir, code string, known map[string]string) error {
	code = local.ReplaceAllStringFunc(code, func(found string) string {
		if host, ok := known[found]; ok {
			return host
		}
		return r.stub
	})
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", code)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RESEAT_") && !strings.HasPrefix(v, "PATH=") && !strings.HasPrefix(v, "MAKE") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"))
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, code, said)
	}
	return nil
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages are README.md and those of docs and docs/design, the README.md of its directories included.
func pages(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md"}
	for pattern, want := range map[string]int{"docs/*.md": 8, "docs/design/*.md": 1, "docs/*/README.md": 1} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) < want {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		for _, p := range found {
			rel, _ := filepath.Rel(root, p)
			list = append(list, filepath.ToSlash(rel))
		}
	}
	slices.Sort(list[1:])
	return list
}

func TestEveryCommandOfThePagesIsRun(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash here")
	}
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) {
			blocks, err := blocksOf(readPage(t, page))
			if err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			if len(blocks) == 0 {
				return
			}
			r := newReader(t, page)
			for _, b := range blocks {
				if err := r.do(b); err != nil {
					t.Errorf("%s:%d: %v", page, b.line, err)
				}
			}
		})
	}
}

var (
	linkForm    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingForm = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	codeForm    = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
)

// anchors returns the anchors of a page's headings on GitHub.
func anchors(page string) map[string]bool {
	list := map[string]bool{}
	for _, h := range headingForm.FindAllStringSubmatch(regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(page, ""), -1) {
		text := strings.ToLower(strings.TrimSpace(h[1]))
		text = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`).ReplaceAllString(text, "")
		list[strings.ReplaceAll(text, " ", "-")] = true
	}
	return list
}

// deadLinks returns the links of a page to targets that do not exist.
func deadLinks(page, text string) (dead []string) {
	for _, m := range linkForm.FindAllStringSubmatch(codeForm.ReplaceAllString(text, ""), -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		file := filepath.Join(root, filepath.Dir(page), target)
		if target == "" {
			file = filepath.Join(root, page)
		}
		_, err := os.Stat(file)
		if err == nil && anchor != "" {
			other, _ := os.ReadFile(file)
			if !anchors(string(other))[anchor] {
				err = os.ErrNotExist
			}
		}
		if err != nil {
			dead = append(dead, m[1])
		}
	}
	return dead
}

func TestNoLinkBetweenPagesIsDead(t *testing.T) {
	more, err := filepath.Glob(filepath.Join(root, "testdata", "*", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	list := append(pages(t), "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "web/README.md", "web/e2e/README.md")
	for _, p := range more {
		rel, _ := filepath.Rel(root, p)
		list = append(list, rel)
	}
	for _, page := range list {
		for _, link := range deadLinks(page, readPage(t, page)) {
			t.Errorf("%s: the link to %s is dead", page, link)
		}
	}
	got := deadLinks("docs/faq.md", "[a](no.md) [b](protocol.md) [c](protocol.md#no) [d](protocol.md#2-handshake) [e](https://no.example) `[f](no.md)` [g](../web/no/)")
	if !slices.Equal(got, []string{"no.md", "protocol.md#no", "../web/no/"}) {
		t.Errorf("dead links: %q", got)
	}
}

var goForm = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Go code on a page must be part of a test that compiles and runs it.
func TestGoExamplesOfThePagesAreTested(t *testing.T) {
	var sources []byte
	err := filepath.WalkDir(filepath.Join(root, "gateway"), func(p string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, "_test.go") {
			var source []byte
			source, err = os.ReadFile(p)
			sources = append(sources, source...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range pages(t) {
		for _, m := range goForm.FindAllStringSubmatch(readPage(t, page), -1) {
			shown++
			if !bytes.Contains(sources, []byte(m[1])) {
				t.Errorf("%s: no test contains\n%s", page, m[1])
			}
		}
	}
	if shown < 2 {
		t.Errorf("%d blocks of Go were found", shown)
	}
}

// The index must link to every page.
func TestIndexNamesEveryPage(t *testing.T) {
	index := readPage(t, "docs/README.md")
	linked := map[string]bool{"README.md": true}
	for _, m := range linkForm.FindAllStringSubmatch(index, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		linked[target] = true
	}
	for _, page := range pages(t)[1:] {
		if !linked[strings.TrimPrefix(page, "docs/")] {
			t.Errorf("docs/README.md does not lead to %s; it leads to %v", page, slices.Sorted(maps.Keys(linked)))
		}
	}
	if !strings.Contains(readPage(t, "README.md"), "(docs/README.md)") {
		t.Error("README.md does not lead to docs/README.md")
	}
}

// claims are statements that were true once, and are still where they are qualified: a paragraph, list item or row
// that says the one must say the other.
var claims = []struct{ said, qualified string }{
	{`resumes? must reach|as a resume of Reseat must`, `[Cc]luster`},
	{`[Ss]essions? (live|lives) in`, `[Cc]luster|durable`},
	{`one (ordinary )?WebSocket( connection)? per session`, `dial`},
	{`do(es)? not move between`, `between regions`},
	{`SIGHUP\W+reloads`, `cluster|operating\.md#signals`},
	{`(?i)token\b.*kept (only )?in memory`, `sessionStorage`},
	{`stays open while the client is away`, `by default`},
	{`all sessions( are)? lost`, `durable`},
}

var unitForm = regexp.MustCompile(`\n\n|\n *[-|] `)

func unqualified(text string) (list []string) {
	for _, unit := range unitForm.Split(text, -1) {
		for _, c := range claims {
			if regexp.MustCompile(c.said).MatchString(unit) && !regexp.MustCompile(c.qualified).MatchString(unit) {
				list = append(list, c.said)
			}
		}
	}
	return list
}

func TestPagesSayNothingThatHasCeasedToHold(t *testing.T) {
	for _, page := range append(pages(t), "SECURITY.md", "CONTRIBUTING.md", "web/README.md") {
		for _, said := range unqualified(readPage(t, page)) {
			t.Errorf("%s says %q without what limits it", page, said)
		}
	}
	got := unqualified("With Reseat a resume must reach the process that holds the session.\n- in a cluster a resume must reach a node\n| token | kept in memory |")
	if len(got) != 2 {
		t.Errorf("found %q", got)
	}
}

// The protocol's page is complete: it has every member of hello, and every word of an offer.
func TestProtocolPageNamesAllOfHelloAndOffer(t *testing.T) {
	page := readPage(t, "docs/protocol.md")
	for f := range reflect.TypeFor[proto.Hello]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("hello has %q, and the page does not", name)
		}
	}
	offers := regexp.MustCompile(`"(reseat\.[a-z]+)\.?"`).FindAllStringSubmatch(readPage(t, "gateway/wire/offer.go"), -1)
	if len(offers) < 4 {
		t.Errorf("%d words of an offer were found", len(offers))
	}
	for _, m := range offers {
		if m[1] != "reseat." && !strings.Contains(page, m[1]) {
			t.Errorf("a client may offer %q, and the page does not say so", m[1])
		}
	}
}

// The pages of both clients have all that they report.
func TestPagesOfTheClientsNameTheirEvents(t *testing.T) {
	page := readPage(t, "docs/go-client.md")
	for f := range reflect.TypeFor[client.Options]().Fields() {
		if f.Type.Kind() == reflect.Func && !strings.Contains(page, "`Options."+f.Name+"`") {
			t.Errorf("docs/go-client.md lacks Options.%s", f.Name)
		}
	}
	page = readPage(t, "web/README.md")
	events := regexp.MustCompile(`(?m)^  (\w+): CustomEvent<`).FindAllStringSubmatch(readPage(t, "web/reseat.d.ts"), -1)
	if len(events) < 4 {
		t.Errorf("%d events were found", len(events))
	}
	for _, m := range events {
		if !strings.Contains(page, "event `"+m[1]+"`") && m[1] != "close" { // that of WebSocket
			t.Errorf("web/README.md lacks the event %s", m[1])
		}
	}
}

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
