package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/klauspost/compress/gzip"
)

var placeholder = regexp.MustCompile(`Qz(\d{3})zQ`)

// search looks for short names with which the classic script, the larger one, compresses
// better: it changes one after another, and keeps what makes it no larger. The result is names.json.
func search(dir string, span time.Duration) error {
	s, err := newNaming(dir)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewSource(1))
	least := s.size()
	for end := time.Now().Add(span); time.Now().Before(end); {
		first := s.at[random.Intn(len(s.at))]
		want := string(letters[random.Intn(len(letters))])
		if random.Intn(3) > 0 {
			want = s.letter[s.at[random.Intn(len(s.at))]]
		}
		old := s.letter[first]
		if old == want {
			continue
		}
		changed := s.change(first, want)
		if n := s.size(); n <= least {
			least = n
		} else {
			s.swap(changed, old, want)
		}
	}
	result := map[string]string{}
	for _, i := range s.at {
		result[s.order[i]] = s.letter[i]
	}
	content, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bundle", "names.json"), append(content, '\n'), 0o644)
}

// A naming is the classic script, and a letter for each member in it.
type naming struct {
	order  []string                   // the members
	index  map[string]int             // in order
	beside map[string]map[string]bool // members that need another letter
	letter []string
	text   []string // the script between its members
	at     []int    // the member after each text but the last

	packed bytes.Buffer
	w      *gzip.Writer
}

// newNaming builds the script with the letters of names.json.
func newNaming(dir string) (*naming, error) {
	order, beside, err := members(dir)
	if err != nil {
		return nil, err
	}
	given, err := names(dir)
	if err != nil {
		return nil, err
	}
	s := &naming{order: order, beside: beside, index: map[string]int{}, letter: make([]string, len(order))}
	marks := map[string]any{}
	for i, name := range order {
		marks[name], s.index[name], s.letter[i] = fmt.Sprintf("Qz%03dzQ", i), i, given[name].(string)
	}
	files, err := build(dir, marks)
	if err != nil {
		return nil, err
	}
	script := string(files["reseat.install.js"])
	s.text = placeholder.Split(script, -1)
	for _, m := range placeholder.FindAllStringSubmatch(script, -1) {
		i, _ := strconv.Atoi(m[1]) // digits
		s.at = append(s.at, i)
	}
	s.w, err = gzip.NewWriterLevel(&s.packed, gzip.BestCompression)
	return s, err
}

// size returns the compressed size of the script, in bytes.
func (s *naming) size() int {
	s.packed.Reset()
	s.w.Reset(&s.packed)
	for i, part := range s.text {
		_, _ = s.w.Write([]byte(part)) // writing to a Buffer never fails
		if i < len(s.at) {
			_, _ = s.w.Write([]byte(s.letter[s.at[i]]))
		}
	}
	_ = s.w.Close()
	return s.packed.Len()
}

// change gives a member another letter. Its neighbours that have that letter get its old one, and so on. It returns
// the members that it has changed.
func (s *naming) change(first int, want string) (changed []int) {
	old := s.letter[first]
	seen := map[int]bool{first: true}
	changed = []int{first}
	for next := 0; next < len(changed); next++ {
		i := changed[next]
		for name := range s.beside[s.order[i]] {
			if j := s.index[name]; !seen[j] && s.letter[j] != s.letter[i] && (s.letter[j] == old || s.letter[j] == want) {
				seen[j] = true
				changed = append(changed, j)
			}
		}
	}
	s.swap(changed, old, want)
	return changed
}

// swap exchanges two letters in members that have one of them.
func (s *naming) swap(members []int, a, b string) {
	for _, i := range members {
		if s.letter[i] == a {
			s.letter[i] = b
		} else {
			s.letter[i] = a
		}
	}
}
