// Package mutant parses planted bugs and applies them to copies of files. The sources
// themselves are never changed.
package mutant

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Mutant is a bug: lines of the sources and their replacement.
type Mutant struct {
	Name  string // its file and name: session/no-fence
	Why   string // what the bug is
	Tests []string
	Edits []Edit
}

// An Edit replaces one place of a file.
type Edit struct{ File, Old, New string }

// Load reads the mutants of a directory, in file order.
func Load(dir string) (list []Mutant, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		more, err := parse(strings.TrimSuffix(filepath.Base(name), ".txt"), string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, more...)
	}
	return list, nil
}

// parse parses the mutants of one file; kind prefixes their names.
func parse(kind, text string) (list []Mutant, err error) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		word, rest, _ := strings.Cut(lines[i], " ")
		rest = strings.TrimSpace(rest)
		if word == "mutant" {
			list = append(list, Mutant{Name: kind + "/" + rest})
			continue
		}
		if strings.TrimSpace(lines[i]) == "" || strings.HasPrefix(word, "#") {
			continue
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("line %d: want mutant NAME first, got %q", i+1, lines[i])
		}
		m := &list[len(list)-1]
		switch word {
		case "why":
			m.Why = rest
		case "test":
			m.Tests = strings.Fields(rest)
		case "in":
			e := Edit{File: rest}
			if i, err = e.parse(lines, i+1); err != nil {
				return nil, err
			}
			m.Edits = append(m.Edits, e)
		default:
			return nil, fmt.Errorf("line %d: want mutant, why, test or in, got %q", i+1, lines[i])
		}
	}
	return list, nil
}

// parse parses the text between <<<<, ==== and >>>>, from line i on, and returns the
// number of the last line.
func (e *Edit) parse(lines []string, i int) (int, error) {
	var part [2][]string
	at := -1
	for ; i < len(lines); i++ {
		switch lines[i] {
		case "<<<<":
			at = 0
		case "====":
			at = 1
		case ">>>>":
			e.Old, e.New = strings.Join(part[0], "\n"), strings.Join(part[1], "\n")
			return i, nil
		default:
			if at < 0 {
				return i, fmt.Errorf("line %d: want <<<<, got %q", i+1, lines[i])
			}
			part[at] = append(part[at], lines[i])
		}
	}
	return i, fmt.Errorf("a place in %s has no >>>>", e.File)
}

// Apply returns the mutant's files of the tree at root. Text that is not found, or
// found more than once, is an error: a mutant that does not apply proves nothing.
func (m Mutant) Apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.Edits {
		text, ok := files[e.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 || e.Old == "" {
			return nil, fmt.Errorf("mutant %s: its text stands %d times in %s: adapt the mutant to the code", m.Name, n, e.File)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	if len(files) == 0 || len(m.Tests) == 0 || m.Why == "" {
		return nil, fmt.Errorf("mutant %s: wants why, test and in", m.Name)
	}
	return files, nil
}

// Overlay writes files, as Apply returns them, to dir, and returns the name of the file
// for the go command's -overlay.
func Overlay(root, dir string, files map[string]string) (string, error) {
	replace := map[string]string{}
	for name, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
