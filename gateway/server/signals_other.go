//go:build !unix

package server

import (
	"os"
	"syscall"
)

// Signals lists the signals that Run handles: the first two shut down, SIGHUP reloads.
var Signals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// upgradeSignal is a signal that is never sent.
const upgradeSignal = syscall.Signal(-1)
