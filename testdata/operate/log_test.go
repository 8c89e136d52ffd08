package operate

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// drop resets the player's connection and waits until the gateway has noticed.
func (p *player) drop(g *gateway) {
	p.t.Helper()
	p.conn.CloseNow()
	eventually(p.t, "the gateway has noticed the cut", func() bool {
		list := g.sessions()
		return len(list) == 1 && list[0].State == "detached"
	})
}

// Each log line in the page has the fields, and the level, of a real one.
func TestOperatingPageShowsRealLogLines(t *testing.T) {
	page := file(t, "operating.md")
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(page)
	if block == nil {
		t.Fatal("the page shows no log lines")
	}
	shown := map[string]map[string]any{}
	for line := range strings.Lines(block[1]) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		shown[fields["msg"].(string)] = fields
	}
	for _, real := range lived(t) {
		msg := real["msg"].(string)
		fields, ok := shown[msg]
		if !ok {
			continue
		}
		delete(shown, msg)
		if got, want := slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(real)); !slices.Equal(got, want) || fields["level"] != real["level"] {
			t.Errorf("%s: the page shows %s %q, the log has %s %q", msg, fields["level"], got, real["level"], want)
		}
	}
	for msg := range shown {
		t.Errorf("%q never was in the log", msg)
	}
}

// lived returns the log of a session in which all these events occur.
func lived(t *testing.T) (lines []map[string]any) {
	t.Helper()
	ga := newGame(t, 5*time.Millisecond)
	g := start(t, "--upstream="+ga.url(), "--buffer-messages=10", "--drain=1h")
	p := g.join()
	first := p.token
	p.next()
	p.drop(g)
	p.resume()
	old := p.conn
	p.tell("ping confirmed")
	if err := p.connect(); err != nil { // a takeover
		t.Fatal(err)
	}
	old.CloseNow()
	p.next()
	g.ask("PATCH", "/api/v1/sessions/"+p.session, `{"started": true}`).want(t, "the start", 200, "")
	(&player{t: t, url: p.url, token: first}).wantRefused("a superseded token", "4401")
	p.drop(g)
	g.heard(&lines, "buffer.overflowed")
	p.resume()
	p.tell("bye")
	g.heard(&lines, "session.ended")
	p.wantRefused("a resume of an ended session", "4404")
	g.heard(&lines, "resume.refused")
	g.ask("POST", "/api/v1/drain", "").want(t, "the drain", 200, "")
	g.player().wantRefused("a new session while it drains", "503")
	g.heard(&lines, "handshake.refused")
	return lines
}

// heard waits for a log line, and keeps all lines up to it.
func (g *gateway) heard(lines *[]map[string]any, msg string) {
	g.t.Helper()
	for line := range g.log.lines {
		*lines = append(*lines, line)
		if line["msg"] == msg {
			return
		}
	}
	g.t.Fatalf("the gateway has ended and never said %q", msg)
}

// Each log line in the troubleshooting table occurs literally in the program's source.
func TestTroubleshootingTableNamesRealLogLines(t *testing.T) {
	source := sources(t)
	if strings.Contains(source, `"no such line"`) {
		t.Fatal("the search finds anything")
	}
	_, table, _ := strings.Cut(file(t, "operating.md"), "## Troubleshooting")
	table, _, _ = strings.Cut(table, "\n## ")
	named := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, " | ")
		if len(cells) != 4 || strings.HasPrefix(row, "| symptom") {
			continue
		}
		for _, line := range regexp.MustCompile("`([^`]{6,})`").FindAllStringSubmatch(cells[1], -1) {
			if name := line[1]; name != "reason" && name != "origin" && name != "reseat:" {
				named++
				if !strings.Contains(source, `"`+name+`"`) {
					t.Errorf("%q is no line of the log", name)
				}
			}
		}
	}
	if named < 15 {
		t.Errorf("only %d lines of the log were looked at", named)
	}
}

// sources is the text of the program.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"../../gateway", "../../tokens"} {
		err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
