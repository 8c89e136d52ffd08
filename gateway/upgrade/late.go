package upgrade

import (
	"context"
	"sync"
	"time"

	"reseat/gateway/gate"
	"reseat/gateway/registry"
)

// lateWait limits the wait of a resume for a session that a predecessor still has.
const lateWait = 10 * time.Second

// Late are the sessions that a predecessor has not handed over yet.
type Late struct {
	mu      sync.Mutex
	ids     map[string]struct{}
	changed chan struct{}
}

// expect has resumes of these sessions, which a predecessor still has, wait for arrived or
// none.
func (l *Late) expect(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = make(map[string]struct{}, len(ids))
	for _, id := range ids {
		l.ids[id] = struct{}{}
	}
}

// none says that no further sessions will arrive.
func (l *Late) none() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = nil
	l.noteLocked()
}

func (l *Late) arrived(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ids, id)
	l.noteLocked()
}

func (l *Late) noteLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// next returns a channel that is closed at the next change, nil if id is not awaited.
func (l *Late) next(id string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.ids[id]; !ok {
		return nil
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// Await returns the session once a predecessor has handed it over, nil if it does not.
func (l *Late) Await(ctx context.Context, v *gate.Visit, reg *registry.Registry, id string) *registry.Record {
	limit := time.NewTimer(lateWait)
	defer limit.Stop()
	for {
		changed := l.next(id)
		if changed == nil {
			return reg.Find(id)
		}
		came := false
		v.Away(func() {
			select {
			case <-changed:
				came = true
			case <-limit.C:
			case <-ctx.Done():
			}
		})
		if !came {
			return nil
		}
	}
}

// Has reports whether a session is one of them.
func (l *Late) Has(id string) bool { return l.next(id) != nil }
