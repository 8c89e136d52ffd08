//go:build linux

package drive

import (
	"io"
	"net"
	"testing"
)

// TestBacklogIsWhatThePeerHasNotTaken fills a real socket and empties it again.
func TestBacklogIsWhatThePeerHasNotTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := newLeg(nil, conn)
	if n, ok := l.backlog(); n != 0 || !ok {
		t.Fatalf("%d %v of an idle socket", n, ok)
	}
	wrote := 0
	for {
		l.bufs = [][]byte{make([]byte, 64<<10)}
		n, err := l.tryWrite()
		if err != nil {
			t.Fatal(err)
		}
		wrote += n
		if n < 64<<10 {
			break
		}
	}
	before, ok := l.backlog()
	if !ok || before == 0 || before >= wrote {
		t.Fatalf("%d %v of a full socket that was given %d", before, ok, wrote)
	}
	if _, err := io.ReadFull(peer, make([]byte, wrote)); err != nil {
		t.Fatal(err)
	}
	for n := before; n > 0; { // the acknowledgements are on their way
		if n, ok = l.backlog(); !ok || n > before {
			t.Fatalf("%d %v, after %d", n, ok, before)
		}
	}
}

func TestBacklogOfAConnectionWithoutADescriptorIsNotKnown(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, ok := newLeg(nil, a).backlog(); ok {
		t.Fatal("known")
	}
}
