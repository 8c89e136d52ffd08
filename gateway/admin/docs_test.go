package admin

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// commands returns the command lines in a page's shell blocks, and the statuses in the
// comments after them; 0 stands for any successful one.
func commands(t *testing.T, page string) (lines []string, statuses []int) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			line, comment, _ := strings.Cut(strings.TrimSpace(line), " # ")
			status := 0
			if comment != "" {
				if status, err = strconv.Atoi(comment); err != nil {
					t.Fatalf("%s # %s: %v", line, comment, err)
				}
			}
			lines, statuses = append(lines, line), append(statuses, status)
		}
	}
	return lines, statuses
}

// A curl is a command line of that program.
type curl struct {
	method, target, body string
	header               []string
	stream               bool
}

var word = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// parseCurl parses the options of curl that the page uses. Any other fails the test.
func parseCurl(t *testing.T, line string, values map[string]string) (c curl) {
	t.Helper()
	words := word.FindAllString(line, -1)
	for i, w := range words {
		quoted := strings.HasPrefix(w, "'")
		if quoted || strings.HasPrefix(w, `"`) {
			words[i] = w[1 : len(w)-1]
		}
		if !quoted {
			words[i] = os.Expand(words[i], func(name string) string {
				v, ok := values[name]
				if !ok {
					t.Fatalf("%s: $%s is nothing yet", line, name)
				}
				return v
			})
		}
	}
	if words[0] != "curl" {
		t.Fatalf("%q is no curl", line)
	}
	for words = words[1:]; len(words) > 0; words = words[1:] {
		switch w := words[0]; w {
		case "-N":
			c.stream = true
			continue
		case "-X":
			c.method = words[1]
		case "-H":
			c.header = append(c.header, words[1])
		case "-d", "--data-binary", "--json":
			c.body = words[1]
		default:
			if c.target != "" || !strings.HasPrefix(w, "http://admin/") {
				t.Fatalf("%s: what is %s?", line, w)
			}
			c.target = strings.TrimPrefix(w, "http://admin")
			continue
		}
		words = words[1:]
	}
	if c.method == "" {
		c.method = http.MethodGet
		if c.body != "" {
			c.method = http.MethodPost
		}
	}
	return c
}

func TestDocumentedCommandsWork(t *testing.T) {
	inTown(t, []string{"n1", "n2"}, func(t *testing.T, nodes []*place) {
		w := nodes[0].world
		s := w.serve()
		values := map[string]string{"ADMIN": "http://admin", "TOKEN": adminToken}
		lines, statuses := commands(t, "../../docs/control-api.md")
		used := map[string]bool{}
		for i, line := range lines {
			c := parseCurl(t, line, values)
			if c.stream {
				s.listen(strings.TrimPrefix(c.target, "/api/v1/events")).Close()
				used["GET /api/v1/events"] = true
				continue
			}
			rec := w.send(c.method, c.target, c.body, c.header...)
			if want := statuses[i]; rec.Code != want && (want > 0 || rec.Code >= 300) {
				t.Errorf("%s: %d %s, want %d", line, rec.Code, rec.Body, want)
			}
			var made created
			if json.Unmarshal(rec.Body.Bytes(), &made); rec.Code == http.StatusCreated {
				values["ID"] = made.ID
			}
			target, _, _ := strings.Cut(c.target, "?")
			target = regexp.MustCompile(`sessions/[0-9a-f]+`).ReplaceAllString(target, "sessions/{id}")
			target = regexp.MustCompile(`nodes/[^/]*`).ReplaceAllString(target, "nodes/{name}")
			target = regexp.MustCompile(`groups/[^/]*`).ReplaceAllString(target, "groups/{group}")
			used[c.method+" "+regexp.MustCompile(`pprof/.*`).ReplaceAllString(target, "pprof/{profile}")] = true
		}
		for path, item := range described.Paths.Map() {
			for method := range item.Operations() {
				if !used[method+" "+path] && !strings.HasPrefix(path, "/debug/") && !isDashboard(path) {
					t.Errorf("%s %s has no line in the page", method, path)
				}
			}
		}
	})
}
