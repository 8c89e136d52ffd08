package demo

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// The rules of the arena. Lengths are world units, speeds are in world units per second.
const (
	tickRate  = 25
	tickEvery = time.Second / tickRate

	arenaWidth  = 1200
	arenaHeight = 675
	margin      = 50 // minimum distance from the edge of anything new

	playerRadius  = 30
	gemRadius     = 18
	playerSpeed   = 300
	wandererSpeed = 110

	gemCount      = 10
	wandererCount = 3

	// A direction that is not repeated holds for steerFor, so that the player of a silent
	// client stops.
	steerFor      = 600 * time.Millisecond
	steerForTicks = uint64(steerFor / tickEvery)
)

// errFull refuses a player because every seat is taken.
var errFull = errors.New("every seat is taken")

// wandererNames are the names of the players that the server moves.
var wandererNames = [wandererCount]string{"Juno", "Milo", "Vega"}

// A vec is a position or a direction in the arena; y grows downward.
type vec struct{ x, y float64 }

// A player occupies a seat.
type player struct {
	seat     int // counts from 1
	name     string
	wanderer bool

	pos   vec
	dir   vec // at most 1 long
	until uint64
	score int
	goal  int // for a wanderer: index of the gem that it follows
}

// A gem lies in the arena until a player touches it. It then moves elsewhere, under the
// same index.
type gem struct{ pos vec }

// A taking says that a gem was taken; the world has its new position.
type taking struct{ gem, by int }

// A world is the whole state of the game. It does no I/O and reads no clock: its time is
// the number of steps. The loop of one Server owns it.
type world struct {
	tick  uint64
	seats []*player // seat n at index n-1, nil if free
	next  int       // index at which the search for a free seat begins
	gems  []gem
	rng   *rand.Rand
}

// newWorld makes a world with so many seats, and seats the wanderers first.
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

// sit gives a new player the next free seat, score 0 and a position. Seats are assigned
// round-robin, so that a player who reconnects at once gets another one.
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

// stand frees a seat.
func (w *world) stand(seat int) { w.seats[seat-1] = nil }

// steer sets the direction of a seat's player for the next steerFor.
func (w *world) steer(seat int, dir vec) {
	p := w.seats[seat-1]
	p.dir = atMostOne(dir)
	p.until = w.tick + steerForTicks
}

// step advances the world by one tick and returns the gems that were taken, each at most
// once, in the order of the gems.
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

// collect gives every touched gem to the nearest player and moves it elsewhere.
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

// somewhere returns a random position, margin away from the edges.
func (w *world) somewhere() vec {
	return vec{
		x: margin + w.rng.Float64()*(arenaWidth-2*margin),
		y: margin + w.rng.Float64()*(arenaHeight-2*margin),
	}
}

// freeSeat returns the index of the first free seat at or after from, wrapping around,
// or -1.
func freeSeat(seats []*player, from int) int {
	for k := range seats {
		if i := (from + k) % len(seats); seats[i] == nil {
			return i
		}
	}
	return -1
}

// taker returns the nearest of the players that touch a gem at pos, or nil. Of two equally
// near, the lower seat wins.
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

// walk returns pos moved by units towards dir, kept inside the arena.
func walk(pos, dir vec, units float64) vec {
	return vec{
		x: min(max(pos.x+dir.x*units, playerRadius), arenaWidth-playerRadius),
		y: min(max(pos.y+dir.y*units, playerRadius), arenaHeight-playerRadius),
	}
}

// heading returns the direction from one position to another, of length 1, or less if they
// are less than a unit apart.
func heading(from, to vec) vec {
	return atMostOne(vec{to.x - from.x, to.y - from.y})
}

// atMostOne returns v, shortened to length 1 if it is longer. The result is finite for
// every finite v.
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

// distance returns the distance between two positions.
func distance(a, b vec) float64 { return math.Hypot(a.x-b.x, a.y-b.y) }
