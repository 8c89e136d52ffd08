package sim

import (
	"bytes"
	"errors"
	"slices"

	"reseat/gateway/session"
)

// An upgrade freezes a session between two calls and restores it in another process.
// Moves do that at random moments, drawn apart from everything else: a run with moves
// must be, byte for byte, the run of the same seed without.

// move freezes one session and goes on with its copy, if it can be frozen now.
func (w *world) move() {
	g := w.games[w.moveRNG.IntN(len(w.games))]
	if g.dead {
		return
	}
	frozen, err := g.core.Freeze(session.Formats[0])
	if err != nil {
		if !errors.Is(err, session.ErrBusy) {
			g.fail("move", "%v", err)
		}
		return
	}
	state, content := frozen.State, slices.Concat(frozen.Content...)
	after, err := session.Restore(session.Formats[0], state, content, w.store, g.newKey)
	if err != nil {
		g.fail("move", "%v", err)
	}
	again, err := after.Freeze(session.Formats[0])
	if err != nil || !bytes.Equal(again.State, state) || !bytes.Equal(slices.Concat(again.Content...), content) {
		g.fail("move", "the copy is another session: %v\n%x\n%x", err, state, again.State)
	}
	w.moves++
	if g.out.since > 0 {
		w.movesOut++
	}
	if g.moved != "" || g.leaving > 0 || g.down != nil && g.down.repeats > 0 || g.waitEnd > 0 {
		w.movesFar++
	}
	was := g.core.Attachment()
	g.core.Discard()
	g.core = after
	g.ups.ten = after.Upstream()
	for _, l := range g.allLegs() {
		if l.att != nil && l.att == was {
			l.att = after.Attachment()
		}
	}
	w.used = w.store.Used()
}
