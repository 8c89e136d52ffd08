//go:build reseat_moves

package epoll

import (
	"os"
	"strconv"
)

// A program built with this tag is for tests: its sessions move to another loop at each turn.
func init() {
	seed, err := strconv.ParseUint(os.Getenv("MOVES_SEED"), 10, 64)
	if err != nil {
		seed = 1
	}
	everyTurn = max(seed, 1)
}
