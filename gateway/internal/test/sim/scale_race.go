//go:build race

package sim

// standardSeeds is smaller under the race detector, which is fifteen times slower and has
// nothing to find: the core has no goroutines. make test runs all of them without it.
const standardSeeds = 5

// movedSeeds is how many of them are played a second time with moves.
const movedSeeds = 3
