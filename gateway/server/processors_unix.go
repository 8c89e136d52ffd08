//go:build unix

package server

import (
	"syscall"
	"time"
)

// processorTime returns how much processor time the process has used.
func processorTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
