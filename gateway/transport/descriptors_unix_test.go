//go:build unix

package transport_test

import (
	"syscall"
	"testing"
)

// noDescriptors runs f while the process can't open descriptors.
func noDescriptors(t *testing.T, f func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := syscall.Rlimit{Cur: 3, Max: was.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
	f()
}
