//go:build unix

package server

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A named pipe can be read only once: opening it again would wait for another writer.
func TestConfigFromPipeIsReadOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, []byte("grace = \"5s\"\n"), 0o600) }()
	begin(t, "--config="+pipe)
	if err := <-written; err != nil {
		t.Error(err)
	}
}
