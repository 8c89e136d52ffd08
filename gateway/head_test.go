package gateway

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"reseat/gateway/internal/test/wstest"
)

func TestFoldedHeaderLinesAreSeen(t *testing.T) {
	for head, want := range map[string]bool{
		"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\r\n":             false,
		"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n":       true,
		"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n":      true,
		"GET / HTTP/1.1\nHost: x\nA: b\n c\n\n":                 true,
		"POST / HTTP/1.1\r\nHost: x\r\n\r\nbody\r\n not a head": false,
	} {
		client, server := wstest.Pipe(1 << 10)
		io.WriteString(client, head)
		client.CloseWrite()
		c := &headConn{Conn: server}
		r, err := http.ReadRequest(bufio.NewReaderSize(io.MultiReader(c), 16))
		if err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		r = r.WithContext(ConnContext(t.Context(), c))
		if got := hasFoldedLine(r); got != want {
			t.Errorf("%q: folded %v, want %v", head, got, want)
		}
		if bare(c) != net.Conn(server) {
			t.Error("the connection itself is not given back")
		}
	}
}

type lingering struct {
	net.Conn
	sec int
}

func (l *lingering) SetLinger(sec int) error {
	l.sec = sec
	return nil
}

func TestAConnectionWithTLSCanBeReset(t *testing.T) {
	_, server := wstest.Pipe(1 << 10)
	below := &lingering{server, -1}
	c := bare(&secureHeadConn{headConn: headConn{Conn: resettable{tls.Server(below, nil)}}})
	if l, ok := c.(interface{ SetLinger(int) error }); !ok || l.SetLinger(0) != nil || below.sec != 0 {
		t.Errorf("%T does not pass SetLinger on", c)
	}
	if _, ok := c.(interface{ CloseWrite() error }); !ok {
		t.Errorf("%T cannot say that no more will come", c)
	}
}
