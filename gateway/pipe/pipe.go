// Package pipe copies bytes between two connections.
package pipe

import (
	"errors"
	"io"
	"net"
	"sync"
)

// bufferSize is the memory of each direction of a Copy while it waits.
const bufferSize = 4 << 10

// Copy forwards bytes between two connections, both ways, until both directions have ended or
// one connection is broken. Then it closes both. An end of one direction is passed on.
func Copy(a, b net.Conn) {
	var both sync.WaitGroup
	both.Go(func() { forward(a, b) })
	both.Go(func() { forward(b, a) })
	both.Wait()
	a.Close()
	b.Close()
}

// forward copies from one connection to the other, and then ends that direction. After an
// error both are closed: the other direction cannot be of use any more.
func forward(to, from net.Conn) {
	buf := make([]byte, bufferSize)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if errors.Is(err, io.EOF) {
			if w, ok := to.(interface{ CloseWrite() error }); ok && w.CloseWrite() == nil {
				return
			}
		}
		if err != nil {
			break
		}
	}
	to.Close()
	from.Close()
}
