//go:build reseat_moves

package epoll

import (
	"os"
	"strconv"
)

// init has sessions move to another loop at each turn, in a program for tests.
func init() {
	seed, err := strconv.ParseUint(os.Getenv("MOVES_SEED"), 10, 64)
	if err != nil {
		seed = 1
	}
	everyTurn = max(seed, 1)
}
