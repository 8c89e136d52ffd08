//go:build unix

package server

import (
	"os"
	"syscall"
)

// Signals lists the signals that Run handles: the first two shut down, SIGHUP reloads, SIGUSR2
// upgrades.
var Signals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, upgradeSignal}

const upgradeSignal = syscall.SIGUSR2
