package wstest

import (
	"net"
	"syscall"
	"testing"
)

// TCPPair returns both ends of a TCP connection on loopback, for tests of what only a
// kernel's socket does. control, if not nil, configures both sockets before they connect.
// The dialled one is closed at the end of the test: otherwise the collector might close it
// while another test counts descriptors. The accepted one is the caller's.
func TCPPair(t testing.TB, control func(network, address string, c syscall.RawConn) error) (accepted, dialled net.Conn) {
	t.Helper()
	ln, err := (&net.ListenConfig{Control: control}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if dialled, err = (&net.Dialer{Control: control}).Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close() })
	if accepted, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return accepted, dialled
}
