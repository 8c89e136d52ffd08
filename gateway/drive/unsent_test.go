//go:build linux

package drive

import (
	"io"
	"net"
	"testing"
)

// TestUnsentIsWhatThePeerHasNotTaken fills a real socket and empties it again.
func TestUnsentIsWhatThePeerHasNotTaken(t *testing.T) {
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
	if n, err := l.unsent(); n != 0 || err != nil {
		t.Fatalf("%d %v of an idle socket", n, err)
	}
	wrote := 0
	for {
		l.bufs = [][]byte{make([]byte, 64<<10)}
		n, full, err := l.tryWrite()
		if err != nil {
			t.Fatal(err)
		}
		wrote += n
		if full {
			break
		}
	}
	before, err := l.unsent()
	if err != nil || before == 0 || before >= wrote {
		t.Fatalf("%d %v of a full socket that was given %d", before, err, wrote)
	}
	if _, err := io.ReadFull(peer, make([]byte, wrote)); err != nil {
		t.Fatal(err)
	}
	for n := before; n > 0; { // the acknowledgements are on their way
		if n, err = l.unsent(); err != nil || n > before {
			t.Fatalf("%d %v, after %d", n, err, before)
		}
	}
}

func TestUnsentOfAConnectionWithoutADescriptorIsNotKnown(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := newLeg(nil, a).unsent(); err == nil {
		t.Fatal("known")
	}
}
