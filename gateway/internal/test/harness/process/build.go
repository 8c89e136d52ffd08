//go:build linux

package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Programs are built once for all tests, in bin/: the gateway's with the race detector. They are
// modules, or have dependencies, of their own.
var programs = map[string][]string{
	"reseat-race":  {"-race", "."},
	"reseat-moves": {"-race", "-tags=reseat_moves", "."}, // its sessions move to another event loop at each turn
	"nats-server":  {"-modfile=.ci/go-tools.mod", "github.com/nats-io/nats-server/v2"},
	"counting":     {"./docs/games/counting-go"},
}

// Program returns the file given, or else builds one of programs. Several may do so at once.
func Program(given, name string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin", name)
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(bin+".lock", os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	return bin, Build(bin, programs[name]...)
}

// Build builds a program in the gateway's module.
func Build(bin string, args ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	if out, err := exec.Command("go", append([]string{"build", "-C", root, "-o", bin}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", bin, err, out)
	}
	return nil
}

// Root is the directory of the gateway's module.
func Root() (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "reseat").Output()
	if err != nil {
		return "", fmt.Errorf("find the gateway's module: %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}
