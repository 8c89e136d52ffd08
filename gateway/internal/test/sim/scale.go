//go:build !race

package sim

// standardSeeds is how many seeds a plain test runs: some 15 s on one core.
const standardSeeds = 600

// movedSeeds is how many of them are played a second time with moves.
const movedSeeds = 150
