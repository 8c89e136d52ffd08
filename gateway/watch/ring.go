package watch

import (
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

// A ring keeps the newest refusals: a stranger who is refused often takes no more
// memory than one who is refused once.
type ring struct {
	mu   sync.Mutex
	list []Refusal // refusal n, counted from 0, is at n mod maxRefusals
	n    int
}

func (k *ring) add(r Refusal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.list) < maxRefusals {
		k.list = append(k.list, r)
	} else {
		k.list[k.n%maxRefusals] = r
	}
	k.n++
}

// newestFirst copies the refusals that are kept.
func (k *ring) newestFirst() []Refusal {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := make([]Refusal, len(k.list))
	for i := range list {
		list[i] = k.list[(k.n-1-i)%maxRefusals]
	}
	return list
}

// count returns the number of refusals since the first process.
func (k *ring) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.n
}

// setCount raises the count to that of a predecessor.
func (k *ring) setCount(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.list) < maxRefusals || n < k.n {
		return
	}
	k.n += (n - k.n) / maxRefusals * maxRefusals // keeps each one's place
}
