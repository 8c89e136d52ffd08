package program

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A backlog is a listener whose connections are pipes.
type backlog chan net.Conn

func (b backlog) Accept() (net.Conn, error) {
	c, ok := <-b
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (b backlog) Addr() net.Addr { return &net.TCPAddr{} }
func (b backlog) Close() error   { close(b); return nil }

func (b backlog) dial() net.Conn {
	client, server := net.Pipe()
	b <- server
	return client
}

// serving answers every request with ok, in memory.
func serving(t *testing.T, change ...func(*http.Server)) backlog {
	b := make(backlog)
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	s := server(ok, slog.New(slog.DiscardHandler))
	for _, f := range change {
		f(s)
	}
	go s.Serve(b)
	t.Cleanup(func() {
		s.Close()
		time.Sleep(time.Second) // fake: net/http lingers over what it refuses
	})
	return b
}

func TestASlowHeadEndsAfterFiveSecondsAndHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t)
		began := time.Now()
		slow := make([]net.Conn, 5000)
		for i := range slow {
			slow[i] = b.dial()
			if i%2 == 1 {
				io.WriteString(slow[i], "GET / HTTP/1.1\r\nHost: game.example\r\nX-Slow: ")
			}
		}
		time.Sleep(4 * time.Second)
		honest := b.dial()
		defer honest.Close()
		io.WriteString(honest, "GET / HTTP/1.1\r\nHost: game.example\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(honest), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("an honest client: %v, %v", resp, err)
		}
		for _, c := range slow {
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		if took := time.Since(began); took != headerTimeout {
			t.Errorf("the slow ones were closed after %v, want %v", took, headerTimeout)
		}
	})
}

func TestAHeadThatIsTooLargeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t)
		for size, want := range map[int]int{maxHeader - 1<<10: http.StatusOK, maxHeader + 8<<10: http.StatusRequestHeaderFieldsTooLarge} {
			c := b.dial()
			go fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: game.example\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", size))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%d bytes: %v, %v; want %d", size, resp, err, want)
			}
			c.Close()
		}
	})
}

// T29: connections between two requests hold descriptors: of too many those go
// that have been idle the longest, and none that is in the midst of a request.
func TestOnlySoManyConnectionsMayBeIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t, func(s *http.Server) { s.ConnState = newIdlers(100).note })
		begun := b.dial()
		io.WriteString(begun, "GET / HTTP/1.1\r\nHost:")
		ask := func(c net.Conn) error {
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: game.example\r\n\r\n"); err != nil {
				return err
			}
			_, err := http.ReadResponse(bufio.NewReader(c), nil)
			return err
		}
		all := make([]net.Conn, 20)
		for i := range all {
			all[i] = b.dial()
			defer all[i].Close()
			if err := ask(all[i]); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for i, c := range all {
			if err := ask(c); (err == nil) != (i >= 4) {
				t.Errorf("connection %d of 20: %v; want the first 4 closed, and 16 left", i, err)
			}
		}
		io.WriteString(begun, " game.example\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(begun), nil); err != nil {
			t.Errorf("one in the midst of a request: %v", err)
		}
	})
}
