package gateway

import (
	"context"
	"errors"
	"sync"
)

// A gate keeps handshakes and calls of the control API from acting on sessions while those
// are frozen for an upgrade, and after a successor has taken them over.
type gate struct {
	mu      sync.Mutex
	inside  int  // visits that may act on sessions
	away    int  // visits that wait for something else: see away
	frozen  bool // visits wait
	moved   bool // a successor has the sessions: new visits are turned away
	changed chan struct{}
}

// A visit is one handshake or call that may act on sessions, until leave.
type visit struct {
	gate   *gate
	inside bool // guarded by gate.mu
	over   bool // the same
}

type visitKey struct{}

// errTurnedAway means that the sessions are frozen, or have moved to a successor.
var errTurnedAway = errors.New("an upgrade is under way")

// enter begins a visit, and waits while the sessions are frozen. It reports false once a
// successor has them. The visit goes with ctx: see away.
func (t *gate) enter(ctx context.Context) (context.Context, *visit, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awaitThawLocked()
	if t.moved {
		return ctx, nil, false
	}
	v := &visit{gate: t, inside: true}
	t.inside++
	return context.WithValue(ctx, visitKey{}, v), v, true
}

// tryEnter is enter for callers that can come again: it does not wait.
func (t *gate) tryEnter(ctx context.Context) (context.Context, *visit, bool) {
	t.mu.Lock()
	closed := t.frozen || t.moved
	t.mu.Unlock()
	if closed {
		return ctx, nil, false
	}
	return t.enter(ctx)
}

func (t *gate) awaitThawLocked() {
	for t.frozen {
		c := t.changesLocked()
		t.mu.Unlock()
		<-c
		t.mu.Lock()
	}
}

// leave ends the visit. It may be called twice.
func (v *visit) leave() {
	if v == nil {
		return
	}
	t := v.gate
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case v.over:
		return
	case v.inside:
		t.inside--
	default:
		t.away--
	}
	v.inside, v.over = false, true
	t.noteLocked()
}

// away calls f, which may take long, outside the gate: a freeze does not wait for it, and
// a successor may have the sessions when it returns. Without a visit it only calls f.
func away(ctx context.Context, f func()) {
	v, _ := ctx.Value(visitKey{}).(*visit)
	if v == nil || !v.step(false) {
		f()
		return
	}
	defer v.step(true)
	f()
}

// step takes the visit out of the gate or in again, and reports whether it had to.
func (v *visit) step(in bool) bool {
	t := v.gate
	t.mu.Lock()
	defer t.mu.Unlock()
	if in {
		t.awaitThawLocked()
	}
	if v.over || v.inside == in {
		return false
	}
	v.inside = in
	if in {
		t.inside, t.away = t.inside+1, t.away-1
	} else {
		t.inside, t.away = t.inside-1, t.away+1
	}
	t.noteLocked()
	return true
}

// leaveGate ends the visit of ctx, if there is one.
func leaveGate(ctx context.Context) {
	v, _ := ctx.Value(visitKey{}).(*visit)
	v.leave()
}

// freeze keeps visits out, and waits until none is inside. If ctx is done before, it lets
// them in again and fails. thaw undoes it.
func (t *gate) freeze(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen = true
	for t.inside > 0 {
		c := t.changesLocked()
		t.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
		}
		t.mu.Lock()
		if ctx.Err() != nil && t.inside > 0 {
			t.frozen = false
			t.noteLocked()
			return errors.New("handshakes in flight did not come to an end")
		}
	}
	return nil
}

// thaw lets visits in again; with moved, only those that are away.
func (t *gate) thaw(moved bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen, t.moved = false, t.moved || moved
	t.noteLocked()
}

// hasMoved reports whether a successor has the sessions.
func (t *gate) hasMoved() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moved
}

// visits counts those that have begun and not ended.
func (t *gate) visits() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inside + t.away
}

// changesLocked returns a channel that is closed when something has changed.
func (t *gate) changesLocked() <-chan struct{} {
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

func (t *gate) noteLocked() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}
