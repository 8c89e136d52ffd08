//go:build !unix

package listen

// Descriptors returns the process's limit of open files; zero means no limit.
func Descriptors() int { return 0 }
