package sim

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// go test ./gateway/internal/test/sim                          the standard seeds
// go test ./gateway/internal/test/sim -sim.seeds 20000         many more
// go test ./gateway/internal/test/sim -sim.stop                as far as the first that fails
// go test ./gateway/internal/test/sim -v -sim.seed 42          one, with its trace
//
// A failure prints its seed, what the seed drew, the last lines of its trace and
// how to play it again.
var (
	oneSeed   = flag.Uint64("sim.seed", 0, "play this seed alone, and print its trace")
	seedCount = flag.Int("sim.seeds", standardSeeds, "play so many seeds")
	firstSeed = flag.Uint64("sim.first", 1, "the first of them")
	stepCount = flag.Int("sim.steps", 4000, "steps of each seed")
	moveCount = flag.Int("sim.moves", 0, "of 1000 steps of -sim.seed so many freeze a session and restore it")
	stopFirst = flag.Bool("sim.stop", false, "stop at the first seed that fails")
)

// seedsABlock is how many seeds form a subtest, whose name identifies a test that
// hangs.
const seedsABlock = 100

func TestSimulation(t *testing.T) {
	if *oneSeed > 0 {
		if r := Run(Options{Seed: *oneSeed, Steps: *stepCount, Trace: os.Stdout, Moves: *moveCount}); r.Failure != "" {
			t.Fatal(r.Failure)
		}
		return
	}
	met := Coverage{}
	sessions, steps := 0, 0
	end := *firstSeed + uint64(*seedCount)
	for from := *firstSeed; from < end && !(t.Failed() && *stopFirst); from += seedsABlock {
		to := min(from+seedsABlock, end)
		t.Run(fmt.Sprintf("seeds=%d-%d", from, to-1), func(t *testing.T) {
			for seed := from; seed < to && !(t.Failed() && *stopFirst); seed++ {
				r := Run(Options{Seed: seed, Steps: *stepCount})
				met.Add(r.Coverage)
				sessions += r.Sessions
				steps += r.Steps
				if r.Failure != "" {
					t.Error(r.Failure)
				}
			}
		})
	}
	t.Logf("%d steps, %d sessions\n%v", steps, sessions, met)
	if missing := met.Missing(); *seedCount >= enoughSeeds && len(missing) > 0 {
		t.Errorf("never met: %q", missing)
	}
}

// A session that was frozen and restored goes on as one that was not: whatever an upgrade
// forgets shows as another byte, or at another moment. That a seed decides everything shows here, too.
func TestMovedSessionsDoTheSameToTheByte(t *testing.T) {
	moves, out, far, layouts := 0, 0, 0, 0
	for seed := uint64(1); seed <= movedSeeds && !(t.Failed() && *stopFirst); seed++ {
		stayed := Run(Options{Seed: seed, Steps: *stepCount})
		o := Options{Seed: seed, Steps: *stepCount, Moves: 50}
		moved := Run(o)
		moves += moved.Moves
		out += moved.MovesOut
		far += moved.MovesFar
		switch {
		case moved.Failure != "":
			t.Errorf("%d moves: %s", moved.Moves, moved.Failure)
		case moved.Sum != stayed.Sum && layoutDiffers(stayed, moved):
			layouts++
		case moved.Sum != stayed.Sum && !stayed.Scarce:
			t.Errorf("seed %d: %d moves change the run; compare the traces of %s with -sim.moves 0", seed, moved.Moves, o.command())
		}
	}
	t.Logf("%d moves, %d during an outage, %d of durable sessions that have come from another node, or go to one; in %d seeds the layout decides", moves, out, far, layouts)
	if layouts > movedSeeds/5 {
		t.Errorf("in %d of %d seeds the layout of the buffer decides", layouts, movedSeeds)
	}
	if moves < 50*movedSeeds || out < movedSeeds/10 || far < movedSeeds {
		t.Errorf("only %d moves, %d during an outage, %d of durable sessions between nodes", moves, out, far)
	}
}
