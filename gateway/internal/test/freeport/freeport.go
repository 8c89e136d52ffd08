// Package freeport finds ports of loopback at which a test, or a process that it starts, may
// listen later, and again after a restart.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

// The ports are below those that the system gives to connections, 32768 and more on Linux: a
// connection of any process may have taken one of those by the time that the test listens.
const (
	first = 10000
	count = 20000
)

var last atomic.Uint32

func init() { last.Store(rand.Uint32N(count)) } // other processes begin elsewhere

// Addr returns a loopback address with a free port, HOST:PORT.
func Addr() string { return fmt.Sprint("127.0.0.1:", Port()) }

// Port returns a port of loopback that nobody listens at. No two calls of a process return the
// same one, unless there were very many.
func Port() int {
	for {
		port := int(first + last.Add(1)%count)
		if ln, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			ln.Close()
			return port
		}
	}
}
