package demo

import (
	"math"
	"math/rand/v2"
	"testing"
)

func testWorld(seats int) *world { return newWorld(seats, rand.New(rand.NewPCG(1, 2))) }

// bare returns a world with the given players and gems and nothing else.
func bare(players []*player, gems ...gem) *world {
	w := testWorld(len(players))
	w.gems = gems
	w.seats = make([]*player, len(players))
	for i, p := range players {
		if p != nil {
			p.seat = i + 1
			w.seats[i] = p
		}
	}
	return w
}

func TestNoDirectionIsLongerThanOne(t *testing.T) {
	for _, v := range []vec{
		{}, {0.3, 0.4}, {1, 0}, {1, 1}, {-50, 2}, {0, 1e300},
		{math.MaxFloat64, math.MaxFloat64}, {-math.MaxFloat64, 1}, {math.SmallestNonzeroFloat64, 0},
	} {
		got := atMostOne(v)
		length := math.Hypot(got.x, got.y)
		if !(length <= 1+1e-12) {
			t.Errorf("atMostOne(%v) = %v, of length %v", v, got, length)
		}
		if math.Hypot(v.x, v.y) > 1 && length < 1-1e-12 {
			t.Errorf("atMostOne(%v) = %v, shortened too far", v, got)
		}
		if math.Hypot(v.x, v.y) <= 1 && got != v {
			t.Errorf("atMostOne(%v) = %v, want it unchanged", v, got)
		}
	}
}

func TestNearestPlayerInReachTakesTheGem(t *testing.T) {
	const reach = playerRadius + gemRadius
	at := func(x float64) *player { return &player{pos: vec{x, 0}} }
	for name, c := range map[string]struct {
		seats []*player
		want  int // seat, 0 for nobody
	}{
		"nobody there":      {[]*player{nil, nil}, 0},
		"just out of reach": {[]*player{at(reach + 0.001)}, 0},
		"just in reach":     {[]*player{at(reach)}, 1},
		"the nearer of two": {[]*player{at(20), nil, at(-10)}, 3},
		"as near":           {[]*player{at(20), at(-20)}, 1},
	} {
		for i, p := range c.seats {
			if p != nil {
				p.seat = i + 1
			}
		}
		got := 0
		if p := taker(c.seats, vec{}); p != nil {
			got = p.seat
		}
		if got != c.want {
			t.Errorf("%s: seat %d took the gem, want %d", name, got, c.want)
		}
	}
}

func TestTakenGemCountsOnceAndLiesElsewhere(t *testing.T) {
	w := bare([]*player{{pos: vec{300, 300}}, {pos: vec{305, 300}}}, gem{vec{300, 300}}, gem{vec{900, 400}})
	takings := w.step()
	if len(takings) != 1 || takings[0] != (taking{gem: 0, by: 1}) {
		t.Fatalf("takings %v, want gem 0 by seat 1", takings)
	}
	if w.seats[0].score != 1 || w.seats[1].score != 0 {
		t.Errorf("scores %d and %d, want 1 and 0", w.seats[0].score, w.seats[1].score)
	}
	if w.gems[0].pos == (vec{300, 300}) {
		t.Error("the taken gem lies where it lay")
	}
	if w.gems[1].pos != (vec{900, 400}) {
		t.Error("a gem that nobody touched has moved")
	}
}

func TestDirectionHoldsForSteerForAndNotLonger(t *testing.T) {
	w := bare([]*player{{pos: vec{200, 200}}})
	w.steer(1, vec{1, 0})
	for range steerForTicks {
		before := w.seats[0].pos.x
		w.step()
		if w.seats[0].pos.x <= before {
			t.Fatalf("the player stands still at tick %d, want it to walk for %d", w.tick, steerForTicks)
		}
	}
	before := w.seats[0].pos
	w.step()
	if w.seats[0].pos != before {
		t.Error("the player walks on after its direction has run out")
	}
}

func TestWanderersCollectGemsAndStayInside(t *testing.T) {
	w := testWorld(8)
	for range 60 * tickRate {
		w.step()
		for _, s := range w.standings() {
			if s[1] < playerRadius || s[1] > arenaWidth-playerRadius || s[2] < playerRadius || s[2] > arenaHeight-playerRadius {
				t.Fatalf("seat %d stands at %d, %d, outside", s[0], s[1], s[2])
			}
		}
		for _, g := range w.places() {
			if g[1] < margin || g[1] > arenaWidth-margin || g[2] < margin || g[2] > arenaHeight-margin {
				t.Fatalf("gem %d lies at %d, %d, outside", g[0], g[1], g[2])
			}
		}
	}
	for _, p := range w.seats[:wandererCount] {
		if p.score == 0 {
			t.Errorf("%s has collected nothing in a minute", p.name)
		}
	}
}
