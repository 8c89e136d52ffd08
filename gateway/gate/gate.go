// Package gate keeps what may act on sessions out while those are frozen for an upgrade.
//
// A handshake or a call of the control API is a Visit. Whatever blocks takes the visit as an
// argument and waits in Away: then a freeze does not wait for it. A nil *Visit is for callers
// that act on no session of this process.
package gate

import (
	"context"
	"errors"
	"sync"
)

// A Gate keeps handshakes and calls of the control API from acting on sessions while those
// are frozen for an upgrade, and once they are handed over to a successor. Its methods may be
// called from any goroutine.
type Gate struct {
	turns chan struct{} // holds one for each handshake inside: see EnterInTurn

	mu         sync.Mutex
	inside     int  // visits that may act on sessions
	away       int  // visits that wait for something else: see Away
	frozen     bool // visits wait
	handedOver bool // a successor has the sessions: new visits are turned away
	changed    chan struct{}
}

// New returns a Gate with so many turns.
func New(turns int) *Gate { return &Gate{turns: make(chan struct{}, turns)} }

// A Visit is one handshake or call that may act on sessions, until Leave.
type Visit struct {
	gate   *Gate
	turn   bool // it needs a turn to be inside
	inside bool // guarded by gate.mu
	over   bool // the same
}

// Enter begins a visit, and waits while the sessions are frozen. It returns nil once a
// successor has them.
func (t *Gate) Enter() *Visit { return t.begin(&Visit{gate: t}) }

// EnterInTurn is Enter for a handshake. No more handshakes are inside than there are turns: when
// thousands of clients return at once, each goroutine that is ready to run delays the event
// loops, and so everybody's messages.
func (t *Gate) EnterInTurn() *Visit { return t.begin(&Visit{gate: t, turn: true}) }

func (t *Gate) begin(v *Visit) *Visit {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.awaitLocked()
	if t.handedOver {
		v.endTurn()
		return nil
	}
	v.inside = true
	t.inside++
	return v
}

// TryEnter is Enter for callers that can try again: it does not wait, and returns nil while the
// sessions are frozen.
func (t *Gate) TryEnter() *Visit {
	t.mu.Lock()
	closed := t.frozen || t.handedOver
	t.mu.Unlock()
	if closed {
		return nil
	}
	return t.Enter()
}

// awaitLocked waits until the sessions are not frozen, and for a turn. While they are frozen it
// holds none: others need theirs to leave.
func (v *Visit) awaitLocked() {
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

func (t *Gate) awaitThawLocked() {
	for t.frozen {
		c := t.changesLocked()
		t.mu.Unlock()
		<-c
		t.mu.Lock()
	}
}

func (v *Visit) endTurn() {
	if v.turn {
		<-v.gate.turns
	}
}

// Leave ends the visit. It may be called twice.
func (v *Visit) Leave() {
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

// Away calls f, which may take long, outside the gate: a freeze does not wait for it, and
// a successor may have the sessions when it returns. A nil visit only calls f.
func (v *Visit) Away(f func()) {
	if !v.goOut() {
		f()
		return
	}
	defer v.comeBack()
	f()
}

// goOut takes the visit out of the gate. It reports false if it was not inside.
func (v *Visit) goOut() bool {
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
func (v *Visit) comeBack() {
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

// OutOfTurn calls f, which waits for something, inside the gate but without a turn.
func (v *Visit) OutOfTurn(f func()) {
	if !v.hasTurn() {
		f()
		return
	}
	v.endTurn()
	defer func() { v.gate.turns <- struct{}{} }()
	f()
}

func (v *Visit) hasTurn() bool {
	if v == nil {
		return false
	}
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	return v.turn && v.inside
}

// Freeze keeps visits out, and waits until none is inside. If ctx is done before, it lets
// them in again and fails. Thaw undoes it.
func (t *Gate) Freeze(ctx context.Context) error {
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

// Thaw lets visits in again; once handedOver, only those that are away.
func (t *Gate) Thaw(handedOver bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen, t.handedOver = false, t.handedOver || handedOver
	t.noteLocked()
}

// Visits counts those that have begun and not ended: inside, and away.
func (t *Gate) Visits() (inside, away int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inside, t.away
}

// Turns returns the max number of handshakes inside.
func (t *Gate) Turns() int { return cap(t.turns) }

// changesLocked returns a channel that is closed when something has changed.
func (t *Gate) changesLocked() <-chan struct{} {
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

func (t *Gate) noteLocked() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}
