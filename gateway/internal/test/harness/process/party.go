//go:build linux

package process

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Parties tells which of a run's processes has made a connection on this machine. Their
// environment has their names, which an upgrade's process inherits.
type Parties struct {
	mark string

	mu    sync.Mutex
	known map[string]string // names, by directory in /proc
}

// NewParties returns the parties of a run, none yet.
func NewParties() *Parties {
	return &Parties{mark: fmt.Sprintf("CHAOS_PARTY=%d/", os.Getpid()), known: map[string]string{}}
}

// Prefix is the command that starts a program as this party.
func (p *Parties) Prefix(name string) []string { return []string{"env", p.mark + name} }

// Of names the party at the other end of a connection, "" if it is none.
func (p *Parties) Of(c net.Conn) string {
	inode := inodeOf(c.RemoteAddr().(*net.TCPAddr).Port, c.LocalAddr().(*net.TCPAddr).Port)
	if inode == "" {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for dir, name := range p.known {
		if has(dir, inode) {
			return name
		}
	}
	clear(p.known)
	found := ""
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(dir + "/environ")
		_, after, ok := bytes.Cut(environ, []byte(p.mark))
		if !ok {
			continue
		}
		name, _, _ := bytes.Cut(after, []byte{0})
		p.known[dir] = string(name)
		if has(dir, inode) {
			found = string(name)
		}
	}
	return found
}

// inodeOf returns the inode of the socket at one port of loopback that is connected to another.
func inodeOf(local, remote int) string {
	table, _ := os.ReadFile("/proc/net/tcp")
	ends := fmt.Sprintf(" 0100007F:%04X 0100007F:%04X ", local, remote)
	_, after, ok := strings.Cut(string(table), ends)
	if !ok {
		return ""
	}
	if f := strings.Fields(after); len(f) > 6 {
		return "socket:[" + f[6] + "]"
	}
	return ""
}

func has(dir, inode string) bool {
	all, _ := filepath.Glob(dir + "/fd/*")
	for _, fd := range all {
		if target, err := os.Readlink(fd); err == nil && target == inode {
			return true
		}
	}
	return false
}
