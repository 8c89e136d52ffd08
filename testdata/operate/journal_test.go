package operate

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
)

// A journal is a gateway's log. It stores every line until it is read: thousands of
// sessions write thousands of lines between two reads.
type journal struct {
	mu    sync.Mutex
	more  *sync.Cond // a line has been added, or the log has ended
	kept  []map[string]any
	ended bool
}

func newJournal() *journal {
	j := new(journal)
	j.more = sync.NewCond(&j.mu)
	return j
}

// read stores the log, up to its end.
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

// lines returns the lines that have not been read, and waits for further ones up to the
// end.
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
