package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strings"
	"syscall"
)

// withCure returns the text of an error in one line, with what an operator can do about it
// where this is known.
func withCure(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	if c := cure(err); c != "" {
		text += "; " + c
	}
	return text
}

// cure returns what an operator can do about an error of the system, "" if this is not known.
func cure(err error) string {
	var op *net.OpError
	var call *os.SyscallError
	listening, file := errors.As(err, &op) && op.Op == "listen" && strings.HasPrefix(op.Net, "tcp"), op == nil && !errors.As(err, &call)
	switch {
	case listening && errors.Is(err, syscall.EADDRINUSE):
		return "another program listens there: stop it, or choose another port"
	case listening && errors.Is(err, fs.ErrPermission):
		return "ports below 1024 need a privilege: grant CAP_NET_BIND_SERVICE (AmbientCapabilities= of systemd, setcap, cap_add of containers), or choose another port"
	case listening:
		return "use an address of this machine, or none before the colon for all of them"
	case file && errors.Is(err, fs.ErrPermission):
		return "this process runs as " + userName() + ": give that user access, by chown, or by chgrp and chmod"
	}
	return ""
}

// userName names the user of this process.
func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprint("user ", os.Geteuid())
}
