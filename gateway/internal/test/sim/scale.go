//go:build !race

package sim

// standardSeeds is how many seeds a plain test plays: some 15 s on one core.
const standardSeeds = 600
