package gateway

import (
	"context"
	"errors"
	"sync"
)

// A gate keeps handshakes and calls of the control API from acting on sessions while those
// are frozen for an upgrade, and after a successor has taken them over.
type gate struct {
	turns chan struct{} // holds one for each handshake inside: see enterInTurn

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
	turn   bool // it needs a turn to be inside
	inside bool // guarded by gate.mu
	over   bool // the same
}

type visitKey struct{}

// enter begins a visit, and waits while the sessions are frozen. It reports false once a
// successor has them. The visit goes with ctx: see away.
func (t *gate) enter(ctx context.Context) (context.Context, *visit, bool) {
	return t.begin(ctx, &visit{gate: t})
}

// enterInTurn is enter for a handshake. No more handshakes are inside than there are turns: when
// thousands of clients return at once, each goroutine that is ready to run delays the event
// loops, and so everybody's messages.
func (t *gate) enterInTurn(ctx context.Context) (context.Context, *visit, bool) {
	return t.begin(ctx, &visit{gate: t, turn: true})
}

func (t *gate) begin(ctx context.Context, v *visit) (context.Context, *visit, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.awaitLocked()
	if t.moved {
		v.endTurn()
		return ctx, nil, false
	}
	v.inside = true
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

// awaitLocked waits until the sessions are not frozen, and for a turn. While they are frozen it
// holds none: others need theirs to leave.
func (v *visit) awaitLocked() {
	t := v.gate
	t.awaitThawLocked()
	for v.turn {
		t.mu.Unlock()
		t.turns <- struct{}{}
		t.mu.Lock()
		if !t.frozen {
			return
		}
		v.endTurn()
		t.awaitThawLocked()
	}
}

func (t *gate) awaitThawLocked() {
	for t.frozen {
		c := t.changesLocked()
		t.mu.Unlock()
		<-c
		t.mu.Lock()
	}
}

func (v *visit) endTurn() {
	if v.turn {
		<-v.gate.turns
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
		v.endTurn()
	default:
		t.away--
	}
	v.inside, v.over = false, true
	t.noteLocked()
}

// away calls f, which may take long, outside the gate: a freeze does not wait for it, and
// a successor may have the sessions when it returns. Without a visit it only calls f.
func away(ctx context.Context, f func()) {
	v := visitOf(ctx)
	if !v.goOut() {
		f()
		return
	}
	defer v.comeBack()
	f()
}

// goOut takes the visit out of the gate. It reports false if it was not inside.
func (v *visit) goOut() bool {
	if v == nil {
		return false
	}
	t := v.gate
	t.mu.Lock()
	defer t.mu.Unlock()
	if !v.inside {
		return false
	}
	v.inside = false
	t.inside, t.away = t.inside-1, t.away+1
	v.endTurn()
	t.noteLocked()
	return true
}

// comeBack undoes goOut, unless the visit has ended meanwhile.
func (v *visit) comeBack() {
	t := v.gate
	t.mu.Lock()
	defer t.mu.Unlock()
	v.awaitLocked()
	if v.over {
		v.endTurn()
		return
	}
	v.inside = true
	t.inside, t.away = t.inside+1, t.away-1
	t.noteLocked()
}

// outOfTurn calls f, which waits for something, inside the gate but without a turn.
func outOfTurn(ctx context.Context, f func()) {
	v := visitOf(ctx)
	if !v.hasTurn() {
		f()
		return
	}
	v.endTurn()
	defer func() { v.gate.turns <- struct{}{} }()
	f()
}

func (v *visit) hasTurn() bool {
	if v == nil {
		return false
	}
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	return v.turn && v.inside
}

// leaveGate ends the visit of ctx, if there is one.
func leaveGate(ctx context.Context) { visitOf(ctx).leave() }

// visitOf returns the visit of ctx, nil if there is none.
func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
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
