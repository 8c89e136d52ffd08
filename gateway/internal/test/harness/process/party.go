//go:build linux

package process

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
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
	local, remote := c.RemoteAddr().(*net.TCPAddr).Port, c.LocalAddr().(*net.TCPAddr).Port
	inode := inodeOf(local, remote)
	if inode == "" {
		return ""
	}
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	for dir, name := range known {
		if has(dir, inode) {
			return name
		}
	}
	if inodeOf(local, remote) != inode { // closed meanwhile
		return ""
	}
	found := ""
	now := map[string]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(dir + "/environ")
		_, after, ok := bytes.Cut(environ, []byte(p.mark))
		if !ok {
			continue
		}
		name, _, _ := bytes.Cut(after, []byte{0})
		now[dir] = string(name)
		if has(dir, inode) {
			found = string(name)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = now
	return found
}

// inodeOf returns the inode of the socket at one port of loopback that is connected to another. It asks the kernel for
// this socket alone, by sock_diag(7): /proc/net/tcp has thousands of lines while tests run, and a reader of it for each
// connection takes seconds on a busy machine.
func inodeOf(local, remote int) string {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	const (
		header  = unix.SizeofNlMsghdr
		request = header + 56 // of struct inet_diag_req_v2
		inode   = header + 68 // in struct inet_diag_msg
	)
	loopback := [4]byte{127, 0, 0, 1}
	b := make([]byte, request)
	binary.NativeEndian.PutUint32(b, request)
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[header:]
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(r[4:], 1<<unix.BPF_TCP_ESTABLISHED|1<<unix.BPF_TCP_CLOSE_WAIT)
	binary.BigEndian.PutUint16(r[8:], uint16(local))
	binary.BigEndian.PutUint16(r[10:], uint16(remote))
	copy(r[12:], loopback[:])
	copy(r[28:], loopback[:])
	for i := 48; i < 56; i++ { // any cookie
		r[i] = 0xff
	}
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return ""
	}
	answer := make([]byte, 512)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < inode+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return ""
	}
	return fmt.Sprintf("socket:[%d]", binary.NativeEndian.Uint32(answer[inode:]))
}

func has(dir, inode string) bool {
	f, err := os.Open(dir + "/fd")
	if err != nil {
		return false
	}
	defer f.Close()
	all, _ := f.Readdirnames(-1)
	for _, fd := range all {
		if target, err := os.Readlink(dir + "/fd/" + fd); err == nil && target == inode {
			return true
		}
	}
	return false
}
