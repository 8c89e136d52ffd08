package sim

import (
	"fmt"
	"strings"
)

// Shrink looks for a shorter run of a failure: it removes one kind of action after
// another while something still fails, and then tries the following seeds with the
// rest. The result fails, in at most as many steps.
func Shrink(o Options) (Options, Result) {
	o.Trace = nil
	best := Run(o)
	if best.Failure == "" {
		return o, best
	}
	o.Steps = best.Steps
	for again := true; again; {
		again = false
		for i := range actions {
			if o.without(i) {
				continue
			}
			try := o
			try.Without = append(append([]int(nil), o.Without...), i)
			if r := Run(try); r.Failure != "" && r.Steps <= best.Steps {
				o, best, again = try, r, true
				o.Steps = r.Steps
			}
		}
	}
	return o.otherSeeds(best)
}

const shrinkSeeds = 50

// otherSeeds tries whether another seed fails earlier.
func (o Options) otherSeeds(best Result) (Options, Result) {
	for range shrinkSeeds {
		try := o
		try.Seed++
		r := Run(try)
		o.Seed = try.Seed
		if r.Failure != "" && r.Steps < best.Steps {
			try.Steps = r.Steps
			return try.otherSeeds(r)
		}
	}
	o.Seed -= shrinkSeeds
	return o, best
}

func (o Options) without(i int) bool {
	for _, j := range o.Without {
		if i == j {
			return true
		}
	}
	return false
}

// leaveOut removes actions from a drawn world.
func (w *world) leaveOut(list []int) {
	for _, i := range list {
		w.total -= w.weights[i]
		w.weights[i] = 0
	}
}

// describeShrunk says what is left, and how to run it again.
func describeShrunk(o Options, r Result) string {
	var names []string
	for i, a := range actions {
		if !o.without(i) {
			names = append(names, a.name)
		}
	}
	left := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(o.Without), "[]")), ",")
	return fmt.Sprintf("shrunk to %d steps of seed %d, with these actions alone: %q; -sim.seed %d -sim.steps %d -sim.without %s\n%s",
		r.Steps, o.Seed, names, o.Seed, o.Steps, left, r.Failure)
}
