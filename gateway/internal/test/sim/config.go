package sim

import (
	"fmt"
	"strings"
	"time"

	"reseat/gateway/session"
)

// Every seed draws its own world: the sizes of buffers, the timeouts, and how often
// each fault happens. Most faults are off in most worlds, so that each also occurs
// alone.

// pick chooses an element of list.
func pick[T any](w *world, list ...T) T { return list[w.rng.IntN(len(list))] }

func (g *game) configure() {
	w := g.w
	g.cfg = session.Config{
		ID:             fmt.Sprintf("s%d", w.sessions),
		Resumable:      w.chance(850),
		Heartbeat:      pick(w, w.beat, w.beat, 15*time.Second),
		BufferBytes:    pick[int64](w, 1, 300, 5000, 50<<10, 1<<20),
		BufferMessages: pick(w, 1, 2, 7, 100, 4096, 4096),
		MaxMessage:     w.maxMessage,
		Protocol:       "chat.v2",
		Store:          w.store,
		Key:            g.newKey,
	}
	g.cfg.PlainResume = !g.cfg.Resumable && w.chance(750)
	g.cfg.Grace = pick(w, 0, w.beat/2, w.beat, 2*w.beat, 30*time.Second, 30*time.Second, 30*time.Second)
	g.cfg.GraceBeforeStart = g.cfg.Grace
	g.cfg.GraceUnconfirmed = pick(w, 1, w.beat/2, 2*w.beat, 5*time.Second)
	if w.chance(200) {
		g.cfg.GraceBeforeStart = pick(w, 0, w.beat, 20*time.Second)
	}
	g.cfg.Overflow = pick(w, session.Pause, session.DropOldest, session.EndSession)
	if w.scarce && w.chance(500) {
		g.cfg.BufferBytes, g.cfg.BufferMessages = 1<<20, 4096
	}
	if w.chance(250) {
		g.cfg.UpstreamHeartbeat = pick(w, time.Second, 20*time.Second)
		g.silent = w.chance(200)
	}
	g.cfg.Hard = w.chance(w.hard)
	if w.chance(w.redial) {
		g.cfg.Redial = pick(w, w.beat, 3*time.Second, 12*time.Second, 30*time.Second)
	}
	if w.chance(300) && !w.scarce { // waiting output holds memory
		g.cfg.Rate = session.Rate{Messages: pick(w, 0, 5.5, 5.5, 20), Bytes: pick(w, 0, 4e6), End: w.chance(300)}
	}
	if w.chance(100) {
		g.cfg.Idle = pick(w, w.beat, 4*w.beat, 20*time.Second)
	}
	g.configureWords()
	g.cfg.Answer = w.answer
	g.configureStates()
	g.configureParts()
	g.configureOwners()
	g.style = pick(w, raw, raw, blocking, poll)
	g.blind = g.style == blocking && w.chance(500)
	g.knowsTrip = w.chance(300)
	g.readSize = pick(w, 16, 512, 4096, 64<<10)
	g.terms = g.cfg.Terms
	g.seen.dropping = g.terms.Overflow == session.DropOldest
	g.ttl = time.Hour
	if w.chance(200) {
		g.ttl = 4*max(g.terms.Grace, g.terms.GraceBeforeStart) + 8*g.cfg.Heartbeat
	}
}

// configureWords draws the texts that the operator and the game server configure.
func (g *game) configureWords() {
	w := g.w
	if w.chance(400) {
		g.cfg.Notices = session.Notices{Detach: pick(w, "", "away "+g.cfg.ID), Resume: pick(w, "", "back"), Expire: pick(w, "", "\x10gone")}
	}
	if w.chance(400) {
		g.cfg.KeepaliveReplies = pick(w,
			[]session.KeepaliveReply{{In: "2", Out: "3"}},
			[]session.KeepaliveReply{{In: "2", Out: "3"}, {In: "2probe", Out: "3probe"}},
			[]session.KeepaliveReply{{In: "ping", Out: "pong"}, {In: "pint", Out: strings.Repeat("beer", 50)}},
			[]session.KeepaliveReply{{In: "\x10beat", Out: "\x10\x10"}},
			[]session.KeepaliveReply{{In: strings.Repeat("tick", 40), Out: "tock"}},
		)
		g.beating = pick(w, 50, 300)
	}
	if w.chance(300) {
		every := pick(w, w.beat/4, w.beat, 5*time.Second)
		g.cfg.Keepalives = []session.Keepalive{{Every: every, Text: "still here"}}
		if w.chance(500) {
			g.cfg.Keepalives = append(g.cfg.Keepalives, session.Keepalive{Every: pick(w, every, 2*every, 3*every/2), Text: "2"})
		}
	}
}

// voices makes both sides send messages.
func (g *game) voices() {
	w := g.w
	g.cli.says = flow{seed: w.rng.Uint64(), texts: uint64(w.rng.IntN(17)), sizes: w.sizes, limit: int(w.maxMessage)}
	g.cli.lazy = pick(w, 0, 0, 30, 300, 1000)
	if w.chance(350) {
		g.cli.deadly = 1 + uint64(w.rng.IntN(15))
	}
}

// draw draws the world of a seed.
func (w *world) draw() {
	w.parts = pick(w, 0, 500, 1000)
	w.pipes = pick(w, 20, 300, 300, 2000, 2000, 20<<10, 300<<10)
	w.beat = pick(w, 300*time.Millisecond, 2*time.Second, 15*time.Second)
	w.answer = pick(w, 0, w.beat/5, w.beat, 5*time.Second, 5*time.Second)
	w.pace = w.beat / pick[time.Duration](w, 10000, 1000, 200, 50)
	w.jumps = pick(w, 0, 1, 10, 50)
	w.sizes = pick(w, sizes{}, sizes{medium: 200}, sizes{medium: 200, seam: 200}, sizes{medium: 100, seam: 20, large: 20}, sizes{large: 30, huge: 10})
	w.hard = pick(w, 0, 0, 300, 1000)
	w.redial = pick(w, 0, 0, 300, 1000)
	w.maxMessage = pick(w, int64(30), 3000, 1<<20, 1<<20)
	if w.chance(60) { // more than one write accepts
		w.sizes, w.maxMessage, w.pipes = sizes{large: 200, huge: 200}, 1<<20, 300<<10
	}
	need := int64(160 << 10)
	if w.sizes.large > 0 {
		need = 4 << 20
	}
	w.limit = pick(w, need, need, 1<<30)
	w.scarce = w.limit == need
	for i := range w.weights {
		a := actions[i]
		w.weights[i] = 4 * a.weight
		if a.fault {
			w.weights[i] = a.weight * pick(w, 0, 0, 1, 1, 6)
		}
		if i >= len(actions)-len(ownerActions) && w.durable == 0 {
			w.weights[i] = 0
		}
		w.total += w.weights[i]
	}
	if w.chance(150) { // one side sends next to nothing
		i := w.rng.IntN(len(w.weights) - len(ownerActions))
		w.total -= w.weights[i] - min(w.weights[i], 2)
		w.weights[i] = min(w.weights[i], 2)
	}
}

// capacity returns how many bytes a new connection holds in flight.
func (w *world) capacity() int { return 1 + w.pipes/2 + w.rng.IntN(w.pipes) }
