//go:build unix

package listen

import "syscall"

// Descriptors returns the process's limit of open files; zero means no limit. Go has
// raised the soft limit to the hard limit.
func Descriptors() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || l.Cur > 1<<31-1 {
		return 0
	}
	return int(l.Cur)
}
