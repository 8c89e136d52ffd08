package sim

import "slices"

// Silent lines: nothing arrives, and neither end gets an error. It may affect the whole
// line, one direction, or all existing connections while new ones work. A proxy may
// acknowledge bytes meanwhile. The line may recover later, and what was in flight
// arrives after all.

// fallSilent silences lines of the client.
func (g *game) fallSilent() bool {
	l := g.anyLink()
	if l == nil || !g.keeps() {
		return false
	}
	g.silenced = true
	form := g.w.rng.IntN(7)
	g.log("silence", int64(l.id), int64(form))
	switch form {
	case 0:
		l.mute(true, true)
	case 1:
		l.mute(true, false)
	case 2:
		l.mute(false, true)
	case 3:
		l.mute(true, true)
		l.out.proxy = true
	case 4: // existing connections
		g.muteAll()
	case 5: // and new ones
		g.muteAll()
		g.lineDown = true
	case 6:
		l.mute(false, true)
		l.out.proxy = true
	}
	if g.w.chance(300) {
		g.waitOut()
	}
	return true
}

func (g *game) muteAll() {
	for _, c := range g.ownConns() {
		c.mute(true, true)
	}
}

// ownConns returns the connections between the client and the gateway that either still
// uses.
func (g *game) ownConns() (list []*conn) {
	for _, l := range g.legs {
		if l.tap.link != nil {
			list = append(list, l.conn)
		}
	}
	for _, t := range g.tries {
		if t.link != nil {
			list = append(list, t.conn)
		}
	}
	for _, l := range []*link{g.cli.live, g.cli.trying, g.first} {
		if l != nil {
			list = append(list, l.conn)
		}
	}
	return list
}

// silentOnes returns the silent ones.
func (g *game) silentOnes() (list []*conn) {
	for _, c := range g.ownConns() {
		if c.in.hole || c.out.hole {
			list = append(list, c)
		}
	}
	return list
}

// silenceEnds restores one line, or all.
func (g *game) silenceEnds() bool {
	list := g.silentOnes()
	if len(list) == 0 && !g.lineDown {
		return false
	}
	if g.w.chance(500) && len(list) > 0 {
		list = list[g.w.rng.IntN(len(list)):][:1]
	} else {
		g.lineDown = false
	}
	for _, c := range list {
		if len(c.in.buf)+len(c.out.buf) > 0 {
			g.w.cov.hit("silent line returns")
		}
		c.in.hole, c.out.hole, c.out.proxy = false, false, false
	}
	g.log("silence ends", int64(len(list)), 0)
	return true
}

// waitOut lets time pass until the gateway or the client has noticed. Meanwhile the
// game server may send something, and everything else continues.
func (g *game) waitOut() {
	busy, live := g.w.chance(500), g.cli.live
	for range 40 {
		due := g.w.due()
		if due == 0 || g.life == nil || !g.life.alive() || g.cli.live != live {
			return
		}
		if busy {
			g.ups.send()
			g.rush()
			g.accepts()
			g.reports()
		}
		g.w.advanceTo(max(due, g.w.now), nil)
		for _, other := range append(slices.Clone(g.w.older), g.w.games...) {
			if other != g {
				for range 30 {
					if !other.round() {
						break
					}
				}
				if !other.dead && (other.line.owner == other || slices.Contains(g.w.older, other)) { // and not a claim's
					other.check()
				}
			}
		}
	}
}
