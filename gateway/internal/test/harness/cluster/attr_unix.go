//go:build unix && !linux

package main

import "syscall"

// ownGroup makes a child that signals of the terminal do not reach.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
