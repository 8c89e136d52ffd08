//go:build !linux

package handover

// Probe fails with ErrUnsupported.
func Probe(string) error { return ErrUnsupported }

// ProbeListen fails with ErrUnsupported.
func ProbeListen(string) error { return ErrUnsupported }
