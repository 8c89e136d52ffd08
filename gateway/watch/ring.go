package watch

import (
	"slices"
	"sync"
	"time"
)

// maxRefusals bounds the refused handshakes and resumes that are kept.
const maxRefusals = 100

// A Refusal is a refused handshake or resume, for operators: docs/control-api.md. All that
// a stranger has written into it is clipped.
type Refusal struct {
	Time time.Time `json:"time"`
	// Status refuses the handshake, by HTTP or as the status of a close. It is 101 for a
	// resume: those are refused by a close alone.
	Status int    `json:"status"`
	Code   *int   `json:"code"` // of the close; nil where HTTP answered
	Why    string `json:"why"`  // the metric's label, and in most cases a detail behind a colon
	Path   string `json:"path"` // percent-encoded, without the query
	Peer   string `json:"peer"` // the client's address, as in sessions
	Hint   string `json:"hint"` // begins with the flag that would change it, or with noSetting
}

// A ring keeps the newest refusals, oldest first: a stranger who is refused often takes no more
// memory than one who is refused once.
type ring struct {
	mu   sync.Mutex
	list []Refusal
	n    int // refusals since the first process
}

// add adds refusals, of which there were n: a predecessor has not kept all.
func (k *ring) add(n int, list ...Refusal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, list...)
	k.list = slices.Delete(k.list, 0, max(0, len(k.list)-maxRefusals))
	k.n += n
}

// kept copies the refusals that are kept, oldest first, and returns the number of all since the
// first process.
func (k *ring) kept() ([]Refusal, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.list), k.n
}
