//go:build !linux

package drive

import (
	"errors"
	"net"
	"syscall"
)

// rawConn: elsewhere than on Linux every connection is read and written by
// waiting.
func rawConn(net.Conn) syscall.RawConn { return nil }

type iovecs struct{}

var errNoRaw = errors.New("no raw connections on this system")

func (l *leg) tryWrite() (int, error)                     { return 0, errNoRaw }
func (l *leg) backlog() (bytes int, ok bool)              { return 0, false }
func (v *iovecs) write(uintptr, [][]byte) (int, error)    { return 0, errNoRaw }
func read(uintptr, []byte) (n int, again bool, err error) { return 0, false, errNoRaw }
