package handover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Probe reports whether Dial would find a process at path, without connecting: a successor
// that leaves again would be an aborted upgrade. The error is ErrNobody if there is none.
func Probe(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	// A stream socket that is open refuses a datagram socket as of the wrong type.
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return ErrNobody
	case err == nil, !errors.Is(err, unix.EPROTOTYPE):
		return cannotConnect(err)
	}
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		return err
	}
	if info.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("it belongs to user %d, and this process is of user %d: both must be the same", info.Uid, os.Geteuid())
	}
	return nil
}

func cannotConnect(err error) error {
	if err == nil {
		return ErrProtocol // a datagram socket
	}
	return fmt.Errorf("connect: %w", err)
}

// ProbeListen reports why Listen would fail at path. It makes nothing.
func ProbeListen(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("%s: no file can be made there: %w", dir, err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s is not a socket", path)
	}
	return nil
}
