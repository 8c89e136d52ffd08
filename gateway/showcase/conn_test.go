package showcase

import (
	"net"
	"testing"
)

// The dashboard shows it as the reason why the client was lost.
func TestACutSaysWhoCut(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	far, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := Listener{inner}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near.Close()
	if _, err := near.Read(make([]byte, 1)); err == nil || err.Error() != "cut by the demo" {
		t.Errorf("%v", err)
	}
}
