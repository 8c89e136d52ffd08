package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

// Requests behind the first of their connection.

// T15: a folded line is seen in whichever request of a connection it is.
func TestAFoldedLineIsSeenInALaterRequestToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLobbyWorld(t, nil)
		const handshake = "GET / HTTP/1.1\r\nHost: x\r\n%sUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
		for line, want := range map[string]int{"X-A: 1\r\n\tfolded\r\n": http.StatusBadRequest, "": http.StatusSwitchingProtocols} {
			c, br := w.Request("GET /page HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n folded\r\n\r\n")
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", resp, err)
			}
			io.Copy(io.Discard, resp.Body)
			synctest.Wait()
			fmt.Fprintf(c, handshake, line)
			if resp, err = http.ReadResponse(br, nil); err != nil || resp.StatusCode != want {
				t.Errorf("a handshake with %q: %v, %v; want %d", line, resp, err, want)
			}
		}
	})
}

// T15: where a request's end could be found in two ways, nothing behind it counts.
func TestNothingIsServedBehindAChunkedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLobbyWorld(t, nil)
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			io.Copy(io.Discard, r.Body)
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			return true
		}
		_, br := w.Request("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /page HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != http.StatusNoContent || !resp.Close {
			t.Fatalf("%v, %v; want 204 and the connection closed", resp, err)
		}
		if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
			t.Errorf("behind it came %q, %v", rest, err)
		}
	})
}
