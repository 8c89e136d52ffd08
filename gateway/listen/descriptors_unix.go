//go:build unix

package listen

import "syscall"

// Descriptors is how many files the process may have open; zero is no bound. Go
// has raised the limit as far as it may.
func Descriptors() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || l.Cur > 1<<31-1 {
		return 0
	}
	return int(l.Cur)
}
