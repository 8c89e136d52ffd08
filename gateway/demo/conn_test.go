package demo

import (
	"net"
	"testing"
	"time"

	"reseat/gateway/transport/rawconn"
)

// pair returns both ends of a connection that a Listener has accepted.
func pair(t *testing.T) (near *Conn, far net.Conn) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	if far, err = net.Dial("tcp", inner.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	accepted, err := Listener{inner}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return accepted.(*Conn), far
}

// What arrives at the socket of a silent connection must not look like a sign of life.
func TestSocketStateOfConnIsUnknown(t *testing.T) {
	near, far := pair(t)
	near.Silence(time.Hour)
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if st, err := rawconn.StateOfConn(near); err == nil {
		t.Errorf("%+v, want an error", st)
	}
}

func TestCloseEndsSilence(t *testing.T) {
	near, _ := pair(t)
	near.Silence(time.Hour)
	wrote := make(chan error)
	go func() {
		_, err := near.Write([]byte("x"))
		wrote <- err
	}()
	near.Close()
	if err := <-wrote; err == nil {
		t.Error("a closed connection took a byte")
	}
}

// The dashboard shows the error as the reason of the disconnect.
func TestDisconnectIsLabelledWithItsSide(t *testing.T) {
	near, _ := pair(t)
	near.Close()
	if _, err := near.Read(make([]byte, 1)); err == nil || err.Error() != "cut by the demo" {
		t.Errorf("%v, want that the demo cut it", err)
	}
}
