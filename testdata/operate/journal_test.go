package operate

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
)

// A journal is a gateway's log. It keeps every line until somebody has read it:
// thousands of sessions write thousands of lines while nobody looks.
type journal struct {
	mu    sync.Mutex
	more  *sync.Cond // a line has come, or the last has
	kept  []map[string]any
	ended bool
}

func newJournal() *journal {
	j := new(journal)
	j.more = sync.NewCond(&j.mu)
	return j
}

// read takes the log in, to its end.
func (j *journal) read(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		line := map[string]any{}
		if json.Unmarshal(s.Bytes(), &line) != nil {
			line["msg"] = s.Text()
		}
		j.mu.Lock()
		j.kept = append(j.kept, line)
		j.more.Signal()
		j.mu.Unlock()
	}
	j.mu.Lock()
	j.ended = true
	j.more.Broadcast()
	j.mu.Unlock()
}

// lines are those that nobody has read yet, and the coming ones up to the end.
func (j *journal) lines(yield func(map[string]any) bool) {
	for {
		j.mu.Lock()
		for len(j.kept) == 0 && !j.ended {
			j.more.Wait()
		}
		if len(j.kept) == 0 {
			j.mu.Unlock()
			return
		}
		line := j.kept[0]
		j.kept = j.kept[1:]
		j.mu.Unlock()
		if !yield(line) {
			return
		}
	}
}
