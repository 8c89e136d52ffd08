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
	order, beside, err := members(dir)
	if err != nil {
		return err
	}
	given, err := names(dir)
	if err != nil {
		return err
	}
	marks, index, letter := map[string]any{}, map[string]int{}, make([]string, len(order))
	for i, name := range order {
		marks[name], index[name], letter[i] = fmt.Sprintf("Qz%03dzQ", i), i, given[name].(string)
	}
	files, err := build(dir, marks)
	if err != nil {
		return err
	}
	script := string(files["reseat.install.js"])
	text := placeholder.Split(script, -1)
	var at []int // the member between two parts of text
	used := map[int]bool{}
	for _, m := range placeholder.FindAllStringSubmatch(script, -1) {
		i, _ := strconv.Atoi(m[1]) // digits
		at, used[i] = append(at, i), true
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
	size := func() int {
		packed.Reset()
		w.Reset(&packed)
		for i, part := range text {
			_, _ = w.Write([]byte(part)) // writing to a Buffer never fails
			if i < len(at) {
				_, _ = w.Write([]byte(letter[at[i]]))
			}
		}
		_ = w.Close()
		return packed.Len()
	}
	random := rand.New(rand.NewSource(1))
	least := size()
	for end := time.Now().Add(span); time.Now().Before(end); {
		first := at[random.Intn(len(at))]
		old, want := letter[first], string(letters[random.Intn(len(letters))])
		if random.Intn(3) > 0 {
			want = letter[at[random.Intn(len(at))]]
		}
		if old == want {
			continue
		}
		// Its neighbours that have the letter get the other one, and so on.
		changed, queue := map[int]bool{first: true}, []int{first}
		for len(queue) > 0 {
			i := queue[0]
			queue = queue[1:]
			for name := range beside[order[i]] {
				if j := index[name]; !changed[j] && letter[j] != letter[i] && (letter[j] == old || letter[j] == want) {
					changed[j] = true
					queue = append(queue, j)
				}
			}
		}
		swap := func() {
			for i := range changed {
				if letter[i] == old {
					letter[i] = want
				} else {
					letter[i] = old
				}
			}
		}
		swap()
		if n := size(); n <= least {
			least = n
		} else {
			swap()
		}
	}
	result := map[string]string{}
	for i := range used {
		result[order[i]] = letter[i]
	}
	content, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bundle", "names.json"), append(content, '\n'), 0o644)
}
