//go:build linux

package netio

import (
	"io"
	"net"
	"testing"

	"reseat/gateway/transport/rawconn"
)

// TestSocketStateFollowsWhatThePeerTakes fills a real socket and empties it again.
func TestSocketStateFollowsWhatThePeerTakes(t *testing.T) {
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
	l := newLeg(nil, conn, nil)
	if st, err := rawconn.StateOfConn(conn); st != (rawconn.State{}) || err != nil {
		t.Fatalf("%+v %v of an idle socket", st, err)
	}
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for st := (rawconn.State{}); !st.Unread; { // it is on its way
		if st, err = rawconn.StateOfConn(conn); err != nil || st.Queued != 0 {
			t.Fatalf("%+v %v, want a byte to be read", st, err)
		}
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
	before, err := rawconn.StateOfConn(conn)
	if err != nil || before.Queued == 0 || before.Queued >= wrote || int(before.Acked)+before.Queued > wrote {
		t.Fatalf("%+v %v of a full socket that was given %d", before, err, wrote)
	}
	if _, err := io.ReadFull(peer, make([]byte, wrote)); err != nil {
		t.Fatal(err)
	}
	for st := before; int(st.Acked) < wrote; { // the acknowledgements are on their way
		if st, err = rawconn.StateOfConn(conn); err != nil || st.Acked < before.Acked {
			t.Fatalf("%+v %v, after %+v", st, err, before)
		}
	}
}

func TestSocketStateWithoutADescriptorIsNotKnown(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := rawconn.StateOfConn(a); err == nil {
		t.Fatal("known")
	}
}
