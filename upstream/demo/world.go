package demo

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// The rules of the arena. Lengths are world units, speeds world units a second.
const (
	tickRate  = 25
	tickEvery = time.Second / tickRate

	arenaWidth  = 1200
	arenaHeight = 675
	margin      = 50 // nothing appears nearer to the edge

	playerRadius  = 30
	gemRadius     = 18
	playerSpeed   = 300
	wandererSpeed = 110

	gemCount      = 10
	wandererCount = 3

	// steerFor is how long a direction holds that is not repeated, so that a
	// player whose client has gone quiet stands still.
	steerFor      = 600 * time.Millisecond
	steerForTicks = uint64(steerFor / tickEvery)
)

// errFull says that every seat is taken.
var errFull = errors.New("every seat is taken")

// wandererNames are the names of the players that the server itself moves.
var wandererNames = [wandererCount]string{"Juno", "Milo", "Vega"}

// A vec is a place or a direction in the arena; y grows downward.
type vec struct{ x, y float64 }

// A player is who sits in a seat.
type player struct {
	seat     int // counts from 1
	name     string
	wanderer bool

	pos   vec
	dir   vec // at most 1 long
	until uint64
	score int
	goal  int // a wanderer's: index of the gem that it follows
}

// A gem lies in the arena until somebody touches it. It then lies elsewhere,
// under the same index.
type gem struct{ pos vec }

// A taking says that a gem was taken; the gem's new place is in the world.
type taking struct{ gem, by int }

// A world is the whole state of the game. It does no I/O and reads no clock:
// its time is the number of steps. It belongs to the loop of one Server.
type world struct {
	tick  uint64
	seats []*player // seat n at index n-1, nil where free
	next  int       // index at which the search for a free seat begins
	gems  []gem
	rng   *rand.Rand
}

// newWorld makes a world with so many seats, the wanderers on the first of them.
func newWorld(seats int, rng *rand.Rand) *world {
	w := &world{seats: make([]*player, max(seats, wandererCount+1)), rng: rng}
	w.gems = make([]gem, gemCount)
	for i := range w.gems {
		w.gems[i].pos = w.somewhere()
	}
	for i, name := range wandererNames {
		p, _ := w.sit(name) // there are more seats than wanderers
		p.wanderer, p.goal = true, i
	}
	return w
}

// sit gives a new player the next free seat, score 0 and a place. Seats go
// round, so that one who comes back at once sits elsewhere.
func (w *world) sit(name string) (*player, error) {
	i := freeSeat(w.seats, w.next)
	if i < 0 {
		return nil, errFull
	}
	w.next = (i + 1) % len(w.seats)
	p := &player{seat: i + 1, name: name, pos: w.somewhere()}
	w.seats[i] = p
	return p, nil
}

// stand frees a seat; what the player had is gone.
func (w *world) stand(seat int) { w.seats[seat-1] = nil }

// steer sets where the player of a seat walks to during the next steerFor.
func (w *world) steer(seat int, dir vec) {
	p := w.seats[seat-1]
	p.dir = atMostOne(dir)
	p.until = w.tick + steerForTicks
}

// step moves the world on by one tick and returns which gems were taken, at
// most once each, in the order of the gems.
func (w *world) step() []taking {
	w.tick++
	for _, p := range w.seats {
		if p == nil {
			continue
		}
		speed := float64(playerSpeed)
		if p.wanderer {
			p.dir, speed = heading(p.pos, w.gems[p.goal].pos), wandererSpeed
		} else if w.tick > p.until {
			p.dir = vec{}
		}
		p.pos = walk(p.pos, p.dir, speed/tickRate)
	}
	return w.collect()
}

// collect hands every touched gem to the nearest player and puts it elsewhere.
func (w *world) collect() []taking {
	var takings []taking
	for i := range w.gems {
		p := taker(w.seats, w.gems[i].pos)
		if p == nil {
			continue
		}
		p.score++
		w.gems[i].pos = w.somewhere()
		takings = append(takings, taking{gem: i, by: p.seat})
	}
	return takings
}

// somewhere is a random place, margin away from the edges.
func (w *world) somewhere() vec {
	return vec{
		x: margin + w.rng.Float64()*(arenaWidth-2*margin),
		y: margin + w.rng.Float64()*(arenaHeight-2*margin),
	}
}

// freeSeat is the index of the first free seat at or after from, going round,
// or -1.
func freeSeat(seats []*player, from int) int {
	for k := range seats {
		if i := (from + k) % len(seats); seats[i] == nil {
			return i
		}
	}
	return -1
}

// taker is the player nearest to a gem at pos among those that touch it, or
// nil. Of two as near, the lower seat takes it.
func taker(seats []*player, pos vec) *player {
	var nearest *player
	reach := math.Nextafter(playerRadius+gemRadius, math.Inf(1))
	for _, p := range seats {
		if p == nil {
			continue
		}
		if d := distance(p.pos, pos); d < reach {
			nearest, reach = p, d
		}
	}
	return nearest
}

// walk is pos after so many units towards dir, kept inside the arena.
func walk(pos, dir vec, units float64) vec {
	return vec{
		x: min(max(pos.x+dir.x*units, playerRadius), arenaWidth-playerRadius),
		y: min(max(pos.y+dir.y*units, playerRadius), arenaHeight-playerRadius),
	}
}

// heading is the direction from one place to another, 1 long, or shorter than
// that when the place is less than a unit away.
func heading(from, to vec) vec {
	return atMostOne(vec{to.x - from.x, to.y - from.y})
}

// atMostOne is v, shortened to length 1 if it is longer. The result is finite
// for every finite v.
func atMostOne(v vec) vec {
	length := math.Hypot(v.x, v.y)
	if length <= 1 {
		return v
	}
	if math.IsInf(length, 1) {
		v, length = vec{v.x / 4, v.y / 4}, math.Hypot(v.x/4, v.y/4)
	}
	return vec{v.x / length, v.y / length}
}

// distance is the distance between two places.
func distance(a, b vec) float64 { return math.Hypot(a.x-b.x, a.y-b.y) }
