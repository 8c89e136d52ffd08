//go:build linux

package netio

import (
	"io"
	"net"
	"testing"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/transport/rawconn"
)

func TestSocketStateFollowsThePeersReads(t *testing.T) {
	conn, peer := wstest.TCPPair(t, nil)
	defer conn.Close()
	defer peer.Close()
	l := newLeg(nil, conn, nil)
	if st, err := rawconn.StateOfConn(conn); st != (rawconn.State{RTT: st.RTT}) || err != nil || st.RTT == 0 {
		t.Fatalf("%+v %v of an idle socket", st, err)
	}
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var err error
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

func TestPipeHasNoSocketState(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := rawconn.StateOfConn(a); err == nil {
		t.Fatal("no error")
	}
}
