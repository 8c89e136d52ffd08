//go:build !race

package sim

// standardSeeds is how many seeds a plain test runs: some 15 s on one core.
const standardSeeds = 600
