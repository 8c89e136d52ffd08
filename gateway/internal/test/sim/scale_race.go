//go:build race

package sim

// standardSeeds is smaller under the race detector, which is ten times slower and has
// nothing to find: the core has no goroutines.
const standardSeeds = 20

// movedSeeds is how many of them are played a second time with moves.
const movedSeeds = 10
