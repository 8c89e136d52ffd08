package main

import "syscall"

// ownGroup makes a child that signals of the terminal do not reach, and that ends with this
// process, however that ends.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
