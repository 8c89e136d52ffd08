//go:build linux

package proxy

import (
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// TestMain also runs a program that listens, for a test that starts one.
func TestMain(m *testing.M) {
	if addr := os.Getenv("LISTEN"); addr != "" && len(os.Args) == 1 {
		signal.Ignore(syscall.SIGTERM)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			os.Exit(1)
		}
		for {
			if _, err := l.Accept(); err != nil {
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}
