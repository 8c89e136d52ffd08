//go:build linux

package rawconn

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"reseat/gateway/internal/test/wstest"
)

// pieces returns n pieces of size bytes each, no two alike.
func pieces(n, size int) (list [][]byte, all []byte) {
	for i := range n {
		p := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, size/2)
		list, all = append(list, p), append(all, p...)
	}
	return list, all
}

// received reads everything that the socket holds.
func received(t *testing.T, fd int) (all []byte) {
	t.Helper()
	b := make([]byte, 1<<20)
	for {
		n, err := Receive(fd, b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all = append(all, b[:n]...)
	}
}

// Send returns how much the socket accepted over all its system calls. A count of only
// the last call would send everything before it twice.
func TestSenderCountsWhatEarlierBatchesSent(t *testing.T) {
	cut := 0 // short writes after the first batch
	for size := 1000; size <= 2200; size += 400 {
		fd, far := wstest.SocketPair(t, unix.SOCK_NONBLOCK|unix.SOCK_STREAM)
		list, all := pieces(20*maxPieces, size)
		n, full, err := new(Sender).Send(fd, list)
		if err != nil || !full {
			t.Fatalf("pieces of %d bytes: full %v, %v; want more than the socket holds", size, full, err)
		}
		if got := received(t, far); !bytes.Equal(got, all[:n]) {
			t.Errorf("pieces of %d bytes: Send counts %d, and the peer has %d", size, n, len(got))
		}
		if batch := maxPieces * size; n > batch && n%batch > 0 {
			cut++
		}
	}
	if cut == 0 {
		t.Error("no batch behind the first was taken in part")
	}
}

// The same when a later batch finds the socket full. A packet socket accepts a batch
// whole or not at all.
func TestSenderCountsEarlierBatchesIfALaterOneBlocks(t *testing.T) {
	fd, far := wstest.SocketPair(t, unix.SOCK_NONBLOCK|unix.SOCK_SEQPACKET)
	const size = 1000
	list, all := pieces(20*maxPieces, size)
	n, full, err := new(Sender).Send(fd, list)
	if err != nil || !full || n < 2*maxPieces*size {
		t.Fatalf("%d bytes, full %v, %v; want several batches and no room for the rest", n, full, err)
	}
	if got := received(t, far); !bytes.Equal(got, all[:n]) {
		t.Errorf("Send counts %d, and the peer has %d", n, len(got))
	}
}

// What fits is written in several calls, and nothing is left over.
func TestSenderSendsMorePiecesThanOneWriteTakes(t *testing.T) {
	for _, n := range []int{maxPieces - 1, maxPieces, maxPieces + 1, 2*maxPieces + 1} {
		fd, far := wstest.SocketPair(t, unix.SOCK_NONBLOCK|unix.SOCK_STREAM)
		list, all := pieces(n, 10)
		if sent, full, err := new(Sender).Send(fd, list); sent != len(all) || full || err != nil {
			t.Errorf("%d pieces: %d of %d bytes, full %v, %v", n, sent, len(all), full, err)
		}
		if got := received(t, far); !bytes.Equal(got, all) {
			t.Errorf("%d pieces: the peer has %d bytes of %d", n, len(got), len(all))
		}
	}
}
